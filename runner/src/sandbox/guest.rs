//! The guest helper as files: laid out on the host for bind mounts, packed as the holder's image.
//!
//! Owns the bytes of `sally`, built into the runner (`build.rs`). Refuses to own what it does inside a sandbox; that is
//! `images/guest`. Files are named after their content, so a newer runner never changes what a live sandbox has mounted.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::image::archive;

static SALLY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sally"));

/// Sixteen hex digits that name this very helper.
pub fn stamp() -> String {
    let digest = Sha256::digest(SALLY);
    digest
        .iter()
        .take(8)
        .fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// Writes the helper below `folder`, if it is not there yet, and returns its path.
pub fn lay_out(folder: &Path) -> io::Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    let path = folder.join(format!("sally-{}", stamp()));
    if std::fs::read(&path).is_ok_and(|present| present == SALLY) {
        return Ok(path);
    }
    let new = path.with_extension("new");
    std::fs::write(&new, SALLY)?;
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o555))?;
    std::fs::rename(&new, &path)?;
    Ok(path)
}

/// A file system with the helper as `/sally` and nothing else: all that a holder sees.
pub fn file_system() -> Vec<u8> {
    archive::one_file("sally", SALLY, 0o555)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helper_is_static_and_small() {
        assert_eq!(&SALLY[..4], b"\x7fELF");
        let folder = tempfile::tempdir().unwrap();
        let path = lay_out(folder.path()).unwrap();
        // PT_INTERP is program header type 3: a dynamic executable has one, and would not start in a foreign image.
        let at = usize::try_from(u64::from_le_bytes(SALLY[32..40].try_into().unwrap())).unwrap();
        let count = usize::from(u16::from_le_bytes(SALLY[56..58].try_into().unwrap()));
        assert!((0..count).all(|i| SALLY[at + i * 56..][..4] != [3, 0, 0, 0]));
        // Not a promise, but every page of it is in every sandbox.
        assert!(SALLY.len() < 3 << 19, "{} bytes", SALLY.len());
        assert_eq!(lay_out(folder.path()).unwrap(), path);
    }
}
