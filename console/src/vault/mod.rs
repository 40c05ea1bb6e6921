//! What is secret at rest: the instance key, the envelopes of values, the key's rotation.
//!
//! A value has a key of its own, that key is wrapped by the instance's ([`envelope`]), which lies in a file ([`key`]) and
//! never in the store. Every console of one store needs the same key. Invariants: no value, and no key, is in a log, an
//! error, a Debug text or an answer. Failure stance: with another key than the store's nothing starts and nothing is
//! written; a row that does not open is refused and left as it is.

pub mod envelope;
pub mod key;
mod reveal;
mod rotate;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::RwLock;
use zeroize::Zeroizing;

use crate::clock;
use crate::store::sealed::RingKey;
use crate::store::{Store, StoreError};
pub use envelope::{Place, Sealed};
use key::{InstanceKey, KeyFile};
pub use reveal::{ForRun, RevealError, keeps_to};
pub use rotate::Rotated;

/// Why a value was not sealed or opened.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// The file cannot be read or written.
    #[error("the instance key in {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Others may read the file.
    #[error("the instance key in {0} may be read by others than its owner")]
    Open(PathBuf),
    /// The file holds something else.
    #[error("{0} holds no instance key")]
    NoKey(PathBuf),
    /// The store has values that are sealed, and there is no file.
    #[error("the store is sealed with the instance key {needed}, and there is none in {path}")]
    Lost {
        /// The file.
        path: PathBuf,
        /// The key's id.
        needed: String,
    },
    /// The file holds another key than the store's.
    #[error("the store is sealed with the instance key {needed}, and {path} holds {found}")]
    Wrong {
        /// The file.
        path: PathBuf,
        /// The id of the store's key.
        needed: String,
        /// The id of the file's.
        found: String,
    },
    /// A row was changed, or moved from where it was sealed.
    #[error("a sealed value does not open where it lies: it was changed, or moved there")]
    Tampered,
    /// The system has no random numbers.
    #[error("the system gives no random numbers")]
    Random,
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl VaultError {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::File { .. } => {
                Some("look at who may use the file; `console.key_file` names another one")
            }
            Self::Open(_) => {
                Some("chmod 600 it, then `sallyport keys rotate`: somebody may have read it")
            }
            Self::NoKey(_) | Self::Lost { .. } | Self::Wrong { .. } => Some(
                "put the key back from where you keep it (mode 600); nothing was changed. If it is lost for good, \
                 `sallyport keys forget` deletes every secret and begins anew",
            ),
            Self::Tampered => Some("set the secret anew, and find out who writes into the store"),
            Self::Store(error) => error.hint(),
            Self::Random => None,
        }
    }
}

/// The instance's keys that are in use, as one process holds them.
#[derive(Debug)]
struct Keys {
    /// The one that seals.
    current: Arc<InstanceKey>,
    /// The one before, while a rotation is under way.
    before: Option<Arc<InstanceKey>>,
}

impl Keys {
    fn named(&self, id: &str) -> Option<&Arc<InstanceKey>> {
        std::iter::once(&self.current)
            .chain(&self.before)
            .find(|key| key.id() == id)
    }
}

/// The keys and what they do. One for a process.
#[derive(Debug)]
pub struct Vault {
    file: KeyFile,
    keys: RwLock<Option<Arc<Keys>>>,
}

impl Vault {
    /// With the key in this file; it is read, or made, when it is needed first.
    pub fn at(file: PathBuf) -> Self {
        Self {
            file: KeyFile::at(file),
            keys: RwLock::new(None),
        }
    }

    /// The file of its key.
    pub fn file(&self) -> &std::path::Path {
        self.file.path()
    }

    /// Reads the key and compares it with the store's; makes one where neither has any.
    pub async fn ready(&self, store: &Store) -> Result<(), VaultError> {
        self.load(store).await.map(|_| ())
    }

    /// Seals a value for a place. Whoever writes it asks the store whether the key is still the current one, and calls
    /// [`Vault::refresh`] and this again if it is not.
    pub async fn seal(
        &self,
        store: &Store,
        place: &Place<'_>,
        value: &[u8],
    ) -> Result<Sealed, VaultError> {
        let keys = self.keys(store).await?;
        envelope::seal(&keys.current, place, value)
    }

