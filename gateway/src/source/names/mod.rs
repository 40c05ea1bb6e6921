//! What git is told: remotes, branches, paths in a tree, object names. Each is read strictly, once, from root's own
//! configuration or from git's answer, and only these types reach a command line.
//!
//! A remote can be an option (`--upload-pack=…`), a program (`ext::…`), a file of this machine (`file:///…`) or carry a
//! password; a branch can be a revision (`a..b`, `@{-1}`); a path can leave its folder. None of them has a form here.
//! Refuses to own: who may be reached. Failure stance: what is not plainly one of the forms is refused.

mod remote;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use remote::{Remote, Transport};

/// Longest remote, branch or path; `PATH_MAX` of linux/limits.h bounds what can exist anyway.
const LONGEST: usize = 1024;

/// Why a text is none of these names.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct NameError(pub &'static str);

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'+')
}

/// A branch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Branch(String);

impl Branch {
    /// Its short name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its whole name.
    pub fn reference(&self) -> String {
        format!("refs/heads/{}", self.0)
    }
}

impl FromStr for Branch {
    type Err = NameError;

    /// A part of what git-check-ref-format(1) permits.
    fn from_str(text: &str) -> Result<Self, NameError> {
        let part = |part: &str| {
            !part.is_empty()
                && !part.starts_with(['.', '-'])
                && !part.ends_with('.')
                && !part.to_ascii_lowercase().ends_with(".lock")
                && !part.contains("..")
                && part.bytes().all(is_plain)
        };
        if text.len() > 200 || !text.split('/').all(part) {
            return Err(NameError(
                "a branch has parts of letters, digits and -._+ between slashes",
            ));
        }
        if matches!(text, "HEAD" | "FETCH_HEAD" | "ORIG_HEAD") || text.starts_with("refs/") {
            return Err(NameError(
                "a branch is named without `refs/`, and is not HEAD",
            ));
        }
        // The branches that proposals are written to can never be followed, on any file system.
        if text
            .split('/')
            .next()
            .is_some_and(|first| first.eq_ignore_ascii_case("sallyport"))
        {
            return Err(NameError(
                "branches below `sallyport/` are for proposals and cannot be followed",
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

/// A path in a tree, relative to its root, of plain names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TreePath(String);

impl TreePath {
    /// With slashes.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its names.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }
}

impl FromStr for TreePath {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.len() <= LONGEST
            && text
                .split('/')
                .all(|part| crate::source::tree::odd_name(part.as_bytes()).is_none())
        {
            Ok(Self(text.to_owned()))
        } else {
            Err(NameError(
                "a path in the repository is relative and has plain names: letters, digits and -._",
            ))
        }
    }
}

/// The name of an object: 40 hexadecimal digits (SHA-1 repositories, with git's collision detection).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Oid(String);

impl Oid {
    /// Its digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// From the bytes that a tree holds.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let digits = bytes.iter().fold(String::with_capacity(40), |text, b| {
            text + &format!("{b:02x}")
        });
        digits.parse().ok()
    }
}

impl FromStr for Oid {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.len() == 40 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NameError(
                "an object is named by 40 hexadecimal digits, lower case",
            ))
        }
    }
}

impl TryFrom<String> for Oid {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<Oid> for String {
    fn from(oid: Oid) -> Self {
        oid.0
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a source, or of a proposal: 1 to 40 characters of a-z, 0-9 and '-', not at the ends.
pub fn is_short_name(text: &str) -> bool {
    (1..=40).contains(&text.len())
        && !text.starts_with('-')
        && !text.ends_with('-')
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

#[cfg(test)]
mod tests;
