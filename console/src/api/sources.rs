//! Policies in git as the gateway of this machine has them in force, for the workspaces that each source speaks for, and
//! proposals to change one of them: a branch of its own that people merge, or do not.
//!
//! The gateway owns sources, and says what may be proposed at all. What is refused here: a source that does not speak for
//! the workspace (it answers like one that is not there), files that are none of its policies, and too many proposals.

use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use gateway::control::Client;
use gateway::control::ClientError;
use gateway::source::SourceView;
use gateway::source::view::{ProposalRequest, ProposedFile, ResolveRequest};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::access::Action;
use crate::clock::{self, HOUR, Millis};
use crate::server::app::App;
use crate::server::guard::{About, Intended, intend};
use crate::server::identify::Caller;
use crate::server::input::{Asked, Input};
use crate::server::problem::{Problem, Wrong};

/// A gateway that lives lists its sources at once.
const PATIENCE: Duration = Duration::from_secs(2);
/// Proposals of a workspace in an hour: each is a push to somebody's git server.
const MOST_PROPOSALS: i64 = 30;
/// Of a title that becomes a part of a branch's name.
const WORD: usize = 27;
/// A name, as it may be asked for.
const NAME: usize = 200;

/// Policies in git.
#[derive(Debug, Serialize, ToSchema)]
pub struct PolicySources {
    /// The sources that speak for this workspace.
    pub items: Vec<PolicySourceView>,
    /// Why it is not known which there are; the gateway of this machine is the one that is asked.
    pub unknown: Option<String>,
}

/// A repository with policies.
#[derive(Debug, Serialize, ToSchema)]
pub struct PolicySourceView {
    /// Its name.
    pub name: String,
    /// What is followed.
    pub branch: String,
    /// The commit in force, if any.
    pub commit: Option<String>,
    /// Since when, in milliseconds since 1970.
    pub loaded_at: Option<Millis>,
    /// Who signed it; `null` where signatures are not required.
    pub signer: Option<String>,
    /// When the remote was last looked at with success.
    pub checked_at: Option<Millis>,
    /// Whether that is too long ago: what is in force may be outdated.
    pub stale: bool,
    /// Why what the remote has is not in force, if so.
    pub problem: Option<String>,
    /// Mistakes that keep it from being in force, `commit:file:line:column: message`.
    pub mistakes: Vec<String>,
    /// Whether it takes proposals.
    pub proposals: bool,
    /// Its policies.
    pub policies: Vec<PolicyFile>,
}

/// A policy of a source.
#[derive(Debug, Serialize, ToSchema)]
pub struct PolicyFile {
    /// What jobs call it.
    pub policy: String,
    /// Its path in the repository.
    pub file: String,
}

/// Where a source is, is the operator's business: what git says of it goes to members without that.
fn without(remote: &str, said: &str) -> String {
    match remote.trim_end_matches('/') {
        "" => said.to_owned(),
        remote => said.replace(remote, "the remote"),
    }
}

fn view(source: SourceView) -> PolicySourceView {
    let policies = source.policies.into_iter().map(|one| PolicyFile {
        policy: one.policy,
        file: one.file,
    });
    let (problem, mistakes) = source.problem.map_or((None, Vec::new()), |found| {
        let mistakes = found.mistakes.iter();
        (
            Some(without(&source.remote, &found.message)),
            mistakes.map(|text| without(&source.remote, text)).collect(),
        )
    });
    PolicySourceView {
        name: source.name,
        branch: source.branch,
        commit: source.commit,
        loaded_at: source.loaded_ms,
        signer: source.signer,
        checked_at: source.checked_ms,
        stale: source.stale,
        problem,
        mistakes,
        proposals: source.proposals,
        policies: policies.collect(),
    }
}

