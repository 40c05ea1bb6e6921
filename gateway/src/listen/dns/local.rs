//! Names that are answered here whatever the policy says: the broker, the sandbox itself, its siblings, loopback,
//! reverse names.
//!
//! Nothing in this file causes a packet. It also holds while the gateway is sealed: a sandbox reaches its broker then.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use hickory_proto::rr::RecordType;
use netpolicy::name::Name;

use super::DnsSettings;
use super::question::{Code, Question};
use super::reply::Answer;
use crate::network::{Network, Networks};
use crate::resolve::Wire;
use crate::resolve::upstream::LONGEST_NEGATIVE_TTL;

/// Where the broker answers.
const BROKER: &str = "broker.sallyport.internal";
/// Everything else below is nothing, whatever a rule says: no server may speak for it.
const OURS: &str = "sallyport.internal";
/// The sandbox's own host name.
const SANDBOX: &str = "sandbox";
/// As long as any other answer: a network's addresses never change.
const TTL: u32 = 60;

/// What is said about siblings, which come and go.
const SIBLING_TTL: u32 = 1;

/// Two addresses of one thing.
type Pair = (Ipv4Addr, Ipv6Addr);

/// What a local name means.
pub(super) enum Local {
    /// Said here.
    Answer(Answer),
    /// Never exists, and nobody is asked.
    Nothing,
}

/// The local meaning of a name, if it has one.
pub(super) fn of(
    settings: &DnsSettings,
    networks: &Networks,
    network: &Network,
    name: &Name,
    question: &Question<'_>,
) -> Option<Local> {
    let text = name.as_str();
    let pair = match text {
        BROKER => Some((settings.service_v4, settings.service_v6)),
        SANDBOX => Some((network.v4, network.v6)),
        _ if is_at_or_below(text, "localhost") => Some((Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST)),
        _ => None,
    };
    if let Some(pair) = pair {
        return Some(Local::Answer(addresses(pair, question.kind)));
    }
    if let Some(service) = service_of(text)
        && let Some(sibling) = sibling(networks, network, service)
    {
        return Some(match sibling {
            Sibling::Needed(there) => {
                Local::Answer(brief(addresses((there.v4, there.v6), question.kind)))
            }
            Sibling::Absent => Local::Answer(Answer::empty(Code::NxDomain, SIBLING_TTL)),
            Sibling::Apart => Local::Nothing,
        });
    }
    if text == OURS {
        return Some(Local::Answer(Answer::empty(
            Code::NoError,
            LONGEST_NEGATIVE_TTL,
        )));
    }
    if is_at_or_below(text, OURS) {
        return Some(Local::Nothing);
    }
    let reverse = is_at_or_below(text, "in-addr.arpa") || is_at_or_below(text, "ip6.arpa");
    reverse.then(|| {
        owner(settings, network, name).map_or(Local::Nothing, |owner| {
            Local::Answer(pointer(&owner, question.kind))
        })
    })
}

/// The service that a name may mean: `db` or `db.internal`.
fn service_of(name: &str) -> Option<&str> {
    let service = name.strip_suffix(".internal").unwrap_or(name);
    (!service.is_empty() && !service.contains('.')).then_some(service)
}

/// What a service's name is to a member.
enum Sibling {
    /// It may be reached.
    Needed(Arc<Network>),
    /// It may be reached once it is there. Nobody else is asked meanwhile.
    Absent,
    /// It is there and was not declared as needed.
    Apart,
}

fn sibling(networks: &Networks, network: &Network, service: &str) -> Option<Sibling> {
    let own = network.member.as_ref()?;
    let needed = own.needs.iter().any(|n| n.as_str() == service);
    let there = networks
        .member(&own.group, service)
        .filter(|n| n.id != network.id);
    match (there, needed) {
        (Some(there), true) => Some(Sibling::Needed(there)),
        (None, true) => Some(Sibling::Absent),
        (Some(_), false) => Some(Sibling::Apart),
        (None, false) => None,
    }
}

/// A sibling that is attached again has another address.
fn brief(mut answer: Answer) -> Answer {
    answer.ttl = SIBLING_TTL;
    answer
}

fn is_at_or_below(name: &str, suffix: &str) -> bool {
    name.strip_suffix(suffix)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

fn addresses((v4, v6): Pair, kind: u16) -> Answer {
    match RecordType::from(kind) {
        RecordType::A => Answer::address(v4.into(), TTL),
        RecordType::AAAA => Answer::address(v6.into(), TTL),
        _ => Answer::empty(Code::NoError, LONGEST_NEGATIVE_TTL),
    }
}

/// Who has an address, as far as this network was told.
fn owner(settings: &DnsSettings, network: &Network, name: &Name) -> Option<Name> {
    let address = address_of(name)?;
    let is = |v4: Ipv4Addr, v6: Ipv6Addr| address == IpAddr::V4(v4) || address == IpAddr::V6(v6);
    if is(settings.service_v4, settings.service_v6) {
        return Name::parse_ascii(BROKER.as_bytes()).ok();
    }
    if is(network.v4, network.v6) {
        return Name::parse_ascii(SANDBOX.as_bytes()).ok();
    }
    network.leases.find(address)
}

/// The address of a complete reverse name (RFC 1035 3.5, RFC 3596 2.5).
fn address_of(name: &Name) -> Option<IpAddr> {
    let (digits, suffix) = name.as_str().strip_suffix(".arpa")?.rsplit_once('.')?;
    match suffix {
        "in-addr" => {
            let reversed: Vec<&str> = digits.rsplit('.').collect();
            reversed.join(".").parse::<Ipv4Addr>().ok().map(IpAddr::V4)
        }
        "ip6" => {
            let nibble = |label: &str| {
                Some(label)
                    .filter(|l| l.len() == 1)
                    .and_then(|l| u128::from_str_radix(l, 16).ok())
            };
            let nibbles = digits
                .rsplit('.')
                .map(nibble)
                .collect::<Option<Vec<_>>>()
                .filter(|n| n.len() == 32)?;
            Some(IpAddr::V6(
                nibbles
                    .into_iter()
                    .fold(0, |bits, nibble| bits << 4 | nibble)
                    .into(),
            ))
        }
        _ => None,
    }
}

fn pointer(owner: &Name, kind: u16) -> Answer {
    if RecordType::from(kind) != RecordType::PTR {
        return Answer::empty(Code::NoError, LONGEST_NEGATIVE_TTL);
    }
    let mut data = Vec::with_capacity(owner.as_str().len() + 2);
    for label in owner.labels() {
        // labels of a `Name` have 1 to 63 octets
        data.push(u8::try_from(label.len()).unwrap_or_default());
        data.extend_from_slice(label.as_bytes());
    }
    data.push(0);
    Answer::records(
        Arc::new([Wire {
            kind,
            data: data.into(),
        }]),
        TTL,
    )
}
