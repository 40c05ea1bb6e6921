//! Composition: instance floor AND workspace floor AND job policy, made by the gateway and nobody else.
//!
//! Job policies arrive as text or preset names and are parsed and checked here again; floors are read from files that
//! only root can change. Layers only narrow; that is a property of [`netpolicy::decide`], composition merely puts them
//! side by side. A policy that asks for what is not enforced yet is refused, never run without it.
//! Failure stance: a floor that is named but cannot be read, or is wrong, is an error that seals the gateway.

mod floors;
mod stamp;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use netpolicy::addr::AddressBook;
use netpolicy::decide::{Layer, LayerKind, OwnListeners, Snapshot};
use netpolicy::document::{self, Mistake};
use netpolicy::ids::{NetworkId, PolicyHash};
use netpolicy::policy::{Place, Policy};

use crate::config::EgressFilter;
use crate::control::PolicySource;
use crate::source::Shelf;
use crate::source::load::Catalogue;
use crate::source::shelf::ShelfError;
pub use floors::{FloorError, FloorFiles, Floors};
pub use stamp::{Resolved, Stamp};

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
    /// A policy of a source.
    #[error(transparent)]
    Source(#[from] ShelfError),
    /// The source has another text by now.
    #[error("the source's policy {0:?} has changed meanwhile")]
    Changed(String),
    /// A document calls itself like something that is shipped.
    #[error("a document cannot be called {0:?}: such names are those of shipped policies and sets")]
    ReservedFile(String),
    /// A workspace's name chooses a file, so it has a strict form.
    #[error("a workspace's name has 1 to 40 characters of a-z, 0-9 and '-'")]
    WorkspaceName,
}

fn is_same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
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
    /// Whose word the job policy is.
    pub stamp: Stamp,
    /// The text, where a source had it: a policy that its source loses stays with the networks that use it.
    pub resolved: Option<Resolved>,
}

/// What policies were composed of at some moment: floors and catalogues of sources.
#[derive(Debug)]
pub struct Ingredients {
    floors: Option<Arc<Floors>>,
    catalogues: Vec<Option<Arc<Catalogue>>>,
}

/// Puts layers together. One for each gateway.
#[derive(Debug)]
pub struct Composer {
    files: FloorFiles,
    /// `None` until they were read once.
    floors: ArcSwapOption<Floors>,
    own: Arc<OwnListeners>,
    sources: Shelf,
    filter: EgressFilter,
}

impl Composer {
    /// No floors yet: [`Composer::reload`] reads them, and until it succeeds nothing is composed.
    pub fn new(files: FloorFiles, own: OwnListeners) -> Self {
        Self {
            files,
            floors: ArcSwapOption::empty(),
            own: Arc::new(own),
            sources: Shelf::default(),
            filter: EgressFilter::default(),
        }
    }

    /// What the operator said of the egress filter.
    pub fn filter(&self) -> EgressFilter {
        self.filter
    }

    /// Under what the operator said of the egress filter.
    #[must_use]
    pub fn with_filter(mut self, filter: EgressFilter) -> Self {
        self.filter = filter;
        self
    }

