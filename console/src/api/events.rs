//! What happens, as it happens: server-sent events of the topics that the reader may see.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, header};
use serde::Deserialize;

use crate::server::app::App;
use crate::server::identify::Caller;
use crate::server::input::Asked;
use crate::server::problem::Problem;
use crate::server::rate::Counted;
use crate::server::stream::{Reader, Wanted};

/// Streams of one account at once: browser tabs and programs.
const STREAMS: usize = 32;
/// Topics of one stream.
const TOPICS: usize = 50;
/// A topic is no longer: two ids and the words between them.
const TOPIC: usize = 200;

/// What to follow.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Follow {
    /// Topics, with commas between them.
    topics: Option<String>,
    /// The `id` of the last event that was seen.
    after: Option<i64>,
}

/// What happens, as it happens. Without `topics` everything that the reader may see of `workspace/ID`, `user/ID` and
/// `instance`. Goes on after `Last-Event-ID`; an event `reset` says that events were missed, `end` that the reader may
/// not go on.
#[utoipa::path(get, path = "/api/v1/events", tag = "events",
    params(("topics" = Option<String>, Query), ("after" = Option<i64>, Query), ("Last-Event-ID" = Option<i64>, Header)),
    responses((status = 200, content_type = "text/event-stream", body = String)))]
pub async fn follow(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    Asked(asked): Asked<Follow>,
) -> Result<Response, Problem> {
    let wanted = match asked.topics {
        None => Wanted::Everything,
        Some(topics) => Wanted::Topics(named(&topics)?),
    };
    // what a browser sends by itself is where it was; the query is where the page began
    let seen = headers
        .get("last-event-id")
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.parse().ok());
    let after = seen.or(asked.after).filter(|after: &i64| *after >= 0);
    let account = Counted::Account(caller.user()?.id.clone());
    let place = app.readers.take(account, STREAMS).ok_or_else(|| {
        Problem::slow_down(
            "too_many_streams",
            format!("an account has at most {STREAMS} streams at once"),
            5,
        )
    })?;
    let reader = Reader::begin(app, caller, wanted, after, place).await?;
    let head = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("text/event-stream"),
        ),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        // nginx would gather the stream otherwise
        (
            http::HeaderName::from_static("x-accel-buffering"),
            HeaderValue::from_static("no"),
        ),
    ];
    Ok((head, reader.body()).into_response())
}

fn named(topics: &str) -> Result<Vec<String>, Problem> {
    let topics: Vec<String> = topics.split(',').map(str::to_owned).collect();
    if topics.len() > TOPICS
        || topics
            .iter()
            .any(|topic| topic.is_empty() || topic.len() > TOPIC || topic.contains('\0'))
    {
        return Err(Problem::invalid(
            "topics",
            format!("1 to {TOPICS} topics with commas between them"),
        ));
    }
    Ok(topics)
}
