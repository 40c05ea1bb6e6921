//! Another instance key without a moment in which a value cannot be read.
//!
//! The new key lies beside the old one as `FILE.next`, on the disk, before the store names it; the store names both until
//! every value's key is wrapped by the new one; then the file takes the old one's place. Each step may be the last one of
//! a process that is killed: the next rotation, or the next start of a console, goes on where it was. Consoles that serve
//! meanwhile read the files again when they meet a key that they do not know.

use std::sync::Arc;

use super::envelope::{Place, rewrap};
use super::key::InstanceKey;
use super::{Vault, VaultError};
use crate::clock;
use crate::store::Store;

/// Values at once: a transaction stays short, and people who write meanwhile wait no longer than that.
const BATCH: i64 = 100;

/// What a rotation did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rotated {
    /// The id of the key that is in use now.
    pub key: String,
    /// How many values it wraps that the one before wrapped.
    pub values: u64,
}

impl Vault {
    /// Turns the key. A rotation that was interrupted is finished, and no further one begun.
    pub async fn rotate(&self, store: &Store) -> Result<Rotated, VaultError> {
        let _alone = self.file.alone().await?;
        let keys = self.load(store).await?;
        if keys.before.is_some() {
            return self.finish(store).await;
        }
        let next = self.file.next();
        // one that lies there was made by a rotation that ended before the store named it
        let new = match next.read()? {
            Some(key) if key.id() != keys.current.id() => key,
            Some(_) => return self.finish(store).await,
            None => {
                next.create(&InstanceKey::fresh()?)?;
                let made = next.read()?;
                made.ok_or_else(|| VaultError::NoKey(next.path().to_owned()))?
            }
        };
        store
            .turn_ring(keys.current.id(), new.id(), clock::now())
            .await?;
        self.finish(store).await
    }

    /// Wraps what is still wrapped by the key before, then lets that key go. Does nothing where no rotation is under way.
    pub async fn finish_rotation(&self, store: &Store) -> Result<Rotated, VaultError> {
        let keys = self.load(store).await?;
        if keys.before.is_none() && self.file.next().read()?.is_none() {
            return Ok(Rotated {
                key: keys.current.id().to_owned(),
                values: 0,
            });
        }
        let _alone = self.file.alone().await?;
        self.finish(store).await
    }

    async fn finish(&self, store: &Store) -> Result<Rotated, VaultError> {
        let keys = self.load(store).await?;
        let current = &keys.current;
        let mut values = 0;
        loop {
            let rows = store.wrapped_by_others(current.id(), BATCH).await?;
            if rows.is_empty() && store.close_ring(current.id()).await? {
                break;
            }
            for row in rows {
                let from = keys.named(&row.key_id);
                let from: &Arc<InstanceKey> = from.ok_or_else(|| VaultError::Lost {
                    path: self.file.path().to_owned(),
                    needed: row.key_id.clone(),
                })?;
                let place = Place {
                    kind: &row.kind,
                    id: &row.id,
                    workspace: &row.workspace_id,
                    version: row.version,
                };
                // a row that somebody has tampered with opens with no key: it stays what it is, and ends no rotation
                let wrapped = match rewrap(from, current, &place, &row.wrapped) {
                    Ok(wrapped) => wrapped,
                    Err(VaultError::Tampered) => {
                        tracing::error!(
                            id = row.id,
                            "a sealed value does not open; it cannot be read any more"
                        );
                        row.wrapped.clone()
                    }
                    Err(error) => return Err(error),
                };
                values += store.wrapped_anew(&row, current.id(), &wrapped).await?;
            }
        }
        let next = self.file.next();
        if next.read()?.is_some_and(|key| key.id() == current.id()) {
            next.replace(&self.file)?;
        }
        self.load(store).await?;
        Ok(Rotated {
            key: current.id().to_owned(),
            values,
        })
    }

    /// Deletes every sealed value and begins with the key of the file, or a new one: for who has lost the key.
    pub async fn forget(&self, store: &Store) -> Result<u64, VaultError> {
        // before anything is deleted: without a usable file nothing begins anew
        for file in [&self.file, &self.file.next()] {
            match file.read() {
                Err(VaultError::NoKey(_)) => file.put_aside()?,
                other => drop(other?),
            }
        }
        let lost = store.forget_sealed().await?;
        *self.keys.write().await = None;
        self.ready(store).await?;
        Ok(lost)
    }
}
