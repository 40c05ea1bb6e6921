//! Signed statements about the chain: the head (each second), anchors (each minute) and checkpoints (what retention
//! removed). Owns the signing key.
//!
//! A statement says "the line with this number has this hash". Whoever can write the journal but not sign cannot cut,
//! replace or renumber what a statement covers; whoever holds the key as well is caught by anchors kept elsewhere.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use ed25519_dalek::{Signature, Signer, SigningKey, Verifier, VerifyingKey};
use serde::{Deserialize, Serialize};

use super::chain::{Link, Position};

/// What a statement is about; part of what is signed, so that one kind never passes for another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum About {
    /// The newest line that is on disk for certain.
    Head,
    /// Same, at a clean end: nothing was lost.
    CleanEnd,
    /// The newest line that retention removed: the journal goes on after it.
    Checkpoint,
}

/// A signed position.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    /// What about.
    pub about: About,
    /// Number of the line.
    pub seq: u64,
    /// Its hash, in hex.
    pub hash: String,
    /// Milliseconds since the epoch.
    pub t: i64,
    /// Public key, in hex.
    pub key: String,
    /// Ed25519 signature, in hex.
    pub signature: String,
}

fn message(about: About, seq: u64, hash: &str, t: i64) -> String {
    format!("sallyport journal statement\n{about:?}\n{seq}\n{hash}\n{t}\n")
}

impl Statement {
    /// The position it speaks of.
    pub fn position(&self) -> Option<Position> {
        Some(Position {
            seq: self.seq,
            link: Link::parse(&self.hash)?,
        })
    }

    /// Whether its own key signed it.
    pub fn holds(&self) -> bool {
        let check = || {
            let key = VerifyingKey::from_bytes(&Link::parse(&self.key)?.0).ok()?;
            let signature = Signature::from_bytes(&unhex(&self.signature)?);
            key.verify(
                message(self.about, self.seq, &self.hash, self.t).as_bytes(),
                &signature,
            )
            .ok()
        };
        check().is_some()
    }

    /// Reads one from a file; `None` if there is none.
    pub fn read(path: &Path) -> io::Result<Option<Self>> {
        match fs::read(path) {
            // An empty file is damage as well, not the end of something that is still being read.
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces a file by this statement, whole or not at all.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let fresh = path.with_extension("new");
        let mut file = File::create(&fresh)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_data()?;
        fs::rename(&fresh, path)
    }
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut out = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in out.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(out)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The key that signs statements.
pub struct Signatory(SigningKey);

impl std::fmt::Debug for Signatory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Signatory({})", self.public())
    }
}

impl Signatory {
    /// Reads the key, or makes one that only its owner can read. A key that others can read is refused.
    pub fn open(path: &Path) -> io::Result<Self> {
        match File::open(path) {
            Ok(mut file) => {
                if file.metadata()?.mode() & 0o077 != 0 {
                    return Err(io::Error::new(
                        io::ErrorKind::PermissionDenied,
                        "others than its owner can read the journal's key",
                    ));
                }
                let mut text = String::new();
                file.read_to_string(&mut text)?;
                let bytes = unhex(text.trim()).ok_or_else(|| {
                    io::Error::new(
                        io::ErrorKind::InvalidData,
                        "the journal's key is not 64 hex digits",
                    )
                })?;
                Ok(Self(SigningKey::from_bytes(&bytes)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut bytes = [0; 32];
                getrandom::fill(&mut bytes).map_err(|e| io::Error::other(e.to_string()))?;
                let mut file = OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(path)?;
                file.write_all(hex(&bytes).as_bytes())?;
                file.sync_all()?;
                Ok(Self(SigningKey::from_bytes(&bytes)))
            }
            Err(error) => Err(error),
        }
    }

    /// The public key, in hex.
    pub fn public(&self) -> String {
        hex(self.0.verifying_key().as_bytes())
    }

    /// Signs a position.
    pub fn sign(&self, about: About, at: Position, t: i64) -> Statement {
        let hash = at.link.to_string();
        let signature = self.0.sign(message(about, at.seq, &hash, t).as_bytes());
        Statement {
            about,
            seq: at.seq,
            hash,
            t,
            key: self.public(),
            signature: hex(&signature.to_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_statement_does_not_hold_and_the_signed_one_does() {
        let dir = tempfile::tempdir().unwrap();
        let key = Signatory::open(&dir.path().join("key")).unwrap();
        let signed = key.sign(
            About::Head,
            Position {
                seq: 9,
                link: Link([7; 32]),
            },
            5,
        );
        assert!(signed.holds());
        assert!(
            !Statement {
                seq: 8,
                ..signed.clone()
            }
            .holds()
        );
        assert!(
            !Statement {
                about: About::CleanEnd,
                ..signed.clone()
            }
            .holds()
        );
        assert!(
            !Statement {
                t: 6,
                ..signed.clone()
            }
            .holds()
        );
        assert!(
            !Statement {
                hash: Link([8; 32]).to_string(),
                ..signed
            }
            .holds()
        );
    }

    #[test]
    fn a_key_that_others_can_read_is_refused_and_a_private_one_is_kept() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let first = Signatory::open(&path).unwrap().public();
        assert_eq!(Signatory::open(&path).unwrap().public(), first);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(
            Signatory::open(&path).unwrap_err().kind(),
            io::ErrorKind::PermissionDenied
        );
    }
}
