//! Building and running one gateway.
//!
//! [`build`] binds everything before anything runs: locks, journal, kernel rules (sealed), networks of an earlier
//! gateway, listeners, queue, control socket. [`Appliance::run`] then starts the tasks; doors deny until the posture
//! machine has verified, probed and opened. A clean stop ends flows, closes the record and leaves the namespace with its
//! networks, sealed, so that the next start adopts them. Owns no behaviour of its own, only the order of acts.

mod adapters;
mod book;
mod build;
mod lock;
mod part;
mod tend;
#[cfg(test)]
mod tests;
mod watch;

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use netpolicy::reason::Reason;

use crate::config::{GatewayConfig, Resolvers};
use crate::context::Context;
use crate::control::threads::Threads;
use crate::control::verbs::Verbs;
use crate::kernel::echo::EchoDoor;
use crate::kernel::icmp::Errors;
use crate::kernel::sessions::UdpDoor;
use crate::kernel::{Doors, Enforcer, Firewall, KernelError, Ns};
use crate::listen::dns::DnsSettings;
use crate::listen::{serve_broker, serve_echo, serve_gate, serve_proxy, serve_tcp, serve_udp};
use crate::metrics;
use crate::network::registry::{ChangeError, Registry};
use crate::posture::Posture;
use crate::record::JournalError;
use crate::telemetry;
use crate::uplink::follow::{Follower, UplinkView};
use adapters::{DnsSocket, SynReader};
pub use build::build;
pub(crate) use build::notes;

/// How long ending flows may take to write their last records.
const ENDING: Duration = Duration::from_secs(2);

/// Why a gateway cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Another gateway has the same state, run directory, journal or namespace.
    #[error("another gateway uses {0}")]
    Locked(PathBuf),
    /// The filter is off and nobody has accepted that.
    #[error(
        "`gateway.egress_filter: off` opens private networks and this machine to internet sandboxes, and whoever starts \
         the gateway has not accepted that"
    )]
    OpenNotAccepted,
    /// A file or folder.
    #[error("{act}")]
    Files {
        /// What was being done.
        act: String,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The kernel part.
    #[error("preparing the kernel")]
    Kernel(#[from] KernelError),
    /// Networks of before.
    #[error("adopting networks")]
    Adopt(#[from] ChangeError),
}

impl BuildError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Locked(_) => {
                "stop it, or give this one its own `gateway.state_dir`, `gateway.run_dir` and `gateway.namespace`"
            }
            Self::OpenNotAccepted => {
                "start `sallyport up --i-accept-open-networks` first (or `sallyport gateway` with it), or remove the setting"
            }
            Self::Files { .. } => "the gateway needs its state and run directories, and root",
            Self::Journal(_) => "`sallyport record verify` says what is wrong with the journal",
            Self::Kernel(KernelError::NoFirewall(_)) => {
                "load nf_tables, nft_tproxy and nfnetlink_queue, or boot a kernel that has them; without nf_tables, install iptables with its legacy programs; `sallyport doctor` says what is missing"
            }
            Self::Kernel(_) => {
                "the gateway needs root (or CAP_NET_ADMIN and CAP_SYS_ADMIN) and nf_tables in the kernel"
            }
            Self::Adopt(_) => "sallyport doctor",
        }
    }
}

/// Sockets of the doors that take no connections.
struct Datagrams {
    udp: [UdpDoor; 3],
    echo: [EchoDoor; 2],
    errors: Arc<Errors>,
}

/// A gateway with everything bound and nothing running.
pub struct Appliance {
    config: GatewayConfig,
    ctx: Context,
    firewall: Firewall,
    /// Absent where the kernel cannot hold it.
    part: Option<part::Part>,
    registry: Arc<Registry>,
    posture: Arc<Posture>,
    verbs: Arc<Verbs>,
    follower: Follower,
    view: tokio::sync::watch::Receiver<UplinkView>,
    fixed: book::Fixed,
    control: UnixListener,
    threads: Threads,
    metrics: Option<metrics::Listener>,
    floors: tend::Floors,
    /// Held as long as the gateway lives.
    locks: lock::Locks,
}

