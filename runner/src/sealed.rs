//! Values that one runner alone can open: sealed to its X25519 key, bound to what they are for.
//!
//! Each message has a key of its own: an ephemeral X25519 agreement, HKDF-SHA256 over both public keys, AES-256-GCM
//! with the context as associated data. Whoever stands between console and runner, and the console's own log, has
//! nothing but noise. Refuses to own: which key is whose (the console keeps it beside the runner's token).

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use aws_lc_rs::encoding::{AsBigEndian, Curve25519SeedBin};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

/// Bytes of an X25519 key.
const KEY: usize = 32;
/// Bytes of a nonce (NIST SP 800-38D).
const NONCE: usize = 12;
/// The first byte of a message; another layout gets another one.
const LAYOUT: u8 = 1;
/// Keeps these keys apart from every other use of HKDF.
const INFO: &[u8] = b"sallyport sealed to a runner, layout 1";

/// Why nothing was sealed or opened. Which check failed is nobody's business.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SealError {
    /// It is no X25519 key.
    #[error("this is not the public key of a runner")]
    Key,
    /// It was changed, cut, sealed to another key or for another purpose.
    #[error("what was sealed cannot be opened with this key for this purpose")]
    Closed,
    /// The system has no random numbers.
    #[error("the system gives no random numbers")]
    Random,
}

/// A runner's public key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PublicKey([u8; KEY]);

impl PublicKey {
    /// From the text that [`PublicKey::text`] gives.
    pub fn parse(text: &str) -> Result<Self, SealError> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| SealError::Key)?;
        bytes.try_into().map(Self).map_err(|_| SealError::Key)
    }

    /// As requests and the store have it.
    pub fn text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }
}

/// A runner's own key.
pub struct OwnKey {
    key: PrivateKey,
    public: PublicKey,
}

impl fmt::Debug for OwnKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnKey({})", self.public.text())
    }
}

impl OwnKey {
    /// A new one.
    pub fn fresh() -> Result<Self, SealError> {
        let key = PrivateKey::generate(&X25519).map_err(|_| SealError::Random)?;
        Self::of(key)
    }

    /// The one in a file that is its owner's alone; a new one if there is no such file.
    pub fn kept(path: &Path) -> io::Result<Self> {
        let bad = |error: SealError| io::Error::new(io::ErrorKind::InvalidData, error);
        match OpenOptions::new().read(true).open(path) {
            Ok(mut file) => {
                if file.metadata()?.mode() & 0o077 != 0 {
                    let told = format!("{} is not its owner's alone: chmod 600 it", path.display());
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, told));
                }
                let mut seed = Zeroizing::new(Vec::new());
                file.read_to_end(&mut seed)?;
                let key = PrivateKey::from_private_key(&X25519, &seed);
                Self::of(key.map_err(|_| bad(SealError::Key))?).map_err(bad)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let own = Self::fresh().map_err(bad)?;
                let seed: Curve25519SeedBin<'_> =
                    own.key.as_be_bytes().map_err(|_| bad(SealError::Key))?;
                let mut options = OpenOptions::new();
                options.write(true).create_new(true).mode(0o600);
                let mut file = options.open(path)?;
                file.write_all(seed.as_ref())?;
                file.sync_all()?;
                Ok(own)
            }
            Err(error) => Err(error),
        }
    }

    fn of(key: PrivateKey) -> Result<Self, SealError> {
        let public = key.compute_public_key().map_err(|_| SealError::Key)?;
        let bytes = public.as_ref().try_into().map_err(|_| SealError::Key)?;
        Ok(Self {
            key,
            public: PublicKey(bytes),
        })
    }

    /// What a console is told.
    pub const fn public(&self) -> PublicKey {
        self.public
    }

    /// Opens what [`seal`] made for this key and the same context.
    pub fn open(&self, context: &[u8], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let closed = SealError::Closed;
        let (layout, rest) = sealed.split_first().ok_or(closed)?;
        let (sender, rest) = rest.split_first_chunk::<KEY>().ok_or(closed)?;
        let (nonce, body) = rest.split_first_chunk::<NONCE>().ok_or(closed)?;
        if *layout != LAYOUT {
            return Err(closed);
        }
        let key = message_key(&self.key, sender, sender, &self.public.0)?;
        let mut body = Zeroizing::new(body.to_vec());
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = key
            .open_in_place(nonce, Aad::from(context), &mut body)
            .map_err(|_| closed)?
            .len();
        body.truncate(length);
        Ok(body)
    }
}

