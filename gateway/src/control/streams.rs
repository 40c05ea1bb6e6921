//! Replies that are lists now or streams of lines: live flows and records.
//!
//! A follower reads the journal's files at its own pace from its own cursor; it holds nothing back and cannot slow the
//! gateway. It ends when the client goes, or when the gateway stops.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::{Response, header};
use netpolicy::ids::NetworkId;
use tokio::sync::{Semaphore, watch};

use super::access::Peer;
use super::api::{CaptureRequest, FlowEvent, FlowView, Problem};
use super::problems;
use super::routes::json;
use super::server::Body;
use super::verbs::{Verbs, blocking};
use crate::capture::{self, Capture};
use crate::record::{Entry, Line, Reader};

/// Lines read at once on a blocking thread.
const BATCH: usize = 512;

/// Live flows of one network or of all.
pub async fn flows(
    verbs: &Arc<Verbs>,
    of: Option<&NetworkId>,
    query: &str,
    peer: Peer,
) -> Result<Response<Body>, Problem> {
    let wanted = Wanted::parse(query)?;
    // The cursor is taken before the list: what is opened in between is in both, and shown once.
    let cursor = verbs.journal().last();
    let live = verbs.flows(of)?;
    if !wanted.follow {
        return json(&live);
    }
    let shown: HashSet<u64> = live.iter().map(|flow| flow.id).collect();
    let first = live
        .into_iter()
        .map(FlowEvent::Open)
        .filter_map(|event| line_of(&event))
        .collect();
    let of = of.cloned();
    let follow = follow(verbs, cursor, true, peer).await?;
    let pick =
        move |line: &str| event_of(line, of.as_ref(), &shown).and_then(|event| line_of(&event));
    Ok(lines(first, follow, pick))
}

/// Journal lines after a cursor.
pub async fn records(
    verbs: &Arc<Verbs>,
    query: &str,
    peer: Peer,
) -> Result<Response<Body>, Problem> {
    let wanted = Wanted::parse(query)?;
    let last = verbs.journal().last();
    if wanted.after > last {
        let message = format!("`after` is beyond the last record, which is {last}");
        return Err(Problem::new(400, "bad_request", message));
    }
    let follow = follow(verbs, wanted.after, wanted.follow, peer).await?;
    Ok(lines(Vec::new(), follow, |line| {
        Some(Bytes::from(format!("{line}\n")))
    }))
}

/// A network's packets, as they come.
pub async fn capture(
    verbs: &Arc<Verbs>,
    id: &NetworkId,
    request: &CaptureRequest,
    peer: Peer,
) -> Result<Response<Body>, Problem> {
    let bad = |e: capture::FilterError| Problem::new(400, "bad_request", e.to_string());
    let wanted = capture::Wanted {
        filter: request.filter.parse().map_err(bad)?,
        count: request.count,
        limit: request.seconds.map(Duration::from_secs),
    };
    let network = verbs
        .ctx
        .networks
        .by_id(id)
        .ok_or_else(|| problems::unknown(id))?;
    let place = verbs.captures.clone().try_acquire_owned().map_err(|_| {
        let message = format!("{} captures run already", capture::MOST);
        Problem::new(429, "full", message).hint("end one of them")
    })?;
    let (enforcer, of) = (verbs.enforcer()?, network.clone());
    let tap = blocking(move || capture::tap(enforcer.ns(), &of)).await?;
    let begun = tap.and_then(|tap| {
        let stopping = verbs.tasks().stopping();
        Capture::begin(tap, network, wanted, stopping, place)
    });
    let capture = begun.map_err(|e| Problem::new(500, "kernel", problems::chain(&e)))?;
    tracing::info!(sandbox.id = %id, peer.uid, filter = %request.filter, "packets are captured");
    let mut response = Response::new(StreamBody::new(capture.stream()).boxed_unsync());
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("application/x-pcapng"),
    );
    Ok(response)
}

/// What a query asks for; anything else is an error.
#[derive(Clone, Copy, Default)]
struct Wanted {
    after: u64,
    follow: bool,
}

impl Wanted {
    fn parse(query: &str) -> Result<Self, Problem> {
        let mut wanted = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("follow", "1")) => wanted.follow = true,
                Some(("follow", "0")) => wanted.follow = false,
                Some(("after", number)) => {
                    wanted.after = number.parse().map_err(|_| {
                        Problem::new(400, "bad_request", "`after` is the number of a record")
                    })?;
                }
                _ => {
                    return Err(Problem::new(
                        400,
                        "bad_request",
                        "the query has `after=NUMBER` and `follow=1` only",
                    ));
                }
            }
        }
        Ok(wanted)
    }
}

