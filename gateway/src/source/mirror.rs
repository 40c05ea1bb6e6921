//! The mirror: one bare repository of ours under the state directory, a cache that can be thrown away at any time.
//!
//! A fetch goes into a quarantine reference; what was accepted is kept by another, so that later commits can be compared
//! with it. A fetch that did not end by itself leaves a marker, and the next one begins with an empty mirror: nothing of
//! a half-written state is ever read. What is in force does not depend on the mirror ([`super::state`]).

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::git::{Git, LITTLE};
use super::names::{Branch, Oid, Remote};
use super::program::ProgramError;

/// Where fetched commits land.
const INCOMING: &str = "refs/sallyport/incoming";
/// What was accepted last.
const GOOD: &str = "refs/sallyport/good";
/// The mirror may grow to so many times what one fetch may bring before it is made afresh.
const GROWTH: u64 = 3;

/// Why the mirror is of no use now.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// Files.
    #[error("keeping the mirror in {path}")]
    Files {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Git.
    #[error(transparent)]
    Git(#[from] ProgramError),
    /// What the remote has under the branch's name cannot be followed.
    #[error("the remote's branch has no commit that can be read")]
    NoCommit,
    /// More commits than are ever judged at once.
    #[error("more than {0} commits are new at once")]
    TooMany(usize),
}

/// The mirror of one source.
#[derive(Clone, Debug)]
pub struct Mirror {
    git: Git,
    directory: PathBuf,
    most: u64,
}

impl Mirror {
    /// In this folder; `most` bytes are the most that one fetch may bring.
    pub fn new(git: Git, directory: PathBuf, most: u64) -> Self {
        Self {
            git,
            directory,
            most,
        }
    }

    /// Git on the mirror.
    pub fn git(&self) -> &Git {
        &self.git
    }

    fn marker(&self) -> PathBuf {
        self.directory.with_extension("fetching")
    }

    fn files(&self) -> impl Fn(io::Error) -> MirrorError + '_ {
        |source| MirrorError::Files {
            path: self.directory.clone(),
            source,
        }
    }

    /// Fetches the branch; the commit that it points to. The mirror is made afresh if it is damaged or too large.
    pub async fn fetch(&self, remote: &Remote, branch: &Branch) -> Result<Oid, MirrorError> {
        if self.marker().exists()
            || !self.directory.join("HEAD").is_file()
            || self.size() > self.most.saturating_mul(GROWTH)
        {
            self.discard()?;
        }
        fs::write(self.marker(), "").map_err(self.files())?;
        if !self.directory.exists() {
            fs::DirBuilder::new()
                .mode(0o700)
                .create(&self.directory)
                .map_err(self.files())?;
            self.git.init().await?;
        }
        let refspec = format!("+{}:{INCOMING}", branch.reference());
        let arguments = [
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-recurse-submodules",
            "--no-write-fetch-head",
            "--no-auto-maintenance",
            "--no-show-forced-updates",
            "--refmap=",
            "--end-of-options",
            remote.as_str(),
            &refspec,
        ];
        let printed = self.git.run(&arguments, b"", LITTLE).await?;
        if printed.code.is_none() {
            // killed by a limit: the marker stays
            return Err(printed.failed().into());
        }
        fs::remove_file(self.marker()).map_err(self.files())?;
        printed.good()?;
        self.named(INCOMING).await?.ok_or(MirrorError::NoCommit)
    }

    async fn named(&self, reference: &str) -> Result<Option<Oid>, MirrorError> {
        let format = "--format=%(objectname)";
        let text = self
            .git
            .line(
                &["for-each-ref", format, "--end-of-options", reference],
                b"",
            )
            .await?;
        Ok(text.parse().ok())
    }

    /// Removes the mirror.
    pub fn discard(&self) -> Result<(), MirrorError> {
        let gone = |result: io::Result<()>| match result {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.files()(error)),
            _ => Ok(()),
        };
        gone(fs::remove_dir_all(&self.directory))?;
        gone(fs::remove_file(self.marker()))
    }

    fn size(&self) -> u64 {
        size(&self.directory.join("objects"), 3)
    }

    /// Whether `older` is `newer` or one of its ancestors. A commit that the mirror does not have is nobody's ancestor.
    pub async fn is_ancestor(&self, older: &Oid, newer: &Oid) -> Result<bool, MirrorError> {
        let there = self
            .git
            .run(
                &["cat-file", "-e", &format!("{older}^{{commit}}")],
                b"",
                LITTLE,
            )
            .await?;
        if there.code != Some(0) {
            return Ok(false);
        }
        let printed = self
            .git
            .run(
                &[
                    "merge-base",
                    "--is-ancestor",
                    older.as_str(),
                    newer.as_str(),
                ],
                b"",
                LITTLE,
            )
            .await?;
        match printed.code {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => Err(printed.failed().into()),
        }
    }

    /// Every commit that is reachable from `tip` and not from `good`, on all paths; at most so many.
    pub async fn new_commits(
        &self,
        good: &Oid,
        tip: &Oid,
        most: usize,
    ) -> Result<Vec<Oid>, MirrorError> {
        let count = format!("--max-count={}", most + 1);
        let input = format!("{tip}\n^{good}\n");
        let out = self
            .git
            .run(&["rev-list", &count, "--stdin"], input.as_bytes(), LITTLE)
            .await?
            .good()?;
        let all: Vec<Oid> = String::from_utf8_lossy(&out)
            .lines()
            .filter_map(|line| line.parse().ok())
            .collect();
        if all.len() > most {
            Err(MirrorError::TooMany(most))
        } else {
            Ok(all)
        }
    }

    /// Keeps a commit: later ones are compared with it.
    pub async fn keep(&self, oid: &Oid) -> Result<(), MirrorError> {
        self.git
            .run(
                &["update-ref", "--no-deref", GOOD, oid.as_str()],
                b"",
                LITTLE,
            )
            .await?
            .good()?;
        Ok(())
    }
}

/// Bytes below a folder of git's, which is never deeper.
fn size(folder: &Path, depth: u8) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    let one = |entry: fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() && depth > 0 => size(&entry.path(), depth - 1),
        Ok(found) => found.len(),
        Err(_) => 0,
    };
    entries.flatten().map(one).sum()
}
