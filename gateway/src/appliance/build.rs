//! Binding everything, in the order that keeps it closed: lock, record, sealed rules, networks of before, listeners.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use netpolicy::ruleset::Queue as QueueKind;
use tokio::sync::watch;

use super::adapters::SynReader;
use super::book::Fixed;
use super::lock::Locks;
use super::part::Part;
use super::tend::Floors;
use super::{Appliance, BuildError};
use crate::config::{EgressFilter, GatewayConfig, Resolvers, Uplink};
use crate::context::Context;
use crate::control::places::Places;
use crate::control::readers::Readers;
use crate::control::server;
use crate::control::threads::Threads;
use crate::control::verbs::Verbs;
use crate::kernel::echo::EchoDoor;
use crate::kernel::icmp::Errors;
use crate::kernel::sessions::UdpDoor;
use crate::kernel::{self, Backend, Enforcer, Firewall, KernelError, Ns, NsId, Queue, netns};
use crate::limits::Ceilings;
use crate::metrics;
use crate::network::Networks;
use crate::network::allot::Pools;
use crate::network::flows::FlowTable;
use crate::network::instance::Instance;
use crate::network::names::Names;
use crate::network::registry::{Parts, Registry};
use crate::network::state::StateDir;
use crate::policy::Composer;
use crate::posture::{Cause, Posture};
use crate::record::Journal;
use crate::resolve::{LeasePools, Resolver};
use crate::selftest::kept::Kept;
use crate::selftest::{Selftest, contained};
use crate::source::{Following, Sources};
use crate::tasks::Tasks;
use crate::uplink::follow::Follower;
use crate::uplink::{Dialer, Here};

/// First SYNs that the kernel holds at most: above what user space holds, which then chooses what is dropped.
const QUEUE_LENGTH: u32 = 65_536;
/// The system's resolvers.
pub const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Binds everything and runs nothing. Needs the runtime's context.
pub fn build(config: GatewayConfig) -> Result<Appliance, BuildError> {
    accepted(&config)?;
    let locks = Locks::take(&config)?;
    let instance = instance(&config)?;
    let pools = pools(&config, &instance);
    let journal = Arc::new(Journal::open(config.journal.clone())?);
    begin_ids();
    let part = Part::try_bind(&config, &pools)?;
    let firewall = part
        .as_ref()
        .map_or_else(|why| Firewall::absent(why), Part::firewall);
    let (follower, view) = Follower::open(Ns::from_fd(own_namespace()?)?)?;
    let fixed = Fixed::new(&pools, &config);
    let book = Arc::new(fixed.book(&view.borrow(), &[]));
    let sources = sources(&config)?;
    let (opening, open) = watch::channel(false);
    let here = Here::new(view.clone(), follower.notices());
    let ceilings = Arc::new(Ceilings::from_rlimit());
    let ctx = Context {
        networks: Arc::new(Networks::default()),
        resolver: Arc::new(resolver(&config)?.within(ceilings.descriptors())),
        dialer: Arc::new(Dialer::new(move |address| here.is(address))),
        journal: journal.clone(),
        ceilings,
        tasks: Tasks::default(),
        open,
    };
    let leases = LeasePools {
        v4: pools.leases,
        v6: pools.leases_v6(),
        key: instance.lease_key,
    };
    let registry = Arc::new(Registry::new(Parts {
        ctx: ctx.clone(),
        firewall: firewall.clone(),
        filter: config.egress_filter,
        composer: composer(&config, &sources),
        leases,
        states: StateDir::open(&config.run_dir).map_err(files("making", &config.run_dir))?,
        names: names(&config, journal.believed_ms())?.into(),
        pools,
        book,
    }));
    let posture = Posture::new(firewall.clone(), journal, opening);
    let posture = Arc::new(posture.with_filter(config.egress_filter));
    uplink_is_meant(&config, &posture)?;
    let floors = Floors::begin(&registry, &posture)?;
    let control = control(&config)?;
    let threads = Threads::start().map_err(files("starting the threads of", &config.control))?;
    let metrics = collectors(&config)?;
    let selftest = selftest(&config, &registry, &ctx, &posture);
    let verbs = Arc::new(Verbs {
        ctx: ctx.clone(),
        registry: registry.clone(),
        posture: posture.clone(),
        firewall: firewall.clone(),
        users: config.control_users.clone(),
        share: config.networks_per_user,
        readers: Readers::default(),
        changes: Places::default(),
        captures: Arc::new(tokio::sync::Semaphore::new(crate::capture::MOST)),
        selftest,
        following: Following::new(sources, &registry, &ctx),
    });
    Ok(Appliance {
        config,
        ctx,
        firewall,
        part: part.ok(),
        registry,
        posture,
        verbs,
        follower,
        view,
        fixed,
        control,
        threads,
        metrics,
        floors,
        locks,
    })
}

/// The escape suite, sealed for what its containers failed for before.
fn selftest(
    config: &GatewayConfig,
    registry: &Arc<Registry>,
    ctx: &Context,
    posture: &Posture,
) -> Arc<Selftest> {
    let kept = Kept::under(&config.state_dir);
    let selftest = Arc::new(Selftest::new(registry.clone(), ctx.journal.clone(), kept));
    contained::restore(&selftest, posture);
    selftest
}

/// Above every number of an earlier life: flows do not begin a million times a second.
fn begin_ids() {
    let now = u64::try_from(crate::context::now_ms()).unwrap_or(0);
    FlowTable::start_ids_at(now.saturating_mul(1000));
}

/// What a file alone must not open.
fn accepted(config: &GatewayConfig) -> Result<(), BuildError> {
    if config.egress_filter == EgressFilter::Off && !config.open_networks_accepted {
        return Err(BuildError::OpenNotAccepted);
    }
    Ok(())
}

