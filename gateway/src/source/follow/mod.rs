//! One source: looks at its remote, judges what is there, and puts a commit in force whole or not at all.
//!
//! In order: fetch into quarantine, is it a commit, did the branch simply grow, is every new commit signed (where that is
//! required), does every file check. Only then is it kept durably, and only then in force. Whatever fails leaves what is
//! in force as it is, and is shown until it is over. One look at a time; who asks meanwhile shares the next one.

mod judge;
mod refusal;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::config::SourceConfig;
use super::files::{self, FileError, Holds};
use super::git::Git;
use super::load::{self, Catalogue, LoadError};
use super::mirror::Mirror;
use super::names::Oid;
use super::objects::Objects;
use super::shelf::Slot;
use super::signature;
use super::state::{Folder, Good, Kept};
use super::view::{PolicyName, SourceProblem, SourceView};
use crate::context::now_ms;
use crate::control::problems::chain;

pub use refusal::Refusal;

/// What is in force counts as outdated after so many looks that failed, and not before so many milliseconds.
const STALE_LOOKS: i64 = 10;
const STALE_MS: i64 = 600_000;

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
            workspaces: config.workspaces.iter().cloned().collect(),
            proposals: config.proposals,
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
mod tests;
