//! The front of the kernel part: one namespace, one table, the links in it.
//!
//! Owns: the order of acts. Opening applies the sealed rules before anything can be attached; attaching adds the set
//! element last; detaching deletes it first; applying a ruleset carries the elements over in the same transaction.
//! Refuses to own: posture (the caller names the ruleset), addresses (the caller allots them), schedules.
//!
//! Every call blocks for milliseconds: call from a blocking thread.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use netlink_sys::Socket;

use netpolicy::ruleset::{Element, InterfaceName, Limits, Plan, Ports, Queue, Ruleset};

use rtnetlink::LinkUnspec;

use super::error::{Act, KernelError, Mismatch};
use super::lanes;
use super::links;
use super::netns::{Ns, NsId, Origin};
use super::nft::{check, read, write};
use super::steering::Steering;
use super::survey::{Survey, survey};
use super::{inspect, policy_routing, sysctl, wire};
use crate::member::Membership;

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

/// How often verification looks: a difference that lasts is one; networks that come and go under a look are none.
const VERIFY_ATTEMPTS: usize = 3;

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
    queue: Queue,
    pub(super) steering: Option<Steering>,
    /// Port number of the socket that writes rules.
    writer_port: u32,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) writer: Socket,
    reader: Socket,
    pub(super) posture: Posture,
    pub(super) members: BTreeMap<InterfaceName, Member>,
    /// Links that are being made or deleted: neither missing nor strange.
    pub(super) moving: BTreeSet<InterfaceName>,
    /// Links of members that somebody deleted, as last seen: no lane can begin or end there.
    pub(super) gone: BTreeSet<InterfaceName>,
    /// Indices of links that we made: their late notices are not foreign. Indices are not reused soon.
    pub(super) made: VecDeque<u32>,
}

impl State {
    /// Late notices concern links of the last moments.
    const REMEMBERED: usize = 4096;

    pub(super) fn remember(&mut self, index: u32) {
        if self.made.len() == Self::REMEMBERED {
            self.made.pop_front();
        }
        self.made.push_back(index);
    }

    pub(super) fn set_moving(&mut self, link: &InterfaceName) -> bool {
        self.moving.insert(link.clone())
    }

    pub(super) fn settle(&mut self, link: &InterfaceName) {
        self.moving.remove(link);
    }
}

/// An attached network.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) index: u32,
    pub(super) v4: Ipv4Addr,
    pub(super) v6: Ipv6Addr,
    /// Absent after a restart, until the holder's namespace is offered again.
    pub(super) sandbox: Option<Ns>,
    /// What it is to its siblings.
    pub(super) membership: Option<Membership>,
}

