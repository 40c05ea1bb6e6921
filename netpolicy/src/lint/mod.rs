//! What in a policy does nothing, or more than it looks. Warnings about good policies; mistakes are [`crate::document`]'s.
//!
//! Owns: entries without effect ([`effect`]), entries that others make needless ([`cover`]), entries that are wider than
//! they look ([`width`], with the dated [`Catalogue`]), names that are taken for others ([`letters`]). An entry of the first two kinds can be removed without changing
//! what is permitted (a property test holds the lints to it); where that cannot be shown, nothing is said.
//!
//! Entries of shipped sets are not warned about: naming the set is the statement, and its author cannot change it. They
//! do make entries of the policy needless.

mod catalogue;
mod cover;
mod effect;
mod letters;
mod width;

#[cfg(test)]
mod tests;

use crate::decide::LayerKind;
use crate::document::mistake::Mistake;
use crate::ids::UnixSeconds;
use crate::policy::{Place, Policy, Rule};

pub use catalogue::{Catalogue, Item, Kind, PUBLIC_SUFFIXES};
pub use letters::{Reading, readings};
pub use width::is_public_suffix;

/// What a warning is about. Codes never change their meaning.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Code {
    /// `until` has passed.
    Expired,
    /// No flow can ever match.
    Dead,
    /// A floor lets nothing of it pass.
    OutsideFloor,
    /// A `deny` entry covers all of it.
    Denied,
    /// A wider entry of the same list covers all of it.
    Shadowed,
    /// The same entry stands there twice.
    Duplicate,
    /// A wildcard over a public suffix: names of everybody.
    PublicSuffix,
    /// Strangers can have a part of what it names.
    ManyOwners,
    /// A host that takes data from anybody.
    Uploads,
    /// A resolver: look-ups through it are seen by nobody.
    Resolver,
    /// A host that fetches or forwards to wherever it is told.
    Relay,
    /// A prefix of the public internet so short that it holds strangers' servers.
    WideNetwork,
    /// A name in letters that are taken for others.
    Lookalike,
}

impl Code {
    /// All, in the order in which they are listed.
    pub const ALL: [Self; 13] = [
        Self::Expired,
        Self::Dead,
        Self::OutsideFloor,
        Self::Denied,
        Self::Shadowed,
        Self::Duplicate,
        Self::PublicSuffix,
        Self::ManyOwners,
        Self::Uploads,
        Self::Resolver,
        Self::Relay,
        Self::WideNetwork,
        Self::Lookalike,
    ];

    /// The word on every surface.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Dead => "dead",
            Self::OutsideFloor => "outside_floor",
            Self::Denied => "denied",
            Self::Shadowed => "shadowed",
            Self::Duplicate => "duplicate",
            Self::PublicSuffix => "public_suffix",
            Self::ManyOwners => "many_owners",
            Self::Uploads => "uploads",
            Self::Resolver => "resolver",
            Self::Relay => "relay",
            Self::WideNetwork => "wide_network",
            Self::Lookalike => "lookalike",
        }
    }

    /// What it is about, in one line.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Expired => "the last day of `until` is over; the entry does nothing",
            Self::Dead => "no flow can ever match the entry",
            Self::OutsideFloor => "a floor above lets nothing of the entry pass",
            Self::Denied => "a `deny` entry covers all of the entry",
            Self::Shadowed => "a wider entry of the same list covers all of the entry",
            Self::Duplicate => "the same entry stands in the list already",
            Self::PublicSuffix => "a wildcard over a public suffix permits names of everybody",
            Self::ManyOwners => "strangers can have a name or a path under what the entry permits",
            Self::Uploads => "the entry permits a host that takes data from anybody",
            Self::Resolver => "the entry permits a resolver, whose look-ups nobody sees",
            Self::Relay => "the entry permits a host that fetches or forwards to anywhere",
            Self::WideNetwork => "the prefix holds servers of strangers",
            Self::Lookalike => "the name is written in letters that are taken for others",
        }
    }

    /// Whether removing the entry changes nothing that is permitted.
    pub const fn is_needless(self) -> bool {
        matches!(
            self,
            Self::Expired
                | Self::Dead
                | Self::OutsideFloor
                | Self::Denied
                | Self::Shadowed
                | Self::Duplicate
        )
    }
}

/// One warning: code, place, what, and what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lint {
    /// What it is about.
    pub code: Code,
    /// The entry.
    pub at: Place,
    /// What is the matter with it, lower case.
    pub message: String,
    /// What to do.
    pub hint: String,
}

impl std::fmt::Display for Lint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (at, code) = (&self.at, self.code.word());
        write!(
            f,
            "{at}: warning[{code}]: {} (hint: {})",
            self.message, self.hint
        )
    }
}

/// What a policy is looked at with.
#[derive(Clone, Debug)]
pub struct Setting<'a> {
    /// The moment.
    pub now: UnixSeconds,
    /// What is known about hosts.
    pub catalogue: &'a Catalogue,
    /// Floors above the policy.
    pub floors: &'a [(LayerKind, Policy)],
}

/// Everything to be said about a policy, in the order of the document.
pub fn check(policy: &Policy, setting: &Setting<'_>) -> Vec<Lint> {
    let mut found = effect::check(policy, setting);
    let silent: std::collections::HashSet<Place> =
        found.iter().map(|lint| lint.at.clone()).collect();
    // an entry that does nothing is not wide either
    let more = cover::check(policy, setting.now, &silent);
    let silent: std::collections::HashSet<Place> = silent
        .into_iter()
        .chain(more.iter().map(|lint| lint.at.clone()))
        .collect();
    found.extend(more);
    let wide = width::check(policy, setting.catalogue).into_iter();
    found.extend(
        wide.chain(letters::check(policy, setting.catalogue))
            .filter(|lint| !silent.contains(&lint.at)),
    );
    found.sort_by(|a, b| {
        let key = |lint: &Lint| (lint.at.line, lint.at.column, lint.code);
        key(a).cmp(&key(b))
    });
    found
}

/// Whether an entry belongs to the author and not to a shipped set or the image.
fn is_own(rule: &Rule, policy: &Policy) -> bool {
    rule.at.file == policy.at.file
}

/// A catalogue file, or the mistakes in it.
pub type Read = Result<Catalogue, Vec<Mistake>>;
