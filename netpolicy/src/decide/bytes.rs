//! [`decide_bytes`]: whether the first bytes of a dialled flow (and each later HTTP request) may be relayed.
//!
//! Evidence must agree with the ground of the flow: its name, its port, the way its rule wants bytes judged. Whatever is
//! malformed or ambiguous is denied, also where anything may be spoken: two readers of it could read two things.

use std::net::IpAddr;

use super::connect::{decide_connect, never_name};
use super::layer::Ask;
use super::permit::{Ground, RelayPermit};
use super::snapshot::Snapshot;
use super::{Answers, Connect, Denial, Destination, Direction, Evidence, Heard, Intent};
use crate::ids::UnixSeconds;
use crate::name::{Host, Name};
use crate::policy::http::canonical_path;
use crate::policy::{Protocol, Rule, Speaks};
use crate::reason::Reason;

/// Where QUIC is at home (RFC 9114 3.1).
const QUIC_PORT: u16 = 443;

/// Decides the first client bytes of a dialled flow, and every later HTTP request of it.
///
/// A ground of an older snapshot is decided anew first: what a newer policy does not permit is not relayed.
pub fn decide_bytes(
    s: &Snapshot,
    ground: &Ground,
    evidence: &Evidence,
    now: UnixSeconds,
) -> Result<RelayPermit, Denial> {
    let renewed = if ground.hash == s.hash() {
        None
    } else {
        Some(renew(s, ground, evidence, now)?)
    };
    let ground = renewed.as_ref().unwrap_or(ground);
    // who speaks to a sandbox from outside is not bound to a name
    if ground.direction == Direction::Egress {
        shape_fits(ground, evidence)?;
        name_agrees(ground, evidence)?;
        nothing_denies(s, ground, evidence, now)?;
        request_fits(s, ground, evidence, now)?;
    }
    Ok(RelayPermit {
        ground: ground.clone(),
    })
}

/// Decides the same flow under the snapshot of now.
fn renew(
    s: &Snapshot,
    ground: &Ground,
    evidence: &Evidence,
    now: UnixSeconds,
) -> Result<Ground, Denial> {
    let superseded = || Denial::fixed(Reason::PolicySuperseded);
    let to = if let Some(name) = &ground.name {
        Destination::Name {
            name: name.clone(),
            answers: Some(Answers {
                addresses: ground.addresses.clone(),
                aliases: ground.aliases.clone(),
            }),
        }
    } else {
        let address = *ground.addresses.first().ok_or_else(superseded)?;
        let heard = match name_in(evidence) {
            Some(name) => Heard::Name {
                name: name.clone(),
                answers: Some(Answers::default()),
            },
            None => Heard::Nothing,
        };
        Destination::Address {
            address,
            bound: Vec::new(),
            heard,
        }
    };
    let intent = Intent {
        direction: ground.direction,
        protocol: ground.protocol,
        port: ground.port,
        to,
    };
    match decide_connect(s, &intent, now) {
        Connect::Dial(permit) => Ok(permit.into_ground()),
        Connect::Deny(denial) => Err(denial),
        Connect::LookUp(_) | Connect::Hear(_) => Err(superseded()),
    }
}

/// The name that the bytes carry.
fn name_in(evidence: &Evidence) -> Option<&Name> {
    match evidence {
        Evidence::Tls { name } => name.as_ref(),
        Evidence::Http {
            host: Some(Host::Name(name)),
            ..
        } => Some(name),
        Evidence::Http { .. }
        | Evidence::TlsMalformed
        | Evidence::HttpMalformed
        | Evidence::Opaque => None,
    }
}

/// A denial at the rule that permitted the flow: that rule says how its bytes are judged.
fn at_rule(ground: &Ground, reason: Reason) -> Denial {
    let mut denial = Denial {
        class: ground.class,
        ..Denial::fixed(reason)
    };
    if let Some((layer, policy, place)) = ground.rules.last() {
        denial.layer = Some(*layer);
        denial.policy = Some(policy.clone());
        denial.rule = Some(place.clone());
    }
    denial
}

/// Whether the bytes are of the kind that the rule asks for.
fn shape_fits(ground: &Ground, evidence: &Evidence) -> Result<(), Denial> {
    // a version of QUIC that cannot be read, or the middle of a connection, has no name: the lease decides alone
    if ground.protocol == Protocol::Udp
        && ground.speaks == Speaks::Tls
        && *evidence == Evidence::Opaque
    {
        return Ok(());
    }
    let reason =
        match (ground.speaks, evidence) {
            (_, Evidence::TlsMalformed)
            | (Speaks::Tls, Evidence::Http { .. } | Evidence::Opaque) => Reason::TlsMalformed,
            (_, Evidence::HttpMalformed)
            | (Speaks::Http, Evidence::Tls { .. } | Evidence::Opaque) => Reason::HttpMalformed,
            (Speaks::Tls, Evidence::Tls { .. })
            | (Speaks::Http, Evidence::Http { .. })
            | (Speaks::Any, _) => {
                return Ok(());
            }
        };
    Err(at_rule(ground, reason))
}

