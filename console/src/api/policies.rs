//! Policies to look at: mistakes and warnings of a text, what would become of a destination, what changes between two.
//! The same functions as behind the command line; nothing is kept.

use std::net::IpAddr;

use axum::Json;
use axum::extract::State;
use netpolicy::diff;
use netpolicy::document::{self, Mistake};
use netpolicy::explain::{Asked, Question, explain};
use netpolicy::lint::{self, Catalogue, Setting};
use netpolicy::name::Name;
use netpolicy::policy::{Policy, Protocol};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::thinking::think;
use crate::jobs::check;
use crate::jobs::network::POLICY_FILE;
use crate::jobs::reach::{alone, word};
use crate::jobs::spec::{JobSpec, NetworkSpec};
use crate::server::app::App;
use crate::server::identify::Caller;
use crate::server::input::Input;
use crate::server::problem::{Problem, Wrong};

/// Entries of two policies that are compared here: what it takes grows with their square, and with every date in them.
const MOST_COMPARED: usize = 1_000;

/// A policy's text; netpolicy has its own limit below the body's.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyText {
    /// The whole document.
    pub(super) text: String,
}

/// What is to be said about a policy.
#[derive(Debug, Serialize, ToSchema)]
pub struct PolicyReport {
    /// Whether it has no mistake.
    pub ok: bool,
    /// Its name.
    pub policy: Option<String>,
    /// `none`, `domains` or `internet`.
    pub network: Option<String>,
    /// Whether it may reach private networks.
    pub private: Option<bool>,
    /// SHA-256 of the text.
    pub hash: Option<String>,
    /// Every mistake.
    pub mistakes: Vec<Remark>,
    /// What does nothing, or more than it looks.
    pub warnings: Vec<Remark>,
    /// What is understood and not enforced yet: a run under it is refused.
    pub not_enforced: Vec<Remark>,
}

/// Something at a place of a text.
#[derive(Debug, Serialize, ToSchema)]
pub struct Remark {
    /// From 1.
    pub line: u32,
    /// From 1.
    pub column: u32,
    /// What about it.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
    /// The warning's word that does not change.
    pub code: Option<String>,
}

/// What is asked.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExplainInput {
    /// As in a job.
    network: NetworkSpec,
    /// `host:port`, `ip:port` or a URL.
    destination: String,
    /// `tcp`, `udp` or `icmp`.
    #[serde(default = "tcp")]
    protocol: String,
    /// The server name that the client sends.
    sni: Option<String>,
    /// What the resolver would answer.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    resolves_to: Vec<IpAddr>,
    /// Method of a request.
    method: Option<String>,
    /// Path of a request.
    path: Option<String>,
}

fn tcp() -> String {
    "tcp".to_owned()
}

/// What would become of a destination.
#[derive(Debug, Serialize, ToSchema)]
pub struct Explained {
    /// `permit`, `deny` or `ask`.
    pub decision: String,
    /// Reason code of a denial.
    pub reason: Option<String>,
    /// Why, in sentences.
    pub summary: String,
    /// What would change it.
    pub change: Option<String>,
    /// Name of the policy that decided.
    pub policy: Option<String>,
    /// The line that decided, `file:line`.
    pub rule: Option<String>,
    /// Whether the gateway reads the requests inside.
    pub inspect: bool,
}

/// Two policies.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TwoPolicies {
    /// The text before.
    before: String,
    /// The text after.
    after: String,
}

/// What changes.
#[derive(Debug, Serialize, ToSchema)]
pub struct PolicyDiff {
    /// Each with `effect` (`wider`, `narrower`, `other`) and `text`, a sentence.
    #[schema(value_type = Vec<Object>)]
    pub changes: Vec<Value>,
}

fn remark(mistake: Mistake) -> Remark {
    Remark {
        line: mistake.at.line,
        column: mistake.at.column,
        message: mistake.message,
        hint: mistake.hint,
        code: None,
    }
}

/// Check a policy: every mistake; without one, warnings.
#[utoipa::path(post, path = "/api/v1/workspaces/{workspace}/policies/check", tag = "policies", request_body = PolicyText,
    params(("workspace" = String, Path)), responses((status = 200, body = PolicyReport)))]
pub async fn checked(
    State(app): State<App>,
    caller: Caller,
    Input(input): Input<PolicyText>,
) -> Result<Json<PolicyReport>, Problem> {
    think(&app, &caller, move || Ok(Json(report(&input.text)))).await
}

fn report(text: &str) -> PolicyReport {
    let mut report = PolicyReport {
        ok: false,
        policy: None,
        network: None,
        private: None,
        hash: None,
        mistakes: Vec::new(),
        warnings: Vec::new(),
        not_enforced: Vec::new(),
    };
    match document::parse(POLICY_FILE, text, None) {
        Err(mistakes) => report.mistakes = mistakes.into_iter().map(remark).collect(),
        Ok(policy) => say(&mut report, policy),
    }
    report
}

