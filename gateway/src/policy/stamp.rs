//! Whose word a job policy is: a commit's that the gateway read itself, the binary's own, or only its sender's.

use std::sync::Arc;

use netpolicy::document::{self, Mistake};
use netpolicy::policy::Policy;
use serde::{Deserialize, Serialize};

use crate::control::PolicySource;
use crate::source::shelf::Found;

/// Whose word a job policy is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum Stamp {
    /// Its sender's: the gateway did not see where the text comes from.
    #[default]
    Unverified,
    /// Shipped with the gateway.
    Preset,
    /// The gateway read this file from this commit.
    Commit {
        /// The source.
        source: String,
        /// The commit.
        commit: String,
        /// Path in the repository.
        file: String,
    },
}

impl Stamp {
    /// Of a job policy.
    pub fn of(source: &PolicySource, resolved: Option<&Resolved>) -> Self {
        match (source, resolved) {
            (PolicySource::Git { .. }, Some(r)) => Self::Commit {
                source: r.source.clone(),
                commit: r.commit.clone(),
                file: r.file.clone(),
            },
            (PolicySource::Preset(_), _) => Self::Preset,
            _ => Self::Unverified,
        }
    }
}

impl std::fmt::Display for Stamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unverified => f.write_str("unverified"),
            Self::Preset => f.write_str("preset"),
            Self::Commit {
                source,
                commit,
                file,
            } => write!(f, "{source}:{commit}:{file}"),
        }
    }
}

/// A policy as a source had it when a network was composed. Made by the gateway alone, and kept where only it writes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resolved {
    /// The source.
    pub source: String,
    /// The commit.
    pub commit: String,
    /// Path in the repository.
    pub file: String,
    /// The text.
    pub text: String,
}

impl From<&Found> for Resolved {
    fn from(found: &Found) -> Self {
        let document = &found.entry.document;
        Self {
            source: found.source.clone(),
            commit: found.commit.clone(),
            file: document.file.clone(),
            text: document.text.clone(),
        }
    }
}

impl Resolved {
    /// Its meaning, stamped.
    pub fn parse(&self, packages: Option<&[String]>) -> Result<Policy, Vec<Mistake>> {
        let mut policy = document::parse(&self.file, &self.text, packages)?;
        policy.stamp(&Arc::from(self.commit.as_str()));
        Ok(policy)
    }
}
