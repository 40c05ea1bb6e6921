//! The kernel rules as plain data: what is allowed to reach a listener, in the order a packet meets it.
//!
//! Owns: the shape of the one table ([`Ruleset`]), the two rulesets that a posture can name
//! ([`Ruleset::enforcing`], [`Ruleset::sealed`]) and their text ([`Ruleset::render`]).
//! Refuses to own: applying, reading back, and everything per network except the two source sets.
//!
//! Which packet of a sandbox passes, in either posture (everything else is counted and dropped):
//!
//! | packet | enforcing | sealed |
//! |---|---|---|
//! | UDP or TCP to port 53 of any address | DNS door | DNS door (denials) |
//! | TCP to the service address, 80 or 3128 | broker, explicit proxy | the same |
//! | first SYN to anything else | queue, then what the verdict's mark says | reset |
//! | later TCP segments | the socket they belong to | the same |
//! | UDP of a session that the UDP door opened | its session | the same |
//! | other UDP | UDP door | port unreachable |
//! | ICMP echo request | echo door | prohibited |
//! | port unreachable about UDP | the UDP session that it quotes | the same |
//! | neighbour discovery for the service address | the kernel | the kernel |
//!
//! Invariants: a packet whose source does not belong to its interface never gets past priority raw; nothing is ever
//! forwarded; nothing leaves except towards a source that is in the sets. Losing the table closes the sandboxes.

mod build;
mod deliver;
mod element;
mod expr;
mod render;
mod words;
pub mod xtables;

pub use render::burst;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

pub use build::COUNTERS;
pub use element::{Element, ElementError, InterfaceName};
pub use expr::{Expr, Fate, FlowMark, IcmpAnswer, IpFamily, Transport};

/// Name of the table, and of the namespace it lives in by default.
pub const TABLE: &str = "sallyport";

/// Everything the rules depend on that is not per network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// IPv4 service address, on every outer link.
    pub service4: Ipv4Addr,
    /// IPv6 service address.
    pub service6: Ipv6Addr,
    /// Where the doors listen.
    pub ports: Ports,
    /// How first SYNs are held.
    pub queue: Queue,
    /// What one source may start.
    pub limits: Limits,
}

/// Ports of the listeners in the gateway namespace (transparent sockets on the wildcard address).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ports {
    /// The transparent TCP door.
    pub tcp: u16,
    /// DNS, UDP and TCP.
    pub dns: u16,
    /// The UDP door, for datagrams that must arrive whole.
    pub udp: u16,
    /// The UDP door, for datagrams that routers may cut.
    pub udp_cut: u16,
    /// The run broker.
    pub broker: u16,
    /// The explicit proxy.
    pub proxy: u16,
}

impl Default for Ports {
    fn default() -> Self {
        Self {
            tcp: 9040,
            dns: 53,
            udp: 9041,
            udp_cut: 9042,
            broker: SERVICE_BROKER,
            proxy: SERVICE_PROXY,
        }
    }
}

/// Port of the broker as sandboxes see it.
pub const SERVICE_BROKER: u16 = 80;
/// Port of the explicit proxy as sandboxes see it.
pub const SERVICE_PROXY: u16 = 3128;
/// A port of the gateway namespace on which nothing ever listens: handing a packet over to it reaches sockets that the
/// packet already belongs to and no other.
pub const NOBODY: u16 = 1;
/// Port of DNS as sandboxes see it, at any address.
pub const SERVICE_DNS: u16 = 53;

/// How a first SYN is held until the gateway has dialled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queue {
    /// The `queue` expression of nf_tables.
    Native(u16),
    /// The NFQUEUE target through the compatibility expression, in the same table.
    Compat(u16),
    /// No queue in this kernel: accept first, reset on failure; the posture says so.
    None,
}

/// What one source address may start before packets are dropped. Generous: policies hold the real limits; these keep
/// one sandbox from filling the queue and the DNS socket of all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// New TCP connections a second.
    pub connects: u32,
    /// UDP datagrams to port 53 a second.
    pub questions: u32,
    /// Other UDP datagrams a second that belong to no session yet.
    pub datagrams: u32,
    /// Echo requests, and words on closed UDP ports, a second.
    pub echoes: u32,
}

impl Default for Limits {
    fn default() -> Self {
        // A parallel package download starts some hundreds; a flood of 20,000 a second must stay cheap.
        Self {
            connects: 2_000,
            questions: 5_000,
            datagrams: 5_000,
            // `ping` sends one a second, a sweep of a network some tens; who wants bandwidth does not want echoes.
            echoes: 100,
        }
    }
}