struct Follow {
    /// Of the user who reads; one is held during each read.
    places: Arc<Semaphore>,
    reader: Option<Reader>,
    written: watch::Receiver<u64>,
    endless: bool,
}

async fn follow(
    verbs: &Arc<Verbs>,
    after: u64,
    endless: bool,
    peer: Peer,
) -> Result<Follow, Problem> {
    let written = verbs.journal().written();
    let (places, journal) = (verbs.readers.of(peer), verbs.journal().clone());
    let place = places.clone().acquire_owned().await;
    let opening = move || {
        let _held = place;
        Reader::open(journal.dir(), after)
    };
    let reader = blocking(opening)
        .await?
        .map_err(|e| Problem::new(500, "journal", format!("the journal cannot be read: {e}")))?;
    Ok(Follow {
        places,
        reader: Some(reader),
        written,
        endless,
    })
}

impl Follow {
    /// The next lines; `None` at the end.
    async fn next(&mut self) -> Option<Vec<String>> {
        loop {
            // Marked as seen before reading, so that what is written during the read wakes the wait after it.
            self.written.borrow_and_update();
            let mut reader = self.reader.take()?;
            let place = self.places.clone().acquire_owned().await.ok()?;
            let read = tokio::task::spawn_blocking(move || {
                let _held = place;
                let lines: std::io::Result<Vec<String>> =
                    std::iter::from_fn(|| reader.next_line().transpose())
                        .take(BATCH)
                        .collect();
                (reader, lines)
            });
            let (reader, lines) = read.await.ok()?;
            let lines = lines
                .inspect_err(|error| tracing::error!(%error, "a follower cannot read the journal"))
                .ok()?;
            self.reader = Some(reader);
            if !lines.is_empty() {
                return Some(lines);
            }
            if !self.endless || self.written.changed().await.is_err() {
                return None;
            }
        }
    }
}

fn lines(
    first: Vec<Bytes>,
    follow: Follow,
    pick: impl Fn(&str) -> Option<Bytes> + Send + 'static,
) -> Response<Body> {
    // The pick goes along with the state: a closure that the stream owns.
    let rest = stream::unfold(
        (first, follow, pick),
        |(mut first, mut follow, pick)| async move {
            loop {
                if !first.is_empty() {
                    let bytes: Vec<u8> = first.drain(..).flat_map(|line| line.to_vec()).collect();
                    return Some((
                        Ok::<_, Infallible>(Frame::data(Bytes::from(bytes))),
                        (first, follow, pick),
                    ));
                }
                first = follow
                    .next()
                    .await?
                    .iter()
                    .filter_map(|line| pick(line))
                    .collect();
            }
        },
    );
    let mut response = Response::new(StreamBody::new(rest).boxed_unsync());
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("application/jsonl"),
    );
    response
}

fn line_of(event: &FlowEvent) -> Option<Bytes> {
    let mut bytes = serde_json::to_vec(event).ok()?;
    bytes.push(b'\n');
    Some(bytes.into())
}

/// A journal line as a change of live flows.
fn event_of(line: &str, of: Option<&NetworkId>, shown: &HashSet<u64>) -> Option<FlowEvent> {
    let line: Line = serde_json::from_str(line).ok()?;
    let event = match line.entry {
        Entry::Open(open) if !shown.contains(&open.flow) => {
            let subject = open.subject;
            let addressed = subject.address.unwrap_or(open.upstream.ip());
            FlowEvent::Open(FlowView {
                id: open.flow,
                network: subject.network,
                door: subject.door,
                source: subject.source,
                destination: (addressed, subject.port).into(),
                upstream: open.upstream,
                name: subject.name,
                class: open.class,
                rule: open.by.last().map(|by| by.at.clone()),
                opened_ms: line.t,
                up: 0,
                down: 0,
            })
        }
        Entry::Close(close) => FlowEvent::Close {
            network: close.subject.network,
            id: close.flow,
        },
        _ => return None,
    };
    let network = match &event {
        FlowEvent::Open(view) => &view.network,
        FlowEvent::Close { network, .. } => network,
    };
    of.is_none_or(|of| of == network).then_some(event)
}
