//! Many patterns, one look-up: what a decision over 10,000 rules uses.
//!
//! A hash map from the text of a name to what is said about it. A look-up asks once for the name and once for each
//! suffix that is short enough to be an apex, so its cost follows the number of labels, never the number of patterns;
//! a hostile name of 127 labels costs no more than the deepest pattern allows. The answer is exactly that of
//! [`Pattern::matches`] over all patterns (a property test holds the two together).

use std::collections::HashMap;

use super::{Name, Pattern};

/// Maps patterns to values and finds all values whose pattern matches a name.
#[derive(Clone, Debug)]
pub struct PatternIndex<T> {
    nodes: HashMap<Box<str>, Node<T>>,
    /// Labels of the longest apex; longer suffixes need no look-up.
    deepest_apex: usize,
}

#[derive(Clone, Debug)]
struct Node<T> {
    exact: Vec<T>,
    below: Vec<T>,
    /// Some pattern names something strictly below.
    has_descendant: bool,
}

impl<T> Default for Node<T> {
    fn default() -> Self {
        Self {
            exact: Vec::new(),
            below: Vec::new(),
            has_descendant: false,
        }
    }
}

impl<T> Default for PatternIndex<T> {
    fn default() -> Self {
        Self {
            nodes: HashMap::new(),
            deepest_apex: 0,
        }
    }
}

impl<T> PatternIndex<T> {
    /// Nothing matches yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a value under a pattern; several values may stand under one pattern.
    pub fn insert(&mut self, pattern: &Pattern, value: T) {
        let node = self
            .nodes
            .entry(pattern.name().as_str().into())
            .or_default();
        match pattern {
            Pattern::Exact(_) => node.exact.push(value),
            Pattern::Below(apex) => {
                node.below.push(value);
                node.has_descendant = true;
                self.deepest_apex = self.deepest_apex.max(apex.labels().count());
            }
        }
        for ancestor in suffixes(pattern.name()) {
            self.nodes
                .entry(ancestor.into())
                .or_default()
                .has_descendant = true;
        }
    }

    /// Values whose pattern matches: those of the exact name first, then from the nearest apex outwards, each in the
    /// order they were added.
    pub fn matches<'a>(&'a self, name: &'a Name) -> impl Iterator<Item = &'a T> {
        let exact = self
            .nodes
            .get(name.as_str())
            .map_or(&[][..], |node| &node.exact);
        let too_deep = name
            .labels()
            .count()
            .saturating_sub(1)
            .saturating_sub(self.deepest_apex);
        let below = suffixes(name)
            .skip(too_deep)
            .filter_map(|apex| self.nodes.get(apex))
            .flat_map(|node| &node.below);
        exact.iter().chain(below)
    }

    /// Whether the name is a strict ancestor of anything that a pattern names (DNS answers NODATA for it). The apex of
    /// `*.example.com` is one.
    pub fn has_descendant(&self, name: &Name) -> bool {
        self.nodes
            .get(name.as_str())
            .is_some_and(|node| node.has_descendant)
    }

    /// Whether no pattern was added.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

impl<T> FromIterator<(Pattern, T)> for PatternIndex<T> {
    fn from_iter<I: IntoIterator<Item = (Pattern, T)>>(entries: I) -> Self {
        let mut index = Self::new();
        for (pattern, value) in entries {
            index.insert(&pattern, value);
        }
        index
    }
}

/// The proper suffixes of a name on label borders, longest first.
fn suffixes(name: &Name) -> impl Iterator<Item = &str> {
    let up = |text: &str| -> Option<usize> { text.find('.').map(|dot| dot + 1) };
    let mut rest = name.as_str();
    std::iter::from_fn(move || {
        rest = rest.get(up(rest)?..)?;
        Some(rest)
    })
}
