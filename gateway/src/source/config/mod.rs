//! Configuration of policy sources: `gateway.sources`, checked whole with the rest of the file.
//!
//! Each setting has its default with a reason. Files that hold secrets or say whom to believe are named by absolute,
//! plain paths and are believed only when root alone can change them ([`super::files`]).

mod grammar;
mod read;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use netpolicy::ids::UnixSeconds;

use super::names::{Branch, Remote, TreePath};
pub use grammar::SOURCES;
pub use read::sources;

/// What becomes of a branch whose history was rewritten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rewrites {
    /// Followed, and flagged.
    Follow,
    /// Refused until an operator accepts that commit.
    Refuse,
}

/// A key whose SSH signatures count.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SshSigner {
    /// The key.
    pub key: ssh_key::PublicKey,
    /// From then on it signs nothing new.
    pub until: Option<UnixSeconds>,
}

/// Whose signatures count. Having the section makes them required.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Signatures {
    /// SSH keys.
    pub ssh: Vec<SshSigner>,
    /// A keyring of OpenPGP keys, each of which counts.
    pub openpgp: Option<PathBuf>,
}

/// How a remote lets us in.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Access {
    /// Private key for ssh.
    pub ssh_key: Option<PathBuf>,
    /// Host keys for ssh.
    pub known_hosts: Option<PathBuf>,
    /// Certificates for https, instead of the system's.
    pub ca: Option<PathBuf>,
    /// File with `USER:TOKEN` for https.
    pub token: Option<PathBuf>,
}

/// What a source may cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourceLimits {
    /// Bytes of one fetch.
    pub fetch: u64,
    /// Files and folders below the folder of policies.
    pub files: usize,
    /// Bytes of one policy.
    pub file: u64,
    /// Bytes of all policies.
    pub total: u64,
    /// Time of each act of git.
    pub time: Duration,
}

impl Default for SourceLimits {
    fn default() -> Self {
        Self {
            // A repository of policies is text; this is years of it.
            fetch: 64 << 20,
            files: 2000,
            // The parser takes no larger document.
            file: 1 << 20,
            total: 16 << 20,
            // Long enough for a first fetch over a slow line, short beside the time in which people notice.
            time: Duration::from_mins(1),
        }
    }
}

/// One source, checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceConfig {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub remote: Remote,
    /// What is followed.
    pub branch: Branch,
    /// Where policies are.
    pub folder: TreePath,
    /// Where workspace floors are.
    pub floors: Option<TreePath>,
    /// For which workspaces it speaks; empty: all.
    pub workspaces: BTreeSet<String>,
    /// How often it is looked at.
    pub poll: Duration,
    /// What becomes of rewritten history.
    pub rewrites: Rewrites,
    /// Whose signatures are required.
    pub signatures: Option<Signatures>,
    /// How the remote lets us in.
    pub access: Access,
    /// What it may cost.
    pub limits: SourceLimits,
    /// Whether proposals may be pushed.
    pub proposals: bool,
}

impl SourceConfig {
    /// Whether it speaks for a workspace.
    pub fn serves(&self, workspace: &str) -> bool {
        self.workspaces.is_empty() || self.workspaces.contains(workspace)
    }

    /// What makes it the same source across restarts: a state that was kept for another one is not this one's.
    pub fn identity(&self) -> String {
        let floors = self.floors.as_ref().map_or("", TreePath::as_str);
        let parts = [
            self.remote.as_str(),
            &self.branch.reference(),
            self.folder.as_str(),
            floors,
        ];
        parts.join("\n")
    }
}
