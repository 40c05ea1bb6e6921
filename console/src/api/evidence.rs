//! What a run left: output, timeline, flows, and how its network differs from another run's.

use std::collections::BTreeMap;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::{TryStreamExt, stream};
use http::header;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::runs::find;
use crate::clock::{self, Millis};
use crate::server::app::App;
use crate::server::identify::Caller;
use crate::server::input::{Asked, At};
use crate::server::problem::Problem;
use crate::store::flows::{Destination, Flow, FlowFilter};
use crate::store::output::Chunk;
use crate::store::runs::Run;

/// Output at once.
const MOST_BYTES: i64 = 1 << 20;
/// Rows at once.
const MOST_ROWS: i64 = 1_000;
/// Destinations that are compared.
const MOST_DESTINATIONS: i64 = 10_000;

/// Which part of the output.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// The number of the first byte.
    #[serde(default)]
    from: i64,
    /// How many bytes, at most 1 MiB.
    limit: Option<i64>,
}

/// A part of the output.
#[derive(Debug, Serialize, ToSchema)]
pub struct Output {
    /// Pieces in their order. Where one does not begin at the end of the one before, bytes between were not kept.
    pub pieces: Vec<OutputPiece>,
    /// Where to go on.
    pub next: i64,
    /// Bytes that were printed so far.
    pub total: i64,
    /// Whether some of them were not kept.
    pub truncated: bool,
    /// Whether nothing more will come.
    pub over: bool,
}

/// Some bytes.
#[derive(Debug, Serialize, ToSchema)]
pub struct OutputPiece {
    /// The number of the first one.
    pub starts: i64,
    /// `stdout` or `stderr`.
    pub stream: String,
    /// When they were printed, in milliseconds since 1970.
    pub at: Millis,
    /// They, in base64: output is bytes and need not be text.
    pub data: String,
}

/// Where to go on in a list.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listed {
    /// `next` of the answer before.
    #[serde(default)]
    after: i64,
    /// At most 1,000.
    limit: Option<i64>,
    /// Only `permitted`, `denied` or `failed`.
    #[serde(default)]
    outcome: String,
    /// Only what holds this text in name, address or reason.
    #[serde(default)]
    q: String,
}

impl Listed {
    fn limit(&self) -> Result<i64, Problem> {
        let limit = self.limit.unwrap_or(200);
        if !(1..=MOST_ROWS).contains(&limit) {
            return Err(Problem::invalid("limit", format!("1 to {MOST_ROWS}")));
        }
        Ok(limit)
    }
}

/// Flows.
#[derive(Debug, Serialize, ToSchema)]
pub struct Flows {
    /// Oldest first.
    pub items: Vec<Flow>,
    /// `after` of the next ones, if there may be some.
    pub next: Option<i64>,
}

/// An entry of the timeline.
#[derive(Debug, Serialize, ToSchema)]
pub struct StepView {
    /// Its number.
    pub seq: i64,
    /// When, in milliseconds since 1970.
    pub at: Millis,
    /// What kind.
    pub kind: String,
    /// What.
    #[schema(value_type = Object)]
    pub data: Value,
}

/// The timeline.
#[derive(Debug, Serialize, ToSchema)]
pub struct Steps {
    /// Oldest first.
    pub items: Vec<StepView>,
    /// `after` of the next ones, if there may be some.
    pub next: Option<i64>,
}

/// Destinations of a run.
#[derive(Debug, Serialize, ToSchema)]
pub struct Destinations {
    /// Most flows first.
    pub items: Vec<Destination>,
}

/// Against which run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Against {
    /// Its id; without, the run of the same job before.
    #[serde(default)]
    against: String,
}

/// How the network of a run differs from another's.
#[derive(Debug, Serialize, ToSchema)]
pub struct NetworkDiff {
    /// The other run; `null`: there is none before.
    pub against: Option<String>,
    /// Destinations that the other did not have.
    pub added: Vec<Destination>,
    /// Destinations that only the other had.
    pub gone: Vec<Destination>,
    /// Destinations of both that something else became of.
    pub changed: Vec<Became>,
}

/// A destination that something else became of.
#[derive(Debug, Serialize, ToSchema)]
pub struct Became {
    /// In the other run.
    pub was: Destination,
    /// In this one.
    pub is: Destination,
}

fn piece(chunk: Chunk) -> OutputPiece {
    OutputPiece {
        starts: chunk.starts,
        stream: chunk.stream,
        at: chunk.at,
        data: STANDARD.encode(&chunk.data),
    }
}

fn end(chunk: &Chunk) -> i64 {
    chunk
        .starts
        .saturating_add(i64::try_from(chunk.data.len()).unwrap_or(i64::MAX))
}

