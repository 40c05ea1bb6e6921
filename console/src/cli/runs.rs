//! `sallyport ps, cancel, retry`: runs of a console.

use ::console::clock;
use clap::Args;
use http::Method;
use serde_json::{Value, json};

use super::remote::{At, Call, Session, ago, cell, id, span, text};
use super::{Shared, wait};
use crate::exit::{Failure, Outcome, Verdict};
use crate::show;

/// States of a run that is not over.
const LIVE: [&str; 4] = ["running", "preparing", "claimed", "queued"];
/// A page of the API.
const PAGE: usize = 200;

const PS_HELP: &str = "\
Examples:
  sallyport ps
  sallyport ps --all --job nightly --limit 5
  sallyport ps --all --state failed -o json | jq -r '.[].id'";

/// `sallyport ps`
#[derive(Debug, Args)]
#[command(after_help = PS_HELP)]
pub struct List {
    /// Also runs that are over
    #[arg(long, short)]
    all: bool,
    /// Only runs of this job, by name or id
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// Only runs in this state
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// At most so many, the newest
    #[arg(long, default_value_t = 50, value_name = "N")]
    limit: usize,
    #[command(flatten)]
    at: At,
}

/// A run, and where.
#[derive(Debug, Args)]
pub struct One {
    /// The run's id
    run: String,
    #[command(flatten)]
    at: At,
}

pub fn list(arguments: &List, shared: &Shared) -> Verdict {
    let form = arguments.at.form(shared);
    let runs = wait(async {
        let session = arguments.at.enter().await?;
        let job = match &arguments.job {
            Some(job) => text(&super::job::find(&session, job).await?, "id"),
            None => String::new(),
        };
        let states = match (&arguments.state, arguments.all) {
            (Some(state), _) => vec![id_of_state(state)?],
            (None, true) => vec![""],
            (None, false) => LIVE.to_vec(),
        };
        let mut runs = Vec::new();
        for state in states {
            runs.extend(newest(&session, state, &job, arguments.limit).await?);
        }
        Ok(runs)
    })?;
    let mut runs: Vec<Value> = runs;
    // ids are in the order of their making
    runs.sort_by_key(|run| std::cmp::Reverse(text(run, "id")));
    runs.truncate(arguments.limit);
    form.print(&Value::Array(runs.clone()), || table(&runs))?;
    Ok(Outcome::Good)
}

fn id_of_state(state: &str) -> Result<&str, Failure> {
    if state.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') {
        return Ok(state);
    }
    Err(Failure::new(
        "a state is one word, such as running or failed",
    ))
}

/// The newest runs, a page after the other.
async fn newest(
    session: &Session,
    state: &str,
    job: &str,
    limit: usize,
) -> Result<Vec<Value>, Failure> {
    let (mut runs, mut cursor) = (Vec::new(), String::new());
    while runs.len() < limit {
        let most = (limit - runs.len()).min(PAGE);
        let path = session.path(&format!(
            "runs?limit={most}&state={state}&job={job}&cursor={cursor}"
        ));
        let page = session.client.get(&path).await?.body;
        let found = page
            .get("items")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        let next = text(&page, "next");
        let came = !found.is_empty();
        runs.extend(found);
        if next.is_empty() || !came {
            break;
        }
        id(&next)?.clone_into(&mut cursor);
    }
    Ok(runs)
}

fn table(runs: &[Value]) -> String {
    let now = clock::now();
    let rows = runs.iter().map(|run| {
        let at = |key: &str| run.get(key).and_then(Value::as_i64);
        let took =
            at("started_at").map(|from| span(at("ended_at").unwrap_or(now).saturating_sub(from)));
        let or_dash = |text: String| {
            if text.is_empty() {
                "-".to_owned()
            } else {
                text
            }
        };
        [
            cell(&text(run, "id")),
            cell(&text(run, "name")),
            cell(&text(run, "state")),
            ago(now, at("queued_at")),
            or_dash(took.unwrap_or_default()),
            or_dash(cell(&text(run, "exit_code"))),
            or_dash(cell(&text(run, "denied"))),
        ]
    });
    show::table(
        ["run", "name", "state", "queued", "took", "exit", "denied"],
        rows,
    )
}

/// What people see of one run.
pub fn line(run: &Value) -> String {
    let message = text(run, "message");
    let why = if message.is_empty() {
        String::new()
    } else {
        format!(" ({})", cell(&message))
    };
    let shown = format!(
        "run {} of {}: {}{why}",
        text(run, "id"),
        cell(&text(run, "name")),
        text(run, "state")
    );
    show::clean(&shown).into_owned()
}

pub fn cancel(arguments: &One, shared: &Shared) -> Verdict {
    post(arguments, "cancel", shared)
}

pub fn retry(arguments: &One, shared: &Shared) -> Verdict {
    post(arguments, "retry", shared)
}

fn post(arguments: &One, verb: &str, shared: &Shared) -> Verdict {
    let run = wait(async {
        let session = arguments.at.enter().await?;
        let path = session.path(&format!("runs/{}/{verb}", id(&arguments.run)?));
        let nothing = json!({});
        Ok(session
            .client
            .call(Call::new(Method::POST, &path).with(&nothing))
            .await?
            .body)
    })?;
    arguments.at.form(shared).print(&run, || line(&run))?;
    Ok(Outcome::Good)
}
