//! What runners tell about the runs that they hold: output, timeline, flows, the end. Each with a cursor, so that what is
//! told twice is kept once, and each with the claim's fence, so that a runner that lost a run changes nothing.

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use runner::EndReason;
use runner::protocol::{Ending, Finish, Heard, Step, Tell};

use super::pull::{Puller, stale};
use crate::clock;
use crate::server::app::App;
use crate::server::input::{At, Input};
use crate::server::problem::Problem;
use crate::store::output::{Piece, Printed, Told};
use crate::store::queue::{End, Finished, Hold};
use crate::store::steps;

/// A message is no longer.
const MESSAGE: usize = 2000;

/// What a run printed, did and reached.
#[utoipa::path(post, path = "/runner/v1/runs/{run}/tell", tag = "runner protocol", request_body = serde_json::Value,
    params(("run" = String, Path)), responses((status = 200, body = serde_json::Value)))]
pub async fn tell(
    State(app): State<App>,
    Puller(runner): Puller,
    At(run): At<String>,
    Input(tell): Input<Tell>,
) -> Result<Json<Heard>, Problem> {
    let hold = Hold {
        run,
        runner: runner.id,
        fence: tell.fence,
    };
    let now = clock::now();
    // first: a timeline says when the command began to run
    if let Some(started) = tell.steps.iter().find(|step| step.kind == "started")
        && !app.store.run_started(&hold, &started.data, now).await?
    {
        return Err(stale());
    }
    let pieces: Vec<Piece<'_>> = tell
        .output
        .iter()
        .map(|piece| Piece {
            to: if piece.error {
                Printed::Stderr
            } else {
                Printed::Stdout
            },
            data: &piece.data.0,
            at: piece.at,
        })
        .collect();
    let output = heard(
        app.store
            .tell_output(&hold, tell.starts, &pieces, now)
            .await?,
    )?;
    if !tell.steps.is_empty() {
        let steps: Vec<steps::Step> = tell.steps.into_iter().map(kept).collect();
        heard(app.store.tell_steps(&hold, &steps, now).await?)?;
    }
    if !tell.flows.is_empty() {
        heard(app.store.tell_flows(&hold, &tell.flows, now).await?)?;
    }
    Ok(Json(Heard { output }))
}

const fn kept_next(told: Told) -> Option<i64> {
    match told {
        Told::Taken { next } | Told::Gap { next } => Some(next),
        Told::Stale => None,
    }
}

fn heard(told: Told) -> Result<i64, Problem> {
    kept_next(told).ok_or_else(stale)
}

fn kept(step: Step) -> steps::Step {
    steps::Step {
        seq: step.seq,
        at: step.at,
        kind: step.kind,
        data: step.data.to_string(),
    }
}

/// How a run ended. Said again, it is not done again.
#[utoipa::path(post, path = "/runner/v1/runs/{run}/finish", tag = "runner protocol", request_body = serde_json::Value,
    params(("run" = String, Path)), responses((status = 204)))]
pub async fn finish(
    State(app): State<App>,
    Puller(runner): Puller,
    At(run): At<String>,
    Input(finish): Input<Finish>,
) -> Result<StatusCode, Problem> {
    let hold = Hold {
        run,
        runner: runner.id,
        fence: finish.fence,
    };
    let message;
    let end = match &finish.end {
        Ending::Ended { code, reason } => ended(*code, *reason),
        Ending::Cancelled => End {
            state: "cancelled",
            reason: Some("cancelled"),
            message: None,
            exit_code: None,
        },
        Ending::Failed {
            code,
            message: told,
        } => {
            message = told
                .chars()
                .filter(|c| !c.is_control())
                .take(MESSAGE)
                .collect::<String>();
            let word = code.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
                && (1..=40).contains(&code.len());
            let (state, reason) = match code.as_str() {
                "cancelled" => ("cancelled", "cancelled"),
                runner::api::STOPPING => ("lost", "runner_stopped"),
                code if word => ("failed", code),
                _ => ("failed", "internal"),
            };
            End {
                state,
                reason: Some(reason),
                message: Some(&message),
                exit_code: None,
            }
        }
    };
    match app.store.finish_run(&hold, &end, clock::now()).await? {
        Finished::Done { .. } | Finished::Again => Ok(StatusCode::NO_CONTENT),
        Finished::Stale => Err(stale()),
    }
}

const fn ended(code: i64, reason: EndReason) -> End<'static> {
    let (state, word) = match reason {
        EndReason::Exited if code == 0 => ("succeeded", None),
        EndReason::Exited => ("failed", Some("exit_code")),
        EndReason::OutOfMemory => ("failed", Some("out_of_memory")),
        EndReason::TimedOut => ("timed_out", Some("timeout")),
        EndReason::Cancelled => ("cancelled", Some("cancelled")),
        EndReason::NetworkLost => ("failed", Some("network_lost")),
        EndReason::RunnerStopped => ("lost", Some("runner_stopped")),
    };
    End {
        state,
        reason: word,
        message: None,
        exit_code: Some(code),
    }
}
