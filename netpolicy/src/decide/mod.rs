//! The two decisions. Both are total functions over one [`Snapshot`]; both mint values that nothing else can make.
//!
//! `decide_connect` (source's snapshot, destination, port, protocol, direction) mints a [`DialPermit`]; nothing dials
//! without one. `decide_bytes` (the first client bytes) mints a [`RelayPermit`]; nothing is relayed without one.
//! Deny beats allow; a denied address beats every name; every layer must permit.

mod answers;

use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::addr::{AddressBook, Class};
use crate::ids::{PolicyHash, UnixSeconds};
use crate::name::Name;
use crate::policy::{Place, Policy, Protocol, Speaks};
use crate::reason::Reason;

pub use answers::decide_answers;

/// Which of the layers that only narrow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerKind { /// The instance floor.
    Instance, /// The workspace floor.
    Workspace, /// The job's own policy.
    Job }

/// Sallyport's own listeners: no policy opens them (console, API, metrics, control, ingress names).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OwnListeners { /// Closed on every host address.
    pub ports: Vec<u16>, /// app.url host and ingress names.
    pub names: Vec<Name> }

/// Everything that decides a network's flows, immutable.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Instance, workspace, job: those that exist, in this order.
    pub layers: Vec<(LayerKind, Arc<Policy>)>,
    /// Address classes now.
    pub book: Arc<AddressBook>,
    /// Never reachable.
    pub own: Arc<OwnListeners>,
    /// Hash over all layers.
    pub hash: PolicyHash,
}

/// Which way a flow goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction { /// Out of the sandbox.
    Egress, /// Into it, opened by the gateway.
    Ingress }

/// What a door learnt; it never decides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Intent { /// Direction.
    pub direction: Direction, /// Transport.
    pub protocol: Protocol, /// Destination port (sandbox port for ingress).
    pub port: u16, /// Where to.
    pub to: Destination }

/// Where a flow wants to go, with the evidence so far.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Destination {
    /// A name (lease, explicit proxy). `answers` is what the resolver said, `None` before it was asked.
    Name { /// The name.
        name: Name, /// All its addresses.
        answers: Option<Vec<IpAddr>> },
    /// A bare address. `bound` are the names that `names: real` bound to it; `heard` what the client's bytes said.
    Address { /// The address.
        address: IpAddr, /// Names bound to it in this network.
        bound: Vec<Name>, /// Server name or Host heard so far.
        heard: Heard },
}

/// What the first bytes said about the name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heard { /// Nothing read yet.
    NotYet, /// Bytes (or a time-out) without a name.
    Nothing, /// A name; `answers` as in [`Destination::Name`].
    Name { /// It.
        name: Name, /// Its addresses, `None` before the resolver was asked.
        answers: Option<Vec<IpAddr>> } }

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
pub enum Lookup { /// May be looked up and answered.
    Permit(Ground), /// An ancestor of a permitted name: exists, holds nothing (NODATA).
    Ancestor, /// NXDOMAIN with the reason.
    Deny(Denial) }

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

/// Why a flow is permitted; carried from the first decision to the record. Cannot be made elsewhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ground { name: Option<Name>, port: u16, speaks: Speaks, class: Option<Class>, rules: Vec<(LayerKind, String, Place)>, hash: PolicyHash }
impl Ground {
    /// The name the flow is bound to, if any.
    pub fn name(&self) -> Option<&Name> { self.name.as_ref() }
    /// How its bytes are judged.
    pub fn speaks(&self) -> Speaks { self.speaks }
    /// Destination port.
    pub fn port(&self) -> u16 { self.port }
    /// Class of the destination.
    pub fn class(&self) -> Option<Class> { self.class }
    /// One matching rule per layer: layer, policy name, place.
    pub fn rules(&self) -> &[(LayerKind, String, Place)] { &self.rules }
    /// Hash of the snapshot that decided.
    pub fn hash(&self) -> PolicyHash { self.hash }
}

/// The right to dial exactly these addresses. Consumed by the dialler.
#[derive(Clone, Debug)]
pub struct DialPermit { addresses: Vec<IpAddr>, ground: Ground }
impl DialPermit {
    /// Addresses in resolver order; never empty.
    pub fn addresses(&self) -> &[IpAddr] { &self.addresses }
    /// Why.
    pub fn ground(&self) -> &Ground { &self.ground }
    /// Gives up the addresses, keeps the ground.
    pub fn into_ground(self) -> Ground { self.ground }
}

/// What the client's first bytes are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Evidence {
    /// A well-formed ClientHello.
    Tls { /// Its server name.
        name: Option<Name> },
    /// A well-formed HTTP/1 request head.
    Http { /// Host of the request (absolute form and Host agree).
        host: Option<crate::name::Host>, /// Port if written.
        port: Option<u16>, /// Method.
        method: String, /// Path as it will be sent.
        path: String },
    /// Looked like TLS but is malformed or ambiguous.
    TlsMalformed,
    /// Looked like HTTP (or had to be) but is malformed or ambiguous.
    HttpMalformed,
    /// Other bytes, or none because the server speaks first.
    Opaque,
}

/// The right to relay (for HTTP: this one request). Consumed by the relay.
#[derive(Debug)]
pub struct RelayPermit { ground: Ground }
impl RelayPermit { /// Why.
    pub fn ground(&self) -> &Ground { &self.ground } }

/// Decides whether (and to which addresses) a flow may be dialled.
pub fn decide_connect(_s: &Snapshot, _intent: &Intent, _now: UnixSeconds) -> Connect { todo!() }
/// Decides whether a name may be looked up at all.
pub fn decide_lookup(_s: &Snapshot, _name: &Name, _now: UnixSeconds) -> Lookup { todo!() }
/// Decides the first client bytes of a dialled flow, and every later HTTP request of it.
pub fn decide_bytes(_s: &Snapshot, _ground: &Ground, _evidence: &Evidence, _now: UnixSeconds) -> Result<RelayPermit, Denial> { todo!() }
