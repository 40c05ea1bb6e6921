//! Configuration of the gateway: the `gateway:` section of the one file, checked whole, every mistake at once.
//!
//! Owns: what the settings mean and their defaults, each with its reason. The rows of [`grammar`] give checker and JSON
//! Schema alike. Refuses to own: reading the file and its other sections. A setting that is understood and not enforced
//! yet is a mistake with that word, never ignored.

mod grammar;
mod read;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use netpolicy::decide::OwnListeners;
use netpolicy::document::tree::{self, Node};
use netpolicy::document::{Mistake, Mistakes, json_schema, shape};

use crate::ordinary;
use crate::policy::FloorFiles;
use crate::record::JournalConfig;
use crate::resolve::Upstreams;
use crate::telemetry::Endpoint;
pub use grammar::{FOLDER, GATEWAY as SHAPE, SOCKET};

/// Whose network namespace the uplink is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Uplink {
    /// The machine's; the gateway refuses to enforce elsewhere, because a container's namespace is usually a mistake.
    Host,
    /// The one that the gateway was started in, whatever it is.
    This,
}

/// What runs where the kernel part cannot exist, and whether private networks are closed at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EgressFilter {
    /// Internet policies need it; other networks go on without it, through a socket to the proxy.
    #[default]
    Required,
    /// Every network goes on without it, through a socket to the proxy.
    Auto,
    /// As `Auto`, and private networks and the machine are open to internet policies. Needs a second switch.
    Off,
}

/// Which servers answer look-ups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Resolvers {
    /// Those of `/etc/resolv.conf`, followed when it changes.
    System,
    /// These.
    Fixed(Upstreams),
}

/// Where collectors of metrics ask.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Management {
    /// A loopback address with a port.
    Address(SocketAddr),
    /// A Unix socket.
    Socket(PathBuf),
}

impl std::fmt::Display for Management {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Socket(path) => path.display().fmt(f),
        }
    }
}

/// Address pools.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolsConfig {
    /// Sandboxes.
    pub sandboxes: Ipv4Net,
    /// Synthetic addresses of names.
    pub leases: Ipv4Net,
    /// Unique local prefix (/48); `None`: the one made at install.
    pub ula: Option<Ipv6Net>,
}

/// Users of the control socket beside root, by what they may do. Each group includes the ones above it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ControlUsers {
    /// May look: networks, flows, records, posture, rules.
    pub observe: BTreeSet<u32>,
    /// May attach, detach, replace policies, open ingress (a runner).
    pub attach: BTreeSet<u32>,
    /// Users who may attach in these workspaces only.
    pub workspaces: BTreeMap<u32, BTreeSet<String>>,
    /// May attach namespaces of others besides (a runner whose engine is root's).
    pub attach_any: BTreeSet<u32>,
    /// May run the selftest, capture packets, and have policy sources looked at and proposals written.
    pub operate: BTreeSet<u32>,
}

