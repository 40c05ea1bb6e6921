//! What can stop an act on the kernel, and how the kernel can differ from what was asked.

use std::fmt::Display;
use std::io;

use super::netns::NsId;

/// An act on the kernel that failed.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// A system call or netlink request failed.
    #[error("{act}")]
    Io {
        /// What was being done to what.
        act: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The namespace offered for a sandbox is one that must never be wired.
    #[error("refusing to attach namespace {id}: it is {what}")]
    ForbiddenNamespace {
        /// Which.
        id: NsId,
        /// Whose it is.
        what: &'static str,
    },
    /// The namespace is a network's, or is just becoming one.
    #[error("refusing to attach namespace {id}: it is attached already")]
    TakenNamespace {
        /// Which.
        id: NsId,
    },
    /// The namespace already has a way out of its own.
    #[error("refusing to attach: the namespace already has the configured interface {name}")]
    OccupiedNamespace {
        /// That interface.
        name: String,
    },
    /// The kernel does not hold what was asked of it.
    #[error("the kernel differs from what was asked")]
    Mismatch(#[source] Mismatch),
    /// The kernel cannot hold the rules: the host is without enforcement. The wording is what operators look for.
    #[error("the egress firewall is required but not installed")]
    NoFirewall(#[source] Box<KernelError>),
    /// What this host cannot hold, and why.
    #[error("{0}")]
    Lacking(String),
    /// Members of a group where iptables holds the rules.
    #[error("a group needs nf_tables, and this gateway's rules go through iptables")]
    NeedsNftables,
    /// An argument cannot be used.
    #[error("{0}")]
    Unusable(&'static str),
}

impl KernelError {
    /// The errno, where there is one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }

    /// A rule socket or rule that the kernel does not know means that it has no firewall; a missing power does not.
    pub(super) fn without_firewall(self) -> Self {
        match self.errno().map(nix::Error::from_raw) {
            None | Some(nix::Error::EPERM | nix::Error::EACCES) => self,
            Some(_) => Self::NoFirewall(Box::new(self)),
        }
    }
}

/// One difference between what was asked and what is there.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what}: wanted {wanted}, found {found}")]
pub struct Mismatch {
    /// The object: a chain, a rule, a sysctl, a link.
    pub what: String,
    /// What it should be.
    pub wanted: String,
    /// What it is.
    pub found: String,
}

impl Mismatch {
    /// A difference, from anything printable.
    pub fn new(what: impl Into<String>, wanted: impl Display, found: impl Display) -> Self {
        Self {
            what: what.into(),
            wanted: wanted.to_string(),
            found: found.to_string(),
        }
    }
}

impl From<Mismatch> for KernelError {
    fn from(mismatch: Mismatch) -> Self {
        Self::Mismatch(mismatch)
    }
}

/// Names the act beside an [`io::Error`].
pub(crate) trait Act<T> {
    /// `act` is what was being done to what.
    fn act(self, act: impl Into<String>) -> Result<T, KernelError>;
}

impl<T> Act<T> for io::Result<T> {
    fn act(self, act: impl Into<String>) -> Result<T, KernelError> {
        self.map_err(|source| KernelError::Io {
            act: act.into(),
            source,
        })
    }
}

impl<T> Act<T> for nix::Result<T> {
    fn act(self, act: impl Into<String>) -> Result<T, KernelError> {
        self.map_err(io::Error::from).act(act)
    }
}

impl<T> Act<T> for Result<T, rtnetlink::Error> {
    fn act(self, act: impl Into<String>) -> Result<T, KernelError> {
        self.map_err(|error| match error {
            rtnetlink::Error::NetlinkError(message) => message.to_io(),
            other => io::Error::other(other),
        })
        .act(act)
    }
}