/// The sources that speak for a workspace.
async fn of(app: &App, workspace: &str) -> Result<Vec<SourceView>, &'static str> {
    let client = Client::new(&app.config.gateway.control);
    match tokio::time::timeout(PATIENCE, client.sources()).await {
        Ok(Ok(mut all)) => {
            let serves = |one: &SourceView| {
                one.workspaces.is_empty() || one.workspaces.iter().any(|id| id == workspace)
            };
            all.retain(serves);
            Ok(all)
        }
        Ok(Err(_)) => Err("no gateway answers on this machine"),
        Err(_) => Err("the gateway of this machine does not answer in time"),
    }
}

/// What a gateway that was asked for something says instead.
fn refused(error: &ClientError, remote: &str) -> Problem {
    let Some(said) = error.problem() else {
        tracing::warn!(
            error = error as &dyn std::error::Error,
            "asking the gateway"
        );
        return Problem::new(
            StatusCode::BAD_GATEWAY,
            "gateway_silent",
            "the gateway of this machine does not answer",
        );
    };
    let status = match said.status {
        400 | 422 => StatusCode::UNPROCESSABLE_ENTITY,
        403 => StatusCode::FORBIDDEN,
        404 => StatusCode::NOT_FOUND,
        409 => StatusCode::CONFLICT,
        _ => StatusCode::BAD_GATEWAY,
    };
    let mut problem = Problem::new(status, "gateway_refused", without(remote, &said.message));
    let mistakes = said.mistakes.iter();
    problem.fields = mistakes
        .map(|text| Wrong::new("text", without(remote, text)))
        .collect();
    problem.help = said.hint.as_deref().map(|hint| without(remote, hint));
    problem
}

/// The policies in git that jobs of this workspace can name, and the commits that they are in force from.
#[utoipa::path(get, path = "/api/v1/workspaces/{workspace}/policies/sources", tag = "policies",
    params(("workspace" = String, Path)), responses((status = 200, body = PolicySources)))]
pub async fn list(State(app): State<App>, caller: Caller) -> Result<Json<PolicySources>, Problem> {
    Ok(Json(match of(&app, &caller.workspace()?.id).await {
        Ok(all) => PolicySources {
            items: all.into_iter().map(view).collect(),
            unknown: None,
        },
        Err(why) => PolicySources {
            items: Vec::new(),
            unknown: Some(why.to_owned()),
        },
    }))
}

/// Which policy.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Which {
    /// Its source.
    source: String,
    /// Its name or path.
    policy: String,
}

/// A policy as it is in force.
#[derive(Debug, Serialize, ToSchema)]
pub struct PolicyInForce {
    /// Its source.
    pub source: String,
    /// The commit.
    pub commit: String,
    /// Its path in the repository.
    pub file: String,
    /// Its text.
    pub text: String,
}

/// The text of a policy in git, as it is in force.
#[utoipa::path(get, path = "/api/v1/workspaces/{workspace}/policies/in-force", tag = "policies",
    params(("workspace" = String, Path), ("source" = String, Query), ("policy" = String, Query)),
    responses((status = 200, body = PolicyInForce)))]
pub async fn in_force(
    State(app): State<App>,
    caller: Caller,
    Asked(which): Asked<Which>,
) -> Result<Json<PolicyInForce>, Problem> {
    if which.source.len() > NAME || which.policy.len() > NAME {
        return Err(Problem::not_found());
    }
    let request = ResolveRequest {
        workspace: caller.workspace()?.id.clone(),
        source: Some(which.source),
        policy: which.policy,
    };
    let client = Client::new(&app.config.gateway.control);
    let found = client.resolve(&request).await;
    let found = found.map_err(|error| refused(&error, ""))?;
    Ok(Json(PolicyInForce {
        source: found.source,
        commit: found.commit,
        file: found.file,
        text: found.text,
    }))
}

/// A change of a policy, for people to merge.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProposalInput {
    /// The source.
    source: String,
    /// The policy's path in the repository.
    file: String,
    /// Its new text, whole.
    text: String,
    /// What it is for, in a line.
    title: String,
}