    /// With policies and floors of these sources.
    #[must_use]
    pub fn with_sources(mut self, sources: Shelf) -> Self {
        self.sources = sources;
        self
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

    /// Whether a workspace has the floor that it should have: where workspaces have floors, one without is a name that
    /// nobody thought of.
    pub fn has_floor(&self, workspace: &str) -> bool {
        let own = |floors: &Arc<Floors>| floors.has(workspace);
        self.files.workspaces.is_none()
            || self.floors.load().as_ref().is_some_and(own)
            || self
                .sources
                .floors(workspace)
                .is_ok_and(|all| !all.is_empty())
    }

    /// What composing starts from now.
    pub fn ingredients(&self) -> Ingredients {
        Ingredients {
            floors: self.floors.load_full(),
            catalogues: self.sources.catalogues(),
        }
    }

    /// Whether that is still what composing starts from.
    pub fn is_current(&self, before: &Ingredients) -> bool {
        let now = self.ingredients();
        let same = |(now, before): (&Option<Arc<Catalogue>>, &Option<Arc<Catalogue>>)| {
            is_same(now.as_ref(), before.as_ref())
        };
        is_same(now.floors.as_ref(), before.floors.as_ref())
            && now.catalogues.iter().zip(&before.catalogues).all(same)
    }

    /// The effective policy of a network.
    pub fn compose(
        &self,
        workspace: &str,
        source: &PolicySource,
        book: Arc<AddressBook>,
    ) -> Result<Composed, ComposeError> {
        self.compose_with(workspace, source, None, book)
    }

    /// The effective policy of a network that was composed before: what its source has lost is what it was then.
    pub fn compose_with(
        &self,
        workspace: &str,
        source: &PolicySource,
        before: Option<&Resolved>,
        book: Arc<AddressBook>,
    ) -> Result<Composed, ComposeError> {
        workspace
            .parse::<NetworkId>()
            .map_err(|_| ComposeError::WorkspaceName)?;
        let (job, resolved) = self.read(workspace, source, before)?;
        if let Some(place) = &job.needs_packages {
            return Err(ComposeError::NeedsPackages(place.clone()));
        }
        let floors = self.floors.load_full().ok_or(ComposeError::NoFloors)?;
        let mut layers: Vec<Layer> = floors.of(workspace).cloned().collect();
        layers.extend(self.sources.floors(workspace)?);
        layers.push(Layer::new(LayerKind::Job, job.clone()));
        if self.filter == EgressFilter::Off {
            layers = layers.into_iter().map(Layer::turned_off).collect();
        }
        let snapshot = Snapshot::of(layers, book, self.own.clone());
        let unenforced: Vec<_> = snapshot.unenforced().cloned().collect();
        if !unenforced.is_empty() {
            return Err(ComposeError::NotEnforcedYet(unenforced));
        }
        Ok(Composed {
            snapshot: Arc::new(snapshot),
            job: job.hash,
            name: job.name.clone(),
            stamp: Stamp::of(source, resolved.as_ref()),
            resolved,
        })
    }

    /// Parses and checks a job policy; the sender's word that it is right counts for nothing.
    fn read(
        &self,
        workspace: &str,
        source: &PolicySource,
        before: Option<&Resolved>,
    ) -> Result<(Arc<Policy>, Option<Resolved>), ComposeError> {
        match source {
            PolicySource::Preset(name) => {
                let preset = document::preset(name);
                let policy = preset.ok_or_else(|| ComposeError::UnknownPreset(name.clone()))?;
                Ok((Arc::new(policy), None))
            }
            PolicySource::Document {
                file,
                text,
                packages,
            } => {
                if file.starts_with("preset:") || file.starts_with("set:") {
                    return Err(ComposeError::ReservedFile(file.clone()));
                }
                let policy = document::parse(file, text, packages.as_deref());
                Ok((Arc::new(policy.map_err(ComposeError::Invalid)?), None))
            }
            PolicySource::Git {
                source,
                policy: name,
                hash,
                packages,
            } => {
                let found = self.sources.find(workspace, source.as_deref(), name);
                let (policy, resolved) = match (found, before) {
                    (Ok(found), _) => (Some(found.policy()), Resolved::from(&found)),
                    (Err(_), Some(before)) => (None, before.clone()),
                    (Err(error), None) => return Err(error.into()),
                };
                // Parsed once for all networks, unless the image has a say.
                let policy = match (policy, packages) {
                    (Some(policy), None) => policy,
                    _ => Arc::new(
                        resolved
                            .parse(packages.as_deref())
                            .map_err(ComposeError::Invalid)?,
                    ),
                };
                match hash {
                    Some(expected) if *expected != policy.hash => {
                        Err(ComposeError::Changed(name.clone()))
                    }
                    _ => Ok((policy, Some(resolved))),
                }
            }
        }
    }
}
