//! One source: looks at its remote, judges what is there, and puts a commit in force whole or not at all.
//!
//! In order: fetch into quarantine, is it a commit, did the branch simply grow, is every new commit signed (where that is
//! required), does every file check. Only then is it kept durably, and only then in force. Whatever fails leaves what is
//! in force as it is, and is shown until it is over. One look at a time; who asks meanwhile shares the next one.
//!
//! Which commits must be signed: the one that is loaded, and every commit that is reachable from it and was not from the
//! last one in force, on all paths, so that nothing unsigned comes in by a merge. A first load, and one whose
//! predecessor is out of reach, is judged by its own signature, which covers its whole tree.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::commit::{self, Malformed};
use super::config::{Rewrites, Signatures, SourceConfig};
use super::files::{self, FileError, Holds};
use super::git::Git;
use super::load::{self, Catalogue, LoadError};
use super::mirror::{Mirror, MirrorError};
use super::names::Oid;
use super::objects::{ObjectError, Objects};
use super::shelf::Slot;
use super::signature::{self, SignatureError, Signer};
use super::state::{Folder, Good, Kept, Manner, Move};
use super::view::{PolicyName, SourceProblem, SourceView};
use crate::context::{now, now_ms};
use crate::control::problems::chain;

/// A commit object is headers, a signature and words.
const COMMIT: u64 = 1 << 20;
/// More new commits are not judged at once; a source that far behind is accepted by hand.
const MOST_NEW: usize = 1000;
/// What is in force counts as outdated after so many looks that failed, and not before so many milliseconds.
const STALE_LOOKS: i64 = 10;
const STALE_MS: i64 = 600_000;

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
    fn hint(&self, source: &str) -> Option<String> {
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

    fn mistakes(&self) -> Vec<String> {
        match self {
            Self::Load(LoadError::Mistakes(found)) => {
                found.iter().map(ToString::to_string).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// What a look led to.
#[derive(Clone, Debug)]
pub enum Looked {
    /// Nothing new is in force.
    Unchanged,
    /// This is in force now; before it, that was.
    Loaded {
        /// What is in force.
        now: Arc<Catalogue>,
        /// What was.
        before: Option<Arc<Catalogue>>,
    },
    /// What the remote has is refused, for a reason that was not known before the look.
    Refused(SourceProblem),
}

#[derive(Debug)]
struct Inner {
    kept: Kept,
    problem: Option<SourceProblem>,
    checked_ms: Option<i64>,
}

/// One source.
#[derive(Debug)]
pub struct Source {
    slot: Arc<Slot>,
    folder: Folder,
    inner: Mutex<Inner>,
    turn: tokio::sync::Mutex<()>,
    looks: AtomicU64,
}

impl Source {
    /// Opens it with what was kept; nothing is fetched.
    pub fn open(slot: Arc<Slot>, folder: Folder) -> Self {
        let config = slot.config();
        let mut kept = folder.load(&config.identity());
        let mut problem = None;
        if let Some(good) = &kept.good {
            match usable(config, good) {
                Ok(catalogue) => slot.put(Arc::new(catalogue)),
                Err(message) => {
                    tracing::error!(source = %config.name, %message, "the commit that was in force is not used");
                    problem = Some(SourceProblem {
                        since_ms: now_ms(),
                        commit: Some(good.commit.to_string()),
                        message,
                        hint: None,
                        mistakes: Vec::new(),
                    });
                    kept.good = None;
                }
            }
        }
        let inner = Mutex::new(Inner {
            kept,
            problem,
            checked_ms: None,
        });
        Self {
            slot,
            folder,
            inner,
            turn: tokio::sync::Mutex::default(),
            looks: AtomicU64::new(0),
        }
    }

    /// Its configuration.
    pub fn config(&self) -> &SourceConfig {
        self.slot.config()
    }

    /// Where it keeps things.
    pub(super) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Waits for a look that is going on, and keeps others from beginning.
    pub(super) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// The commit in force and its documents.
    pub(super) fn in_force(&self) -> Option<(Oid, load::Documents)> {
        let inner = self.inner();
        let good = inner.kept.good.as_ref()?;
        Some((good.commit.clone(), good.documents()))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anything is in force.
    pub fn is_empty(&self) -> bool {
        self.slot.catalogue().is_none()
    }

    /// How often the remote was looked at.
    pub fn looks(&self) -> u64 {
        self.looks.load(Ordering::Relaxed)
    }

    /// Looks at the remote. `accept` names a commit that may be followed although the branch did not simply grow.
    pub async fn sync(&self, accept: Option<&Oid>) -> Looked {
        let seen = self.looks();
        let _turn = self.turn.lock().await;
        // A look that began after this one was asked for has seen what this one would see.
        if accept.is_none() && self.looks() > seen {
            return Looked::Unchanged;
        }
        self.looks.fetch_add(1, Ordering::Relaxed);
        let before = self.slot.catalogue();
        let mut tip = None;
        let outcome = self.look(accept, &mut tip).await;
        let mut inner = self.inner();
        match outcome {
            Ok(loaded) => {
                inner.problem = None;
                inner.checked_ms = Some(now_ms());
                loaded.map_or(Looked::Unchanged, |now| Looked::Loaded { now, before })
            }
            Err(refusal) => {
                let mut problem = SourceProblem {
                    since_ms: now_ms(),
                    commit: tip.as_ref().map(Oid::to_string),
                    message: chain(&refusal),
                    hint: refusal.hint(&self.config().name),
                    mistakes: refusal.mistakes(),
                };
                let known = inner.problem.as_ref();
                let same = known.is_some_and(|k| {
                    (&k.commit, &k.message) == (&problem.commit, &problem.message)
                });
                if let (true, Some(known)) = (same, known) {
                    problem.since_ms = known.since_ms;
                }
                inner.problem = Some(problem.clone());
                if same {
                    Looked::Unchanged
                } else {
                    Looked::Refused(problem)
                }
            }
        }
    }

    async fn look(
        &self,
        accept: Option<&Oid>,
        seen: &mut Option<Oid>,
    ) -> Result<Option<Arc<Catalogue>>, Refusal> {
        let config = self.config();
        let mirror = self.mirror()?;
        let tip = mirror.fetch(&config.remote, &config.branch).await?;
        *seen = Some(tip.clone());
        let good = self
            .inner()
            .kept
            .good
            .as_ref()
            .map(|good| good.commit.clone());
        if good.as_ref() == Some(&tip) {
            return Ok(None);
        }
        let mut objects = Objects::open(mirror.git(), config.limits.time)?;
        let judged = self
            .judge(&mirror, &mut objects, good.as_ref(), &tip, accept)
            .await;
        objects.close().await;
        let (signer, documents) = judged?;
        let (owned, commit, checked) = (config.clone(), tip.clone(), documents.clone());
        let work = move || Catalogue::check(&owned, &commit, checked);
        let catalogue = match tokio::task::spawn_blocking(work).await {
            Ok(checked) => Arc::new(checked.map_err(LoadError::Mistakes)?),
            Err(_) => {
                return Err(Refusal::Keep(std::io::Error::other(
                    "checking the files failed",
                )));
            }
        };
        let mut kept = self.inner().kept.clone();
        kept.accept(Good::new(tip.clone(), now_ms(), signer, &documents));
        self.folder.save(&kept)?;
        self.inner().kept = kept;
        self.slot.put(catalogue.clone());
        // In force already; without the reference only a later comparison has less to go by.
        if let Err(error) = mirror.keep(&tip).await {
            tracing::warn!(source = %config.name, %error, "the commit in force could not be kept in the mirror");
        }
        Ok(Some(catalogue))
    }

    /// Git on this source's mirror, with the files that the configuration names checked.
    pub fn mirror(&self) -> Result<Mirror, FileError> {
        let config = self.config();
        let access = &config.access;
        for (path, holds) in [
            (&access.ssh_key, Holds::Secret),
            (&access.known_hosts, Holds::Trust),
            (&access.ca, Holds::Trust),
        ] {
            if let Some(path) = path {
                files::read(path, holds)?;
            }
        }
        if let Some(keyring) = config.signatures.as_ref().and_then(|s| s.openpgp.as_ref()) {
            files::read(keyring, Holds::Trust)?;
        }
        let token = access
            .token
            .as_ref()
            .map(|path| files::read(path, Holds::Secret))
            .transpose()?;
        let token = token.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
        let git = Git::new(
            config,
            &self.folder.mirror(),
            &self.folder.home(),
            token.as_deref(),
        );
        Ok(Mirror::new(git, self.folder.mirror(), config.limits.fetch))
    }

    async fn judge(
        &self,
        mirror: &Mirror,
        objects: &mut Objects,
        good: Option<&Oid>,
        tip: &Oid,
        accept: Option<&Oid>,
    ) -> Result<(Option<Signer>, load::Documents), Refusal> {
        let config = self.config();
        let bytes = objects.read(tip, "commit", COMMIT).await?;
        let commit = commit::read(&bytes).map_err(|e| Refusal::Malformed(tip.clone(), e))?;
        if let Some(good) = good {
            self.history(mirror, good, tip, accept == Some(tip)).await?;
        }
        let mut signer = None;
        if let Some(signers) = &config.signatures {
            signer = Some(self.signed(&commit, tip, signers).await?);
            for oid in self.between(mirror, good, tip).await? {
                let bytes = objects.read(&oid, "commit", COMMIT).await?;
                let commit =
                    commit::read(&bytes).map_err(|e| Refusal::Malformed(oid.clone(), e))?;
                self.signed(&commit, &oid, signers).await?;
            }
        }
        let documents = load::read(objects, config, tip, &commit.tree).await?;
        Ok((signer, documents))
    }

    async fn signed(
        &self,
        commit: &commit::Commit,
        oid: &Oid,
        signers: &Signatures,
    ) -> Result<Signer, Refusal> {
        let judged = signature::judge(commit, signers, now(), &self.folder.scratch()).await;
        judged.map_err(|e| Refusal::Signature(oid.clone(), e))
    }

    /// Commits that come in with the tip, itself aside.
    async fn between(
        &self,
        mirror: &Mirror,
        good: Option<&Oid>,
        tip: &Oid,
    ) -> Result<Vec<Oid>, Refusal> {
        let Some(good) = good else {
            return Ok(Vec::new());
        };
        // Not in the mirror any more: there is nothing to compare with.
        if !mirror.is_ancestor(good, good).await? {
            return Ok(Vec::new());
        }
        let mut all = mirror.new_commits(good, tip, MOST_NEW).await?;
        all.retain(|oid| oid != tip);
        Ok(all)
    }

    /// Notices a branch that did not simply grow.
    async fn history(
        &self,
        mirror: &Mirror,
        good: &Oid,
        tip: &Oid,
        accepted: bool,
    ) -> Result<(), Refusal> {
        if mirror.is_ancestor(good, tip).await? {
            return Ok(());
        }
        let known = self.inner().kept.history.contains(tip);
        let manner = if known || mirror.is_ancestor(tip, good).await? {
            Manner::SetBack
        } else {
            Manner::Rewritten
        };
        let followed = accepted || self.config().rewrites == Rewrites::Follow;
        let (from, to) = (good.clone(), tip.clone());
        tracing::warn!(source = %self.config().name, %from, %to, followed, "{}", manner.words());
        let mut inner = self.inner();
        inner.kept.moved(Move {
            at_ms: now_ms(),
            from: from.clone(),
            to: to.clone(),
            manner,
            followed,
        });
        self.folder.save(&inner.kept)?;
        if followed {
            Ok(())
        } else {
            Err(Refusal::Moved { manner, from, to })
        }
    }

    /// As people see it.
    pub fn view(&self) -> SourceView {
        let (config, catalogue) = (self.config(), self.slot.catalogue());
        let inner = self.inner();
        let good = inner.kept.good.as_ref();
        let policies = catalogue.iter().flat_map(|catalogue| {
            catalogue.list().map(|(policy, file)| PolicyName {
                policy: policy.to_owned(),
                file: file.to_owned(),
            })
        });
        SourceView {
            name: config.name.clone(),
            remote: config.remote.as_str().to_owned(),
            branch: config.branch.as_str().to_owned(),
            commit: good.map(|good| good.commit.to_string()),
            loaded_ms: good.map(|good| good.loaded_ms),
            signer: good.and_then(|good| good.signer.clone()),
            signatures_required: config.signatures.is_some(),
            policies: policies.collect(),
            checked_ms: inner.checked_ms,
            stale: is_stale(config, &inner, now_ms()),
            problem: inner.problem.clone(),
            moves: inner.kept.moves.clone(),
        }
    }
}

fn is_stale(config: &SourceConfig, inner: &Inner, now_ms: i64) -> bool {
    let poll = i64::try_from(config.poll.as_millis()).unwrap_or(i64::MAX);
    let since = inner
        .checked_ms
        .or(inner.kept.good.as_ref().map(|good| good.loaded_ms));
    since.is_some_and(|since| {
        now_ms.saturating_sub(since) > poll.saturating_mul(STALE_LOOKS).max(STALE_MS)
    })
}

/// What was kept, checked again: under today's grammar, and under today's list of signers.
fn usable(config: &SourceConfig, good: &Good) -> Result<Catalogue, String> {
    if let Some(signers) = &config.signatures {
        let signer = good.signer.as_deref().unwrap_or_default();
        if !signature::still_listed(signer, signers) {
            return Err("it is not signed by anybody who is listed now".to_owned());
        }
    }
    Catalogue::check(config, &good.commit, good.documents()).map_err(|found| {
        found
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("; ")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> SourceConfig {
        let text = "gateway:\n  sources:\n    a: { remote: /srv/a, poll: 120 }\n";
        crate::config::GatewayConfig::parse("c.yml", text)
            .unwrap()
            .sources
            .remove(0)
    }

    /// GIT-13
    #[test]
    fn what_was_not_confirmed_for_long_is_stale() {
        let mut inner = Inner {
            kept: Kept::fresh(String::new()),
            problem: None,
            checked_ms: Some(1_000),
        };
        let limit = 1_000 + 120_000 * STALE_LOOKS;
        assert!(!is_stale(&config(), &inner, limit) && is_stale(&config(), &inner, limit + 1));
        inner.checked_ms = None;
        assert!(
            !is_stale(&config(), &inner, limit),
            "nothing was loaded, so nothing is outdated"
        );
        let good = Good::new(
            Oid::from_bytes(&[1; 20]).unwrap(),
            1_000,
            None,
            &load::Documents::default(),
        );
        inner.kept.good = Some(good);
        assert!(is_stale(&config(), &inner, limit + 1));
    }
}
