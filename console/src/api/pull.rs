//! What runners ask ([`runner::protocol`]): work, whether it is still theirs, whether it may begin.
//!
//! A runner is trusted with the runs that it holds and with nothing else; [`super::told`] is what it tells about them.

use std::time::Duration;

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;
use runner::protocol::{Begin, Claim, Fenced, Hello, Keep, Kept, SESSION, Welcome, Work};
use tokio::time::{Instant, sleep, sleep_until};

use crate::clock;
use crate::jobs::spec::JobSpec;
use crate::jobs::work;
use crate::server::app::App;
use crate::server::identify::Caller;
use crate::server::input::{At, Input};
use crate::server::problem::Problem;
use crate::store::audit::Told;
use crate::store::queue::{Begun, Claimed, Claimer, End, Hold, QueueRules};
use crate::store::runners::{Greeted, Greeting, Runner};

/// A claim waits so long for work; less than what answers may take.
const WAIT: Duration = Duration::from_secs(20);
/// Runs are kept so often; leases are several times as long.
const KEEP: Duration = Duration::from_secs(10);
/// Work that becomes due by time alone is looked for so often; all other is told.
const LOOKS: Duration = Duration::from_secs(2);
/// Wake-ups in a row are one.
const GATHER: Duration = Duration::from_millis(50);
/// A text that a runner says about itself is no longer.
const TEXT: usize = 200;
/// Runs of one runner at once.
const MOST: u32 = 10_000;

/// The newest process of the runner that asks.
pub struct Puller(pub Runner);

impl<S: Send + Sync> FromRequestParts<S> for Puller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let runner = Caller::from_request_parts(parts, state)
            .await?
            .runner()?
            .clone();
        let session = parts.headers.get(SESSION).and_then(|v| v.to_str().ok());
        if session.is_none() || runner.session.as_deref() != session {
            return Err(superseded());
        }
        Ok(Self(runner))
    }
}

fn superseded() -> Problem {
    Problem::conflict(
        "superseded",
        "another process is this runner now, or none has said hello",
    )
}

fn other_key() -> Problem {
    Problem::conflict("key_changed", "this runner is known by another key").help(
        "if its state folder was lost, revoke the runner and make another one; if not, its token is in other hands: revoke it",
    )
}

/// What the audit log has of another key.
fn told_other_key(runner: &Runner, caller: &Caller) -> Told<'static> {
    Told {
        workspace: runner.workspace_id.clone(),
        actor: None,
        credential: format!("runner:{}", runner.id),
        address: caller.client.0.to_string(),
        action: "pull.hello",
        subject: format!("runner={} another key", runner.id).into(),
        status: StatusCode::CONFLICT.as_u16().into(),
    }
}

/// The run is not this runner's any more.
pub fn stale() -> Problem {
    Problem::new(
        StatusCode::GONE,
        "stale",
        "this run is not this runner's any more",
    )
}

fn cut(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .take(TEXT)
        .collect()
}

/// A process begins to be a runner.
#[utoipa::path(post, path = "/runner/v1/hello", tag = "runner protocol", request_body = serde_json::Value,
    responses((status = 200, body = serde_json::Value)))]
pub async fn hello(
    State(app): State<App>,
    caller: Caller,
    Input(hello): Input<Hello>,
) -> Result<Json<Welcome>, Problem> {
    let runner = caller.runner()?;
    let session = cut(&hello.session);
    if session.is_empty() || !session.is_ascii() {
        return Err(Problem::invalid("session", "a word"));
    }
    let key = runner::sealed::PublicKey::parse(&hello.key)
        .map_err(|_| Problem::invalid("key", "an X25519 key"))?;
    let facts = serde_json::json!({ "engine": cut(&hello.engine), "isolation": hello.isolation })
        .to_string();
    let greeting = Greeting {
        session: &session,
        key: &key.text(),
        version: &cut(&hello.version),
        facts: &facts,
        most: hello.most.clamp(1, MOST).into(),
    };
    let refused = told_other_key(runner, &caller);
    let greeted = app
        .store
        .greet_runner(&runner.id, &greeting, &refused, clock::now())
        .await?;
    if let Greeted::OtherKey { told } = greeted {
        if told {
            tracing::warn!(runner = runner.id, "a runner with another key was refused");
        }
        return Err(other_key());
    }
    let lease = QueueRules::default().lease;
    Ok(Json(Welcome {
        runner: runner.id.clone(),
        lease_ms: u64::try_from(lease).unwrap_or_default(),
    }))
}

/// Takes a run, or waits for one for a while.
#[utoipa::path(post, path = "/runner/v1/claim", tag = "runner protocol", request_body = serde_json::Value,
    responses((status = 200, body = serde_json::Value), (status = 204)))]
