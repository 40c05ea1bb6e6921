//! Verbs about policies in git: list, look now, resolve a name.

use std::sync::Arc;

use super::api::{PolicySource, Problem};
use super::problems;
use super::verbs::Verbs;
use crate::source::view::{ResolveRequest, ResolvedPolicy, SyncRequest};
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

    /// A source that has loaded nothing yet is waited for.
    pub(super) async fn wait_source(&self, policy: &PolicySource) {
        if matches!(policy, PolicySource::Git { .. }) {
            self.following.ready().await;
        }
    }

    /// The policy that a source has under a name now.
    pub async fn resolve(&self, request: &ResolveRequest) -> Result<ResolvedPolicy, Problem> {
        self.following.ready().await;
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
}
