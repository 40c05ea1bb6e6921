//! Verbs about policies in git: list, look now, resolve a name.

use std::sync::Arc;

use super::access::Peer;
use super::api::{PolicySource, Problem};
use super::problems;
use super::verbs::Verbs;
use crate::source::propose::ProposeError;
use crate::source::view::{ProposalRequest, Proposed, ResolveRequest, ResolvedPolicy, SyncRequest};
use crate::source::{Source, SourceView};

impl Verbs {
    /// All sources.
    pub fn sources(&self) -> Vec<SourceView> {
        self.following.sources.views()
    }

    fn source(&self, name: &str) -> Result<&Arc<Source>, Problem> {
        self.following.sources.named(name).ok_or_else(|| {
            let message = format!(
                "there is no policy source {:?}",
                name.chars().take(64).collect::<String>()
            );
            Problem::new(404, "not_found", message)
                .hint("`sallyport policy source` lists them; `gateway.sources` configures them")
        })
    }

    /// Looks at one remote now.
    pub async fn sync(&self, name: &str, request: &SyncRequest) -> Result<SourceView, Problem> {
        let source = self.source(name)?;
        let accept = request
            .accept
            .as_deref()
            .map(crate::source::accepted)
            .transpose();
        let accept = accept.map_err(|e| Problem::new(400, "bad_request", e.to_string()))?;
        self.following
            .sync(source, accept)
            .await
            .ok_or_else(problems::stopping)
    }

    /// A source that has loaded nothing yet is waited for where its policy or its floor is needed.
    pub(super) async fn wait_source(&self, policy: &PolicySource) {
        let asked = matches!(policy, PolicySource::Git { .. });
        self.following
            .ready(|config| asked || config.floors.is_some())
            .await;
    }

    /// The policy that a source has under a name now.
    pub async fn resolve(
        &self,
        request: &ResolveRequest,
        peer: Peer,
    ) -> Result<ResolvedPolicy, Problem> {
        self.may_work_in(&request.workspace, peer)?;
        self.following.ready(|_| true).await;
        let shelf = self.following.sources.shelf();
        let found = shelf
            .find(
                &request.workspace,
                request.source.as_deref(),
                &request.policy,
            )
            .map_err(|e| problems::shelf(&e))?;
        Ok(ResolvedPolicy {
            source: found.source.clone(),
            commit: found.commit.clone(),
            file: found.entry.document.file.clone(),
            hash: found.entry.policy.hash,
            text: found.entry.document.text,
        })
    }

    /// Writes a proposal to a source's remote.
    pub async fn propose(
        &self,
        name: &str,
        request: &ProposalRequest,
        peer: Peer,
    ) -> Result<Proposed, Problem> {
        let written = self.source(name)?.propose(request, peer.uid).await;
        written.map_err(|error| {
            let message = problems::chain(&error);
            match error {
                ProposeError::NotAllowed => Problem::new(403, "not_allowed", message)
                    .hint("`proposals: allowed` in the source's configuration permits it"),
                ProposeError::Request(_) | ProposeError::Path { .. } => {
                    Problem::new(400, "bad_request", message)
                }
                ProposeError::Mistakes(found) => Problem::new(422, "policy_invalid", message)
                    .mistakes(found.iter().map(ToString::to_string)),
                ProposeError::NoBase => Problem::new(409, "conflict", message)
                    .hint("`sallyport policy source` says why"),
                ProposeError::Exists(_) => Problem::new(409, "conflict", message)
                    .hint("choose another name; a proposal is never written over"),
                ProposeError::Git(_) => Problem::new(502, "source_refused", message)
                    .hint("see whether the source's key may push"),
                ProposeError::File(_) | ProposeError::Mirror(_) => {
                    Problem::new(502, "source_refused", message)
                }
            }
        })
    }
}