impl std::fmt::Debug for Appliance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Appliance")
            .field("namespace", &self.config.namespace)
            .finish_non_exhaustive()
    }
}

/// Builds a gateway and runs it until `shutdown` is ready.
pub async fn run(
    config: GatewayConfig,
    shutdown: impl Future<Output = ()>,
) -> Result<(), BuildError> {
    build(config)?.run(shutdown).await;
    Ok(())
}

/// Takes away everything that a gateway of this configuration leaves on the machine, except its record.
pub fn uninstall(config: &GatewayConfig) -> Result<(), BuildError> {
    let locks = lock::Locks::take(config)?;
    // who could not enter a user namespace has left nothing in one
    if !crate::ordinary::must_enter() {
        remove_namespace(config)?;
    }
    if crate::ordinary::is_ordinary() && !crate::ordinary::must_enter() {
        // among the user's own things; `/run/netns` is everybody's
        Ns::release(&config.namespaces())?;
    }
    let files = |act: String| move |source| BuildError::Files { act, source };
    for path in [config.run_dir.join("networks"), config.control.clone()] {
        let removed = if path.is_dir() {
            std::fs::remove_dir_all(&path)
        } else {
            std::fs::remove_file(&path)
        };
        match removed {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(files(format!("removing {}", path.display()))(error));
            }
            _ => {}
        }
    }
    drop(locks);
    Ok(())
}