/// What a run printed, by the number of the first byte.
#[utoipa::path(get, path = "/api/v1/workspaces/{workspace}/runs/{run}/output", tag = "runs",
    params(("workspace" = String, Path), ("run" = String, Path), ("from" = Option<i64>, Query), ("limit" = Option<i64>, Query)),
    responses((status = 200, body = Output)))]
pub async fn output(
    State(app): State<App>,
    caller: Caller,
    At(ids): At<(String, String)>,
    Asked(range): Asked<Range>,
) -> Result<Json<Output>, Problem> {
    let limit = range.limit.unwrap_or(MOST_BYTES);
    if range.from < 0 || !(1..=MOST_BYTES).contains(&limit) {
        return Err(Problem::invalid(
            "limit",
            format!("`from` at least 0, `limit` 1 to {MOST_BYTES}"),
        ));
    }
    // looked up before the output: what is printed meanwhile comes with the next answer
    let run = find(&app, &caller, &ids.1).await?;
    let chunks = app.store.output(&run.id, range.from, limit).await?;
    let last = chunks.last().map_or(range.from, end);
    let full = chunks.len() >= 4096 || last >= range.from.saturating_add(limit);
    Ok(Json(Output {
        next: if full {
            last
        } else {
            run.output_bytes.max(last)
        },
        pieces: chunks
            .into_iter()
            .filter(|chunk| end(chunk) > range.from)
            .map(piece)
            .collect(),
        total: run.output_bytes,
        truncated: run.output_kept < run.output_bytes,
        over: run.ended_at.is_some(),
    }))
}

/// All that is kept of what a run printed, as bytes to save: both streams in the order in which they were printed. Whoever
/// loses access on the way gets no more of it, and sees that it broke off.
#[utoipa::path(get, path = "/api/v1/workspaces/{workspace}/runs/{run}/output/raw", tag = "runs",
    params(("workspace" = String, Path), ("run" = String, Path)),
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>)))]
pub async fn raw(
    State(app): State<App>,
    caller: Caller,
    At(ids): At<(String, String)>,
) -> Result<Response, Problem> {
    let run = find(&app, &caller, &ids.1).await?;
    let total = run.output_bytes;
    let name = format!("attachment; filename=\"run-{}.log\"", run.id);
    let body = stream::try_unfold((app, caller, run.id, 0_i64), move |state| async move {
        let (app, caller, run, from) = state;
        if from >= total {
            return Ok::<_, Problem>(None);
        }
        let standing = caller.standing().ok_or_else(Problem::signed_out)?;
        let workspace = &caller.workspace()?.id;
        if !app
            .store
            .stands_in(standing, workspace, clock::now())
            .await?
        {
            return Err(Problem::not_found());
        }
        let chunks = app.store.output(&run, from, MOST_BYTES).await?;
        let last = chunks.last().map_or(from, end);
        // nothing here: not kept
        let next = if last > from {
            last
        } else {
            from.saturating_add(MOST_BYTES)
        };
        let bytes: Vec<u8> = chunks
            .into_iter()
            .filter(|c| c.starts >= from)
            .flat_map(|c| c.data)
            .collect();
        Ok(Some((Bytes::from(bytes), (app, caller, run, next))))
    });
    let head = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_DISPOSITION, name),
    ];
    let body = body.map_err(|problem| std::io::Error::other(problem.detail));
    Ok((head, Body::from_stream(body)).into_response())
}

/// What happened to a run, step by step.
#[utoipa::path(get, path = "/api/v1/workspaces/{workspace}/runs/{run}/steps", tag = "runs",
    params(("workspace" = String, Path), ("run" = String, Path), ("after" = Option<i64>, Query), ("limit" = Option<i64>, Query)),
    responses((status = 200, body = Steps)))]
pub async fn steps(
    State(app): State<App>,
    caller: Caller,
    At(ids): At<(String, String)>,
    Asked(listed): Asked<Listed>,
) -> Result<Json<Steps>, Problem> {
    let limit = listed.limit()?;
    let run = find(&app, &caller, &ids.1).await?;
    let steps = app.store.steps(&run.id, listed.after, limit).await?;
    let full = i64::try_from(steps.len()).is_ok_and(|count| count >= limit);
    let next = steps.last().filter(|_| full).map(|step| step.seq);
    let items = steps.into_iter().map(|step| StepView {
        seq: step.seq,
        at: step.at,
        kind: step.kind,
        data: serde_json::from_str(&step.data).unwrap_or(Value::Null),
    });
    Ok(Json(Steps {
        items: items.collect(),
        next,
    }))
}