/// One table of family inet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ruleset {
    /// Named counters, by kind of drop.
    pub counters: Vec<&'static str>,
    /// Sets.
    pub sets: Vec<Set>,
    /// Chains, in the order in which they are created.
    pub chains: Vec<Chain>,
}

/// A named set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Set {
    /// Its name in the table.
    pub name: SetName,
    /// Its members; always empty for meters, which the kernel fills.
    pub elements: BTreeSet<Element>,
}

/// The sets that exist.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SetName {
    /// Interface and IPv4 source that belong together.
    Source4,
    /// The IPv6 twin.
    Source6,
    /// Meter of new TCP connections by IPv4 source.
    Connects4,
    /// The IPv6 twin.
    Connects6,
    /// Meter of DNS datagrams by IPv4 source.
    Questions4,
    /// The IPv6 twin.
    Questions6,
    /// Meter of datagrams that belong to no session, by IPv4 source.
    Datagrams4,
    /// The IPv6 twin.
    Datagrams6,
    /// Meter of ICMP by IPv4 source.
    Echoes4,
    /// The IPv6 twin.
    Echoes6,
}

/// What a set is keyed by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// `ifname . ipv4_addr`
    InterfaceIpv4,
    /// `ifname . ipv6_addr`
    InterfaceIpv6,
    /// `ipv4_addr`
    Ipv4,
    /// `ipv6_addr`
    Ipv6,
}

impl SetName {
    /// Every set, in the order of creation.
    pub const ALL: [Self; 10] = [
        Self::Source4,
        Self::Source6,
        Self::Connects4,
        Self::Connects6,
        Self::Questions4,
        Self::Questions6,
        Self::Datagrams4,
        Self::Datagrams6,
        Self::Echoes4,
        Self::Echoes6,
    ];

    /// The name in the kernel.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Source4 => "source4",
            Self::Source6 => "source6",
            Self::Connects4 => "connects4",
            Self::Connects6 => "connects6",
            Self::Questions4 => "questions4",
            Self::Questions6 => "questions6",
            Self::Datagrams4 => "datagrams4",
            Self::Datagrams6 => "datagrams6",
            Self::Echoes4 => "echoes4",
            Self::Echoes6 => "echoes6",
        }
    }

    /// What it is keyed by.
    pub const fn key(self) -> Key {
        match self {
            Self::Source4 => Key::InterfaceIpv4,
            Self::Source6 => Key::InterfaceIpv6,
            Self::Connects4 | Self::Questions4 | Self::Datagrams4 | Self::Echoes4 => Key::Ipv4,
            Self::Connects6 | Self::Questions6 | Self::Datagrams6 | Self::Echoes6 => Key::Ipv6,
        }
    }

    /// Whether the kernel fills it (a meter) and its elements are nobody's promise.
    pub const fn is_meter(self) -> bool {
        !matches!(self, Self::Source4 | Self::Source6)
    }
}

/// Elements a meter can hold; above the number of sources that can exist on one machine (198.18.0.0/16).
pub const METER_SIZE: u32 = 65_536;
/// Seconds after which an idle meter entry goes.
pub const METER_TIMEOUT: u32 = 60;

/// A chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chain {
    /// Its name.
    pub name: &'static str,
    /// Where it is hooked in; `None` for chains that rules go to.
    pub base: Option<Base>,
    /// Its rules, in order.
    pub rules: Vec<Rule>,
}

/// Where and how a base chain is hooked in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Base {
    /// The hook.
    pub hook: Hook,
    /// Its priority; lower runs first.
    pub priority: i32,
    /// What happens to a packet that no rule decided.
    pub policy: Fate,
}

/// Hooks of family inet in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hook {
    /// Before routing.
    Prerouting,
    /// To a local socket.
    Input,
    /// From one link to another: never.
    Forward,
    /// From a local socket.
    Output,
}

/// One rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Stable comment: what operators and tests know the rule by.
    pub comment: &'static str,
    /// Evaluated left to right.
    pub exprs: Vec<Expr>,
}

impl Ruleset {
    /// The same rules with these members in the source sets.
    #[must_use]
    pub fn with_elements<'a>(mut self, elements: impl IntoIterator<Item = &'a Element>) -> Self {
        for element in elements {
            let name = element.set();
            if let Some(set) = self.sets.iter_mut().find(|set| set.name == name) {
                set.elements.insert(element.clone());
            }
        }
        self
    }
}

#[cfg(test)]
mod tests;