fn remove_namespace(config: &GatewayConfig) -> Result<(), BuildError> {
    let _lock = lock::namespace(config)?;
    let pools = build::pools(config, &build::instance(config)?);
    match Enforcer::open(build::kernel(config, &pools)) {
        Ok(enforcer) => enforcer.remove()?,
        // what a kernel without rules still could hold is the name
        Err(KernelError::NoFirewall(_)) => {
            Ns::unlink(&config.namespaces(), &config.namespace)?;
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

impl Appliance {
    /// The shared handles, for whoever runs a gateway inside its own program.
    pub fn context(&self) -> &Context {
        &self.ctx
    }

    /// Posture, to wait for and to show.
    pub fn posture(&self) -> &Arc<Posture> {
        &self.posture
    }

    /// The escape suite, for tests that make a hole for it.
    #[cfg(test)]
    pub(crate) fn selftest(&self) -> &Arc<crate::selftest::Selftest> {
        &self.verbs.selftest
    }

    /// Runs until `shutdown` is ready, then stops cleanly.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let Self {
            config,
            ctx,
            firewall,
            part,
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
        } = self;
        let tasks = ctx.tasks.clone();
        tasks.keep("journal", ctx.journal.clone().keep());
        tend::resolvers(&ctx, &config);
        watch::keep(&ctx, &posture, follower);
        tasks.keep(
            "address book",
            book::follow(fixed, view, ctx.resolver.nat64(), registry.clone()),
        );
        tend::fallen(&ctx, &posture);
        if let Some(part) = part {
            part.run(&ctx, &registry, &posture);
        } else {
            let (registry, posture) = (registry.clone(), posture.clone());
            let (config, ctx) = (config.clone(), ctx.clone());
            let waiting = part::await_part(config, ctx, registry, posture, firewall.clone());
            // Not kept: without it the gateway is what it was, and says so.
            tasks.spawn("kernel part", waiting);
        }
        tasks.keep(
            "housekeeping",
            tend::house(registry.clone(), posture.clone(), floors),
        );
        tasks.keep("ends of entries", crate::network::lapse::watch(ctx.clone()));
        verbs.following.run();
        let probe = verbs.selftest.clone();
        tasks.keep(
            "posture",
            posture
                .clone()
                .keep(registry.clone(), Arc::new(move || probe.gate())),
        );
        tasks.keep(
            "selftest",
            crate::selftest::keep(verbs.selftest.clone(), posture.clone(), config.selftest),
        );
        if let Some(endpoint) = &config.telemetry {
            // Not kept: what a collector misses is in the record.
            let sending = telemetry::follow(ctx.journal.clone(), endpoint.clone());
            tasks.spawn("telemetry", sending);
        }
        if let Some(listener) = metrics {
            let scrape = metrics::Scrape::new(ctx.clone(), posture.clone(), firewall.clone());
            let serving = metrics::serve(listener, Arc::new(scrape), tasks.clone());
            // Not kept: a gateway that cannot be measured still enforces.
            tasks.spawn("metrics", serving);
        }
        threads.serve(verbs, control);
        tracing::info!(control = %config.control.display(), namespace = %config.namespace, "the gateway runs");
        shutdown.await;
        stop(&config, &ctx, &registry, &posture).await;
        drop(locks);
    }
}

/// Opens the doors: they deny until the posture opens.
fn serve(ctx: &Context, registry: &Arc<Registry>, doors: Doors, queue: Option<SynReader>) {
    let gate = queue.map(|queue| serve_gate(ctx, queue));
    for listener in doors.tcp {
        serve_tcp(ctx, listener, gate.clone());
    }
    for listener in doors.proxy {
        serve_proxy(ctx, listener);
    }
    for listener in doors.broker {
        serve_broker(ctx, listener);
    }
    let settings = DnsSettings {
        service_v4: registry.pools().service_v4(),
        service_v6: registry.pools().service_v6(),
        paces: crate::resolve::leases::Paces::default(),
    };
    let sockets: std::io::Result<Vec<DnsSocket>> =
        doors.dns_udp.into_iter().map(DnsSocket::new).collect();
    let served = sockets.and_then(|sockets| {
        crate::listen::dns::serve_dns(ctx, settings, sockets, doors.dns_tcp.into())
    });
    if let Err(error) = served {
        // Without DNS names cannot be leased; nothing opens that was closed.
        tracing::error!(%error, "the DNS door could not be opened");
        ctx.tasks.fell("dns");
    }
}

/// Opens the UDP door, which makes sockets in the gateway namespace as sessions begin, and the echo door.
fn serve_datagrams(ctx: &Context, enforcer: &Enforcer, datagrams: Datagrams) {
    let Datagrams { udp, echo, errors } = datagrams;
    if let Err(error) = serve_echo(ctx, errors.clone(), echo) {
        tracing::error!(%error, "the echo door could not be opened");
        ctx.tasks.fell("echo door");
    }
    let ns = enforcer.ns().duplicate();
    let served = ns
        .map_err(std::io::Error::other)
        .and_then(|ns| serve_udp(ctx, ns, errors, udp));
    if let Err(error) = served {
        // what nobody answers stays unanswered; nothing opens that was closed
        tracing::error!(%error, "the UDP door could not be opened");
        ctx.tasks.fell("udp door");
    }
}

/// Doors first, then flows with their last records, then tasks, then the journal.
async fn stop(
    config: &GatewayConfig,
    ctx: &Context,
    registry: &Arc<Registry>,
    posture: &Arc<Posture>,
) {
    let sealing = posture.clone();
    let sealed = tokio::task::spawn_blocking(move || {
        sealing.hold("stop", &crate::posture::Cause::stopping());
    });
    if sealed.await.is_err() {
        tracing::error!(
            "sealing at the end failed; the kernel keeps the rules it has, and nothing answers them"
        );
    }
    let networks = ctx.networks.all();
    for network in &networks {
        network.flows.end_all(Reason::GatewaySealed);
    }
    let ended = async {
        while networks.iter().any(|n| !n.flows.all().is_empty()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    if tokio::time::timeout(ENDING, ended).await.is_err() {
        tracing::warn!("some flows did not end in time; their close records are missing");
    }
    ctx.tasks.shut_down().await;
    registry.persist();
    if let Err(error) = ctx.journal.close() {
        tracing::error!(%error, "the journal could not be closed");
    }
    if let Err(error) = std::fs::remove_file(&config.control) {
        tracing::debug!(%error, "the control socket was gone already");
    }
    tracing::info!(namespace = %config.namespace, "the gateway has stopped; its networks stay, sealed");
}

/// Whether the system's resolvers are followed.
fn follows_system(config: &GatewayConfig) -> bool {
    config.resolvers == Resolvers::System
}
