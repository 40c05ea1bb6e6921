//! What is signed about the record, for those who may look and not open its files: the head, the checkpoint, the anchors.
//!
//! Each goes out as it stands in its file, so that whoever asks judges it itself. Read in batches at the client's pace,
//! each in one of its user's places.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::{Response, header};
use tokio::sync::Semaphore;

use super::access::Peer;
use super::api::{Problem, Signed};
use super::server::Body;
use super::verbs::{Verbs, blocking};
use crate::record::{Journal, verify};

/// Anchors read at once on a blocking thread.
const BATCH: usize = 512;
/// A statement is 300 bytes; more of a file or line is none.
const MOST_BYTES: u64 = 16 << 10;

/// Lines of [`Signed`], the head first.
pub async fn statements(verbs: &Arc<Verbs>, peer: Peer) -> Result<Response<Body>, Problem> {
    let (places, journal) = (verbs.readers.of(peer), verbs.journal().clone());
    let place = places.clone().acquire_owned().await;
    let opening = move || {
        let _held = place;
        open(&journal)
    };
    let (first, anchors) = blocking(opening)
        .await?
        .map_err(|e| Problem::new(500, "journal", format!("the record cannot be read: {e}")))?;
    let state = Reading {
        places,
        first,
        anchors,
        number: 0,
    };
    let pieces = stream::unfold(state, |mut state| async move {
        let lines = match state.first.pop_front() {
            Some(line) => vec![line],
            None => state.next().await?,
        };
        let mut bytes = Vec::new();
        for line in lines {
            serde_json::to_writer(&mut bytes, &line).ok()?;
            bytes.push(b'\n');
        }
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from(bytes))), state))
    });
    let mut response = Response::new(StreamBody::new(pieces).boxed_unsync());
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("application/jsonl"),
    );
    Ok(response)
}

struct Reading {
    places: Arc<Semaphore>,
    first: VecDeque<Signed>,
    anchors: Option<BufReader<File>>,
    number: u64,
}

fn open(journal: &Journal) -> io::Result<(VecDeque<Signed>, Option<BufReader<File>>)> {
    let mut first = VecDeque::new();
    for name in verify::STATEMENTS {
        match File::open(journal.dir().join(name)) {
            Ok(file) => {
                let mut text = String::new();
                file.take(MOST_BYTES).read_to_string(&mut text)?;
                let place = name.to_owned();
                first.push_back(Signed {
                    place,
                    number: 0,
                    text,
                });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    match File::open(journal.anchors()) {
        Ok(file) => Ok((first, Some(BufReader::new(file)))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((first, None)),
        Err(error) => Err(error),
    }
}

impl Reading {
    /// The next anchors; `None` at the end.
    async fn next(&mut self) -> Option<Vec<Signed>> {
        let (mut anchors, number) = (self.anchors.take()?, self.number);
        let place = self.places.clone().acquire_owned().await.ok()?;
        let read = tokio::task::spawn_blocking(move || {
            let _held = place;
            let lines = batch(&mut anchors, number);
            (anchors, lines)
        });
        let (anchors, lines) = read.await.ok()?;
        let lines = lines
            .inspect_err(|error| tracing::error!(%error, "the anchors cannot be read"))
            .ok()?;
        self.anchors = Some(anchors);
        self.number = lines.last()?.number;
        Some(lines)
    }
}

fn batch(from: &mut BufReader<File>, mut number: u64) -> io::Result<Vec<Signed>> {
    let mut lines = Vec::new();
    while lines.len() < BATCH {
        let mut line = Vec::new();
        if from.take(MOST_BYTES).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        number += 1;
        lines.push(Signed {
            place: Signed::ANCHORS.to_owned(),
            number,
            text: String::from_utf8_lossy(&line).into_owned(),
        });
    }
    Ok(lines)
}
