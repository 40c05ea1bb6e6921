//! What rows of containers sealed the gateway for, so that one that starts anew is sealed for it too.
//!
//! `STATE_DIR/selftest.json`, replaced whole by rename; there is none while nothing failed. Owns: the file. Refuses to
//! own: who is sealed ([`super::contained`]). Failure stance: what cannot be read is an error, because nobody knows what
//! it said.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::report::Variant;

/// A class whose newest rows failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failed {
    /// The class of containers.
    pub class: Variant,
    /// What was wrong.
    pub text: String,
}

/// The file.
#[derive(Debug)]
pub struct Kept {
    path: PathBuf,
    one: Mutex<()>,
}

impl Kept {
    /// In a state folder.
    pub fn under(state_dir: &Path) -> Self {
        Self {
            path: state_dir.join("selftest.json"),
            one: Mutex::default(),
        }
    }

    fn alone(&self) -> MutexGuard<'_, ()> {
        self.one.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that failed.
    pub fn all(&self) -> io::Result<Vec<Failed>> {
        match fs::read(&self.path) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// A class failed. What cannot be read makes room: it is sealed for now, and the newest word counts.
    pub fn put(&self, failed: Failed) -> io::Result<()> {
        let _alone = self.alone();
        let mut all = self.all().unwrap_or_default();
        all.retain(|known| known.class != failed.class);
        all.push(failed);
        self.replace(&all)
    }

    /// A class passed.
    pub fn passed(&self, class: Variant) -> io::Result<()> {
        let _alone = self.alone();
        let mut all = self.all()?;
        let before = all.len();
        all.retain(|known| known.class != class);
        if all.len() == before {
            return Ok(());
        }
        self.replace(&all)
    }

    /// An operator has all of them tried again.
    pub fn forget(&self) -> io::Result<()> {
        let _alone = self.alone();
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn replace(&self, all: &[Failed]) -> io::Result<()> {
        let fresh = self.path.with_extension("new");
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&fresh)?;
        file.write_all(&serde_json::to_vec(all)?)?;
        file.sync_all()?;
        fs::rename(&fresh, &self.path)?;
        let folder = self.path.parent().ok_or(io::ErrorKind::NotFound)?;
        File::open(folder)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_kept_by_class_until_it_passes_or_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Kept::under(dir.path());
        let failed = |class, text: &str| Failed {
            class,
            text: text.to_owned(),
        };
        assert_eq!(open().all().unwrap(), []);
        open().passed(Variant::Gvisor).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        for text in ["once", "twice"] {
            open().put(failed(Variant::Hardened, text)).unwrap();
        }
        open().put(failed(Variant::Gvisor, "other")).unwrap();
        open().passed(Variant::Gvisor).unwrap();
        let left = [failed(Variant::Hardened, "twice")];
        assert_eq!(open().all().unwrap(), left);
        open().forget().unwrap();
        open().forget().unwrap();
        assert_eq!(open().all().unwrap(), []);
    }

    #[test]
    fn what_cannot_be_read_is_an_error_until_something_newer_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let kept = Kept::under(dir.path());
        fs::write(dir.path().join("selftest.json"), "[{").unwrap();
        kept.all().unwrap_err();
        kept.passed(Variant::Hardened).unwrap_err();
        let failed = Failed {
            class: Variant::Hardened,
            text: "new".to_owned(),
        };
        kept.put(failed.clone()).unwrap();
        assert_eq!(kept.all().unwrap(), [failed]);
    }
}