fn control(config: &GatewayConfig) -> Result<std::os::unix::net::UnixListener, BuildError> {
    let others = config.control_users != crate::config::ControlUsers::default();
    server::bind(&config.control, others).map_err(files("binding", &config.control))
}

/// The management listener, if it is configured.
fn collectors(config: &GatewayConfig) -> Result<Option<metrics::Listener>, BuildError> {
    let Some(to) = &config.management else {
        return Ok(None);
    };
    let failed = |source| BuildError::Files {
        act: format!("listening for collectors on {to}"),
        source,
    };
    metrics::bind(to).map(Some).map_err(failed)
}

/// The sockets of the UDP door and of the echo door, and those that say ICMP.
pub(super) fn datagrams(enforcer: &Enforcer) -> Result<super::Datagrams, KernelError> {
    let ns = enforcer.ns();
    Ok(super::Datagrams {
        udp: UdpDoor::all(ns, enforcer.config().ports)?,
        echo: EchoDoor::all(ns)?,
        errors: Arc::new(errors(enforcer)?),
    })
}

fn errors(enforcer: &Enforcer) -> Result<Errors, KernelError> {
    let config = enforcer.config();
    Errors::open(enforcer.ns(), (config.service4, config.service6))
}

pub(super) fn files(act: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BuildError {
    let act = format!("{act} {}", path.display());
    move |source| BuildError::Files { act, source }
}

/// What the instance keeps.
pub fn instance(config: &GatewayConfig) -> Result<Instance, BuildError> {
    Instance::open(&config.state_dir).map_err(files("reading the instance in", &config.state_dir))
}

/// Names that are used up.
fn names(config: &GatewayConfig, now: i64) -> Result<Names, BuildError> {
    Names::open(&config.state_dir, now, config.journal.keep_ms)
        .map_err(files("reading the used names in", &config.state_dir))
}

/// The pools in use.
pub fn pools(config: &GatewayConfig, instance: &Instance) -> Pools {
    Pools {
        sandboxes: config.pools.sandboxes,
        leases: config.pools.leases,
        ula: config.pools.ula.unwrap_or(instance.ula),
    }
}

/// Settings of the kernel part.
pub fn kernel(config: &GatewayConfig, pools: &Pools) -> kernel::Config {
    kernel::Config {
        directory: config.namespaces(),
        name: config.namespace.clone(),
        limits: config.floods,
        enforcement: config.enforcement,
        ..kernel::Config::new(pools.service_v4(), pools.service_v6())
    }
}

fn sources(config: &GatewayConfig) -> Result<Sources, BuildError> {
    Sources::open(&config.sources, &config.state_dir)
        .map_err(files("opening the policy sources in", &config.state_dir))
}

fn composer(config: &GatewayConfig, sources: &Sources) -> Composer {
    Composer::new(config.floors.clone(), config.own.clone())
        .with_sources(sources.shelf().clone())
        .with_filter(config.egress_filter)
}

fn own_namespace() -> Result<std::os::fd::OwnedFd, BuildError> {
    let path = Path::new("/proc/thread-self/ns/net");
    Ok(File::open(path).map_err(files("opening", path))?.into())
}

fn resolver(config: &GatewayConfig) -> Result<Resolver, BuildError> {
    match &config.resolvers {
        Resolvers::Fixed(upstreams) => Ok(Resolver::new(upstreams.clone())),
        Resolvers::System => Resolver::system(Path::new(RESOLV_CONF))
            .map_err(files("reading", Path::new(RESOLV_CONF))),
    }
}

/// The queue of first SYNs, where there is one.
pub(super) fn queue(
    enforcer: &Enforcer,
    errors: &Arc<Errors>,
) -> Result<Option<SynReader>, BuildError> {
    match enforcer.queue() {
        QueueKind::None => Ok(None),
        QueueKind::Native(number) | QueueKind::Compat(number) => {
            let queue = Queue::open(enforcer.ns(), number, QUEUE_LENGTH)?;
            let queue = match enforcer.backend() {
                Backend::Nftables => queue,
                Backend::Iptables => queue.answering(self::errors(enforcer)?),
            };
            let reader = SynReader::new(queue, errors.clone());
            reader.map(Some).map_err(|source| BuildError::Files {
                act: "waiting for the queue".to_owned(),
                source,
            })
        }
    }
}

pub(crate) fn notes(enforcer: &Enforcer) -> Vec<String> {
    let mut notes = Vec::new();
    if enforcer.backend() == Backend::Iptables {
        notes.push("the rules go through iptables: groups are refused, and changes by others are found by looking each second".to_owned());
    }
    if enforcer.queue() == QueueKind::None {
        notes.push(
            "this kernel has no packet queue: connects are accepted first and reset on failure"
                .to_owned(),
        );
    }
    if !enforcer.can_steer() {
        notes.push(
            "packet steering cannot be set here: very few connects may be reset under load"
                .to_owned(),
        );
    }
    notes
}

/// A namespace that is not the machine's is usually a container's by mistake; its neighbours are not the machine's.
fn uplink_is_meant(config: &GatewayConfig, posture: &Posture) -> Result<(), BuildError> {
    let read = |source| KernelError::Io {
        act: "reading the identity of the uplink namespace".to_owned(),
        source,
    };
    let here = NsId::current().map_err(read)?;
    // An ordinary user may look at no process 1, but sees what only the machine's own namespace has.
    let machines = NsId::of_init().map_or_else(|_| netns::is_machines(), |init| init == here);
    if config.uplink == Uplink::Host && !machines {
        let text = "the gateway is not in the machine's network namespace";
        posture.hold("namespace", &Cause::new(text, "start it with host networking, or write `gateway.uplink: this` if this namespace is meant"));
    }
    Ok(())
}