impl Member {
    pub(super) fn elements(&self, link: &InterfaceName) -> [Element; 2] {
        [IpAddr::V4(self.v4), IpAddr::V6(self.v6)].map(|address| Element {
            interface: link.clone(),
            address,
        })
    }
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
        let steering = ns.run(|| Ok(Steering::here().ok()))?;
        let (mut writer, reader) = ns.run(|| {
            Ok((
                write::open().map_err(KernelError::without_firewall)?,
                wire::netfilter_socket().act("opening the socket that reads rules back")?,
            ))
        })?;
        let writer_port = port_of(&mut writer)?;
        let queue = detect_queue(&writer, &config, origin)?;
        let state = State {
            writer,
            reader,
            posture: Posture::Sealed,
            members: [].into(),
            moving: [].into(),
            gone: [].into(),
            made: VecDeque::new(),
        };
        let inner = Inner {
            config,
            ns,
            uplink,
            queue,
            steering,
            writer_port,
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
    fn prepare(&self) -> Result<(), KernelError> {
        self.inner.ns.run(sysctl::harden)?;
        self.inner.ns.route(|handle| async move {
            let lo = links::index_of(&handle, "lo").await?;
            let up = LinkUnspec::new_with_index(lo).up().build();
            handle
                .link()
                .set(up)
                .execute()
                .await
                .act("bringing lo up")?;
            policy_routing::install(&handle, lo).await
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

    /// Applies the ruleset of a posture with the elements of all attached networks, in one transaction, and reads it
    /// back. Held SYNs may be lost; established flows stay.
    pub fn apply(&self, posture: Posture) -> Result<(), KernelError> {
        let gone = self.gone()?;
        let mut state = self.state();
        state.gone = gone;
        let rules = self.rules(&state, posture);
        // Sealing shuts lanes first, whatever becomes of the rest; opening opens them last.
        if posture == Posture::Sealed {
            write::replace_lanes(&state.writer, &state.lanes(posture))?;
        }
        write::replace(&state.writer, &rules)?;
        state.posture = posture;
        if posture == Posture::Enforcing {
            state.write_lanes()?;
        }
        self.check_rules(&state)
    }

    /// Compares settings, policy rules, routes, addresses, links and every kernel rule with what was asked.
    ///
    /// `Ok(Err(_))` names the first difference; `Err` means that it could not be looked at.
    pub fn verify(&self) -> Result<Result<(), Mismatch>, KernelError> {
        for _ in 1..VERIFY_ATTEMPTS {
            let expected = {
                let state = self.state();
                match self.check_rules(&state) {
                    Err(KernelError::Mismatch(mismatch)) => return Ok(Err(mismatch)),
                    result => result?,
                }
                self.expected(&state)
            };
            if let Some(mismatch) = self.inner.ns.run(sysctl::verify)? {
                return Ok(Err(mismatch));
            }
            // A network that came or went meanwhile makes an old picture differ; look again.
            if inspect::inspect(&expected, &self.look()?).is_ok() {
                return Ok(Ok(()));
            }
        }
        // the last look stands still: nothing comes or goes before it is over
        let state = self.state();
        Ok(inspect::inspect(&self.expected(&state), &self.look()?))
    }

    fn expected(&self, state: &State) -> inspect::Expected {
        let wanted = |member: &Member| inspect::Wanted {
            v4: member.v4,
            v6: member.v6,
        };
        inspect::Expected {
            service4: self.inner.config.service4,
            service6: self.inner.config.service6,
            members: state
                .members
                .iter()
                .map(|(link, member)| (link.clone(), wanted(member)))
                .collect(),
            moving: state.moving.clone(),
        }
    }

    /// Brings settings, routes, links and the rules of the posture in force back. What cannot be brought back (a link
    /// that was deleted) still differs afterwards: verify again.
    pub fn repair(&self) -> Result<(), KernelError> {
        let posture = self.posture();
        self.apply(posture)?;
        self.prepare()?;
        let members: Vec<_> = self
            .state()
            .members
            .values()
            .map(|m| (m.index, self.pair(m.v4, m.v6)))
            .collect();
        self.inner.ns.route(|handle| async move {
            for (index, pair) in members {
                if let Err(error) = links::furnish_outer(&handle, index, &pair).await {
                    tracing::warn!(%error, index, "a link could not be repaired");
                }
            }
            Ok(())
        })
    }

    /// Counts of dropped and refused packets by kind.
    pub fn counters(&self) -> Result<Vec<(String, read::Counter)>, KernelError> {
        read::counters(&self.state().reader).act("reading the counters")
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

    /// The rules in force as nft text.
    pub fn rules_text(&self) -> String {
        let state = self.state();
        let mut text = self.rules(&state, state.posture).render();
        text.push_str(&lanes::render(&state.lanes(state.posture)));
        text
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
        write::replace_lanes(&self.state().writer, &[])?;
        write::delete(&self.state().writer)?;
        Ns::unlink(&self.inner.config.directory, &self.inner.config.name)
    }

    pub(super) fn look(&self) -> Result<Survey, KernelError> {
        self.inner
            .ns
            .route(|handle| async move { survey(&handle).await })
    }

    fn rules(&self, state: &State, posture: Posture) -> Ruleset {
        let plan = plan(&self.inner.config, self.inner.queue);
        let rules = match posture {
            Posture::Sealed => Ruleset::sealed(&plan),
            Posture::Enforcing => Ruleset::enforcing(&plan),
        };
        let elements: Vec<Element> = state
            .members
            .iter()
            .flat_map(|(link, member)| member.elements(link))
            .collect();
        rules.with_elements(&elements)
    }

    fn check_rules(&self, state: &State) -> Result<(), KernelError> {
        let found = read::everything(&state.reader).act("reading the rules back")?;
        let lanes = state.lanes(state.posture);
        Ok(check::check(
            &self.rules(state, state.posture),
            &lanes,
            &found,
        )?)
    }

    /// A panic while the state was held leaves it as consistent as the kernel's own: verification finds the rest.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn plan(config: &Config, queue: Queue) -> Plan {
    Plan {
        service4: config.service4,
        service6: config.service6,
        ports: config.ports,
        queue,
        limits: config.limits,
    }
}

/// Tries the native expression, then the compatibility target, by applying a table that holds it. The namespace has no
/// links yet, or links without elements in sealed rules: nothing passes meanwhile.
fn detect_queue(writer: &Socket, config: &Config, origin: Origin) -> Result<Queue, KernelError> {
    for queue in [Queue::Native(config.queue), Queue::Compat(config.queue)] {
        let rules = Ruleset::enforcing(&plan(config, queue));
        match write::replace(writer, &rules) {
            Ok(()) => return Ok(queue),
            Err(error) if matches!(error.errno(), Some(libc::ENOENT | libc::EOPNOTSUPP)) => {}
            Err(error) => {
                tracing::debug!(?origin, "the namespace refused a ruleset");
                return Err(error);
            }
        }
    }
    Ok(Queue::None)
}

fn port_of(socket: &mut Socket) -> Result<u32, KernelError> {
    let mut address = netlink_sys::SocketAddr::new(0, 0);
    socket
        .get_address(&mut address)
        .act("reading the address of the rule socket")?;
    Ok(address.port_number())
}
