//! What a source keeps across restarts: the last commit that was loaded, its documents, and what happened to the branch.
//!
//! One file, replaced whole and synced before it is believed, in a folder that only root reads. It holds the documents
//! themselves, so that what is in force does not depend on the mirror, on git or on the remote. A file that is damaged
//! or that was kept for another remote, branch or folder is not used. A commit is in force only after it was kept.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::load::{Document, Documents};
use super::names::Oid;
use super::signature::Signer;

/// Remarkable moves of the branch that are remembered.
const MOST_MOVES: usize = 50;
/// Commits of before that are remembered.
const MOST_HISTORY: usize = 1000;

/// What a source keeps.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// Which remote, branch and folders it is of.
    pub of: String,
    /// What is in force.
    pub good: Option<Good>,
    /// What was remarkable about the branch, newest last.
    pub moves: Vec<Move>,
    /// Commits that were in force, newest last: one that comes back was set back to.
    pub history: Vec<Oid>,
}

/// The commit in force.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Good {
    /// The commit.
    pub commit: Oid,
    /// Milliseconds since the epoch.
    pub loaded_ms: i64,
    /// Who signed it, if signatures were required.
    pub signer: Option<Signer>,
    /// Policies: path and text.
    pub policies: Vec<(String, String)>,
    /// Floors: path and text.
    pub floors: Vec<(String, String)>,
}

/// How a branch moved when it did not simply grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Manner {
    /// Its history was rewritten (force-push).
    Rewritten,
    /// It was set back to an earlier commit.
    SetBack,
}

impl Manner {
    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Rewritten => "history was rewritten",
            Self::SetBack => "the branch was set back",
        }
    }
}

/// One such move.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Move {
    /// Milliseconds since the epoch.
    pub at_ms: i64,
    /// From.
    pub from: Oid,
    /// To.
    pub to: Oid,
    /// How.
    pub manner: Manner,
    /// Whether it was followed.
    pub followed: bool,
}

impl Good {
    /// Its documents.
    pub fn documents(&self) -> Documents {
        let all = |of: &[(String, String)]| {
            of.iter()
                .map(|(file, text)| Document {
                    file: file.clone(),
                    text: text.clone(),
                })
                .collect()
        };
        Documents {
            policies: all(&self.policies),
            floors: all(&self.floors),
        }
    }

    /// From documents.
    pub fn new(commit: Oid, loaded_ms: i64, signer: Option<Signer>, documents: &Documents) -> Self {
        let all = |of: &[Document]| {
            of.iter()
                .map(|d| (d.file.clone(), d.text.clone()))
                .collect()
        };
        Self {
            commit,
            loaded_ms,
            signer,
            policies: all(&documents.policies),
            floors: all(&documents.floors),
        }
    }
}

impl Kept {
    /// Nothing yet.
    pub fn fresh(of: String) -> Self {
        Self {
            of,
            good: None,
            moves: Vec::new(),
            history: Vec::new(),
        }
    }

    /// Puts a commit in force.
    pub fn accept(&mut self, good: Good) {
        self.history.retain(|old| *old != good.commit);
        self.history.push(good.commit.clone());
        let surplus = self.history.len().saturating_sub(MOST_HISTORY);
        self.history.drain(..surplus);
        self.good = Some(good);
    }

    /// Adds a move; one that is refused at each look is one move.
    pub fn moved(&mut self, new: Move) {
        let same =
            |old: &Move| (&old.from, &old.to, old.followed) == (&new.from, &new.to, new.followed);
        if self.moves.last().is_some_and(same) {
            return;
        }
        self.moves.push(new);
        let surplus = self.moves.len().saturating_sub(MOST_MOVES);
        self.moves.drain(..surplus);
    }
}

/// The folder of one source.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Opens or makes it, readable by its owner only.
    pub fn open(path: &Path) -> io::Result<Self> {
        for folder in [path.to_owned(), path.join("home"), path.join("scratch")] {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&folder)?;
        }
        Ok(Self(path.to_owned()))
    }

    /// The mirror's folder.
    pub fn mirror(&self) -> PathBuf {
        self.0.join("mirror.git")
    }

    /// An empty home for git.
    pub fn home(&self) -> PathBuf {
        self.0.join("home")
    }

    /// For files of a moment.
    pub fn scratch(&self) -> PathBuf {
        self.0.join("scratch")
    }

    fn file(&self) -> PathBuf {
        self.0.join("kept.json")
    }

    /// What was kept for this remote, branch and folder; nothing if there is none or it is damaged.
    pub fn load(&self, of: &str) -> Kept {
        let read =
            fs::read(self.file()).and_then(|bytes| Ok(serde_json::from_slice::<Kept>(&bytes)?));
        match read {
            Ok(kept) if kept.of == of => kept,
            Ok(_) => {
                tracing::warn!(folder = %self.0.display(), "what was kept is of another remote, branch or folder, and is not used");
                Kept::fresh(of.to_owned())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Kept::fresh(of.to_owned()),
            Err(error) => {
                tracing::error!(folder = %self.0.display(), %error, "what was kept is damaged and not used");
                Kept::fresh(of.to_owned())
            }
        }
    }

    /// Keeps it, whole or not at all, also through a power cut.
    pub fn save(&self, kept: &Kept) -> io::Result<()> {
        let fresh = self.0.join("kept.new");
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&fresh)?;
        file.write_all(&serde_json::to_vec(kept)?)?;
        file.sync_all()?;
        fs::rename(&fresh, self.file())?;
        File::open(&self.0)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(of: &str) -> Kept {
        let documents = Documents {
            policies: vec![Document {
                file: "policies/a.yml".into(),
                text: "policy: a\n".into(),
            }],
            floors: Vec::new(),
        };
        let good = Good::new(Oid::from_bytes(&[1; 20]).unwrap(), 7, None, &documents);
        Kept {
            good: Some(good),
            ..Kept::fresh(of.to_owned())
        }
    }

    /// GIT-10
    #[test]
    fn what_is_torn_or_of_another_source_is_not_used_and_what_is_whole_is() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        assert_eq!(folder.load("x"), Kept::fresh("x".into()));
        folder.save(&kept("x")).unwrap();
        assert_eq!(folder.load("x"), kept("x"));
        assert_eq!(folder.load("y"), Kept::fresh("y".into()));
        // a half-written newer one beside it changes nothing
        fs::write(dir.path().join("kept.new"), "{").unwrap();
        assert_eq!(folder.load("x"), kept("x"));
        let whole = fs::read(dir.path().join("kept.json")).unwrap();
        fs::write(dir.path().join("kept.json"), &whole[..whole.len() / 2]).unwrap();
        assert_eq!(folder.load("x"), Kept::fresh("x".into()));
    }

    #[test]
    fn a_move_that_is_seen_at_each_look_is_remembered_once() {
        let mut kept = kept("x");
        let (a, b) = (
            Oid::from_bytes(&[1; 20]).unwrap(),
            Oid::from_bytes(&[2; 20]).unwrap(),
        );
        let one = Move {
            at_ms: 1,
            from: a,
            to: b,
            manner: Manner::SetBack,
            followed: false,
        };
        kept.moved(one.clone());
        kept.moved(Move {
            at_ms: 2,
            ..one.clone()
        });
        assert_eq!(kept.moves.len(), 1);
        kept.moved(Move {
            followed: true,
            ..one
        });
        assert_eq!(kept.moves.len(), 2);
    }
}
