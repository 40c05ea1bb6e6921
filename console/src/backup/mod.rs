//! A backup: the store's rows, one JSON line each, encrypted with age for keys or a passphrase that the operator keeps.
//!
//! [`write`] makes one while consoles serve, [`restore`] makes a store of one. The first line says what the file is and of
//! which version its rows are, the last one how many there are and which instance key their secrets need. That key is not
//! inside unless it is asked for: who has the file and its key reads every secret then. Sessions, sign-ins and links are
//! left out, so nothing that was ended comes back. Failure stance: a file is whole and on the disk under its name, or has
//! no name; a store is whole, or the database is empty, also after `kill -9`.

mod keys;
mod restore;
#[cfg(test)]
mod tests;
mod write;

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::clock::Millis;
use crate::store::StoreError;
use crate::store::dump::LoadError;
use crate::vault::VaultError;

pub use keys::{Opens, Seals};
pub use restore::{Target, restore};
pub use write::{KeyInside, write};

/// What the first line says.
const FORMAT: &str = "sallyport backup 1";

/// Why there is no backup, or no store from one.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A file cannot be read or written.
    #[error("{doing} {path}")]
    File {
        /// What was to be done with it.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// There is a file of that name.
    #[error("{0} is there already, and is not written over")]
    There(PathBuf),
    /// No public key of age's, no file with a secret one, no passphrase.
    #[error("{0}")]
    Key(String),
    /// Two instance keys are in use.
    #[error(
        "the instance key is being turned: no single key would open every secret of the backup"
    )]
    Turning,
    /// It is encrypted for other keys, was changed or cut, or is no backup.
    #[error("the backup does not open: {0}")]
    Closed(String),
    /// It opens, and is not what it says.
    #[error("the backup is not whole: {0}")]
    Broken(&'static str),
    /// It does not go into this store.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The instance key.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl BackupError {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::There(_) => Some("name another file"),
            Self::Turning => Some("`sallyport keys rotate` finishes it"),
            Self::Closed(_) => Some(
                "--identity names the secret key of one of its recipients, --passphrase-file its passphrase; no store was made of it (an empty database may be left, to restore into)",
            ),
            Self::Broken(_) => Some(
                "take another backup; no store was made of it (an empty database may be left, to restore into)",
            ),
            Self::Load(error) => error.hint(),
            Self::Vault(error) => error.hint(),
            Self::Store(error) => error.hint(),
            Self::File { .. } | Self::Key(_) => None,
        }
    }
}

impl From<sqlx::Error> for BackupError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// The first line.
#[derive(Serialize, Deserialize)]
struct Head {
    format: String,
    version: i64,
    at: Millis,
}

/// Every other line.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Row(String, Map<String, Value>),
    End(End),
}

/// The last line.
#[derive(Serialize, Deserialize)]
struct End {
    rows: u64,
    /// Which key the secrets in it need.
    key_id: Option<String>,
    /// The key, if it was asked for.
    key: Option<String>,
}

/// What was written or read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Summary {
    /// How many rows.
    pub rows: u64,
    /// When it was made.
    pub at: Millis,
    /// Which instance key the secrets need; `None`: there are none.
    pub key_id: Option<String>,
    /// Whether it is in the backup.
    pub has_key: bool,
}

fn failed(doing: &'static str, path: &Path, source: io::Error) -> BackupError {
    BackupError::File {
        doing,
        path: path.to_owned(),
        source,
    }
}

/// The folder of a file.
fn folder(path: &Path) -> &Path {
    path.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}
