//! Policies in git: branches that are followed, commits that are loaded whole or not at all.
//!
//! The journey of a commit: [`config`] says what is followed, [`mirror`] fetches it with [`git`] into quarantine,
//! [`objects`] reads it, [`commit`] and [`signature`] judge it, [`tree`] and [`load`] read and check every policy, [`state`]
//! keeps it, [`shelf`] puts it in force for [`crate::policy`]. [`propose`] writes the other way, to branches of its own.
//!
//! The worst that a remote can do is to be refused: nothing of it is checked out, run, or followed elsewhere; what was
//! loaded last stays in force, across restarts, until a commit is in order. Refuses to own: what a policy means.

pub mod commit;
pub mod config;
pub mod files;
mod follow;
mod following;
pub mod git;
pub mod load;
pub mod mirror;
pub mod names;
pub mod objects;
pub mod program;
pub mod propose;
pub mod shelf;
pub mod signature;
pub mod state;
pub mod tree;
pub mod view;

use std::io;
use std::path::Path;
use std::sync::Arc;

pub use config::SourceConfig;
pub use follow::{Looked, Refusal, Source};
pub use following::Following;
pub use shelf::Shelf;
pub use view::SourceView;

use names::Oid;
use state::Folder;

/// All sources of a gateway.
#[derive(Debug)]
pub struct Sources {
    shelf: Shelf,
    all: Vec<Arc<Source>>,
}

impl Sources {
    /// Opens them with what was kept, under `STATE_DIR/sources`; nothing is fetched.
    pub fn open(configs: &[SourceConfig], state_dir: &Path) -> io::Result<Self> {
        let shelf = Shelf::new(configs);
        let mut all = Vec::new();
        for slot in shelf.slots() {
            let folder = Folder::open(&state_dir.join("sources").join(&slot.config().name))?;
            all.push(Arc::new(Source::open(slot.clone(), folder)));
        }
        Ok(Self { shelf, all })
    }

    /// What they say, for composition.
    pub fn shelf(&self) -> &Shelf {
        &self.shelf
    }

    /// All of them.
    pub fn all(&self) -> &[Arc<Source>] {
        &self.all
    }

    /// One of them.
    pub fn named(&self, name: &str) -> Option<&Arc<Source>> {
        self.all.iter().find(|source| source.config().name == name)
    }

    /// As people see them.
    pub fn views(&self) -> Vec<SourceView> {
        self.all.iter().map(|source| source.view()).collect()
    }
}

/// Reads the name of a commit that an operator gives.
pub fn accepted(text: &str) -> Result<Oid, names::NameError> {
    text.parse()
}
