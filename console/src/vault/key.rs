//! The instance key: 256 random bits in a file that is its owner's alone, and what is derived from it.
//!
//! Its id is derived too and tells nothing about it; the store names keys by it. Failure stance: a file that others may
//! read, or that holds something else, is refused and not replaced.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM, RandomizedNonceKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

use super::VaultError;

/// Bytes of a key.
pub const SIZE: usize = 32;
/// What the text of one begins with, which lets scanners of leaked secrets find it.
const PREFIX: &str = "spk_";
/// Longer is no key.
const LONGEST: u64 = 1024;

/// Whoever waits for another process looks so often.
const LOOKS: Duration = Duration::from_millis(50);

/// The key that wraps all others.
pub struct InstanceKey {
    id: String,
    text: Zeroizing<String>,
    wrapping: RandomizedNonceKey,
}

impl fmt::Debug for InstanceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InstanceKey({})", self.id)
    }
}

/// How much HKDF gives.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl InstanceKey {
    /// A new one.
    pub fn fresh() -> Result<Self, VaultError> {
        let mut bits = Zeroizing::new([0_u8; SIZE]);
        getrandom::fill(bits.as_mut()).map_err(|_| VaultError::Random)?;
        Self::of(bits.as_ref()).ok_or(VaultError::Random)
    }

    /// From the text that a file or a backup has.
    pub fn parse(text: &str) -> Option<Self> {
        let bits = Zeroizing::new(
            URL_SAFE_NO_PAD
                .decode(text.trim().strip_prefix(PREFIX)?)
                .ok()?,
        );
        (bits.len() == SIZE).then(|| Self::of(&bits)).flatten()
    }

    fn of(bits: &[u8]) -> Option<Self> {
        let derived = Salt::new(HKDF_SHA256, b"sallyport instance key").extract(bits);
        let wrapping = Zeroizing::new(expand(&derived, b"wrap", SIZE)?);
        let id = expand(&derived, b"id", 9)?;
        Some(Self {
            id: URL_SAFE_NO_PAD.encode(id),
            text: Zeroizing::new(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bits))),
            wrapping: RandomizedNonceKey::new(&AES_256_GCM, &wrapping).ok()?,
        })
    }

    /// Its name in the store.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What a file has. For the file and for backups that were asked to hold it.
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// What wraps the keys of values.
    pub(super) const fn wrapping(&self) -> &RandomizedNonceKey {
        &self.wrapping
    }
}

fn expand(derived: &Prk, purpose: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut out = vec![0; length];
    derived
        .expand(&[purpose], Length(length))
        .ok()?
        .fill(&mut out)
        .ok()?;
    Some(out)
}

/// The files of the key and of the one that is to follow it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyFile(PathBuf);

impl KeyFile {
    /// At this path.
    pub const fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Where the key lies that follows it, until every value is wrapped by that one.
    #[must_use]
    pub fn next(&self) -> Self {
        let mut name = self.0.as_os_str().to_owned();
        name.push(".next");
        Self(name.into())
    }

    /// The key in it; `None`: there is no file.
    pub fn read(&self) -> Result<Option<InstanceKey>, VaultError> {
        let mut file = match OpenOptions::new().read(true).open(&self.0) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.failed(error)),
        };
        let about = file.metadata().map_err(|e| self.failed(e))?;
        if about.mode() & 0o077 != 0 {
            return Err(VaultError::Open(self.0.clone()));
        }
        let mut text = Zeroizing::new(String::new());
        let whole = about.len() <= LONGEST && file.read_to_string(&mut text).is_ok();
        let key = whole.then(|| InstanceKey::parse(&text)).flatten();
        key.map(Some)
            .ok_or_else(|| VaultError::NoKey(self.0.clone()))
    }

    /// Keeps a key where there is none: it is on the disk when this returns. `false`: another process was faster.
    pub fn create(&self, key: &InstanceKey) -> Result<bool, VaultError> {
        let failed = |error| self.failed(error);
        let folder = self.0.parent().unwrap_or(Path::new("/"));
        let mut folders = std::fs::DirBuilder::new();
        folders.recursive(true).mode(0o700);
        folders.create(folder).map_err(failed)?;
        // written whole under a name of its own, then linked: nobody reads half a key
        let draft = folder.join(format!(".{}.key", crate::clock::id()));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&draft).map_err(failed)?;
        let written = writeln!(file, "{}", key.reveal()).and_then(|()| file.sync_all());
        let linked = written.and_then(|()| std::fs::hard_link(&draft, &self.0));
        std::fs::remove_file(&draft).map_err(failed)?;
        match linked {
            Ok(()) => self.settle().map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    /// Waits until no other process turns the key of this file; it is kept out until the answer is dropped. Two at once
    /// could put a key in place of one that still wraps something.
    pub async fn alone(&self) -> Result<File, VaultError> {
        let mut name = self.0.as_os_str().to_owned();
        name.push(".lock");
        let mut options = OpenOptions::new();
        options.create(true).append(true).mode(0o600);
        let file = options.open(&name).map_err(|e| self.failed(e))?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) => tokio::time::sleep(LOOKS).await,
                Err(TryLockError::Error(error)) => return Err(self.failed(error)),
            }
        }
    }

    /// Takes the place of another one.
    pub fn replace(&self, other: &Self) -> Result<(), VaultError> {
        std::fs::rename(&self.0, &other.0).map_err(|e| self.failed(e))?;
        other.settle()
    }

    /// What is in it is no key: whatever it is, it stays, under another name.
    pub fn put_aside(&self) -> Result<(), VaultError> {
        let mut name = self.0.as_os_str().to_owned();
        name.push(format!(".unusable-{}", crate::clock::id()));
        self.replace(&Self(name.into()))
    }

    /// What its folder says is on the disk.
    fn settle(&self) -> Result<(), VaultError> {
        let folder = self.0.parent().unwrap_or(Path::new("/"));
        let synced = std::fs::File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|e| self.failed(e))
    }

    fn failed(&self, source: io::Error) -> VaultError {
        VaultError::File {
            path: self.0.clone(),
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_kept_once_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = KeyFile::at(folder.path().join("deep/instance.key"));
        assert!(file.read().unwrap().is_none());
        let key = InstanceKey::fresh().unwrap();
        assert!(file.create(&key).unwrap());
        assert!(!file.create(&InstanceKey::fresh().unwrap()).unwrap());
        assert_eq!(file.read().unwrap().unwrap().id(), key.id());
        assert_eq!(std::fs::metadata(file.path()).unwrap().mode() & 0o077, 0);
        assert_eq!(
            std::fs::read_dir(folder.path().join("deep"))
                .unwrap()
                .count(),
            1
        );
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(file.read(), Err(VaultError::Open(_))));
    }

    #[test]
    fn what_is_no_key_is_refused_and_nothing_shows_one() {
        let key = InstanceKey::fresh().unwrap();
        let text = key.reveal().to_owned();
        assert_eq!(
            InstanceKey::parse(&format!("{text}\n")).unwrap().id(),
            key.id()
        );
        for wrong in [
            "",
            "spk_",
            &text[..20],
            &text.replace("spk_", "spt_"),
            &format!("{text}A"),
        ] {
            assert!(InstanceKey::parse(wrong).is_none(), "{wrong}");
        }
        assert!(!format!("{key:?}").contains(&text[4..12]));
        assert_ne!(InstanceKey::fresh().unwrap().id(), key.id());
    }
}