/// Checked settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GatewayConfig {
    /// Name of the gateway's own namespace.
    pub namespace: String,
    /// Control socket.
    pub control: PathBuf,
    /// What must survive a reboot: journal, keys, the instance's prefix.
    pub state_dir: PathBuf,
    /// What lives as long as the links: state of networks.
    pub run_dir: PathBuf,
    /// Address pools.
    pub pools: PoolsConfig,
    /// Upstream resolvers.
    pub resolvers: Resolvers,
    /// Further addresses of the machine (1:1 NAT).
    pub host_addresses: Vec<IpAddr>,
    /// Further private networks.
    pub local_networks: Vec<IpNet>,
    /// Further metadata addresses.
    pub metadata: Vec<IpNet>,
    /// Uplink.
    pub uplink: Uplink,
    /// What runs without enforcement.
    pub egress_filter: EgressFilter,
    /// Why there can be no kernel part for whoever started it, where that is known before it is tried.
    pub no_kernel_part: Option<String>,
    /// Whether whoever started it has accepted what [`EgressFilter::Off`] opens; no file can say so.
    pub open_networks_accepted: bool,
    /// Floors.
    pub floors: FloorFiles,
    /// Users of the control socket.
    pub control_users: ControlUsers,
    /// Networks that one of these may have at once.
    pub networks_per_user: usize,
    /// Policies in git.
    pub sources: Vec<crate::source::SourceConfig>,
    /// Which kernel rules.
    pub enforcement: crate::kernel::Enforcement,
    /// What one sandbox may start a second before the kernel drops its packets.
    pub floods: netpolicy::ruleset::Limits,
    /// Sallyport's own listeners.
    pub own: OwnListeners,
    /// The journal.
    pub journal: JournalConfig,
    /// Metrics; `None`: nobody can ask.
    pub management: Option<Management>,
    /// Collector of logs and spans; `None`: nothing is sent.
    pub telemetry: Option<Endpoint>,
    /// How often the escape suite runs while the gateway enforces.
    pub selftest: std::time::Duration,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        let (state_dir, run_dir) = ordinary::folders().map_or_else(
            || ("/var/lib/sallyport".into(), "/run/sallyport".into()),
            |own| (own.state, own.run),
        );
        Self {
            // Where `ip netns` looks, so that an operator can enter it by a name that says what it is.
            namespace: "sallyport".to_owned(),
            control: run_dir.join("control.sock"),
            run_dir,
            pools: PoolsConfig {
                // RFC 2544 benchmarking space: nobody routes it, so it collides with no LAN and no VPN.
                sandboxes: net4([198, 18, 0, 0]),
                leases: net4([198, 19, 0, 0]),
                ula: None,
            },
            resolvers: Resolvers::System,
            host_addresses: Vec::new(),
            local_networks: Vec::new(),
            metadata: Vec::new(),
            uplink: Uplink::Host,
            egress_filter: EgressFilter::Required,
            no_kernel_part: None,
            open_networks_accepted: false,
            floors: FloorFiles::default(),
            control_users: ControlUsers::default(),
            // Far above what one runner starts, far below what the default pool has.
            networks_per_user: 1024,
            sources: Vec::new(),
            enforcement: crate::kernel::Enforcement::default(),
            floods: netpolicy::ruleset::Limits::default(),
            own: OwnListeners::default(),
            journal: JournalConfig::under(&state_dir),
            // Off: a port that nobody asked for is one more thing to know about a machine.
            management: None,
            telemetry: None,
            // A few hundred small frames: nothing beside what a machine does in an hour, and soon enough to notice that
            // a new kernel, driver or firewall behaves otherwise.
            selftest: std::time::Duration::from_hours(1),
            state_dir,
        }
    }
}

fn net4(octets: [u8; 4]) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::from(octets), 16)
}

impl GatewayConfig {
    /// The defaults under other folders: for a gateway that a user starts for one run, and for tests.
    pub fn under(state_dir: &Path, run_dir: &Path) -> Self {
        Self {
            control: run_dir.join("control.sock"),
            run_dir: run_dir.to_owned(),
            journal: JournalConfig::under(state_dir),
            state_dir: state_dir.to_owned(),
            ..Self::default()
        }
    }

    /// Where its namespace is kept: where `ip netns` looks, or among an ordinary user's own things, which root alone may
    /// put there.
    pub fn namespaces(&self) -> PathBuf {
        if ordinary::is_ordinary() {
            self.run_dir.join("netns")
        } else {
            crate::kernel::Config::DIRECTORY.into()
        }
    }

    /// The file that keeps its namespace.
    pub fn namespace_path(&self) -> PathBuf {
        self.namespaces().join(&self.namespace)
    }

    /// Reads the `gateway` section of a configuration file; `None` if there were mistakes (they are noted).
    pub fn read(section: Option<&Node>, mistakes: &mut Mistakes) -> Option<Self> {
        let Some(section) = section else {
            return Some(Self::default());
        };
        let before = mistakes.count();
        shape::check(section, &SHAPE, mistakes);
        let config = read::config(section, mistakes);
        (mistakes.count() == before).then_some(config)
    }

    /// Reads a whole file of which only the `gateway` section is ours; other sections are theirs who own them.
    pub fn parse(file: &str, text: &str) -> Result<Self, Vec<Mistake>> {
        let mut mistakes = Mistakes::new(file);
        let root = tree::read(text, &mut mistakes);
        let config = root.and_then(|root| Self::read(root.field("gateway"), &mut mistakes));
        mistakes.finish(config)
    }
}

/// JSON Schema of the section.
pub fn schema() -> serde_json::Value {
    json_schema(
        &SHAPE,
        "Sallyport gateway",
        "The `gateway` section of Sallyport's configuration.",
    )
}