fn say(report: &mut PolicyReport, policy: Policy) {
    let setting = Setting {
        now: gateway::context::now(),
        catalogue: Catalogue::shipped(),
        floors: &[],
    };
    report.ok = true;
    report.warnings = lint::check(&policy, &setting)
        .into_iter()
        .map(|lint| Remark {
            line: lint.at.line,
            column: lint.at.column,
            message: lint.message,
            hint: Some(lint.hint),
            code: Some(lint.code.word().to_owned()),
        })
        .collect();
    report.network = Some(
        crate::jobs::spec::NetworkMode::of(policy.network)
            .word()
            .to_owned(),
    );
    report.private = Some(policy.private);
    report.hash = Some(policy.hash.to_string());
    report.not_enforced = policy
        .unenforced
        .into_iter()
        .map(|(feature, at)| Remark {
            line: at.line,
            column: at.column,
            message: feature,
            hint: None,
            code: None,
        })
        .collect();
    report.policy = Some(policy.name);
}

/// What would become of a destination under a job's network setting, which line says so, and what would change it.
#[utoipa::path(post, path = "/api/v1/workspaces/{workspace}/policies/explain", tag = "policies", request_body = ExplainInput,
    params(("workspace" = String, Path)), responses((status = 200, body = Explained)))]
pub async fn explained(
    State(app): State<App>,
    caller: Caller,
    Input(input): Input<ExplainInput>,
) -> Result<Json<Explained>, Problem> {
    think(&app, &caller, move || explanation(input)).await
}

fn explanation(input: ExplainInput) -> Result<Json<Explained>, Problem> {
    let protocol = Protocol::ALL
        .into_iter()
        .find(|protocol| protocol.word() == input.protocol);
    let protocol = protocol.ok_or_else(|| Problem::invalid("protocol", "tcp, udp or icmp"))?;
    let asked = Asked::parse(&input.destination, protocol)
        .map_err(|error| Problem::invalid("destination", error.to_string()).help(error.hint()))?;
    let mut question = Question::new(asked.host, asked.port, protocol);
    let sni = input.sni.as_deref().map(Name::parse).transpose();
    question.sni = sni.map_err(|error| Problem::invalid("sni", error.to_string()))?;
    question.resolves_to = input.resolves_to;
    question.method = input.method;
    question.path = input.path.or(asked.path);
    // a URL is about a request; without a method it is the one that everybody starts with
    if question.path.is_some() && question.method.is_none() {
        question.method = Some("GET".to_owned());
    }
    let spec = JobSpec {
        network: input.network,
        ..JobSpec::default()
    };
    Problem::unless_empty(check::mistakes(&spec))?;
    let policy = spec.network.policy().and_then(Result::ok).ok_or_else(|| {
        Problem::invalid(
            "network.policy_name",
            "only the gateway reads this policy; send its text",
        )
    })?;
    let found = explain(&alone(policy), &question, gateway::context::now());
    Ok(Json(Explained {
        decision: word(found.decision).to_owned(),
        reason: found.reason.map(|reason| reason.code().to_owned()),
        summary: found.summary,
        change: found.change,
        policy: found.policy,
        rule: found.rule.map(|line| line.to_string()),
        inspect: found.inspect,
    }))
}

/// What changes from one policy to another, in words.
#[utoipa::path(post, path = "/api/v1/workspaces/{workspace}/policies/diff", tag = "policies", request_body = TwoPolicies,
    params(("workspace" = String, Path)), responses((status = 200, body = PolicyDiff)))]
pub async fn differ(
    State(app): State<App>,
    caller: Caller,
    Input(input): Input<TwoPolicies>,
) -> Result<Json<PolicyDiff>, Problem> {
    think(&app, &caller, move || difference(&input)).await
}

fn difference(input: &TwoPolicies) -> Result<Json<PolicyDiff>, Problem> {
    let parse = |field: &'static str, text: &str| {
        document::parse(POLICY_FILE, text, None).map_err(|mistakes| {
            mistakes
                .iter()
                .map(|mistake| Wrong::new(field, mistake.to_string()))
                .collect::<Vec<_>>()
        })
    };
    let (before, after) = match (parse("before", &input.before), parse("after", &input.after)) {
        (Ok(before), Ok(after)) => (before, after),
        (before, after) => {
            let wrong = before
                .err()
                .into_iter()
                .chain(after.err())
                .flatten()
                .collect();
            Problem::unless_empty(wrong)?;
            return Err(Problem::internal());
        }
    };
    let entries = |policy: &Policy| policy.allow.len() + policy.deny.len();
    if entries(&before) + entries(&after) > MOST_COMPARED {
        let message = format!(
            "two policies of more than {MOST_COMPARED} entries together are not compared here"
        );
        return Err(Problem::invalid("after", message)
            .help("`sallyport policy diff` compares any two, on the machine of who asks"));
    }
    let changes = diff::diff(&before, &after, gateway::context::now());
    let changes = changes
        .into_iter()
        .filter_map(|change| serde_json::to_value(change).ok());
    Ok(Json(PolicyDiff {
        changes: changes.collect(),
    }))
}

/// The JSON Schema of policies, for editors. What it cannot say, `check` does.
#[utoipa::path(get, path = "/api/v1/policies/schema", tag = "policies", responses((status = 200, body = serde_json::Value)))]
pub async fn schema() -> Json<Value> {
    Json(document::schema())
}
