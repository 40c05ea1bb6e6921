//! Secrets that a client holds: 256 random bits with a prefix that says what they are, and their digest for the store.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

/// What a secret opens; its text begins so, which lets scanners of leaked secrets find it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opens {
    /// A session.
    Session,
    /// The API, as a token.
    Api,
    /// The way back from a sign-in provider.
    SignIn,
    /// The instance, for its first owner.
    Instance,
    /// One job, as its webhook.
    Hook,
    /// Work, as a runner.
    Runner,
}

impl Opens {
    const fn prefix(self) -> &'static str {
        match self {
            Self::Session => "sps_",
            Self::Api => "spt_",
            Self::SignIn => "spl_",
            Self::Instance => "spo_",
            Self::Hook => "sph_",
            Self::Runner => "spr_",
        }
    }
}

/// A secret that was just made. It is shown once.
pub struct Secret {
    /// What its holder keeps.
    pub text: String,
    /// What the store keeps.
    pub digest: Vec<u8>,
}

/// The system has no random numbers: nothing can be kept secret then.
#[derive(Debug, thiserror::Error)]
#[error("the system gives no random numbers: {0}")]
pub struct NoRandom(getrandom::Error);

impl Secret {
    /// A new one.
    pub fn fresh(opens: Opens) -> Result<Self, NoRandom> {
        let mut bits = [0_u8; 32];
        getrandom::fill(&mut bits).map_err(NoRandom)?;
        let text = format!("{}{}", opens.prefix(), URL_SAFE_NO_PAD.encode(bits));
        let digest = digest(&text);
        Ok(Self { text, digest })
    }
}

/// The digest to look for, if the text can be such a secret at all.
pub fn offered(opens: Opens, text: &str) -> Option<Vec<u8>> {
    let rest = text.strip_prefix(opens.prefix())?;
    // 32 bytes are 43 letters
    (rest.len() == 43).then(|| digest(text))
}

/// SHA-256. The secrets have 256 bits, so nothing slower is needed, and looking a digest up tells nothing by its time.
pub fn digest(text: &str) -> Vec<u8> {
    Sha256::digest(text.as_bytes()).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_by_its_digest_and_by_nothing_else() {
        let one = Secret::fresh(Opens::Api).unwrap();
        assert_eq!(offered(Opens::Api, &one.text), Some(one.digest.clone()));
        assert_eq!(offered(Opens::Session, &one.text), None);
        assert_eq!(offered(Opens::Api, "spt_%"), None);
        assert_ne!(Secret::fresh(Opens::Api).unwrap().digest, one.digest);
    }
}
