//! Many patterns, one look-up: what a decision over 10,000 rules uses.
//!
//! A tree of labels, from the last one of a name to its first. A look-up goes down as far as there are patterns, a label
//! at a time, so its cost follows the depth of what patterns say about a name, never their number; of a hostile name of
//! 127 labels nothing is read beyond that depth. The answer is exactly that of [`Pattern::matches`] over all patterns (a
//! property test holds the two together).

use std::collections::HashMap;

use super::{Name, Pattern};

/// Maps patterns to values and finds all values whose pattern matches a name.
#[derive(Clone, Debug)]
pub struct PatternIndex<T> {
    /// The children of the root.
    tops: Children,
    nodes: Vec<Node<T>>,
}

/// Numbers of nodes, by the label that leads to them.
type Children = HashMap<Box<str>, usize>;

#[derive(Clone, Debug)]
struct Node<T> {
    exact: Vec<T>,
    below: Vec<T>,
    children: Children,
}

impl<T> Default for Node<T> {
    fn default() -> Self {
        Self {
            exact: Vec::new(),
            below: Vec::new(),
            children: Children::new(),
        }
    }
}

impl<T> Default for PatternIndex<T> {
    fn default() -> Self {
        Self {
            tops: Children::new(),
            nodes: Vec::new(),
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
        let mut at = None;
        for label in pattern.name().labels().rev() {
            at = Some(self.child(at, label));
        }
        let Some(node) = at.and_then(|at| self.nodes.get_mut(at)) else {
            return;
        };
        match pattern {
            Pattern::Exact(_) => node.exact.push(value),
            Pattern::Below(_) => node.below.push(value),
        }
    }

    /// The child of a node (or of the root) by this label, made if there is none.
    fn child(&mut self, of: Option<usize>, label: &str) -> usize {
        let fresh = self.nodes.len();
        let children = match of.and_then(|of| self.nodes.get_mut(of)) {
            Some(node) => &mut node.children,
            None => &mut self.tops,
        };
        if let Some(known) = children.get(label) {
            return *known;
        }
        children.insert(label.into(), fresh);
        self.nodes.push(Node::default());
        fresh
    }

    /// The nodes on the way to a name, as far as there are any, and whether the last one is the name itself.
    fn walk(&self, name: &Name) -> (Vec<&Node<T>>, bool) {
        let mut way: Vec<&Node<T>> = Vec::new();
        for label in name.labels().rev() {
            let children = way.last().map_or(&self.tops, |node| &node.children);
            match children.get(label).and_then(|at| self.nodes.get(*at)) {
                Some(node) => way.push(node),
                None => return (way, false),
            }
        }
        (way, true)
    }

    /// Values whose pattern matches: those of the exact name first, then from the nearest apex outwards, each in the
    /// order they were added.
    pub fn matches<'a>(&'a self, name: &'a Name) -> impl Iterator<Item = &'a T> {
        let (mut way, whole) = self.walk(name);
        let itself = if whole { way.pop() } else { None };
        let exact = itself.into_iter().flat_map(|node| &node.exact);
        exact.chain(way.into_iter().rev().flat_map(|node| &node.below))
    }

    /// Whether the name is a strict ancestor of anything that a pattern names (DNS answers NODATA for it). The apex of
    /// `*.example.com` is one.
    pub fn has_descendant(&self, name: &Name) -> bool {
        let (way, whole) = self.walk(name);
        let node = way.last().filter(|_| whole);
        node.is_some_and(|node| !node.below.is_empty() || !node.children.is_empty())
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
