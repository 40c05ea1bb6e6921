//! SSHSIG (PROTOCOL.sshsig of OpenSSH), judged in this process.
//!
//! The key must be one of the list byte for byte, the namespace must be `git`, and keys are ed25519 or P-256. Certificates
//! and hardware keys are not judged: what they add (principals, presence) would have to be checked too.

use netpolicy::ids::UnixSeconds;
use ssh_key::{Algorithm, EcdsaCurve, HashAlg, PublicKey, SshSig};

use super::{SignatureError, Signer};
use crate::source::config::SshSigner;

/// How such a signature begins.
pub const BEGIN: &str = "-----BEGIN SSH SIGNATURE-----\n";
const END: &str = "-----END SSH SIGNATURE-----\n";
const NAMESPACE: &str = "git";

/// Whether signatures of this key are judged at all.
pub fn is_judged(key: &PublicKey) -> bool {
    matches!(
        key.algorithm(),
        Algorithm::Ed25519
            | Algorithm::Ecdsa {
                curve: EcdsaCurve::NistP256
            }
    )
}

/// A key's name: `ssh:` and its fingerprint.
pub fn name(key: &PublicKey) -> Signer {
    format!("ssh:{}", key.fingerprint(HashAlg::Sha256))
}

/// Judges a signature.
pub fn judge(
    payload: &[u8],
    signature: &str,
    signers: &[SshSigner],
    now: UnixSeconds,
) -> Result<Signer, SignatureError> {
    if !signature.ends_with(END) || signature.matches("-----BEGIN").count() != 1 {
        return Err(SignatureError::Malformed(
            "it is not exactly one signature".to_owned(),
        ));
    }
    let signature: SshSig = signature
        .parse()
        .map_err(|e: ssh_key::Error| SignatureError::Malformed(e.to_string()))?;
    let key = PublicKey::from(signature.public_key().clone());
    let who = name(&key);
    let listed = signers.iter().find(|s| s.key.key_data() == key.key_data());
    let Some(signer) = listed else {
        return Err(SignatureError::Unlisted(who));
    };
    if signature.namespace() != NAMESPACE {
        return Err(SignatureError::Namespace(signature.namespace().to_owned()));
    }
    if !signature.reserved().is_empty() || !is_judged(&signer.key) {
        return Err(SignatureError::OtherKind);
    }
    signer
        .key
        .verify(NAMESPACE, payload, &signature)
        .map_err(|_| SignatureError::Wrong)?;
    if signer.until.is_some_and(|end| now >= end) {
        return Err(SignatureError::Expired(who));
    }
    Ok(who)
}