    /// Opens a value.
    pub async fn open(
        &self,
        store: &Store,
        place: &Place<'_>,
        sealed: &Sealed,
    ) -> Result<Zeroizing<Vec<u8>>, VaultError> {
        let mut keys = self.keys(store).await?;
        if keys.named(&sealed.key_id).is_none() {
            // another process has turned the key meanwhile
            keys = self.load(store).await?;
        }
        let key = keys.named(&sealed.key_id).ok_or(VaultError::Tampered)?;
        envelope::open(key, place, sealed)
    }

    /// The current key, for a backup that is to hold it.
    pub(crate) async fn current(&self, store: &Store) -> Result<Arc<InstanceKey>, VaultError> {
        Ok(self.keys(store).await?.current.clone())
    }

    /// Reads the keys again: another process has turned them.
    pub async fn refresh(&self, store: &Store) -> Result<(), VaultError> {
        self.load(store).await.map(|_| ())
    }

    async fn keys(&self, store: &Store) -> Result<Arc<Keys>, VaultError> {
        if let Some(keys) = self.keys.read().await.as_ref() {
            return Ok(keys.clone());
        }
        self.load(store).await
    }

    async fn load(&self, store: &Store) -> Result<Arc<Keys>, VaultError> {
        let mut held = self.keys.write().await;
        let keys = Arc::new(self.find(store).await?);
        *held = Some(keys.clone());
        Ok(keys)
    }

    /// The keys that the store names, from the files. What another process turns meanwhile is looked for again.
    async fn find(&self, store: &Store) -> Result<Keys, VaultError> {
        let mut ring = store.ring().await?;
        loop {
            if ring.is_empty() {
                let key = match self.file.read()? {
                    Some(key) => key,
                    None => self.make()?,
                };
                store.begin_ring(key.id(), clock::now()).await?;
                ring = store.ring().await?;
            }
            let found = self.named_by(&ring);
            let now = store.ring().await?;
            if found.is_ok() || now == ring {
                return found;
            }
            ring = now;
        }
    }

    /// The keys that a ring names.
    fn named_by(&self, ring: &[RingKey]) -> Result<Keys, VaultError> {
        // in this order: whoever moves the one to the other's place meanwhile hides neither
        let next = self.file.next().read()?;
        let file = self.file.read()?;
        let mut found: Vec<Arc<InstanceKey>> = file.into_iter().chain(next).map(Arc::new).collect();
        let mut take = |id: &str| {
            let place = found.iter().position(|key| key.id() == id)?;
            Some(found.swap_remove(place))
        };
        let (mut current, mut before) = (None, None);
        for entry in ring {
            let key = take(&entry.id);
            if entry.current {
                current = key;
            } else {
                before = key;
            }
        }
        let current = current.ok_or_else(|| self.not_there(ring, found.first()));
        Ok(Keys {
            current: current?,
            before,
        })
    }

    fn not_there(&self, ring: &[RingKey], found: Option<&Arc<InstanceKey>>) -> VaultError {
        let needed = ring.iter().find(|entry| entry.current);
        let needed = needed.map_or_else(String::new, |entry| entry.id.clone());
        let path = self.file.path().to_owned();
        match found {
            None => VaultError::Lost { path, needed },
            Some(key) => VaultError::Wrong {
                path,
                needed,
                found: key.id().to_owned(),
            },
        }
    }

    /// A new key, unless another process makes one at the same time.
    fn make(&self) -> Result<InstanceKey, VaultError> {
        let fresh = InstanceKey::fresh()?;
        if self.file.create(&fresh)? {
            tracing::warn!(
                file = %self.file.path().display(),
                "the instance key was made; keep a copy of it apart from backups of the store: without it no secret can be read"
            );
            return Ok(fresh);
        }
        let made = self.file.read()?;
        made.ok_or_else(|| VaultError::NoKey(self.file.path().to_owned()))
    }
}
