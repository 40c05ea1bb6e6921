//! Lanes: what members of one app may send each other, as netdev-ingress rules on their own links.
//!
//! Siblings share no segment: every member keeps its own point-to-point link, where ARP, neighbour discovery and
//! spoofed sources of one member reach nobody but the gateway. A lane takes a frame off the sender's link before the
//! gateway's stack sees it, if source and destination are a pair with a declared need, and puts it on the receiver's
//! link. Whatever matches no lane goes on to the rules that every sandbox meets.
//!
//! | frame between a pair | enforcing | sealed |
//! |---|---|---|
//! | TCP from the one that needs the other | to the sibling | dropped, first SYN: reset |
//! | TCP from the other, but for first SYNs | to the sibling | dropped |
//! | UDP, either way | to the sibling | dropped |
//! | fragments, IPv4 options, IPv6 extension headers | as from any sandbox: dropped | the same |
//!
//! Owns which rules there are and when they are written anew. Refuses to own: their bytes ([`super::nft`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netpolicy::ruleset::{Fate, InterfaceName};

use super::enforcer::{Enforcer, Posture};
use super::error::KernelError;
use super::links;
use super::members::{Member, State};
use super::nft::lower::{META_PROTOCOL, NETWORK, TRANSPORT, Vm, fate_code};

/// Name of the table (family netdev).
pub const TABLE: &str = "sallyport-members";
/// Before every other hook of the link.
pub const PRIORITY: i32 = -500;

const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
/// Version 4 with a header of five words.
const PLAIN_IPV4: [u8; 1] = [0x45];
const TCP: u8 = 6;
const UDP: u8 = 17;
const SYN: u8 = 0x02;
const SYN_ACK: u8 = 0x12;
const LINK: u32 = 0;

/// The lanes that begin on one link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LaneChain {
    /// The sender's link; also the chain's name.
    pub link: InterfaceName,
    /// Its rules, in order.
    pub rules: Vec<LaneRule>,
}

/// One rule of a lane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LaneRule {
    /// Stable comment.
    pub comment: &'static str,
    /// For people, in nft's words.
    pub text: String,
    /// What the kernel holds.
    pub steps: Vec<Vm>,
}

/// The table as text; empty without lanes.
pub(super) fn render(chains: &[LaneChain]) -> String {
    let mut text = String::new();
    if chains.is_empty() {
        return text;
    }
    // Writing to a string cannot fail.
    let _ = writeln!(text, "table netdev {TABLE} {{");
    for LaneChain { link, rules } in chains {
        let _ = writeln!(text, "\tchain {link} {{");
        let _ = writeln!(
            text,
            "\t\ttype filter hook ingress device \"{link}\" priority {PRIORITY}; policy accept;"
        );
        for rule in rules {
            let _ = writeln!(text, "\t\t{} comment \"{}\"", rule.text, rule.comment);
        }
        text.push_str("\t}\n");
    }
    text.push_str("}\n");
    text
}

/// One end.
#[derive(Clone, Copy)]
struct End {
    index: u32,
    v4: Ipv4Addr,
    v6: Ipv6Addr,
}

impl State {
    /// The lanes of a posture.
    pub(super) fn lanes(&self, posture: Posture) -> Vec<LaneChain> {
        between(&self.members, &self.gone, posture)
    }

    /// Writes the lanes of the posture in force.
    pub(super) fn write_lanes(&self) -> Result<(), KernelError> {
        self.firewall.replace_lanes(&self.lanes(self.posture))
    }

    /// Lanes of a member that left go; if the others' cannot be written, all go, and verification brings them back.
    pub(super) fn close_lanes(&self) -> Result<(), KernelError> {
        self.write_lanes().or_else(|error| {
            tracing::error!(%error, "lanes could not be rewritten; all are closed");
            self.firewall.replace_lanes(&[])
        })
    }
}

impl Enforcer {
    /// Links of members that are not there any more; looked for only where somebody has siblings.
    pub(super) fn gone(&self) -> Result<BTreeSet<InterfaceName>, KernelError> {
        let attached: Vec<(InterfaceName, u32)> = {
            let state = self.state();
            let members = state.members.iter().filter(|(_, m)| m.membership.is_some());
            members.map(|(link, m)| (link.clone(), m.index)).collect()
        };
        if attached.is_empty() {
            return Ok(BTreeSet::new());
        }
        let there = self.look()?;
        let lost = attached
            .into_iter()
            .filter(|(link, index)| there.index_of(link.as_str()) != Some(*index));
        Ok(lost.map(|(link, _)| link).collect())
    }
}

