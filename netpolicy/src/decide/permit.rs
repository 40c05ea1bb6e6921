//! The values that only decisions make. Their fields and constructors stay inside [`super`]: a permit in hand proves
//! that the decision was taken.

use std::net::IpAddr;

use super::{Direction, LayerKind};
use crate::addr::Class;
use crate::ids::PolicyHash;
use crate::name::Name;
use crate::policy::{Place, Protocol, Speaks};

/// Why a flow is permitted; carried from the first decision to the record. Cannot be made elsewhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ground {
    pub(super) direction: Direction,
    pub(super) name: Option<Name>,
    pub(super) aliases: Vec<Name>,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) port: u16,
    pub(super) protocol: Protocol,
    pub(super) speaks: Speaks,
    pub(super) class: Option<Class>,
    pub(super) rules: Vec<(LayerKind, String, Place)>,
    pub(super) hash: PolicyHash,
}

impl Ground {
    /// Which way the flow goes.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// The name the flow is bound to, if any.
    pub fn name(&self) -> Option<&Name> {
        self.name.as_ref()
    }

    /// Names that aliases on the way from the name to its addresses lead to.
    pub fn aliases(&self) -> &[Name] {
        &self.aliases
    }

    /// Addresses that were checked; empty for a look-up.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// How its bytes are judged.
    pub fn speaks(&self) -> Speaks {
        self.speaks
    }

    /// Destination port; 0 for a look-up.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Transport.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Class of the destination (of its first address).
    pub fn class(&self) -> Option<Class> {
        self.class
    }

    /// One matching rule per layer: layer, policy name, place. Where the mode alone permits, the document's place.
    pub fn rules(&self) -> &[(LayerKind, String, Place)] {
        &self.rules
    }

    /// Hash of the snapshot that decided.
    pub fn hash(&self) -> PolicyHash {
        self.hash
    }
}

/// The right to dial exactly these addresses. Consumed by the dialler.
#[derive(Clone, Debug)]
pub struct DialPermit {
    pub(super) ground: Ground,
}

impl DialPermit {
    /// Addresses in resolver order; never empty.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.ground.addresses
    }

    /// Why.
    pub fn ground(&self) -> &Ground {
        &self.ground
    }

    /// Gives up the right to dial, keeps the ground.
    pub fn into_ground(self) -> Ground {
        self.ground
    }
}

/// The right to relay (for HTTP: this one request). Consumed by the relay.
#[derive(Debug)]
pub struct RelayPermit {
    pub(super) ground: Ground,
}

impl RelayPermit {
    /// Why.
    pub fn ground(&self) -> &Ground {
        &self.ground
    }
}
