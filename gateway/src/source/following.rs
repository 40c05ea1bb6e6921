//! Sources while a gateway runs: looked at on a schedule and on demand, what they say applied to live networks.
//!
//! A look that was begun is carried to its end, whoever asked for it: a commit that is in force must reach every network.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::names::Oid;
use super::{Looked, Source, SourceConfig, SourceView, Sources};
use crate::context::Context;
use crate::network::recompose::Concerned;
use crate::network::registry::Registry;
use crate::record::Journal;
use crate::record::entry::{Entry, SourceChange};
use crate::tasks::Tasks;

/// Sources, and what they are applied to.
#[derive(Clone, Debug)]
pub struct Following {
    /// All sources.
    pub sources: Arc<Sources>,
    /// Live networks.
    pub registry: Arc<Registry>,
    /// The record.
    pub journal: Arc<Journal>,
    /// Spawner.
    pub tasks: Tasks,
}

impl Following {
    /// Sources of a gateway; nothing is looked at yet.
    pub fn new(sources: Sources, registry: &Arc<Registry>, ctx: &Context) -> Self {
        Self {
            sources: Arc::new(sources),
            registry: registry.clone(),
            journal: ctx.journal.clone(),
            tasks: ctx.tasks.clone(),
        }
    }

    /// Looks at each remote now and then.
    pub fn run(&self) {
        for source in self.sources.all() {
            let (following, source) = (self.clone(), source.clone());
            self.tasks.spawn("policy source", async move {
                loop {
                    following.look(&source, None).await;
                    tokio::time::sleep(source.config().poll).await;
                }
            });
        }
    }

    /// Looks now; returns what is true afterwards, or `None` while the gateway stops.
    pub async fn sync(&self, source: &Arc<Source>, accept: Option<Oid>) -> Option<SourceView> {
        let (sender, receiver) = oneshot::channel();
        let (following, source) = (self.clone(), source.clone());
        self.tasks.spawn("policy sync", async move {
            following.look(&source, accept.as_ref()).await;
            // whoever asked may have gone
            let _ = sender.send(source.view());
        });
        receiver.await.ok()
    }

    /// Waits for the first look of sources that have nothing yet and are needed, as long as one may take.
    pub async fn ready(&self, needed: impl Fn(&SourceConfig) -> bool + Send + Sync) {
        let empty = |source: &&Arc<Source>| {
            source.is_empty() && source.looks() < 2 && needed(source.config())
        };
        for source in self.sources.all().iter().filter(empty) {
            let limit = source.config().limits.time + Duration::from_secs(5);
            let _ = tokio::time::timeout(limit, self.sync(source, None)).await;
        }
    }

    async fn look(&self, source: &Source, accept: Option<&Oid>) {
        let name = source.config().name.clone();
        let change = |change: &str| SourceChange {
            source: name.clone(),
            change: change.to_owned(),
            commit: None,
            before: None,
            moved: None,
            why: None,
        };
        match source.sync(accept).await {
            Looked::Unchanged => {}
            Looked::Refused(problem) => {
                tracing::warn!(source = %name, commit = problem.commit, message = %problem.message, "what the remote has is refused; what was loaded last stays in force");
                self.record(SourceChange {
                    commit: problem.commit,
                    why: Some(problem.message),
                    ..change("refused")
                });
            }
            Looked::Loaded { now, before } => {
                let concerned = match &before {
                    Some(before) if before.same_floors(&now) => Concerned::Sourced,
                    _ => Concerned::All,
                };
                let registry = self.registry.clone();
                let applied =
                    tokio::task::spawn_blocking(move || registry.recompose(concerned)).await;
                if applied.is_err() {
                    tracing::error!(source = %name, "applying a commit failed; networks keep what they had");
                }
                tracing::info!(source = %name, commit = %now.commit, "a commit is in force");
                let view = source.view();
                let moved = view
                    .moves
                    .last()
                    .filter(|m| m.to == now.commit && m.followed);
                self.record(SourceChange {
                    commit: Some(now.commit.to_string()),
                    before: before.map(|before| before.commit.to_string()),
                    moved: moved.map(|m| m.manner.words().to_owned()),
                    ..change("loaded")
                });
            }
        }
    }

    fn record(&self, change: SourceChange) {
        if let Err(error) = self.journal.append(Entry::Source(change)) {
            tracing::error!(%error, "a change of a policy source was not recorded");
        }
    }
}
