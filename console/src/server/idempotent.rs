//! `Idempotency-Key`: a POST that is sent again with its key is answered as the first time, for a day.
//!
//! A key is its actor's own: a user's, or a token's. The same key with another request is refused; while the first is
//! being carried out, the second waits for its answer. What showed a secret once is not kept: who sends it again learns
//! that it was done. Only what succeeded, or changed something, is kept. Routes that nobody is signed in for take no keys.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use http_body_util::BodyExt;
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep_until};

use super::app::App;
use super::identify::{Caller, Who};
use super::problem::Problem;
use crate::store::replays::{Claimed, Kept, Turn};

/// The request's header.
pub const KEY: &str = "idempotency-key";
/// Says that an answer was kept from before.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// A key is no longer.
const LONGEST: usize = 255;
/// Answers that are longer are not kept; none of the API's is.
const BODY: usize = 256 << 10;
/// The second of two waits so long for the first.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it looks.
const LOOKS: Duration = Duration::from_millis(100);
/// Headers that are kept.
const HEAD: [HeaderName; 3] = [header::CONTENT_TYPE, header::ETAG, header::LOCATION];

/// In the extensions of an answer that shows a secret once.
#[derive(Clone, Copy, Debug)]
pub struct ShownOnce;

/// Whether a request is to be carried out.
#[derive(Debug)]
pub enum Go {
    /// It is.
    On(Option<Claimed>),
    /// It was answered before.
    Answered(Response),
}

/// Takes the request's key, if it has one, or finds the answer.
pub async fn turn(app: &App, caller: &Caller, parts: &Parts, body: &Bytes) -> Result<Go, Problem> {
    let (Some(value), &Method::POST) = (parts.headers.get(KEY), &parts.method) else {
        return Ok(Go::On(None));
    };
    let actor = match &caller.who {
        Who::Nobody | Who::Runner(_) => return Ok(Go::On(None)),
        Who::Person(found) => format!("user {}", found.0.id),
        Who::Token(found) => format!("token {}", found.1.id),
    };
    let key = value
        .to_str()
        .ok()
        .filter(|key| (1..=LONGEST).contains(&key.len()));
    let key = key.ok_or_else(|| {
        Problem::new(
            StatusCode::BAD_REQUEST,
            "bad_key",
            "an Idempotency-Key has 1 to 255 letters of ASCII",
        )
    })?;
    let digest = Sha256::digest(key.as_bytes()).to_vec();
    let request = fingerprint(key, parts, body);
    let until = Instant::now() + PATIENCE;
    loop {
        match app
            .store
            .claim_key(&actor, &digest, &request, crate::clock::now())
            .await?
        {
            Turn::Mine(claimed) => return Ok(Go::On(Some(claimed))),
            Turn::Done(kept) => return replay(kept).map(Go::Answered),
            Turn::Other => {
                return Err(Problem::new(
                    StatusCode::UNPROCESSABLE_ENTITY,
                    "key_used",
                    "this Idempotency-Key was used for another request",
                )
                .help("send a new key with a new request, and the same body with the same key"));
            }
            Turn::Lost => {
                return Err(Problem::conflict(
                    "answer_lost",
                    "this was done, and the console that did it ended before it could answer",
                ));
            }
            Turn::Busy if Instant::now() >= until => {
                let mut busy = Problem::conflict(
                    "key_busy",
                    "the first request with this Idempotency-Key is not answered yet",
                );
                busy.retry_after = Some(2);
                return Err(busy);
            }
            Turn::Busy => sleep_until(Instant::now() + LOOKS).await,
        }
    }
}

/// Keeps the answer, or gives the key back; `made`: whether something was changed.
pub async fn settle(app: &App, key: &Claimed, made: bool, response: Response) -> Response {
    if !response.status().is_success() && !made {
        if let Err(error) = app.store.release_key(key).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "giving an idempotency key back"
            );
        }
        return response;
    }
    let once = response.extensions().get::<ShownOnce>().is_some();
    let (parts, body) = response.into_parts();
    // made by a handler, so it is whole and in memory
    let bytes = body
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default();
    let head: serde_json::Map<String, serde_json::Value> = HEAD
        .iter()
        .filter_map(|name| {
            Some((
                name.to_string(),
                parts.headers.get(name)?.to_str().ok()?.into(),
            ))
        })
        .collect();
    let head = serde_json::Value::Object(head).to_string();
    let kept = (!once && bytes.len() <= BODY).then_some(&*bytes);
    let status = i64::from(parts.status.as_u16());
    if let Err(error) = app.store.keep_answer(key, status, &head, kept).await {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "keeping an answer for its idempotency key"
        );
    }
    Response::from_parts(parts, Body::from(bytes))
}

/// With the caller's key, which is not kept: a body that is easily guessed, such as a secret's, is not found out from the
/// store by guessing.
fn fingerprint(key: &str, parts: &Parts, body: &Bytes) -> Vec<u8> {
    let mut digest = Sha256::new();
    digest.update(key.as_bytes());
    digest.update([0]);
    let target = parts
        .uri
        .path_and_query()
        .map_or("", |target| target.as_str());
    digest.update(
        u64::try_from(target.len())
            .unwrap_or_default()
            .to_be_bytes(),
    );
    digest.update(target.as_bytes());
    digest.update(body);
    digest.finalize().to_vec()
}

fn replay(kept: Kept) -> Result<Response, Problem> {
    let status = kept.status.and_then(|status| u16::try_from(status).ok());
    let status = status
        .and_then(|status| StatusCode::from_u16(status).ok())
        .ok_or_else(Problem::internal)?;
    let Some(body) = kept.body else {
        return Err(Problem::conflict(
            "shown_once",
            "this was done, and its answer showed a secret that is shown once",
        )
        .help("if the answer was lost, end what was made and make it again with a new Idempotency-Key"));
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let head: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(kept.head.as_deref().unwrap_or("{}")).unwrap_or_default();
    for name in HEAD {
        let value = head
            .get(name.as_str())
            .and_then(|value| HeaderValue::from_str(value.as_str()?).ok());
        if let Some(value) = value {
            response.headers_mut().insert(name, value);
        }
    }
    response
        .headers_mut()
        .insert(REPLAYED, HeaderValue::from_static("true"));
    Ok(response)
}
