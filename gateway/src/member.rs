//! Members: networks of one app that may reach each other where one declared that it needs the other.
//!
//! Owns the words only: a group, a service's name in it, and what it needs. A network without a membership is a run's:
//! nobody reaches it and it reaches nobody. Refuses to own: the kernel's lanes between members ([`crate::kernel`]), who
//! may join a group ([`crate::network::registry`]), the answers to their names ([`crate::listen::dns`]).

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use netpolicy::ids::NetworkId;
use serde::{Deserialize, Serialize};

/// Names that mean something else to a sandbox, on their own or below `internal`.
const RESERVED: [&str; 7] = [
    "broker",
    "gateway",
    "proxy",
    "sally",
    "localhost",
    "sandbox",
    "sallyport",
];
/// More siblings than any service calls.
pub const MOST_NEEDS: usize = 64;

/// A service's name: one strict DNS label, so that it can be asked for as it is.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ServiceName(Box<str>);

/// Why a text is no service name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ServiceNameError {
    /// Not a label.
    #[error(
        "a service name has 1 to 63 characters of a-z, 0-9 and '-', starts with a letter and does not end with '-'"
    )]
    Label,
    /// Means something else.
    #[error("the service name {0} is reserved")]
    Reserved(&'static str),
}

impl ServiceName {
    /// The text form.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ServiceName {
    type Err = ServiceNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fits = (1..=63).contains(&text.len())
            && text.starts_with(|first: char| first.is_ascii_lowercase())
            && !text.ends_with('-')
            && text
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if !fits {
            return Err(ServiceNameError::Label);
        }
        match RESERVED.iter().find(|reserved| **reserved == text) {
            Some(reserved) => Err(ServiceNameError::Reserved(reserved)),
            None => Ok(Self(text.into())),
        }
    }
}

impl TryFrom<String> for ServiceName {
    type Error = ServiceNameError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<ServiceName> for String {
    fn from(name: ServiceName) -> Self {
        name.0.into()
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a network is to its app.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Membership {
    /// The app: all members of one group were attached by the same user for the same workspace.
    pub group: NetworkId,
    /// Its name to its siblings.
    pub service: ServiceName,
    /// Siblings that it may connect to, whether they are there yet or not.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub needs: BTreeSet<ServiceName>,
}

impl Membership {
    /// Whether this member may connect to that one.
    pub fn may_reach(&self, other: &Self) -> bool {
        self.group == other.group && self.needs.contains(&other.service)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_names_are_strict_labels_and_reserved_ones_are_refused() {
        for good in ["db", "web-1", "a", &"x".repeat(63)] {
            assert_eq!(good.parse::<ServiceName>().unwrap().as_str(), good);
        }
        for bad in [
            "",
            "-db",
            "db-",
            "1db",
            "DB",
            "a.b",
            "a_b",
            "d\u{e4}",
            "a b",
            "db\0",
            &"x".repeat(64),
        ] {
            assert_eq!(
                bad.parse::<ServiceName>(),
                Err(ServiceNameError::Label),
                "{bad:?}"
            );
        }
        for reserved in RESERVED {
            assert_eq!(
                reserved.parse::<ServiceName>(),
                Err(ServiceNameError::Reserved(reserved))
            );
        }
    }

    #[test]
    fn a_need_points_one_way_and_not_into_another_group() {
        let member = |group: &str, service: &str, needs: &[&str]| Membership {
            group: group.parse().unwrap(),
            service: service.parse().unwrap(),
            needs: needs.iter().map(|n| n.parse().unwrap()).collect(),
        };
        let (web, db) = (member("app", "web", &["db"]), member("app", "db", &[]));
        assert!(web.may_reach(&db) && !db.may_reach(&web));
        assert!(!web.may_reach(&member("other", "db", &[])));
    }
}
