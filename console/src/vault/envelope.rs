//! The envelope of one value: a key of its own, wrapped by the instance's, both bound to the row that they lie in.
//!
//! AES-256-GCM twice. The associated data names kind, row, workspace and version, so that what was sealed for one row
//! opens in no other, whoever may write into the store.

use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use zeroize::Zeroizing;

use super::VaultError;
use super::key::{InstanceKey, SIZE};

/// Bytes of a nonce (NIST SP 800-38D).
const NONCE: usize = 12;

/// Where a sealed value lies; it opens nowhere else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place<'a> {
    /// What it is (`secret`, `notification`).
    pub kind: &'a str,
    /// The row.
    pub id: &'a str,
    /// The workspace.
    pub workspace: &'a str,
    /// Which value of the row, counted from 1.
    pub version: i64,
}

impl Place<'_> {
    /// Every field with its length before it, so that no two places have the same bytes.
    fn bytes(&self, layer: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        for field in [layer, self.kind, self.id, self.workspace] {
            bytes.extend_from_slice(&(field.len() as u64).to_be_bytes());
            bytes.extend_from_slice(field.as_bytes());
        }
        bytes.extend_from_slice(&self.version.to_be_bytes());
        bytes
    }
}

/// A sealed value as the store has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sealed {
    /// The id of the instance key that wraps its key.
    pub key_id: String,
    /// Its own key, wrapped.
    pub wrapped: Vec<u8>,
    /// The value.
    pub body: Vec<u8>,
}

/// Seals a value for a place.
pub fn seal(key: &InstanceKey, place: &Place<'_>, value: &[u8]) -> Result<Sealed, VaultError> {
    let mut own = Zeroizing::new([0_u8; SIZE]);
    getrandom::fill(own.as_mut()).map_err(|_| VaultError::Random)?;
    Ok(Sealed {
        key_id: key.id().to_owned(),
        wrapped: close(key.wrapping(), &place.bytes("key"), own.as_ref())?,
        body: close(&of(own.as_ref())?, &place.bytes("value"), value)?,
    })
}

/// Opens what was sealed for this place.
pub fn open(
    key: &InstanceKey,
    place: &Place<'_>,
    sealed: &Sealed,
) -> Result<Zeroizing<Vec<u8>>, VaultError> {
    let own = unclose(key.wrapping(), &place.bytes("key"), &sealed.wrapped)?;
    unclose(&of(&own)?, &place.bytes("value"), &sealed.body)
}

/// Wraps the key of a value with another instance key; the value is not touched.
pub fn rewrap(
    from: &InstanceKey,
    to: &InstanceKey,
    place: &Place<'_>,
    wrapped: &[u8],
) -> Result<Vec<u8>, VaultError> {
    let own = unclose(from.wrapping(), &place.bytes("key"), wrapped)?;
    close(to.wrapping(), &place.bytes("key"), &own)
}

fn of(bytes: &[u8]) -> Result<RandomizedNonceKey, VaultError> {
    RandomizedNonceKey::new(&AES_256_GCM, bytes).map_err(|_| VaultError::Tampered)
}

fn close(key: &RandomizedNonceKey, bound: &[u8], value: &[u8]) -> Result<Vec<u8>, VaultError> {
    let mut body = value.to_vec();
    let nonce = key
        .seal_in_place_append_tag(Aad::from(bound), &mut body)
        .map_err(|_| VaultError::Random)?;
    Ok([nonce.as_ref(), body.as_slice()].concat())
}

fn unclose(
    key: &RandomizedNonceKey,
    bound: &[u8],
    closed: &[u8],
) -> Result<Zeroizing<Vec<u8>>, VaultError> {
    let (nonce, body) = closed
        .split_first_chunk::<NONCE>()
        .ok_or(VaultError::Tampered)?;
    let mut body = Zeroizing::new(body.to_vec());
    let nonce = Nonce::assume_unique_for_key(*nonce);
    let length = key
        .open_in_place(nonce, Aad::from(bound), &mut body)
        .map_err(|_| VaultError::Tampered)?
        .len();
    body.truncate(length);
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Place<'_> = Place {
        kind: "secret",
        id: "s1",
        workspace: "w1",
        version: 1,
    };

    #[test]
    fn a_value_opens_in_its_own_row_alone() {
        let key = InstanceKey::fresh().unwrap();
        let sealed = seal(&key, &HERE, b"value").unwrap();
        assert_eq!(open(&key, &HERE, &sealed).unwrap().as_slice(), b"value");
        for elsewhere in [
            Place {
                kind: "notification",
                ..HERE
            },
            Place { id: "s2", ..HERE },
            Place {
                workspace: "w2",
                ..HERE
            },
            Place { version: 2, ..HERE },
            // the same letters, cut elsewhere
            Place {
                kind: "secrets",
                id: "1",
                ..HERE
            },
        ] {
            let opened = open(&key, &elsewhere, &sealed);
            assert!(matches!(opened, Err(VaultError::Tampered)), "{elsewhere:?}");
        }
        assert!(open(&InstanceKey::fresh().unwrap(), &HERE, &sealed).is_err());
        for place in 0..sealed.body.len() {
            let mut changed = sealed.clone();
            changed.body[place] ^= 1;
            assert!(open(&key, &HERE, &changed).is_err(), "byte {place}");
        }
    }

    #[test]
    fn equal_values_look_different_and_another_key_opens_after_wrapping_anew() {
        let (old, new) = (InstanceKey::fresh().unwrap(), InstanceKey::fresh().unwrap());
        let one = seal(&old, &HERE, b"value").unwrap();
        let two = seal(&old, &HERE, b"value").unwrap();
        assert_ne!((&one.body, &one.wrapped), (&two.body, &two.wrapped));
        let moved = Sealed {
            key_id: new.id().to_owned(),
            wrapped: rewrap(&old, &new, &HERE, &one.wrapped).unwrap(),
            body: one.body.clone(),
        };
        assert_eq!(open(&new, &HERE, &moved).unwrap().as_slice(), b"value");
        assert!(open(&old, &HERE, &moved).is_err());
        let elsewhere = Place {
            workspace: "w2",
            ..HERE
        };
        assert!(rewrap(&old, &new, &elsewhere, &one.wrapped).is_err());
    }
}
