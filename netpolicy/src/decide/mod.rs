//! The two decisions. Both are total functions over one [`Snapshot`]; both mint values that nothing else can make.
//!
//! [`decide_connect`] (source's snapshot, destination, port, protocol, direction) mints a [`DialPermit`]; nothing dials
//! without one. [`decide_bytes`] (the first client bytes) mints a [`RelayPermit`]; nothing is relayed without one.
//! [`decide_lookup`] answers for a name alone: DNS asks it before anything is sent upstream. [`decide_aliases`] is asked
//! again for every alias that the name turns out to be, before that is looked up.
//!
//! Which destination passes, in this order:
//! 1. metadata, loopback, multicast, the gateway and Sallyport's own listeners: never, whatever a policy says;
//! 2. each layer (instance, workspace, job) for itself: no network, `deny`, what the mode permits, the address's class;
//! 3. all layers must permit; the first that does not gives the denial.
//!
//! Deny beats allow, also on every alias of a name; a denied address beats every name; one forbidden answer refuses all
//! answers of a name.

mod address;
mod answers;
mod bytes;
mod connect;
mod index;
mod layer;
mod lookup;
mod permit;
mod snapshot;
pub mod special;
mod speech;

#[cfg(test)]
mod tests;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::addr::Class;
use crate::name::{Host, Name};
use crate::policy::{Place, Protocol, Speaks};
use crate::reason::Reason;

pub use answers::decide_answers;
pub(crate) use bytes::judge_request;
pub use bytes::{decide_bytes, judges_each_request, judges_names};
pub(crate) use connect::presume;
pub use connect::{decide_connect, decide_unleased};
pub(crate) use index::RuleIndex;
pub use lookup::{decide_aliases, decide_lookup};
pub use permit::{DialPermit, Ground, RelayPermit};
pub use snapshot::{Layer, LayerKind, OwnListeners, Snapshot};
use speech::Speech;

/// Which way a flow goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Out of the sandbox.
    Egress,
    /// Into it, opened by the gateway.
    Ingress,
}

/// What a door learnt; it never decides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Intent {
    /// Direction.
    pub direction: Direction,
    /// Transport.
    pub protocol: Protocol,
    /// Destination port (sandbox port for ingress).
    pub port: u16,
    /// Where to.
    pub to: Destination,
}

/// Where a flow wants to go, with the evidence so far.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Destination {
    /// A name (lease, explicit proxy). `answers` is what the resolver said, `None` before it was asked.
    Name {
        /// The name.
        name: Name,
        /// All its addresses, and the aliases on the way to them.
        answers: Option<Answers>,
    },
    /// A bare address. `bound` are the names that `names: real` bound to it; `heard` what the client's bytes said.
    Address {
        /// The address.
        address: IpAddr,
        /// Names bound to it in this network.
        bound: Vec<Name>,
        /// Server name or Host heard so far.
        heard: Heard,
    },
}

/// What the first bytes said about the name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heard {
    /// Nothing read yet.
    NotYet,
    /// Bytes (or a time-out) without a name.
    Nothing,
    /// A name; `answers` as in [`Destination::Name`].
    Name {
        /// It.
        name: Name,
        /// Its addresses, `None` before the resolver was asked.
        answers: Option<Answers>,
    },
}

/// What a resolver said about the addresses of a name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Answers {
    /// All of them.
    pub addresses: Vec<IpAddr>,
    /// Every name that an alias (CNAME) on the way to them leads to. They need no permission of their own, but a denial
    /// of one of them is a denial of the name.
    pub aliases: Vec<Name>,
}

impl From<Vec<IpAddr>> for Answers {
    fn from(addresses: Vec<IpAddr>) -> Self {
        Self {
            addresses,
            aliases: Vec::new(),
        }
    }
}

impl FromIterator<IpAddr> for Answers {
    fn from_iter<I: IntoIterator<Item = IpAddr>>(addresses: I) -> Self {
        Self::from(Vec::from_iter(addresses))
    }
}

/// The outcome of [`decide_connect`].
#[derive(Clone, Debug)]
pub enum Connect {
    /// Dial exactly the permit's addresses.
    Dial(DialPermit),
    /// The name may be looked up; decide again with its answers.
    LookUp(Name),
    /// Accept first and decide again with what was heard: only a name can tell.
    Hear(Speaks),
    /// Denied.
    Deny(Denial),
}

/// The outcome of a question about a name alone (DNS).
#[derive(Clone, Debug)]
pub enum Lookup {
    /// May be looked up and answered.
    Permit(Ground),
    /// An ancestor of a permitted name: exists, holds nothing (NODATA).
    Ancestor,
    /// NXDOMAIN with the reason.
    Deny(Denial),
}

/// A denial: reason, and what made it. A value, never an error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Denial {
    /// Code.
    pub reason: Reason,
    /// Layer, when a policy made it.
    pub layer: Option<LayerKind>,
    /// Name of that policy.
    pub policy: Option<String>,
    /// The line that made it (the deny entry, or the place of `network:`/document for "nothing allows").
    pub rule: Option<Place>,
    /// Class of the address that decided, if one did.
    pub class: Option<Class>,
    /// Author's reason of a deny rule.
    pub note: Option<String>,
}

impl Denial {
    /// A denial that no policy made.
    pub(crate) fn fixed(reason: Reason) -> Self {
        Self {
            reason,
            layer: None,
            policy: None,
            rule: None,
            class: None,
            note: None,
        }
    }

    /// The same denial, with the class of the address that decided.
    #[must_use]
    pub(crate) fn of_class(self, class: Class) -> Self {
        Self {
            class: Some(class),
            ..self
        }
    }

    /// The same denial, made by what an alias leads to. The author's own words come first.
    #[must_use]
    pub(crate) fn by_alias(self, alias: &Name) -> Self {
        let note = match self.note {
            Some(note) => format!("{note} (an alias leads to {alias})"),
            None => format!("an alias leads to {alias}"),
        };
        Self {
            note: Some(note),
            ..self
        }
    }

    /// The same denial, with a sentence of explanation.
    #[must_use]
    pub(crate) fn noted(self, note: &str) -> Self {
        Self {
            note: Some(note.to_owned()),
            ..self
        }
    }
}

/// What the client's first bytes are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Evidence {
    /// A well-formed ClientHello.
    Tls {
        /// Its server name.
        name: Option<Name>,
    },
    /// A well-formed HTTP/1 request head.
    Http {
        /// Host of the request (absolute form and Host agree).
        host: Option<Host>,
        /// Port if written.
        port: Option<u16>,
        /// Method.
        method: String,
        /// Path as it will be sent.
        path: String,
    },
    /// Looked like TLS but is malformed or ambiguous.
    TlsMalformed,
    /// Looked like HTTP (or had to be) but is malformed or ambiguous.
    HttpMalformed,
    /// Other bytes, or none because the server speaks first.
    Opaque,
}
