//! What the control API says about sources, and what it takes.

use netpolicy::ids::PolicyHash;
use serde::{Deserialize, Serialize};

use super::state::Move;

/// A source as people see it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SourceView {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub remote: String,
    /// What is followed.
    pub branch: String,
    /// The commit in force, if any.
    pub commit: Option<String>,
    /// When it was loaded, in milliseconds since the epoch.
    pub loaded_ms: Option<i64>,
    /// Who signed it; `null` where signatures are not required.
    pub signer: Option<String>,
    /// Whether every new commit must be signed by somebody who is listed.
    pub signatures_required: bool,
    /// Names and files of its policies.
    pub policies: Vec<PolicyName>,
    /// When the remote was last looked at with success, in milliseconds since the epoch.
    pub checked_ms: Option<i64>,
    /// Whether that is too long ago: what is in force may be outdated.
    pub stale: bool,
    /// Why what the remote has is not in force, if so.
    pub problem: Option<SourceProblem>,
    /// When the branch did not simply grow (force-push, set back), newest last.
    pub moves: Vec<Move>,
    /// For which workspaces it speaks; empty: all.
    #[serde(default)]
    pub workspaces: Vec<String>,
    /// Whether it takes proposals.
    #[serde(default)]
    pub proposals: bool,
}

/// A policy of a source.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PolicyName {
    /// Its name.
    pub policy: String,
    /// Its path in the repository.
    pub file: String,
}

/// Why what the remote has is not in force.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SourceProblem {
    /// Since when, in milliseconds since the epoch.
    pub since_ms: i64,
    /// The commit that was refused, where there is one.
    pub commit: Option<String>,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// Mistakes of its files, `commit:file:line:column: message`.
    pub mistakes: Vec<String>,
}

/// Looks at the remote now.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SyncRequest {
    /// Accept exactly this commit although history was rewritten or set back for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accept: Option<String>,
}

/// Which policy does a source have under this name?
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResolveRequest {
    /// For which workspace.
    pub workspace: String,
    /// In which source; any that speaks for the workspace if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Name or path.
    pub policy: String,
}

/// A policy as its source has it now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ResolvedPolicy {
    /// The source.
    pub source: String,
    /// The commit.
    pub commit: String,
    /// Its path in the repository.
    pub file: String,
    /// Its text.
    pub text: String,
    /// Hash of the text.
    pub hash: PolicyHash,
}

/// Writes changes to a branch of their own for people to merge.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProposalRequest {
    /// Name of the proposal: `sallyport/proposals/NAME` becomes the branch.
    pub name: String,
    /// What it is for; the first line of the commit.
    pub title: String,
    /// Files and their new texts.
    pub files: Vec<ProposedFile>,
}

/// A file of a proposal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProposedFile {
    /// Path in the repository, below the folder of policies or of floors.
    pub file: String,
    /// Its text.
    pub text: String,
}

/// A proposal that was written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Proposed {
    /// The branch.
    pub branch: String,
    /// The commit.
    pub commit: String,
    /// The commit that it changes.
    pub base: String,
}
