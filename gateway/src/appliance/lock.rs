//! One gateway for each state directory, run directory, journal and namespace.
//!
//! Two gateways that share any of them would undo each other: rules applied in turns, one journal's chain written by two,
//! networks of the other removed as leftovers. Everything is locked before anything is changed; the kernel gives a lock
//! back when its process ends, however it ends. Refuses to own: what the directories hold.
//! Failure stance: what is locked by another is named, and nothing was touched.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use super::BuildError;
use super::build::files;
use crate::config::GatewayConfig;
use crate::kernel::netns;

/// Everything that one gateway has to itself; held as long as it lives.
#[derive(Debug)]
pub(super) struct Locks {
    _held: [File; 3],
}

impl Locks {
    /// Takes all, or none; makes directories that are not there yet. The namespace is locked apart: it may not be there.
    pub(super) fn take(config: &GatewayConfig) -> Result<Self, BuildError> {
        let state = directory(&config.state_dir, 0o700)?;
        let run = directory(&config.run_dir, 0o700)?;
        // Its files may be read by a group that the operator chooses.
        let journal = directory(&config.journal.dir, 0o755)?;
        Ok(Self {
            _held: [state, run, journal],
        })
    }
}

fn directory(path: &Path, mode: u32) -> Result<File, BuildError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
        .map_err(files("making", path))?;
    let file_path = path.join("lock");
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&file_path)
        .map_err(files("opening", &file_path))?;
    exclusive(&file, path)?;
    Ok(file)
}

/// The namespace is its own lock, so that two configurations with different directories meet here too.
pub(super) fn namespace(config: &GatewayConfig) -> Result<File, BuildError> {
    let file = netns::keep(&config.namespaces(), &config.namespace)?;
    exclusive(&file, &config.namespace_path())?;
    Ok(file)
}

fn exclusive(file: &impl AsFd, path: &Path) -> Result<(), BuildError> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(BuildError::Locked(path.to_owned())),
        Err(error) => Err(files("locking", path)(error.into())),
    }
}