/// The lanes between these members, but for links that are gone.
pub(super) fn between(
    members: &BTreeMap<InterfaceName, Member>,
    gone: &BTreeSet<InterfaceName>,
    posture: Posture,
) -> Vec<LaneChain> {
    let live: Vec<_> = members
        .iter()
        .filter(|(link, _)| !gone.contains(link))
        .filter_map(|(link, member)| Some((link, member, member.membership.as_ref()?)))
        .collect();
    let mut chains = Vec::new();
    for (link, member, own) in &live {
        let mut rules = Vec::new();
        for (_, sibling, theirs) in live.iter().filter(|(other, _, _)| other != link) {
            let asks = own.may_reach(theirs);
            if asks || theirs.may_reach(own) {
                rules.extend(lane(end(member), end(sibling), asks, posture));
            }
        }
        if !rules.is_empty() {
            let link = (*link).clone();
            chains.push(LaneChain { link, rules });
        }
    }
    chains
}

fn end(member: &Member) -> End {
    End {
        index: member.index,
        v4: member.v4,
        v6: member.v6,
    }
}

/// The rules for what one member sends to another.
fn lane(from: End, to: End, asks: bool, posture: Posture) -> Vec<LaneRule> {
    let pairs = [
        (IpAddr::V4(from.v4), IpAddr::V4(to.v4)),
        (IpAddr::V6(from.v6), IpAddr::V6(to.v6)),
    ];
    let mut rules = Vec::new();
    for (source, destination) in pairs {
        let family = if source.is_ipv4() { "ip" } else { "ip6" };
        let end = match posture {
            Posture::Enforcing => format!("fwd to ifindex {}", to.index),
            Posture::Sealed => "drop".to_owned(),
        };
        let mut tcp = packet(source, destination, TCP);
        let mut flags = "";
        if !asks || posture == Posture::Sealed {
            // A positive match on readable flags: what cannot be read is not let through.
            tcp.extend([
                payload(TRANSPORT, 13, 1),
                Vm::Mask {
                    mask: vec![SYN_ACK],
                },
                compare(false, &[SYN]),
            ]);
            flags = " tcp flags & (syn | ack) != syn";
        }
        let udp = packet(source, destination, UDP);
        for (comment, protocol, flags, mut steps) in [
            ("tcp to a sibling", "tcp", flags, tcp),
            ("udp to a sibling", "udp", "", udp),
        ] {
            steps.extend(outcome(to, posture));
            rules.push(LaneRule {
                comment,
                text: format!(
                    "{family} saddr {source} {family} daddr {destination} meta l4proto {protocol}{flags} {end}"
                ),
                steps,
            });
        }
    }
    rules
}

/// Whole packets of a protocol from one address to another, with nothing before the transport header.
fn packet(source: IpAddr, destination: IpAddr, protocol: u8) -> Vec<Vm> {
    let is = |data: &[u8]| compare(true, data);
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => vec![
            protocol_is(),
            is(&ETHERTYPE_IPV4),
            payload(NETWORK, 12, 4),
            is(&source.octets()),
            payload(NETWORK, 16, 4),
            is(&destination.octets()),
            payload(NETWORK, 0, 1),
            is(&PLAIN_IPV4),
            payload(NETWORK, 6, 2),
            Vm::Mask {
                mask: vec![0x3f, 0xff],
            },
            is(&[0, 0]),
            payload(NETWORK, 9, 1),
            is(&[protocol]),
        ],
        (source, destination) => vec![
            protocol_is(),
            is(&ETHERTYPE_IPV6),
            payload(NETWORK, 8, 16),
            is(&six(source)),
            payload(NETWORK, 24, 16),
            is(&six(destination)),
            payload(NETWORK, 6, 1),
            is(&[protocol]),
        ],
    }
}

fn outcome(to: End, posture: Posture) -> Vec<Vm> {
    match posture {
        Posture::Enforcing => vec![
            Vm::Load {
                data: links::inner_mac(to.v4).to_vec(),
            },
            Vm::PayloadWrite {
                base: LINK,
                offset: 0,
                length: 6,
            },
            Vm::Load {
                data: to.index.to_ne_bytes().to_vec(),
            },
            Vm::Forward,
        ],
        Posture::Sealed => vec![Vm::Verdict {
            code: fate_code(Fate::Drop),
            chain: None,
        }],
    }
}

fn six(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

fn protocol_is() -> Vm {
    Vm::Meta {
        key: META_PROTOCOL,
        register: 1,
    }
}

fn payload(base: u32, offset: u32, length: u32) -> Vm {
    Vm::Payload {
        base,
        offset,
        length,
        register: 1,
    }
}

fn compare(equal: bool, data: &[u8]) -> Vm {
    Vm::Compare {
        equal,
        data: data.to_vec(),
    }
}
