//! [`decide_answers`]: whether what a permitted name leads to may be told to its sandbox.

use std::net::IpAddr;

use super::{Connect, Denial, Destination, Direction, Intent, Snapshot, decide_connect};
use crate::ids::UnixSeconds;
use crate::name::Name;
use crate::policy::Protocol;

/// Decides whether a permitted name may be answered: one forbidden address spoils the whole answer.
pub fn decide_answers(
    s: &Snapshot,
    name: &Name,
    addresses: &[IpAddr],
    now: UnixSeconds,
) -> Result<(), Denial> {
    let to = Destination::Name {
        name: name.clone(),
        answers: Some(addresses.to_vec()),
    };
    let intent = Intent {
        direction: Direction::Egress,
        protocol: Protocol::Tcp,
        port: 443,
        to,
    };
    match decide_connect(s, &intent, now) {
        Connect::Deny(denial) => Err(denial),
        Connect::Dial(_) | Connect::LookUp(_) | Connect::Hear(_) => Ok(()),
    }
}