/// A proposal that was written.
#[derive(Debug, Serialize, ToSchema)]
pub struct ProposalView {
    /// The branch.
    pub branch: String,
    /// The commit.
    pub commit: String,
    /// The commit that it changes.
    pub base: String,
}

/// A branch's name: what the title says, and something that no other has.
fn named(title: &str) -> String {
    let plain = title.chars().map(|c| match c.to_ascii_lowercase() {
        c if c.is_ascii_alphanumeric() => c,
        _ => '-',
    });
    let plain: String = plain.collect();
    let words: Vec<&str> = plain.split('-').filter(|word| !word.is_empty()).collect();
    let word: String = words.join("-").chars().take(WORD).collect();
    let fresh: String = clock::id().chars().rev().take(12).collect();
    let parts = [word.trim_matches('-'), &fresh];
    parts
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("-")
}

/// Propose a change of a policy in git: a branch `sallyport/proposals/…`, in force once somebody has merged it.
#[utoipa::path(post, path = "/api/v1/workspaces/{workspace}/policies/proposals", tag = "policies", request_body = ProposalInput,
    params(("workspace" = String, Path)), responses((status = 201, body = ProposalView)))]
pub async fn propose(
    State(app): State<App>,
    caller: Caller,
    Input(input): Input<ProposalInput>,
) -> Result<Response, Problem> {
    let workspace = &caller.workspace()?.id;
    let all = of(&app, workspace).await;
    let all = all.map_err(|why| Problem::new(StatusCode::BAD_GATEWAY, "gateway_silent", why))?;
    let source = all.into_iter().find(|one| one.name == input.source);
    let source =
        source.ok_or_else(|| Problem::invalid("source", "there is no such source here"))?;
    if !source.policies.iter().any(|one| one.file == input.file) {
        return Err(Problem::invalid(
            "file",
            "it is none of this source's policies",
        ));
    }
    let now = clock::now();
    let counted = format!("proposals:{workspace}");
    if !app
        .store
        .count_attempt(&counted, MOST_PROPOSALS, now - HOUR, now)
        .await?
    {
        let told = format!("a workspace makes at most {MOST_PROPOSALS} proposals in an hour");
        return Err(Problem::slow_down("too_many_proposals", told, 600));
    }
    let changed = format!("source={} file={}", source.name, input.file);
    let request = ProposalRequest {
        name: named(&input.title),
        title: input.title,
        files: vec![ProposedFile {
            file: input.file,
            text: input.text,
        }],
    };
    // a push is nothing that a transaction takes back: told before it, and how it ended after it
    let about = format!("name={} {changed}", request.name);
    intend(&app, &caller, Action::Propose, &about).await?;
    let client = Client::new(&app.config.gateway.control);
    let made = match client.propose(&source.name, &request).await {
        Ok(made) => made,
        Err(error) => {
            let problem = refused(&error, &source.remote);
            return Ok((Extension(Intended), Extension(About(about)), problem).into_response());
        }
    };
    // a path may be as long as it likes, so it comes last
    let about = About(format!(
        "branch={} commit={} {changed}",
        made.branch, made.commit
    ));
    let made = ProposalView {
        branch: made.branch,
        commit: made.commit,
        base: made.base,
    };
    let told = (Extension(Intended), Extension(about));
    Ok((StatusCode::CREATED, told, Json(made)).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_of_whatever_kind_makes_a_name_that_a_branch_may_have() {
        for title in [
            "Let builds reach PyPI!",
            "../../main",
            "",
            "ä\u{202e}\n",
            "-",
            &"x".repeat(500),
            "a b/../c~^:",
        ] {
            let name = named(title);
            assert!(
                gateway::source::names::is_short_name(&name),
                "{title:?}: {name}"
            );
        }
        assert!(named("Let builds reach PyPI!").starts_with("let-builds-reach-pypi-"));
        assert_ne!(named("a"), named("a"));
    }
}
