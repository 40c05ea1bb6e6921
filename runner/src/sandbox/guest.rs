//! The guest helper as files: laid out on the host for bind mounts, packed as the holder's image.
//!
//! Owns the bytes of `sally`, built into the runner (`build.rs`). Refuses to own what it does inside a sandbox; that is
//! `images/guest`. Files are named after their content, so a newer runner never changes what a live sandbox has mounted.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

static SALLY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sally"));

/// Size of a tar record: header and padding come in it (POSIX ustar).
const BLOCK: usize = 512;

/// Sixteen hex digits that name this very helper.
pub fn stamp() -> String {
    let digest = Sha256::digest(SALLY);
    digest.iter().take(8).fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
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

/// A tar archive with the helper as `/sally` and nothing else: the holder's whole file system.
pub fn archive() -> Vec<u8> {
    let mut archive = Vec::with_capacity(SALLY.len() + 4 * BLOCK);
    archive.extend_from_slice(&header("sally", SALLY.len(), 0o555));
    archive.extend_from_slice(SALLY);
    archive.resize(archive.len().next_multiple_of(BLOCK), 0);
    // Two empty blocks end an archive.
    archive.resize(archive.len() + 2 * BLOCK, 0);
    archive
}

fn header(name: &str, size: usize, mode: u32) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, text: &str| {
        if let Some(field) = block.get_mut(at..at + text.len()) {
            field.copy_from_slice(text.as_bytes());
        }
    };
    put(0, name);
    put(100, &format!("{mode:07o}\0"));
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{size:011o}\0"));
    put(136, "00000000000\0");
    // The checksum counts its own field as spaces.
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\0");
    put(263, "00");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    if let Some(field) = block.get_mut(148..156) {
        field.copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    block
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
        let at = u64::from_le_bytes(SALLY[32..40].try_into().unwrap()) as usize;
        let count = usize::from(u16::from_le_bytes(SALLY[56..58].try_into().unwrap()));
        assert!((0..count).all(|i| SALLY[at + i * 56..][..4] != [3, 0, 0, 0]));
        assert!(SALLY.len() < 1 << 20, "{} bytes", SALLY.len());
        assert_eq!(lay_out(folder.path()).unwrap(), path);
    }

    #[test]
    fn archive_is_read_by_tar() {
        let folder = tempfile::tempdir().unwrap();
        let tar = folder.path().join("holder.tar");
        std::fs::write(&tar, archive()).unwrap();
        let status = std::process::Command::new("tar").arg("-xf").arg(&tar).arg("-C").arg(folder.path()).status().unwrap();
        assert!(status.success());
        let sally = folder.path().join("sally");
        assert_eq!(std::fs::read(&sally).unwrap(), SALLY);
        assert_eq!(std::fs::metadata(&sally).unwrap().permissions().mode() & 0o777, 0o555);
    }
}
