//! Proposals: changes written to a branch of their own, for people to judge and merge. Never to the followed branch.
//!
//! The branch is always `sallyport/proposals/NAME`, which no configuration can follow, and it must not exist yet; nothing
//! is ever forced. What is proposed is checked like a commit that would be loaded: a proposal that could never be merged
//! is not written. The commit stands on the one in force and is not signed: whoever merges it signs.

use std::collections::BTreeSet;

use netpolicy::document::Mistake;

use super::files::FileError;
use super::follow::Source;
use super::git::{Git, LITTLE};
use super::load::{Catalogue, Document, Documents};
use super::mirror::MirrorError;
use super::names::{NameError, Oid, TreePath, is_short_name};
use super::program::ProgramError;
use super::view::{ProposalRequest, Proposed};

/// Where proposals go.
const BRANCHES: &str = "sallyport/proposals";
/// More files are no proposal that a person reads.
const MOST_FILES: usize = 100;
/// A first line of a commit that lists still show.
const LONGEST_TITLE: usize = 200;

/// Why a proposal was not written.
#[derive(Debug, thiserror::Error)]
pub enum ProposeError {
    /// The configuration does not permit it.
    #[error("this source takes no proposals")]
    NotAllowed,
    /// Nothing is in force that could be changed.
    #[error("nothing of this source is in force, or the remote has lost it")]
    NoBase,
    /// The request.
    #[error("{0}")]
    Request(&'static str),
    /// A path.
    #[error("{file:?}: {why}")]
    Path {
        /// The path.
        file: String,
        /// Why.
        why: NameError,
    },
    /// What would be in force after it has mistakes.
    #[error("the proposal has {} mistake{}", .0.len(), if .0.len() == 1 { "" } else { "s" })]
    Mistakes(Vec<Mistake>),
    /// A file of the configuration.
    #[error(transparent)]
    File(#[from] FileError),
    /// The mirror.
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    /// The remote has the branch.
    #[error("the proposal {0} exists already")]
    Exists(String),
    /// Git, or the remote, which does not let us push.
    #[error("writing the proposal")]
    Git(#[from] ProgramError),
}

impl Source {
    /// Writes a proposal to the remote; `who` is the user that asked.
    pub async fn propose(
        &self,
        request: &ProposalRequest,
        who: u32,
    ) -> Result<Proposed, ProposeError> {
        if !self.config().proposals {
            return Err(ProposeError::NotAllowed);
        }
        let (base, before) = self.in_force().ok_or(ProposeError::NoBase)?;
        let files = self.checked(request, &base, before)?;
        let _turn = self.turn().await;
        let mirror = self.mirror()?;
        if !mirror.is_ancestor(&base, &base).await? {
            mirror
                .fetch(&self.config().remote, &self.config().branch)
                .await?;
            if !mirror.is_ancestor(&base, &base).await? {
                return Err(ProposeError::NoBase);
            }
        }
        let index = self.folder().scratch().join("index");
        let git = ["AUTHOR", "COMMITTER"].iter().fold(
            mirror.git().with("GIT_INDEX_FILE", index),
            |git, role| {
                git.with(&format!("GIT_{role}_NAME"), "sallyport")
                    .with(&format!("GIT_{role}_EMAIL"), "sallyport@localhost")
            },
        );
        git.run(&["read-tree", base.as_str()], b"", LITTLE)
            .await?
            .good()?;
        for (path, text) in &files {
            let blob = git
                .line(&["hash-object", "-w", "--stdin"], text.as_bytes())
                .await?;
            let entry = format!("100644,{blob},{}", path.as_str());
            git.run(
                &["update-index", "--add", "--cacheinfo", &entry],
                b"",
                LITTLE,
            )
            .await?
            .good()?;
        }
        let tree = git.line(&["write-tree"], b"").await?;
        let message = format!(
            "{}\n\nProposed through Sallyport by the user {who}.\n",
            request.title
        );
        let commit = git
            .line(
                &["commit-tree", "-p", base.as_str(), &tree],
                message.as_bytes(),
            )
            .await?;
        let branch = format!("{BRANCHES}/{}", request.name);
        let reference = format!("refs/heads/{branch}");
        let remote = self.config().remote.as_str();
        // Asked before, for a push of the very same commit succeeds; the lease is what holds if somebody is faster.
        if is_there(&git, remote, &reference).await? {
            return Err(ProposeError::Exists(request.name.clone()));
        }
        // An empty expectation: the branch must not exist.
        let lease = format!("--force-with-lease={reference}:");
        let refspec = format!("{commit}:{reference}");
        let push = [
            "push",
            "--quiet",
            "--no-verify",
            "--no-follow-tags",
            &lease,
            "--end-of-options",
            remote,
            &refspec,
        ];
        git.run(&push, b"", LITTLE).await?.good()?;
        Ok(Proposed {
            branch,
            commit,
            base: base.to_string(),
        })
    }

    /// Paths and texts, after the whole of what would be in force was checked.
    fn checked(
        &self,
        request: &ProposalRequest,
        base: &Oid,
        before: Documents,
    ) -> Result<Vec<(TreePath, String)>, ProposeError> {
        let config = self.config();
        if !is_short_name(&request.name) {
            return Err(ProposeError::Request(
                "a proposal's name has 1 to 40 characters of a-z, 0-9 and '-'",
            ));
        }
        let title = &request.title;
        if title.trim().is_empty()
            || title.len() > LONGEST_TITLE
            || title.chars().any(char::is_control)
        {
            return Err(ProposeError::Request(
                "a title is one line of at most 200 bytes",
            ));
        }
        if request.files.is_empty() || request.files.len() > MOST_FILES {
            return Err(ProposeError::Request("a proposal has 1 to 100 files"));
        }
        let mut after = before;
        let mut files = Vec::new();
        for file in &request.files {
            let wrong = |why| ProposeError::Path {
                file: file.file.clone(),
                why,
            };
            let path: TreePath = file.file.parse().map_err(wrong)?;
            if file.text.len() as u64 > config.limits.file
                || super::tree::is_policy(path.as_str()) != Ok(true)
            {
                return Err(wrong(NameError(
                    "a policy is a .yml or .yaml file within the source's limits",
                )));
            }
            let below = |folder: &TreePath| {
                path.as_str()
                    .strip_prefix(folder.as_str())
                    .is_some_and(|rest| rest.starts_with('/'))
            };
            let documents = if below(&config.folder) {
                &mut after.policies
            } else if config.floors.as_ref().is_some_and(below) {
                &mut after.floors
            } else {
                return Err(wrong(NameError(
                    "it is not below the source's folder of policies or of floors",
                )));
            };
            documents.retain(|d| d.file != path.as_str());
            documents.push(Document {
                file: path.as_str().to_owned(),
                text: file.text.clone(),
            });
            files.push((path, file.text.clone()));
        }
        apart(&after)?;
        Catalogue::check(config, base, after).map_err(ProposeError::Mistakes)?;
        Ok(files)
    }
}

/// Whether the remote has this branch.
async fn is_there(git: &Git, remote: &str, reference: &str) -> Result<bool, ProgramError> {
    let list = [
        "ls-remote",
        "--quiet",
        "--end-of-options",
        remote,
        reference,
    ];
    Ok(!git.line(&list, b"").await?.is_empty())
}

/// No two files that somebody takes for one; the loader would refuse the merged commit.
fn apart(documents: &Documents) -> Result<(), ProposeError> {
    let mut seen = BTreeSet::new();
    for document in documents.policies.iter().chain(&documents.floors) {
        let small = document.file.to_ascii_lowercase();
        let stem = small
            .rsplit_once('.')
            .map_or(small.as_str(), |(stem, _)| stem)
            .to_owned();
        if !seen.insert(stem) {
            let why = NameError("another file has the same name, or nearly");
            return Err(ProposeError::Path {
                file: document.file.clone(),
                why,
            });
        }
    }
    Ok(())
}
