//! Why what a remote has is not in force, and what to do about it.

use crate::source::commit::Malformed;
use crate::source::files::FileError;
use crate::source::load::LoadError;
use crate::source::mirror::MirrorError;
use crate::source::names::Oid;
use crate::source::objects::ObjectError;
use crate::source::signature::SignatureError;
use crate::source::state::Manner;

/// Why what the remote has is not in force.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// A file of the configuration.
    #[error("a file of the source's configuration cannot be used")]
    File(#[from] FileError),
    /// Fetching or the mirror.
    #[error("the remote could not be read")]
    Remote(#[from] MirrorError),
    /// Objects.
    #[error(transparent)]
    Objects(#[from] ObjectError),
    /// No commit that can be judged.
    #[error("the commit {0} is malformed")]
    Malformed(Oid, #[source] Malformed),
    /// History.
    #[error("{} from {} to {}, and this source does not follow that", manner.words(), from, to)]
    Moved {
        /// How.
        manner: Manner,
        /// What is in force.
        from: Oid,
        /// What the branch points to.
        to: Oid,
    },
    /// A signature.
    #[error("the commit {0} is refused")]
    Signature(Oid, #[source] SignatureError),
    /// Its files.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// It could not be kept.
    #[error("the commit could not be kept")]
    Keep(#[from] std::io::Error),
}

impl Refusal {
    pub(super) fn hint(&self, source: &str) -> Option<String> {
        match self {
            Self::Moved { to, .. } => Some(format!(
                "if that is meant: sallyport policy sync {source} --accept {to}"
            )),
            Self::Remote(_) => Some("what was loaded last stays in force; see `remote`, `branch` and the keys of the source's configuration".to_owned()),
            Self::Signature(..) => Some("sign it with a key of `signatures`, or list the signer".to_owned()),
            Self::Load(LoadError::Mistakes(_)) => Some("correct the files and push again".to_owned()),
            _ => None,
        }
    }

    pub(super) fn mistakes(&self) -> Vec<String> {
        match self {
            Self::Load(LoadError::Mistakes(found)) => {
                found.iter().map(ToString::to_string).collect()
            }
            _ => Vec::new(),
        }
    }
}
