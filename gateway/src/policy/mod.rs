//! Composition: instance floor AND workspace floor AND job policy, made by the gateway and nobody else.
//!
//! Job policies arrive as text or preset names and are parsed and checked here again; floors are read from files that
//! only root can change. Layers only narrow; that is a property of [`netpolicy::decide`], composition merely puts them
//! side by side. A policy that asks for what is not enforced yet is refused, never run without it.
//! Failure stance: a floor that is named but cannot be read, or is wrong, is an error that seals the gateway.

mod floors;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use netpolicy::addr::AddressBook;
use netpolicy::decide::{Layer, LayerKind, OwnListeners, Snapshot};
use netpolicy::document::{self, Mistake};
use netpolicy::ids::{NetworkId, PolicyHash};
use netpolicy::policy::{Place, Policy};

use crate::control::PolicySource;
pub use floors::{FloorError, FloorFiles, Floors};

/// Why there is no effective policy.
#[derive(Debug, thiserror::Error)]
pub enum ComposeError {
    /// The text has mistakes; all of them.
    #[error("the policy has {} mistake{}", .0.len(), if .0.len() == 1 { "" } else { "s" })]
    Invalid(Vec<Mistake>),
    /// No preset has this name.
    #[error("there is no preset {0:?}")]
    UnknownPreset(String),
    /// It asks for what nothing enforces yet.
    #[error("not enforced yet: {}", list(.0))]
    NotEnforcedYet(Vec<(String, Place)>),
    /// It uses the set `packages` and the image's hosts were not given.
    #[error("{}:{}:{}: the set `packages` needs the hosts that the image's package managers use", .0.file, .0.line, .0.column)]
    NeedsPackages(Place),
    /// The floors could not be read yet; without them nothing is composed.
    #[error("the floors cannot be read, so no policy has an effective form")]
    NoFloors,
    /// A workspace's name chooses a file, so it has a strict form.
    #[error("a workspace's name has 1 to 40 characters of a-z, 0-9 and '-'")]
    WorkspaceName,
}

fn list(features: &[(String, Place)]) -> String {
    let one = |(key, at): &(String, Place)| format!("{key} at {at}");
    features.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// What a network is enforced for.
#[derive(Clone, Debug)]
pub struct Composed {
    /// All layers.
    pub snapshot: Arc<Snapshot>,
    /// Hash of the job policy alone.
    pub job: PolicyHash,
    /// Name of the job policy.
    pub name: String,
}

/// Puts layers together. One for each gateway.
#[derive(Debug)]
pub struct Composer {
    files: FloorFiles,
    /// `None` until they were read once.
    floors: ArcSwapOption<Floors>,
    own: Arc<OwnListeners>,
}

impl Composer {
    /// No floors yet: [`Composer::reload`] reads them, and until it succeeds nothing is composed.
    pub fn new(files: FloorFiles, own: OwnListeners) -> Self {
        Self {
            files,
            floors: ArcSwapOption::empty(),
            own: Arc::new(own),
        }
    }

    /// Reads the floors (again); whether they differ from before. On an error the ones before stay in force.
    pub fn reload(&self) -> Result<bool, FloorError> {
        let fresh = Floors::read(&self.files)?;
        let changed = self
            .floors
            .load()
            .as_ref()
            .is_none_or(|before| !fresh.same(before));
        if changed {
            self.floors.store(Some(Arc::new(fresh)));
        }
        Ok(changed)
    }

    /// The effective policy of a network.
    pub fn compose(
        &self,
        workspace: &str,
        source: &PolicySource,
        book: Arc<AddressBook>,
    ) -> Result<Composed, ComposeError> {
        workspace
            .parse::<NetworkId>()
            .map_err(|_| ComposeError::WorkspaceName)?;
        let job = Arc::new(read(source)?);
        if let Some(place) = &job.needs_packages {
            return Err(ComposeError::NeedsPackages(place.clone()));
        }
        let floors = self.floors.load_full().ok_or(ComposeError::NoFloors)?;
        let mut layers: Vec<Layer> = floors.of(workspace).cloned().collect();
        layers.push(Layer::new(LayerKind::Job, job.clone()));
        let snapshot = Snapshot::of(layers, book, self.own.clone());
        let unenforced: Vec<_> = snapshot.unenforced().cloned().collect();
        if !unenforced.is_empty() {
            return Err(ComposeError::NotEnforcedYet(unenforced));
        }
        Ok(Composed {
            snapshot: Arc::new(snapshot),
            job: job.hash,
            name: job.name.clone(),
        })
    }
}

/// Parses and checks a job policy; the sender's word that it is right counts for nothing.
fn read(source: &PolicySource) -> Result<Policy, ComposeError> {
    match source {
        PolicySource::Preset(name) => {
            document::preset(name).ok_or_else(|| ComposeError::UnknownPreset(name.clone()))
        }
        PolicySource::Document {
            file,
            text,
            packages,
        } => document::parse(file, text, packages.as_deref()).map_err(ComposeError::Invalid),
    }
}
