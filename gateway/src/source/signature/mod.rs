//! Whether a commit is signed by somebody who is listed. Judged by verifiers and their exact answers, never by text.
//!
//! SSH signatures are judged in this process ([`ssh`]), OpenPGP ones by `gpgv` with a fixed keyring, by its
//! machine-readable status alone ([`openpgp`]). What is signed is the commit object without its signature, so a signature
//! holds for exactly one tree and one history. A signed tag says nothing about a commit that is not signed itself.

pub mod openpgp;
pub mod ssh;

use std::path::Path;

use netpolicy::ids::UnixSeconds;

use super::commit::Commit;
use super::config::Signatures;
use super::program::ProgramError;

/// Who signed: `ssh:SHA256:…` or `openpgp:FINGERPRINT`.
pub type Signer = String;

/// Why a signature does not count.
#[derive(Debug, thiserror::Error)]
pub enum SignatureError {
    /// There is none.
    #[error("it is not signed")]
    Unsigned,
    /// It is of a kind that is not judged here.
    #[error("it is signed in a way for which no signer is listed")]
    OtherKind,
    /// It cannot be read.
    #[error("its signature cannot be read: {0}")]
    Malformed(String),
    /// It was made for something else.
    #[error("its signature was made for {0:?}, not for git")]
    Namespace(String),
    /// Nobody who is listed made it.
    #[error("it is signed by {0}, who is not listed")]
    Unlisted(Signer),
    /// The signer's time is over.
    #[error("it is signed by {0}, whose time is over")]
    Expired(Signer),
    /// The signature is not one of this commit.
    #[error(
        "its signature does not fit: it was changed after it was signed, or the signature is another commit's"
    )]
    Wrong,
    /// The verifier did not say yes, in its own word.
    #[error("its signature was not verified ({0})")]
    NotVerified(String),
    /// The verifier cannot be asked.
    #[error("the verifier cannot be asked")]
    Verifier(#[from] ProgramError),
    /// Files for the verifier.
    #[error("preparing files for the verifier")]
    Files(#[from] std::io::Error),
}

/// Judges a commit; `scratch` is a folder of the gateway's own.
pub async fn judge(
    commit: &Commit,
    signers: &Signatures,
    now: UnixSeconds,
    scratch: &Path,
) -> Result<Signer, SignatureError> {
    let signature = commit
        .signature
        .as_deref()
        .ok_or(SignatureError::Unsigned)?;
    if signature.starts_with(ssh::BEGIN) && !signers.ssh.is_empty() {
        return ssh::judge(&commit.payload, signature, &signers.ssh, now);
    }
    match &signers.openpgp {
        Some(keyring) if signature.starts_with(openpgp::BEGIN) => {
            openpgp::judge(&commit.payload, signature, keyring, scratch).await
        }
        _ => Err(SignatureError::OtherKind),
    }
}

/// Whether a signer of before is still one of those who are listed: whoever was taken off the list vouches for nothing.
pub fn still_listed(signer: &str, signers: &Signatures) -> bool {
    match signer.split_once(':') {
        Some(("ssh", _)) => signers.ssh.iter().any(|s| ssh::name(&s.key) == signer),
        // The keyring is the list; it is asked for each new commit.
        Some(("openpgp", _)) => signers.openpgp.is_some(),
        _ => false,
    }
}