/// What a run's network saw: every flow, denial and failure.
#[utoipa::path(get, path = "/api/v1/workspaces/{workspace}/runs/{run}/flows", tag = "runs",
    params(("workspace" = String, Path), ("run" = String, Path), ("after" = Option<i64>, Query), ("limit" = Option<i64>, Query),
        ("outcome" = Option<String>, Query), ("q" = Option<String>, Query)),
    responses((status = 200, body = Flows)))]
pub async fn flows(
    State(app): State<App>,
    caller: Caller,
    At(ids): At<(String, String)>,
    Asked(listed): Asked<Listed>,
) -> Result<Json<Flows>, Problem> {
    let limit = listed.limit()?;
    if !matches!(&*listed.outcome, "" | "permitted" | "denied" | "failed") {
        return Err(Problem::invalid("outcome", "permitted, denied or failed"));
    }
    if listed.q.len() > 200 || listed.q.contains('\0') {
        return Err(Problem::invalid("q", "at most 200 bytes"));
    }
    let run = find(&app, &caller, &ids.1).await?;
    let filter = FlowFilter {
        outcome: &listed.outcome,
        text: &listed.q,
        ..FlowFilter::default()
    };
    let items = app
        .store
        .flows(&run.id, filter, listed.after, limit)
        .await?;
    let full = i64::try_from(items.len()).is_ok_and(|count| count >= limit);
    let next = items.last().filter(|_| full).map(|flow| flow.seq);
    Ok(Json(Flows { items, next }))
}

/// The destinations of a run, and what became of flows to them.
#[utoipa::path(get, path = "/api/v1/workspaces/{workspace}/runs/{run}/destinations", tag = "runs",
    params(("workspace" = String, Path), ("run" = String, Path)), responses((status = 200, body = Destinations)))]
pub async fn destinations(
    State(app): State<App>,
    caller: Caller,
    At(ids): At<(String, String)>,
) -> Result<Json<Destinations>, Problem> {
    let run = find(&app, &caller, &ids.1).await?;
    let items = app.store.destinations(&run.id, MOST_ROWS).await?;
    Ok(Json(Destinations { items }))
}

/// How a run's network differs from another's: new destinations, ones that are gone, ones that were decided otherwise.
#[utoipa::path(get, path = "/api/v1/workspaces/{workspace}/runs/{run}/diff", tag = "runs",
    params(("workspace" = String, Path), ("run" = String, Path), ("against" = Option<String>, Query)),
    responses((status = 200, body = NetworkDiff)))]
pub async fn diff(
    State(app): State<App>,
    caller: Caller,
    At(ids): At<(String, String)>,
    Asked(asked): Asked<Against>,
) -> Result<Json<NetworkDiff>, Problem> {
    if asked.against.contains('\0') {
        return Err(Problem::not_found());
    }
    let run = find(&app, &caller, &ids.1).await?;
    let other: Option<Run> = if asked.against.is_empty() {
        app.store.run_before(&run).await?
    } else {
        Some(find(&app, &caller, &asked.against).await?)
    };
    let Some(other) = other else {
        return Ok(Json(NetworkDiff {
            against: None,
            added: Vec::new(),
            gone: Vec::new(),
            changed: Vec::new(),
        }));
    };
    let before = app.store.destinations(&other.id, MOST_DESTINATIONS).await?;
    let after = app.store.destinations(&run.id, MOST_DESTINATIONS).await?;
    Ok(Json(compared(other.id, before, after)))
}

type Key = (String, i64, String);

/// One row for each destination: of several outcomes the one that was not permitted.
fn by_destination(rows: Vec<Destination>) -> BTreeMap<Key, Destination> {
    let mut found: BTreeMap<Key, Destination> = BTreeMap::new();
    for row in rows {
        let key = (row.destination.clone(), row.port, row.protocol.clone());
        let worse = found
            .get(&key)
            .is_none_or(|there| there.outcome == "permitted");
        if worse {
            found.insert(key, row);
        }
    }
    found
}

fn compared(against: String, before: Vec<Destination>, after: Vec<Destination>) -> NetworkDiff {
    let (mut before, after) = (by_destination(before), by_destination(after));
    let mut diff = NetworkDiff {
        against: Some(against),
        added: Vec::new(),
        gone: Vec::new(),
        changed: Vec::new(),
    };
    for (key, is) in after {
        match before.remove(&key) {
            None => diff.added.push(is),
            Some(was) if was.outcome != is.outcome || was.reason != is.reason => {
                diff.changed.push(Became { was, is });
            }
            Some(_) => {}
        }
    }
    diff.gone.extend(before.into_values());
    diff
}
