//! Recorded contacts under another policy: what it would newly permit and newly deny.
//!
//! Owns: what a record says about one contact ([`Contact`]), the decision about it today ([`decide`]) and the counting
//! of many ([`Replay`]). Refuses to own: reading records (the gateway's form of them stays the gateway's).
//!
//! What a record does not hold is not guessed: a denial because of an address that was not written down counts as
//! undecided where the name alone would pass, unless the class that was written down decides by itself.

mod tally;

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;

use crate::addr::{AddressBook, Class, Reach};
use crate::decide::{Lookup, Snapshot, decide_lookup};
use crate::explain::{Outcome, Question, outcome_of};
use crate::ids::UnixSeconds;
use crate::name::{Host, Name};
use crate::policy::{NetworkMode, Policy, Protocol, Rule, Selector, Speaks, Unknown};
use crate::reason::Reason;

pub use tally::{Example, Group, Replay, Report};

/// What one record says about a contact.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contact {
    /// Name or address.
    pub to: Host,
    /// Port; `None` is a question about a name.
    pub port: Option<u16>,
    /// Transport.
    pub protocol: Protocol,
    /// The address that was dialled, if one was.
    pub address: Option<IpAddr>,
    /// Its class on the machine that recorded it.
    pub class: Option<Class>,
    /// Server name or Host that the client sent.
    pub heard: Option<Name>,
    /// Method and path.
    pub request: Option<(String, String)>,
    /// Bytes passed that were neither TLS nor HTTP.
    pub opaque: bool,
    /// It was permitted and never answered: nobody knows what it would have been.
    pub failed: bool,
    /// What was decided.
    pub was: Verdict,
}

/// A decision in short.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    /// Permitted.
    Permit,
    /// Denied, why.
    Deny(Reason),
    /// A person is asked.
    Ask,
    /// The record does not hold what decides it.
    Undecided,
}

impl Verdict {
    /// The word on every surface.
    pub fn word(self) -> String {
        match self {
            Self::Permit => "permit".to_owned(),
            Self::Deny(reason) => format!("deny {reason}"),
            Self::Ask => "ask".to_owned(),
            Self::Undecided => "undecided".to_owned(),
        }
    }
}

/// Whether a recorded denial was a policy's, so that another policy could decide otherwise. The rest is about budgets,
/// malformed bytes, the gateway's own state or the other side.
pub fn is_by_policy(reason: Reason) -> bool {
    use Reason as R;
    matches!(
        reason,
        R::NetworkNone
            | R::NameNotAllowed
            | R::NameDenied
            | R::NameResolvesToForbidden
            | R::AddressNotAllowed
            | R::AddressPrivate
            | R::AddressSpecial
            | R::AddressHost
            | R::AddressMetadata
            | R::AddressLoopback
            | R::AddressMulticast
            | R::AddressGateway
            | R::AddressDenied
            | R::PortNotAllowed
            | R::ProtocolNotAllowed
            | R::TlsNameMissing
            | R::TlsNameMismatch
            | R::HttpHostMismatch
            | R::HttpRequestNotAllowed
            | R::AskPending
            | R::AskDenied
            | R::AskExpired
    )
}

/// Decides a recorded contact now.
pub fn decide(s: &Snapshot, contact: &Contact, now: UnixSeconds) -> Verdict {
    let s = on_that_machine(s, contact);
    let Some(port) = contact.port else {
        return look_up(&s, contact, now);
    };
    let question = Question {
        sni: contact.heard.clone(),
        resolves_to: match contact.to {
            Host::Name(_) => contact.address.into_iter().collect(),
            Host::Address(_) => Vec::new(),
        },
        method: contact.request.as_ref().map(|(method, _)| method.clone()),
        path: contact.request.as_ref().map(|(_, path)| path.clone()),
        ..Question::new(contact.to.clone(), port, contact.protocol)
    };
    match outcome_of(&s, &question, now) {
        Outcome::Deny(denial) => Verdict::Deny(denial.reason),
        Outcome::Ask(_) => Verdict::Ask,
        Outcome::Permit(ground) => bytes(&s, contact, ground.speaks()),
    }
}

