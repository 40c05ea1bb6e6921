//! The immutable state that one decision reads: layers with their indexes, address classes, own listeners.
//!
//! Building a [`Layer`] costs time proportional to its rules; a [`Snapshot`] over existing layers, or with a newer
//! address book, costs next to nothing. The hash covers the layers' texts only: the book changes with every route.

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::index::{Ancestors, RuleIndex};
use crate::addr::AddressBook;
use crate::ids::{PolicyHash, UnixSeconds};
use crate::name::Name;
use crate::policy::{Limits, NamesMode, NetworkMode, Place, Policy};

/// Which of the layers that only narrow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerKind {
    /// The instance floor.
    Instance,
    /// The workspace floor.
    Workspace,
    /// The job's own policy.
    Job,
}

impl LayerKind {
    /// The word in records and explanations.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Instance => "instance",
            Self::Workspace => "workspace",
            Self::Job => "job",
        }
    }
}

/// Sallyport's own listeners: no policy opens them (console, API, metrics, control, ingress names).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OwnListeners {
    /// Closed on every host address.
    pub ports: Vec<u16>,
    /// app.url host and ingress names.
    pub names: Vec<Name>,
}

/// One policy in its place among the layers, ready to be asked.
#[derive(Clone, Debug)]
pub struct Layer {
    kind: LayerKind,
    policy: Arc<Policy>,
    pub(super) index: Arc<LayerIndex>,
}

/// The indexes of one policy.
#[derive(Debug)]
pub(super) struct LayerIndex {
    pub(super) allow: RuleIndex,
    pub(super) deny: RuleIndex,
    pub(super) ancestors: Ancestors,
    /// When entries end, each moment once, in order.
    ends: Vec<UnixSeconds>,
}

impl Layer {
    /// Indexes a policy.
    pub fn new(kind: LayerKind, policy: Arc<Policy>) -> Self {
        let index = LayerIndex {
            allow: RuleIndex::new(&policy.allow),
            deny: RuleIndex::new(&policy.deny),
            ancestors: Ancestors::new(&policy.allow),
            ends: ends_of(&policy),
        };
        Self {
            kind,
            policy,
            index: Arc::new(index),
        }
    }

    /// The same layer where an operator has turned the egress filter off (`gateway.egress_filter: off`): private networks
    /// and the host are open to policies with `network: internet`. Everything else stays closed.
    #[must_use]
    pub fn turned_off(mut self) -> Self {
        if self.policy.network == NetworkMode::Internet && !self.policy.private {
            self.policy = Arc::new(Policy {
                private: true,
                ..Policy::clone(&self.policy)
            });
        }
        self
    }

    /// Where it stands.
    pub fn kind(&self) -> LayerKind {
        self.kind
    }

    /// What it says.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }
}

/// Everything that decides a network's flows, immutable.
#[derive(Clone, Debug)]
pub struct Snapshot {
    layers: Arc<[Layer]>,
    book: Arc<AddressBook>,
    own: Arc<OwnListeners>,
    hash: PolicyHash,
}

impl Snapshot {
    /// A snapshot over policies: instance, workspace, job, those that exist. No layer at all permits nothing.
    pub fn new(
        layers: Vec<(LayerKind, Arc<Policy>)>,
        book: Arc<AddressBook>,
        own: Arc<OwnListeners>,
    ) -> Self {
        Self::of(
            layers
                .into_iter()
                .map(|(kind, policy)| Layer::new(kind, policy))
                .collect(),
            book,
            own,
        )
    }

    /// A snapshot over layers that are indexed already (floors are shared by many networks).
    pub fn of(mut layers: Vec<Layer>, book: Arc<AddressBook>, own: Arc<OwnListeners>) -> Self {
        layers.sort_by_key(Layer::kind);
        let hash = hash_of(&layers);
        Self {
            layers: layers.into(),
            book,
            own,
            hash,
        }
    }

    /// The same layers under newer address classes; the hash stays.
    #[must_use]
    pub fn with_book(&self, book: Arc<AddressBook>) -> Self {
        Self {
            book,
            ..self.clone()
        }
    }

    /// Layers in the order instance, workspace, job.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Address classes now.
    pub fn book(&self) -> &Arc<AddressBook> {
        &self.book
    }

    /// What no policy opens.
    pub fn own(&self) -> &Arc<OwnListeners> {
        &self.own
    }

    /// Hash over all layers.
    pub fn hash(&self) -> PolicyHash {
        self.hash
    }

    /// The job's own policy, if there is one.
    pub fn job(&self) -> Option<&Policy> {
        self.layers
            .iter()
            .find(|layer| layer.kind == LayerKind::Job)
            .map(|layer| &*layer.policy)
    }

    /// The budgets in force: of each the narrowest of all layers.
    pub fn limits(&self) -> Limits {
        self.layers.iter().fold(Limits::default(), |limits, layer| {
            limits.narrowed_by(&layer.policy.limits)
        })
    }

    /// Whether an entry's time ended in this stretch (an end is the first second that is too
    /// late). Costs nothing for policies without `until`.
    pub fn lapses(&self, during: &Range<UnixSeconds>) -> bool {
        self.layers.iter().any(|layer| {
            let ends = &layer.index.ends;
            let first = ends.partition_point(|end| *end < during.start);
            ends.get(first).is_some_and(|end| *end < during.end)
        })
    }

    /// What DNS answers for a permitted name: the job's choice, it widens nothing.
    pub fn names_mode(&self) -> NamesMode {
        self.job().map_or(NamesMode::Leased, |policy| policy.names)
    }

    /// Whether denials name policy and rule to the sandbox: the job's choice.
    pub fn explains(&self) -> bool {
        self.job().is_some_and(|policy| policy.explain)
    }

    /// What some layer asks for and nobody enforces yet; running under such a snapshot is refused.
    pub fn unenforced(&self) -> impl Iterator<Item = &(String, Place)> {
        self.layers
            .iter()
            .flat_map(|layer| &layer.policy.unenforced)
    }
}

fn ends_of(policy: &Policy) -> Vec<UnixSeconds> {
    let rules = policy.allow.iter().chain(&policy.deny);
    let mut ends: Vec<UnixSeconds> = rules.filter_map(|rule| rule.until).collect();
    ends.sort_unstable();
    ends.dedup();
    ends
}

/// SHA-256 over kinds and policy hashes, in order.
fn hash_of(layers: &[Layer]) -> PolicyHash {
    let mut hasher = Sha256::new();
    // a version, so that a change of composition changes every hash
    hasher.update(b"sallyport layers 1\n");
    for layer in layers {
        hasher.update(layer.kind.word());
        hasher.update(b"\n");
        hasher.update(layer.policy.hash.0);
    }
    PolicyHash(hasher.finalize().into())
}
