//! Files that say whom to believe, or that hold a secret: believed when only root could have written them.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Larger is no key, no list and no token.
const MOST: u64 = 1 << 20;

/// What a file holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holds {
    /// Whom to believe; others may read it.
    Trust,
    /// A secret; nobody else may read it.
    Secret,
}

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {why}")]
pub struct FileError {
    /// The file.
    pub path: String,
    /// Why.
    pub why: String,
}

/// Checks a file and reads it.
pub fn read(path: &Path, holds: Holds) -> Result<Vec<u8>, FileError> {
    let fail = |why: String| FileError {
        path: path.display().to_string(),
        why,
    };
    let open = || -> io::Result<_> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(path)?;
        let found = file.metadata()?;
        Ok((file, found))
    };
    let (file, found) = open().map_err(|e| fail(e.to_string()))?;
    let own = found.uid() == 0 || found.uid() == rustix::process::geteuid().as_raw();
    let forbidden = if holds == Holds::Secret { 0o077 } else { 0o022 };
    if !found.is_file() || !own || found.mode() & forbidden != 0 {
        let need = if holds == Holds::Secret {
            "readable by it alone"
        } else {
            "writable by it alone"
        };
        return Err(fail(format!(
            "is not believed: it must be a regular file of root, {need}"
        )));
    }
    let mut bytes = Vec::new();
    file.take(MOST)
        .read_to_end(&mut bytes)
        .map_err(|e| fail(e.to_string()))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_file_that_others_could_write_or_a_secret_that_they_could_read_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        write(&path, "x").unwrap();
        for (mode, trust, secret) in [
            (0o600, true, true),
            (0o644, true, false),
            (0o640, true, false),
            (0o664, false, false),
            (0o602, false, false),
        ] {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(
                (
                    read(&path, Holds::Trust).is_ok(),
                    read(&path, Holds::Secret).is_ok()
                ),
                (trust, secret),
                "{mode:o}"
            );
        }
        let link = dir.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(read(&link, Holds::Trust).is_err() && read(dir.path(), Holds::Trust).is_err());
    }
}
