//! What sources say now, for whoever composes: catalogues by source, swapped whole.
//!
//! A name is looked up among the sources that speak for the workspace; a name that two of them know must say which.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use netpolicy::decide::Layer;
use netpolicy::policy::Policy;

use super::config::SourceConfig;
use super::load::{Catalogue, Entry};

/// One source as composition sees it.
#[derive(Debug)]
pub struct Slot {
    config: SourceConfig,
    catalogue: ArcSwapOption<Catalogue>,
}

impl Slot {
    /// What is in force.
    pub fn catalogue(&self) -> Option<Arc<Catalogue>> {
        self.catalogue.load_full()
    }

    /// Puts a catalogue in force.
    pub fn put(&self, catalogue: Arc<Catalogue>) {
        self.catalogue.store(Some(catalogue));
    }

    /// Its configuration.
    pub fn config(&self) -> &SourceConfig {
        &self.config
    }
}

/// All sources.
#[derive(Clone, Debug, Default)]
pub struct Shelf(Vec<Arc<Slot>>);

/// A policy as its source has it now.
#[derive(Clone, Debug)]
pub struct Found {
    /// The source.
    pub source: String,
    /// The commit.
    pub commit: String,
    /// Text, path and meaning.
    pub entry: Entry,
}

/// Why a policy of a source is not found.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ShelfError {
    /// There is no such source, or it does not speak for the workspace.
    #[error("no policy source {0:?} speaks for this workspace")]
    NoSource(String),
    /// Nothing was ever loaded from it.
    #[error("nothing could be loaded from the policy source {0:?} yet")]
    NothingLoaded(String),
    /// It has no such policy.
    #[error("no policy source has a policy {0:?}")]
    NoPolicy(String),
    /// Several have it.
    #[error("the policy {0:?} is in several sources; write git:SOURCE:{0}")]
    Ambiguous(String),
}

impl Shelf {
    /// Empty slots for these sources.
    pub fn new(configs: &[SourceConfig]) -> Self {
        let slot = |config: &SourceConfig| {
            Arc::new(Slot {
                config: config.clone(),
                catalogue: ArcSwapOption::empty(),
            })
        };
        Self(configs.iter().map(slot).collect())
    }

    /// What is in force of each, to be compared later.
    pub fn catalogues(&self) -> Vec<Option<Arc<Catalogue>>> {
        self.0.iter().map(|slot| slot.catalogue()).collect()
    }

    /// The slots.
    pub fn slots(&self) -> &[Arc<Slot>] {
        &self.0
    }

    /// Finds a policy for a workspace.
    pub fn find(
        &self,
        workspace: &str,
        source: Option<&str>,
        policy: &str,
    ) -> Result<Found, ShelfError> {
        let fitting = |slot: &&Arc<Slot>| {
            slot.config.serves(workspace) && source.is_none_or(|wanted| slot.config.name == wanted)
        };
        let mut found = None;
        let (mut asked, mut empty) = (0, None);
        for slot in self.0.iter().filter(fitting) {
            asked += 1;
            let Some(catalogue) = slot.catalogue() else {
                empty = Some(slot.config.name.clone());
                continue;
            };
            let Some(entry) = catalogue.find(policy) else {
                continue;
            };
            let new = Found {
                source: slot.config.name.clone(),
                commit: catalogue.commit.to_string(),
                entry: entry.clone(),
            };
            if found.replace(new).is_some() {
                return Err(ShelfError::Ambiguous(policy.to_owned()));
            }
        }
        match (found, asked, empty) {
            // A source that has nothing yet could know the name as well.
            (Some(_), _, Some(empty)) if source.is_none() => Err(ShelfError::NothingLoaded(empty)),
            (Some(found), _, _) => Ok(found),
            (None, 0, _) => Err(ShelfError::NoSource(source.unwrap_or_default().to_owned())),
            (None, _, Some(empty)) => Err(ShelfError::NothingLoaded(empty)),
            (None, _, None) => Err(ShelfError::NoPolicy(policy.to_owned())),
        }
    }

    /// Floors of a workspace, of all sources that have one. A source that names floors and has loaded nothing yet says so:
    /// nothing is composed as if it had no floor.
    pub fn floors(&self, workspace: &str) -> Result<Vec<Layer>, ShelfError> {
        let mut layers = Vec::new();
        for slot in self
            .0
            .iter()
            .filter(|s| s.config.floors.is_some() && s.config.serves(workspace))
        {
            let catalogue = slot
                .catalogue()
                .ok_or_else(|| ShelfError::NothingLoaded(slot.config.name.clone()))?;
            layers.extend(catalogue.floor(workspace).cloned());
        }
        Ok(layers)
    }
}

impl Found {
    /// Its meaning.
    pub fn policy(&self) -> Arc<Policy> {
        self.entry.policy.clone()
    }
}
