//! The front of the kernel part: one namespace, one table, the links in it.
//!
//! Owns: opening, which applies the sealed rules before anything can be attached, and taking everything away. Beside it:
//! `attach` brings and removes networks, `uphold` applies and verifies rules, `members` is what it remembers.
//! Refuses to own: posture (the caller names the ruleset), addresses (the caller allots them), schedules.
//!
//! Every call blocks for milliseconds: call from a blocking thread.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use netpolicy::ruleset::{InterfaceName, Limits, Plan, Ports, Queue, Ruleset};

use super::backend::{Backend, Enforcement, Rules, Trial};
use super::cutting::Cutter;
use super::error::{Act, KernelError};
use super::members::State;
use super::netns::{Ns, NsId};
use super::nft::Counter;
use super::steering::Steering;
use super::{links, policy_routing, sysctl};

/// What the kernel part is made from.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where namespaces are kept.
    pub directory: PathBuf,
    /// Name of the namespace in it.
    pub name: String,
    /// IPv4 service address.
    pub service4: Ipv4Addr,
    /// IPv6 service address.
    pub service6: Ipv6Addr,
    /// Where the doors listen.
    pub ports: Ports,
    /// What one source may start.
    pub limits: Limits,
    /// Number of the queue for first SYNs (numbers belong to the namespace).
    pub queue: u16,
    /// MTU of the links.
    pub mtu: u32,
    /// Which kernel rules.
    pub enforcement: Enforcement,
}

impl Config {
    /// Where namespaces are kept: `ip netns` looks there too.
    pub const DIRECTORY: &str = "/run/netns";

    /// The defaults, with these service addresses.
    pub fn new(service4: Ipv4Addr, service6: Ipv6Addr) -> Self {
        Self {
            directory: Self::DIRECTORY.into(),
            name: netpolicy::ruleset::TABLE.into(),
            service4,
            service6,
            ports: Ports::default(),
            limits: Limits::default(),
            queue: 0,
            mtu: 1500,
            enforcement: Enforcement::default(),
        }
    }
}

/// Which ruleset is in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Posture {
    /// New flows are refused; broker and DNS answer with denials.
    Sealed,
    /// Flows are decided.
    Enforcing,
}

/// The kernel part of the gateway. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Enforcer {
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) config: Config,
    pub(super) ns: Ns,
    pub(super) uplink: NsId,
    pub(super) queue: Queue,
    pub(super) steering: Option<Steering>,
    pub(super) cutter: Option<Cutter>,
    /// Port number of the socket that writes rules.
    writer_port: u32,
    backend: Backend,
    state: Mutex<State>,
}

impl Enforcer {
    /// Makes or adopts the namespace and applies the sealed rules, before anything else can be reached.
    ///
    /// Links of an earlier gateway stay, without elements: they carry nothing until [`Enforcer::adopt`].
    pub fn open(config: Config) -> Result<Self, KernelError> {
        let uplink = NsId::current().act("reading the identity of the uplink namespace")?;
        let (ns, origin) = Ns::open_or_create(&config.directory, &config.name)?;
        let init = NsId::of_init().ok();
        if ns.id() == uplink || Some(ns.id()) == init {
            return Err(KernelError::ForbiddenNamespace {
                id: ns.id(),
                what: "not one of its own",
            });
        }
        let (steering, cutter) = ns.run(|| Ok((Steering::here().ok(), Cutter::here().ok())))?;
        let trial = Trial {
            sealed: &|queue| Ruleset::sealed(&plan(&config, queue)),
            enforcing: &|queue| Ruleset::enforcing(&plan(&config, queue)),
            number: config.queue,
        };
        let (mut firewall, queue) = Rules::open(config.enforcement, &ns, origin, &trial)?;
        let writer_port = firewall.writer_port()?;
        let backend = firewall.backend();
        let state = State {
            firewall,
            posture: Posture::Sealed,
            members: [].into(),
            moving: [].into(),
            wiring: [].into(),
            gone: [].into(),
            made: VecDeque::new(),
        };
        let inner = Inner {
            config,
            ns,
            uplink,
            queue,
            steering,
            cutter,
            writer_port,
            backend,
            state: Mutex::new(state),
        };
        let this = Self {
            inner: Arc::new(inner),
        };
        this.apply(Posture::Sealed)
            .map_err(KernelError::without_firewall)?;
        this.prepare()?;
        Ok(this)
    }

    /// Settings, loopback and policy routes.
    pub(super) fn prepare(&self) -> Result<(), KernelError> {
        self.inner.ns.run(sysctl::harden)?;
        let marks = policy_routing::marks(self.backend());
        self.inner.ns.route(move |handle| async move {
            let lo = links::index_of(&handle, "lo").await?;
            links::bring_up(&handle, lo, "bringing lo up").await?;
            policy_routing::install(&handle, lo, marks).await
        })
    }

    /// The gateway namespace: sockets and listeners are made inside it.
    pub fn ns(&self) -> &Ns {
        &self.inner.ns
    }

    /// What it was opened with.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// How first SYNs are held; [`Queue::None`] means accept first, and the posture must say so.
    pub fn queue(&self) -> Queue {
        self.inner.queue
    }

    /// Which kernel rules are in use.
    pub fn backend(&self) -> Backend {
        self.inner.backend
    }

    /// Whether packet steering can be set on links.
    pub fn can_steer(&self) -> bool {
        self.inner.steering.is_some()
    }

    /// Port number of the socket that writes rules: a monitor tells our changes by it.
    pub fn writer_port(&self) -> u32 {
        self.inner.writer_port
    }

    /// The posture whose rules were applied last.
    pub fn posture(&self) -> Posture {
        self.state().posture
    }

    /// Counts of dropped and refused packets by kind.
    pub fn counters(&self) -> Result<Vec<(String, Counter)>, KernelError> {
        self.state().firewall.counters()
    }

    /// First packets that the kernel dropped because the queue was full or nobody read it, since it was opened.
    pub fn queue_drops(&self) -> Result<u64, KernelError> {
        let number = match self.queue() {
            Queue::None => return Ok(0),
            Queue::Native(number) | Queue::Compat(number) => number,
        };
        self.ns().run(move || {
            // The thread's own view: `/proc/self` is the main thread's, which is in another namespace.
            let path = "/proc/thread-self/net/netfilter/nfnetlink_queue";
            let text = std::fs::read_to_string(path).act("reading the queue's counters")?;
            Ok(super::queue::drops(&text, number))
        })
    }

    /// Takes everything away: links, rules, and the name of the namespace.
    pub fn remove(self) -> Result<(), KernelError> {
        let live: Vec<InterfaceName> = self
            .live_links()?
            .into_iter()
            .map(|live| live.link)
            .collect();
        for link in live {
            self.detach(&link)?.finish()?;
        }
        self.state().firewall.delete()?;
        Ns::unlink(&self.inner.config.directory, &self.inner.config.name)
    }

    /// A panic while the state was held leaves it as consistent as the kernel's own: verification finds the rest.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn plan(config: &Config, queue: Queue) -> Plan {
    Plan {
        service4: config.service4,
        service6: config.service6,
        ports: config.ports,
        queue,
        limits: config.limits,
    }
}
