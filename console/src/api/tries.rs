//! Policies tried: their own `tests:`, and flows that were recorded, decided again. Nothing is kept.

use axum::Json;
use axum::extract::State;
use netpolicy::document;
use netpolicy::explain::run_tests;
use netpolicy::policy::Policy;
use netpolicy::replay::{Example, Group, Replay, Report};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::policies::PolicyText;
use super::thinking::{think, think_about};
use crate::jobs::network::POLICY_FILE;
use crate::jobs::reach::alone;
use crate::jobs::{expect, past};
use crate::server::app::App;
use crate::server::identify::Caller;
use crate::server::input::Input;
use crate::server::problem::{Problem, Wrong};
use crate::store::flows::{FlowFilter, FlowPlace, RecentFlow};

/// Flows that are decided again.
const MOST_FLOWS: i64 = 5_000;
/// Destinations of each list of an answer.
const MOST_GROUPS: usize = 200;

fn parsed(text: &str) -> Result<Policy, Problem> {
    document::parse(POLICY_FILE, text, None).map_err(|mistakes| {
        let wrong = mistakes
            .iter()
            .map(|one| Wrong::new("text", one.to_string()));
        Problem::unless_empty(wrong.collect())
            .err()
            .unwrap_or_else(Problem::internal)
    })
}

/// What came of a policy's tests.
#[derive(Debug, Serialize, ToSchema)]
pub struct PolicyTests {
    /// How many passed.
    pub passed: usize,
    /// How many did not.
    pub failed: usize,
    /// Each line.
    pub items: Vec<PolicyTest>,
}

/// A line of a policy's tests.
#[derive(Debug, Serialize, ToSchema)]
pub struct PolicyTest {
    /// Where it stands.
    pub line: u32,
    /// Where it goes.
    pub to: String,
    /// What it expects.
    pub expected: String,
    /// What the policy says.
    pub found: String,
    /// Whether that is the same.
    pub passed: bool,
    /// Why, in sentences.
    pub summary: String,
}

/// Run a policy's tests.
#[utoipa::path(post, path = "/api/v1/workspaces/{workspace}/policies/test", tag = "policies", request_body = PolicyText,
    params(("workspace" = String, Path)), responses((status = 200, body = PolicyTests)))]
pub async fn tested(
    State(app): State<App>,
    caller: Caller,
    Input(input): Input<PolicyText>,
) -> Result<Json<PolicyTests>, Problem> {
    think(&app, &caller, move || {
        let all = run_tests(&alone(parsed(&input.text)?), gateway::context::now());
        let failed = all.iter().filter(|one| !one.passed).count();
        let items = all.iter().map(|one| PolicyTest {
            line: one.test.at.line,
            to: expect::destination(one),
            expected: expect::expected(one),
            found: expect::found(one),
            passed: one.passed,
            summary: one.found.summary.clone(),
        });
        Ok(Json(PolicyTests {
            passed: all.len() - failed,
            failed,
            items: items.collect(),
        }))
    })
    .await
}

/// A policy, and whose flows it is to decide.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplayInput {
    /// The whole document.
    text: String,
    /// The job; without, all of the workspace.
    job: Option<String>,
}

/// What would have become of recorded flows.
#[derive(Debug, Serialize, ToSchema)]
pub struct PolicyReplay {
    /// Flows that were looked at: the newest, at most 5,000 rows.
    pub flows: u64,
    /// Whether there are older ones, which were not looked at.
    pub partial: bool,
    /// Since when they are, in milliseconds since 1970.
    pub since: Option<i64>,
    /// Decided as they were.
    pub same: u64,
    /// Flows that no policy decided.
    pub not_by_policy: u64,
    /// Denied then, permitted now. At most 200 destinations of each kind.
    pub newly_permitted: Vec<Replayed>,
    /// Permitted then, denied now.
    pub newly_denied: Vec<Replayed>,
    /// A person would be asked now.
    pub newly_asked: Vec<Replayed>,
    /// What decides about them was not recorded.
    pub undecided: Vec<Replayed>,
}

/// Flows with one destination of which the same became.
#[derive(Debug, Serialize, ToSchema)]
pub struct Replayed {
    /// Name or address.
    pub to: String,
    /// Port; `null` of a look-up.
    pub port: Option<u16>,
    /// Transport.
    pub protocol: String,
    /// Then.
    pub was: String,
    /// Now.
    pub is: String,
    /// How many.
    pub count: u64,
    /// A run that had one of them.
    pub run: Option<String>,
}

fn view(groups: Vec<Group>) -> Vec<Replayed> {
    let shown = groups.into_iter().take(MOST_GROUPS);
    let shown = shown.map(|group| Replayed {
        to: group.to,
        port: group.port,
        protocol: group.protocol.word().to_owned(),
        was: group.was,
        is: group.is,
        count: group.count,
        run: group.examples.into_iter().next().map(|one| one.network),
    });
    shown.collect()
}

/// Decides flows again.
fn decided(policy: Policy, (flows, partial): (&[RecentFlow], bool)) -> PolicyReplay {
    let mut replay = Replay::new(alone(policy), gateway::context::now());
    let (mut all, mut others) = (0, 0);
    for one in flows {
        let count = u64::try_from(one.flow.times).unwrap_or(1);
        all += count;
        let Some(contact) = past::contact(&one.flow) else {
            others += count;
            continue;
        };
        let example = Example {
            place: String::new(),
            t: one.flow.at.div_euclid(1000),
            network: one.run.clone(),
        };
        replay.add(&contact, count, example);
    }
    let Report {
        newly_permitted,
        newly_denied,
        newly_asked,
        undecided,
        same,
        unlisted: _,
    } = replay.finish();
    PolicyReplay {
        flows: all,
        partial,
        since: flows.last().map(|one| one.flow.at),
        same,
        not_by_policy: others,
        newly_permitted: view(newly_permitted),
        newly_denied: view(newly_denied),
        newly_asked: view(newly_asked),
        undecided: view(undecided),
    }
}

/// What a policy would have made of the newest flows, as far as the console keeps what decides.
#[utoipa::path(post, path = "/api/v1/workspaces/{workspace}/policies/replay", tag = "policies", request_body = ReplayInput,
    params(("workspace" = String, Path)), responses((status = 200, body = PolicyReplay)))]
pub async fn replayed(
    State(app): State<App>,
    caller: Caller,
    Input(input): Input<ReplayInput>,
) -> Result<Json<PolicyReplay>, Problem> {
    let job = input.job.unwrap_or_default();
    if job.len() > 64 || job.contains('\0') {
        return Err(Problem::invalid("job", "a job's id"));
    }
    let filter = FlowFilter {
        job: &job,
        ..FlowFilter::default()
    };
    let workspace = &caller.workspace()?.id;
    let look = async {
        let newest = FlowPlace::newest();
        // one more than are decided: whether there are others
        let page = app
            .store
            .recent_flows(workspace, filter, &newest, MOST_FLOWS + 1);
        let mut flows = page.await?.items;
        let most = usize::try_from(MOST_FLOWS).unwrap_or_default();
        let partial = flows.len() > most;
        flows.truncate(most);
        Ok((flows, partial))
    };
    let text = input.text;
    think_about(&app, &caller, look, move |(flows, partial)| {
        Ok(Json(decided(parsed(&text)?, (&flows, partial))))
    })
    .await
}