/// A permitted connect, with what is known about its bytes and addresses.
fn bytes(s: &Snapshot, contact: &Contact, speaks: Speaks) -> Verdict {
    let by_address = match contact.was {
        Verdict::Deny(Reason::NameResolvesToForbidden | Reason::AddressDenied) => true,
        Verdict::Deny(_) => matches!(contact.to, Host::Name(_)) && contact.class.is_some(),
        Verdict::Permit | Verdict::Ask | Verdict::Undecided => false,
    };
    if by_address && contact.address.is_none() && matches!(contact.to, Host::Name(_)) {
        return by_class(s, contact);
    }
    let nameless = contact.was == Verdict::Deny(Reason::TlsNameMissing);
    match speaks {
        Speaks::Tls if nameless => Verdict::Deny(Reason::TlsNameMissing),
        Speaks::Tls if contact.opaque => Verdict::Deny(Reason::TlsMalformed),
        Speaks::Http if contact.opaque || nameless => Verdict::Deny(Reason::HttpMalformed),
        Speaks::Tls | Speaks::Http | Speaks::Any => Verdict::Permit,
    }
}

fn look_up(s: &Snapshot, contact: &Contact, now: UnixSeconds) -> Verdict {
    let Host::Name(name) = &contact.to else {
        return Verdict::Undecided;
    };
    match decide_lookup(s, name, now) {
        Lookup::Deny(denial) => {
            let asks = s.job().is_some_and(|job| {
                job.unknown == Unknown::Ask && job.network == NetworkMode::Domains
            });
            if denial.reason == Reason::NameNotAllowed && asks {
                Verdict::Ask
            } else {
                Verdict::Deny(denial.reason)
            }
        }
        // the name may be asked for; whether its addresses may be told depends on what they are
        Lookup::Permit(_) | Lookup::Ancestor if contact.class.is_some() => by_class(s, contact),
        Lookup::Permit(_) | Lookup::Ancestor => Verdict::Permit,
    }
}

/// A permitted name that was denied because of an address, of which only the class was recorded: a class that a layer
/// opens nowhere is denied whatever the address was.
fn by_class(s: &Snapshot, contact: &Contact) -> Verdict {
    let forbidden = Reason::NameResolvesToForbidden;
    let (Some(class), true) = (contact.class, contact.was == Verdict::Deny(forbidden)) else {
        return Verdict::Undecided;
    };
    let closes = |policy: &Policy| match class.reach() {
        Reach::Never => true,
        Reach::Policy => false,
        Reach::Private => !policy.private,
        Reach::PrivateByCidr => {
            let opens = |rule: &Rule| matches!(&rule.to, Selector::Cidr(net) if AddressBook::may_name_special(net));
            !policy.private || !policy.allow.iter().any(opens)
        }
    };
    if s.layers().iter().any(|layer| closes(layer.policy())) {
        Verdict::Deny(forbidden)
    } else {
        Verdict::Undecided
    }
}

/// The snapshot with the class that the address had where it was recorded: a LAN is only known there.
fn on_that_machine(s: &Snapshot, contact: &Contact) -> Snapshot {
    let address = contact.address.or(match contact.to {
        Host::Address(address) => Some(address),
        Host::Name(_) => None,
    });
    let (Some(address), Some(class)) = (address, contact.class) else {
        return s.clone();
    };
    if s.book().classify(address).class == class {
        return s.clone();
    }
    let mut book = AddressBook::clone(s.book());
    match class {
        Class::Host => book.host.push(address),
        Class::Private => book.local.push(address.into()),
        Class::Gateway => book.gateway.push(address.into()),
        Class::Metadata => book.metadata.push(address.into()),
        Class::Public | Class::Special | Class::Loopback | Class::Multicast => {}
    }
    s.with_book(Arc::new(book))
}
