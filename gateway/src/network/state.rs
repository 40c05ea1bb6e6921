//! What a network leaves under the run directory, so that a restarted gateway adopts it before any door opens.
//!
//! `RUN_DIR/networks/ID/state.json`, replaced whole by rename, and the leases beside it. The run directory is a tmpfs:
//! it lives as long as the links do. Holds policy texts as they were given; they are parsed and composed again at
//! adoption. Failure stance: state that cannot be read or contradicts the kernel is not adopted, and its link goes.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use netpolicy::ids::{Generation, NetworkId, PolicyHash};
use serde::{Deserialize, Serialize};

use super::allot::Allotted;
use crate::control::PolicySource;
use crate::limits::Used;
use crate::member::Membership;
use crate::record::Recorded;

/// Everything about a network that the kernel does not know.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Identity.
    pub id: NetworkId,
    /// The run, if any.
    pub run: Option<String>,
    /// Workspace.
    pub workspace: String,
    /// IPv4 address.
    pub v4: Ipv4Addr,
    /// IPv6 address.
    pub v6: Ipv6Addr,
    /// Outer link.
    pub link: String,
    /// Whether it has that link, or a socket to the proxy only.
    #[serde(default)]
    pub via: crate::control::api::Via,
    /// Broker socket.
    pub broker: Option<PathBuf>,
    /// What it is to its siblings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<Membership>,
    /// Who attached it, for the broker's ownership check.
    pub owner: u32,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// The job policy as it was given.
    pub source: PolicySource,
    /// Its text, where a source had it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved: Option<crate::policy::Resolved>,
    /// What it was enforced for.
    pub policy: PolicyHash,
    /// Its generation.
    pub generation: Generation,
    /// Milliseconds since the epoch.
    pub attached_ms: i64,
    /// Budgets used.
    pub used: Used,
    /// What it holds of its share of the record.
    #[serde(default)]
    pub recorded: Recorded,
}

impl State {
    /// What the network has to itself.
    pub fn allotted(&self) -> Allotted {
        Allotted {
            id: self.id.clone(),
            v4: self.v4,
            v6: self.v6,
            link: self.link.clone(),
        }
    }
}

/// State that could not be read: where, and why.
pub type Damaged = (PathBuf, io::Error);

/// The folder of all networks.
#[derive(Clone, Debug)]
pub struct StateDir(PathBuf);

impl StateDir {
    /// Opens or makes `RUN_DIR/networks`, readable by its owner only.
    pub fn open(run_dir: &Path) -> io::Result<Self> {
        let dir = run_dir.join("networks");
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)?;
        Ok(Self(dir))
    }

    /// The run directory itself.
    pub fn run_dir(&self) -> &Path {
        self.0.parent().unwrap_or(&self.0)
    }

    fn of(&self, id: &NetworkId) -> PathBuf {
        // The identity's grammar has no '.', '/' or NUL.
        self.0.join(id.as_str())
    }

    /// Where a network's leases are.
    pub fn leases(&self, id: &NetworkId) -> PathBuf {
        self.of(id).join("leases")
    }

    /// Makes room for a new network; whatever an earlier one of this name left goes.
    pub fn begin(&self, id: &NetworkId) -> io::Result<()> {
        self.remove(id)?;
        fs::DirBuilder::new().mode(0o700).create(self.of(id))
    }

    /// Replaces the state, whole or not at all.
    pub fn save(&self, state: &State) -> io::Result<()> {
        let path = self.of(&state.id).join("state.json");
        let fresh = path.with_extension("new");
        let mut file = fs::OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&fresh)?;
        file.write_all(&serde_json::to_vec(state)?)?;
        fs::rename(&fresh, &path)
    }

    /// Removes a network's state and leases; fine when there is none.
    pub fn remove(&self, id: &NetworkId) -> io::Result<()> {
        match fs::remove_dir_all(self.of(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Every state that can be read, and what could not be.
    pub fn load(&self) -> io::Result<(Vec<State>, Vec<Damaged>)> {
        let (mut states, mut damaged) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(&self.0)? {
            let folder = entry?.path();
            match load_one(&folder) {
                Ok(state) if folder == self.of(&state.id) => states.push(state),
                Ok(_) => damaged.push((
                    folder,
                    io::Error::new(io::ErrorKind::InvalidData, "the state is another network's"),
                )),
                Err(error) => damaged.push((folder, error)),
            }
        }
        states.sort_by(|a, b| a.id.cmp(&b.id));
        Ok((states, damaged))
    }

    /// Removes what [`StateDir::load`] could not read.
    pub fn discard(folder: &Path) -> io::Result<()> {
        if folder.is_dir() {
            fs::remove_dir_all(folder)
        } else {
            fs::remove_file(folder)
        }
    }
}

fn load_one(folder: &Path) -> io::Result<State> {
    Ok(serde_json::from_slice(&fs::read(
        folder.join("state.json"),
    )?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(id: &str) -> State {
        State {
            id: id.parse().unwrap(),
            run: None,
            workspace: "default".to_owned(),
            v4: Ipv4Addr::new(198, 18, 0, 2),
            v6: Ipv6Addr::LOCALHOST,
            link: "sp0".to_owned(),
            via: crate::control::api::Via::Link,
            broker: None,
            member: None,
            owner: 0,
            labels: BTreeMap::new(),
            source: PolicySource::Preset("none".to_owned()),
            resolved: None,
            policy: PolicyHash([0; 32]),
            generation: Generation(1),
            attached_ms: 1,
            used: Used::default(),
            recorded: Recorded::default(),
        }
    }

    #[test]
    fn half_written_or_misplaced_state_is_not_adopted_and_whole_state_is() {
        let dir = tempfile::tempdir().unwrap();
        let states = StateDir::open(dir.path()).unwrap();
        for id in ["whole", "torn", "moved"] {
            states.begin(&id.parse().unwrap()).unwrap();
            states.save(&state(id)).unwrap();
        }
        let torn = dir.path().join("networks/torn/state.json");
        let text = fs::read_to_string(&torn).unwrap();
        fs::write(&torn, &text[..text.len() / 2]).unwrap();
        fs::rename(
            dir.path().join("networks/moved"),
            dir.path().join("networks/elsewhere"),
        )
        .unwrap();
        fs::write(dir.path().join("networks/stray"), "x").unwrap();
        let (found, damaged) = states.load().unwrap();
        assert_eq!(found, [state("whole")]);
        assert_eq!(damaged.len(), 3);
        for (folder, _) in damaged {
            StateDir::discard(&folder).unwrap();
        }
        assert_eq!(states.load().unwrap().1.len(), 0);
    }

    #[test]
    fn a_new_network_inherits_nothing_from_one_of_the_same_name() {
        let dir = tempfile::tempdir().unwrap();
        let states = StateDir::open(dir.path()).unwrap();
        let id: NetworkId = "dev".parse().unwrap();
        states.begin(&id).unwrap();
        fs::write(states.leases(&id), "old").unwrap();
        states.begin(&id).unwrap();
        assert!(!states.leases(&id).exists());
    }
}