/// Whether the name in the bytes is the name the flow is bound to.
fn name_agrees(ground: &Ground, evidence: &Evidence) -> Result<(), Denial> {
    let reason = match evidence {
        Evidence::Tls { name } => match (&ground.name, name) {
            (Some(bound), Some(said)) if bound != said => Reason::TlsNameMismatch,
            (Some(_), None) if ground.speaks == Speaks::Tls => Reason::TlsNameMissing,
            _ => return Ok(()),
        },
        Evidence::Http { host, port, .. } => {
            let port_agrees = port.is_none_or(|port| port == ground.port);
            if port_agrees && host_agrees(ground, host.as_ref()) {
                return Ok(());
            }
            Reason::HttpHostMismatch
        }
        Evidence::TlsMalformed | Evidence::HttpMalformed | Evidence::Opaque => return Ok(()),
    };
    Err(at_rule(ground, reason))
}

fn host_agrees(ground: &Ground, host: Option<&Host>) -> bool {
    match (&ground.name, host) {
        (Some(bound), Some(Host::Name(said))) => bound == said,
        (None, Some(Host::Address(said))) => {
            ground.addresses.iter().any(|own| same_address(*own, *said))
        }
        (Some(_), Some(Host::Address(_))) => false,
        // HTTP/1.0 without Host: good enough only where no name is needed
        (Some(_), None) => ground.speaks == Speaks::Any,
        (None, Some(Host::Name(_)) | None) => true,
    }
}

/// `::ffff:192.0.2.1` in a Host header is the same place as `192.0.2.1`.
fn same_address(a: IpAddr, b: IpAddr) -> bool {
    a.to_canonical() == b.to_canonical()
}

/// Where the flow has no name of its own, the name in the bytes must not be one that is denied.
fn nothing_denies(
    s: &Snapshot,
    ground: &Ground,
    evidence: &Evidence,
    now: UnixSeconds,
) -> Result<(), Denial> {
    let Some(name) = name_in(evidence) else {
        return Ok(());
    };
    if let Some(denial) = never_name(s, name) {
        return Err(denial);
    }
    let ask = Ask {
        port: ground.port,
        protocol: ground.protocol,
        now,
    };
    s.layers()
        .iter()
        .find_map(|layer| layer.name_denial(name, ask))
        .map_or(Ok(()), Err)
}

/// Method and path, where every rule that permits the name here names some.
fn request_fits(
    s: &Snapshot,
    ground: &Ground,
    evidence: &Evidence,
    now: UnixSeconds,
) -> Result<(), Denial> {
    let request = match evidence {
        Evidence::Http { method, path, .. } => Some((method.as_str(), path.as_str())),
        // what cannot be read cannot be judged
        Evidence::Tls { .. }
        | Evidence::TlsMalformed
        | Evidence::HttpMalformed
        | Evidence::Opaque => None,
    };
    // a flow to a bare address is judged by the rules of the name it says, or the address would be a way around them
    judge_request(
        s,
        ground,
        ground.name.as_ref().or(name_in(evidence)),
        request,
        now,
    )
}

/// Whether every request of a flow must be read, not only its first bytes: where a name decides anything, a second
/// request on the same connection could say another one.
pub fn judges_each_request(s: &Snapshot, ground: &Ground, now: UnixSeconds) -> bool {
    if ground.direction == Direction::Ingress || ground.protocol != Protocol::Tcp {
        return false;
    }
    ground.name.is_some()
        || s.layers().iter().any(|layer| {
            let (allow, deny) = (&layer.index.allow, &layer.index.deny);
            deny.host_could_apply(ground.port, ground.protocol, now)
                .is_some()
                || allow.names_requests(ground.port, ground.protocol, now)
        })
}

/// Whether a name that a datagram shows could be denied on this flow over UDP: QUIC is expected there, or a `deny` entry
/// names hosts. Where it is not, a connection of which nothing is known may go on.
pub fn judges_names(s: &Snapshot, ground: &Ground, now: UnixSeconds) -> bool {
    let could_deny = || {
        s.layers().iter().any(|layer| {
            let deny = &layer.index.deny;
            deny.host_could_apply(ground.port, ground.protocol, now)
                .is_some()
        })
    };
    ground.direction == Direction::Egress && (ground.port == QUIC_PORT || could_deny())
}

/// Judges method and path of a request (`None`: bytes that show neither) by the rules of a name.
pub(crate) fn judge_request(
    s: &Snapshot,
    ground: &Ground,
    name: Option<&Name>,
    request: Option<(&str, &str)>,
    now: UnixSeconds,
) -> Result<(), Denial> {
    let Some(name) = name else {
        return Ok(());
    };
    for layer in s.layers() {
        let here = |rule: &&Rule| rule.applies(ground.port, ground.protocol, now);
        let rules: Vec<&Rule> = layer.allows_of(name, now).filter(here).collect();
        let Some(first) = rules.first() else { continue };
        if rules.iter().any(|rule| rule.http.is_empty()) {
            continue;
        }
        let fits = request.is_some_and(|(method, path)| {
            let path = canonical_path(path);
            path.is_ok_and(|path| {
                let segments: Vec<&str> = path.split('/').collect();
                rules
                    .iter()
                    .flat_map(|rule| &rule.http)
                    .any(|http| http.matches(method, &segments))
            })
        });
        if !fits {
            let denial = layer.deny(Reason::HttpRequestNotAllowed, Some(&first.at));
            return Err(Denial {
                class: ground.class,
                ..denial
            });
        }
    }
    Ok(())
}
