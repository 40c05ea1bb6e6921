//! The rules as nft text: for people, for snapshots, and to be loaded by `nft` in tests. Nothing here is ever parsed
//! back by production code.

use std::fmt::{self, Write as _};
use std::net::IpAddr;

use super::expr::{Expr, Fate, IcmpAnswer, IpFamily, Transport};
use super::{Base, Chain, Hook, Key, METER_SIZE, METER_TIMEOUT, Ruleset, Set, SetName, TABLE};

impl Ruleset {
    /// The whole table in nft syntax.
    pub fn render(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for Ruleset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "table inet {TABLE} {{")?;
        for counter in &self.counters {
            writeln!(f, "\tcounter {counter} {{ }}")?;
        }
        self.sets.iter().try_for_each(|set| write!(f, "{set}"))?;
        self.chains
            .iter()
            .try_for_each(|chain| write!(f, "{chain}"))?;
        writeln!(f, "}}")
    }
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = match self.name.key() {
            Key::InterfaceIpv4 => "ifname . ipv4_addr",
            Key::InterfaceIpv6 => "ifname . ipv6_addr",
            Key::Ipv4 => "ipv4_addr",
            Key::Ipv6 => "ipv6_addr",
        };
        writeln!(f, "\tset {} {{", self.name.as_str())?;
        writeln!(f, "\t\ttype {key}")?;
        if self.name.is_meter() {
            writeln!(
                f,
                "\t\tsize {METER_SIZE}\n\t\tflags dynamic,timeout\n\t\ttimeout {METER_TIMEOUT}s"
            )?;
        }
        if !self.elements.is_empty() {
            let members: Vec<_> = self
                .elements
                .iter()
                .map(|e| format!("\"{}\" . {}", e.interface, e.address))
                .collect();
            writeln!(f, "\t\telements = {{ {} }}", members.join(", "))?;
        }
        writeln!(f, "\t}}")
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\tchain {} {{", self.name)?;
        if let Some(base) = self.base {
            writeln!(f, "\t\t{base}")?;
        }
        for rule in &self.rules {
            let mut line = String::new();
            for expr in &rule.exprs {
                write!(line, "{expr} ")?;
            }
            writeln!(f, "\t\t{line}comment \"{}\"", rule.comment)?;
        }
        writeln!(f, "\t}}")
    }
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hook = match self.hook {
            Hook::Prerouting => "prerouting",
            Hook::Input => "input",
            Hook::Forward => "forward",
            Hook::Output => "output",
        };
        write!(
            f,
            "type filter hook {hook} priority {}; policy {};",
            self.priority,
            fate(self.policy)
        )
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Family(IpFamily::V4) => f.write_str("meta nfproto ipv4"),
            Self::Family(IpFamily::V6) => f.write_str("meta nfproto ipv6"),
            Self::Protocol(transport) => write!(f, "meta l4proto {}", transport_name(*transport)),
            Self::Fragment4 => f.write_str("ip frag-off & 0x3fff != 0"),
            Self::MayCut4 => f.write_str("ip frag-off & 0x4000 == 0"),
            Self::Fragment6 => f.write_str("exthdr frag exists"),
            Self::Options4 => f.write_str("ip hdrlength != 5"),
            Self::NextHeader6(number) => write!(f, "ip6 nexthdr {number}"),
            Self::To(address @ IpAddr::V4(_)) => write!(f, "ip daddr {address}"),
            Self::To(address @ IpAddr::V6(_)) => write!(f, "ip6 daddr {address}"),
            Self::ToNet(net) if net.addr().is_ipv4() => write!(f, "ip daddr {net}"),
            Self::ToNet(net) => write!(f, "ip6 daddr {net}"),
            Self::HopLimit(limit) => write!(f, "ip6 hoplimit {limit}"),
            Self::IcmpType(kind) => write!(f, "icmp type {kind}"),
            // Type and code; the quoted IPv4 header begins at bit 64 with version and length, its protocol is at 136.
            Self::PortClosed(IpFamily::V4) => {
                f.write_str("@th,0,16 0x303 @th,64,8 0x45 @th,136,8 0x11")
            }
            // The next header of a quoted IPv6 header is at bit 64 + 48.
            Self::PortClosed(IpFamily::V6) => f.write_str("@th,0,16 0x104 @th,112,8 0x11"),
            Self::Icmpv6Type(kind) => write!(f, "icmpv6 type {kind}"),
            Self::SourceNotIn(set) => {
                write!(f, "iifname . {} saddr != @{}", ip(*set), set.as_str())
            }
            Self::DestinationIn(set) => write!(f, "oifname . {} daddr @{}", ip(*set), set.as_str()),
            Self::Port(port) => write!(f, "th dport {port}"),
            Self::Flags { mask, value } => write!(f, "tcp flags & {mask:#x} == {value:#x}"),
            Self::Mark(mark) => write!(f, "meta mark {}", *mark as u32),
            Self::Over { meter, rate } => write!(
                f,
                "update @{} {{ {} saddr limit rate over {rate}/second burst {} packets }}",
                meter.as_str(),
                ip(*meter),
                burst(*rate)
            ),
            Self::Count(name) => write!(f, "counter name \"{name}\""),
            Self::Untrack => f.write_str("notrack"),
            Self::SetMark(mark) => write!(f, "meta mark set {}", *mark as u32),
            Self::Tproxy {
                family: IpFamily::V4,
                port,
            } => write!(f, "tproxy ip to :{port}"),
            Self::Tproxy {
                family: IpFamily::V6,
                port,
            } => write!(f, "tproxy ip6 to :{port}"),
            // How the compatibility target was asked for cannot be written in nft syntax; nft lists both alike.
            Self::Queue(number) | Self::QueueCompat(number) => write!(f, "queue num {number}"),
            Self::RejectReset => f.write_str("reject with tcp reset"),
            Self::Reject(answer) => write!(f, "reject with icmpx type {}", answer_name(*answer)),
            Self::Goto(chain) => write!(f, "goto {chain}"),
            Self::End(end) => f.write_str(fate(*end)),
        }
    }
}

/// The burst that goes with a rate: two seconds' worth.
pub const fn burst(rate: u32) -> u32 {
    rate.saturating_mul(2)
}

const fn ip(set: SetName) -> &'static str {
    match set.key() {
        Key::InterfaceIpv4 | Key::Ipv4 => "ip",
        Key::InterfaceIpv6 | Key::Ipv6 => "ip6",
    }
}

const fn fate(fate: Fate) -> &'static str {
    match fate {
        Fate::Accept => "accept",
        Fate::Drop => "drop",
    }
}

const fn transport_name(transport: Transport) -> &'static str {
    match transport {
        Transport::Tcp => "tcp",
        Transport::Udp => "udp",
        Transport::Icmp => "icmp",
        Transport::Icmpv6 => "ipv6-icmp",
    }
}

const fn answer_name(answer: IcmpAnswer) -> &'static str {
    match answer {
        IcmpAnswer::NoRoute => "no-route",
        IcmpAnswer::PortUnreachable => "port-unreachable",
        IcmpAnswer::HostUnreachable => "host-unreachable",
        IcmpAnswer::Prohibited => "admin-prohibited",
    }
}