pub async fn claim(
    State(app): State<App>,
    Puller(runner): Puller,
    Input(claim): Input<Claim>,
) -> Result<Response, Problem> {
    app.store
        .give_up_unheld(&runner.id, &claim.holding, clock::now())
        .await?;
    let claimer = Claimer {
        runner: &runner.id,
        workspace: runner.workspace_id.as_deref(),
        most: runner.most,
    };
    let until = Instant::now() + WAIT;
    let mut work = app.tail.work();
    loop {
        work.mark_unchanged();
        let now = clock::now();
        while let Some(claimed) = app
            .store
            .claim_run(claimer, &QueueRules::default(), now)
            .await?
        {
            // looked at again with the run in hand: it waited, and may have been revoked meanwhile
            if !app.store.is_runner(&runner).await? {
                app.store
                    .give_up_unheld(&runner.id, &claim.holding, now)
                    .await?;
                return Err(superseded());
            }
            if let Some(work) = prepare(&app, &runner, claimed).await? {
                return Ok(Json(work).into_response());
            }
        }
        let now = Instant::now();
        if now >= until || app.stop.is_cancelled() {
            return Ok(StatusCode::NO_CONTENT.into_response());
        }
        tokio::select! {
            _ = work.changed() => sleep(GATHER).await,
            () = sleep_until(until.min(now + LOOKS)) => {}
            () = app.stop.cancelled() => {}
        }
    }
}

/// What the runner gets; `None`: it cannot be run, and is over.
async fn prepare(app: &App, runner: &Runner, claimed: Claimed) -> Result<Option<Work>, Problem> {
    let made = match JobSpec::read(&claimed.spec) {
        Ok(spec) => work::sealed(app, runner, &claimed, &spec)
            .await
            .map(|sealed| (work::request(&claimed, &spec), sealed)),
        Err(error) => Err(format!(
            "this job's definition cannot be read any more: {error}"
        )),
    };
    match made {
        Ok((job, sealed)) => Ok(Some(Work {
            run: claimed.hold.run,
            fence: claimed.hold.fence,
            job,
            input: claimed
                .input
                .map(|input| runner::protocol::Data(input.into())),
            sealed: sealed.map(|sealed| runner::protocol::Data(sealed.into())),
        })),
        Err(message) => {
            let end = End {
                state: "failed",
                reason: Some("not_runnable"),
                message: Some(&message),
                exit_code: None,
            };
            app.store
                .finish_run(&claimed.hold, &end, clock::now())
                .await?;
            Ok(None)
        }
    }
}

/// Keeps runs, and waits for one of them that is to end.
#[utoipa::path(post, path = "/runner/v1/keep", tag = "runner protocol", request_body = serde_json::Value,
    responses((status = 200, body = serde_json::Value)))]
pub async fn keep(
    State(app): State<App>,
    Puller(runner): Puller,
    Input(keep): Input<Keep>,
) -> Result<Json<Kept>, Problem> {
    let until = Instant::now() + KEEP;
    let mut work = app.tail.work();
    let mut stale = Vec::new();
    for (run, fence) in &keep.runs {
        let hold = Hold {
            run: run.clone(),
            runner: runner.id.clone(),
            fence: *fence,
        };
        if app
            .store
            .keep_run(&hold, &QueueRules::default(), clock::now())
            .await?
            .is_none()
        {
            stale.push(run.clone());
        }
    }
    loop {
        work.mark_unchanged();
        let mut cancelled = app.store.to_be_ended(&runner.id).await?;
        cancelled.retain(|run| {
            keep.runs.iter().any(|(kept, _)| kept == run) && !keep.ending.contains(run)
        });
        let now = Instant::now();
        if !stale.is_empty() || !cancelled.is_empty() || now >= until || app.stop.is_cancelled() {
            return Ok(Json(Kept { cancelled, stale }));
        }
        tokio::select! {
            _ = work.changed() => sleep(GATHER).await,
            () = sleep_until(until.min(now + LOOKS)) => {}
            () = app.stop.cancelled() => {}
        }
    }
}

/// Asks whether a run may begin.
#[utoipa::path(post, path = "/runner/v1/runs/{run}/begin", tag = "runner protocol", request_body = serde_json::Value,
    params(("run" = String, Path)), responses((status = 200, body = serde_json::Value)))]
pub async fn begin(
    State(app): State<App>,
    Puller(runner): Puller,
    At(run): At<String>,
    Input(fenced): Input<Fenced>,
) -> Result<Json<Begin>, Problem> {
    let hold = Hold {
        run,
        runner: runner.id,
        fence: fenced.fence,
    };
    match app.store.begin_run(&hold, clock::now()).await? {
        Begun::Yes => Ok(Json(Begin::Yes)),
        Begun::Cancelled => Ok(Json(Begin::Cancelled)),
        Begun::Stale => Err(stale()),
    }
}