/// Seals a value to a key, for one purpose: `context` must be the same bytes when it is opened.
pub fn seal(to: &PublicKey, context: &[u8], value: &[u8]) -> Result<Vec<u8>, SealError> {
    let ephemeral = OwnKey::fresh()?;
    let key = message_key(&ephemeral.key, &to.0, &ephemeral.public.0, &to.0)?;
    let mut body = value.to_vec();
    let nonce = key
        .seal_in_place_append_tag(Aad::from(context), &mut body)
        .map_err(|_| SealError::Random)?;
    let mut sealed = vec![LAYOUT];
    sealed.extend_from_slice(&ephemeral.public.0);
    sealed.extend_from_slice(nonce.as_ref());
    sealed.append(&mut body);
    Ok(sealed)
}

/// The key of one message. A peer's point of small order, whose agreement is all zeros, is refused by the agreement.
fn message_key(
    own: &PrivateKey,
    peer: &[u8; KEY],
    sender: &[u8; KEY],
    receiver: &[u8; KEY],
) -> Result<RandomizedNonceKey, SealError> {
    let peer = UnparsedPublicKey::new(&X25519, peer);
    agree(own, peer, SealError::Key, |shared| {
        let salt = [*sender, *receiver].concat();
        let derived = Salt::new(HKDF_SHA256, &salt).extract(shared);
        let mut bytes = Zeroizing::new([0_u8; KEY]);
        derived
            .expand(&[INFO], Length)
            .and_then(|okm| okm.fill(bytes.as_mut()))
            .map_err(|_| SealError::Key)?;
        RandomizedNonceKey::new(&AES_256_GCM, bytes.as_ref()).map_err(|_| SealError::Key)
    })
}

/// How much HKDF gives.
struct Length;

impl KeyType for Length {
    fn len(&self) -> usize {
        KEY
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_sealed_opens_for_one_key_and_one_purpose_alone() {
        let (own, other) = (OwnKey::fresh().unwrap(), OwnKey::fresh().unwrap());
        let sealed = seal(&own.public(), b"run 1", b"value").unwrap();
        assert_eq!(own.open(b"run 1", &sealed).unwrap().as_slice(), b"value");
        assert_eq!(own.open(b"run 2", &sealed), Err(SealError::Closed));
        assert_eq!(other.open(b"run 1", &sealed), Err(SealError::Closed));
        assert_ne!(seal(&own.public(), b"run 1", b"value").unwrap(), sealed);
        for place in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[place] ^= 1;
            assert!(own.open(b"run 1", &changed).is_err(), "byte {place}");
            assert!(
                own.open(b"run 1", &sealed[..place]).is_err(),
                "cut at {place}"
            );
        }
        assert!(!sealed.windows(5).any(|part| part == b"value"));
    }

    #[test]
    fn a_key_that_agrees_on_nothing_is_refused() {
        let small_order = PublicKey([0; KEY]);
        assert_eq!(seal(&small_order, b"", b"value"), Err(SealError::Key));
        for text in ["", "AAAA", "not base64!"] {
            assert_eq!(PublicKey::parse(text), Err(SealError::Key), "{text}");
        }
        let own = OwnKey::fresh().unwrap().public();
        assert_eq!(PublicKey::parse(&own.text()), Ok(own));
    }

    #[test]
    fn a_key_is_kept_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runner.key");
        let made = OwnKey::kept(&path).unwrap().public();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o077, 0);
        assert_eq!(OwnKey::kept(&path).unwrap().public(), made);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let error = OwnKey::kept(&path).unwrap_err();
        assert!(error.to_string().contains("chmod 600"), "{error}");
    }
}
