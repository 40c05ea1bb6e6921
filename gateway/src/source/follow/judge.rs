//! Whether a commit may come into force: its history, and its signatures.
//!
//! Which commits must be signed: the one that is loaded, and every commit that is reachable from it and was not from the
//! last one in force, on all paths, so that nothing unsigned comes in by a merge. A first load, and one whose
//! predecessor is out of reach, is judged by its own signature, which covers its whole tree.

use super::{Refusal, Source};
use crate::context::{now, now_ms};
use crate::source::commit;
use crate::source::config::{Rewrites, Signatures};
use crate::source::load;
use crate::source::mirror::Mirror;
use crate::source::names::Oid;
use crate::source::objects::Objects;
use crate::source::signature::{self, Signer};
use crate::source::state::{Manner, Move};

/// A commit object is headers, a signature and words.
const COMMIT: u64 = 1 << 20;
/// More new commits are not judged at once; a source that far behind is accepted by hand.
const MOST_NEW: usize = 1000;

impl Source {
    /// The signer of the tip and its documents, if it may come into force.
    pub(super) async fn judge(
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
}
