//! One reader's stream of events (`text/event-stream`): what they may see, from where they were, as it happens.
//!
//! Nothing is made before the connection takes it, so who does not read costs one batch of memory and is cut off by the
//! connection's own limit. Every few seconds the reader is looked up again: the stream ends with the session, the token
//! or the membership that it stands on. Failure stance: a reader who cannot be looked up is let go; they come back with
//! `Last-Event-ID`.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::stream;
use tokio::time::{Instant, sleep, sleep_until};

use super::app::App;
use super::follow::After;
use super::held::Hold;
use super::identify::{Caller, Who};
use super::problem::Problem;
use crate::store::StoreError;
use crate::store::events::Event;
use crate::store::workspaces::Visible;

/// A reader is looked up again so often.
const LOOKS: Duration = Duration::from_secs(2);
/// Something is sent at least so often, so that whoever is between does not take the connection for dead.
const BEAT: Duration = Duration::from_secs(15);
/// Many events at once are one piece.
const GATHER: Duration = Duration::from_millis(20);
/// Workspaces of one reader.
const WORKSPACES: i64 = 1000;

/// What somebody wants to hear.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// Everything that they may, workspaces that they come into later too.
    Everything,
    /// These topics; without one of them there is no stream.
    Topics(Vec<String>),
}

/// A reader.
pub struct Reader {
    app: App,
    caller: Caller,
    wanted: Wanted,
    topics: Vec<String>,
    /// Every event up to this one was told or is none of theirs.
    position: i64,
    looked: Instant,
    said: Instant,
    /// What is said first.
    opening: Option<String>,
    over: bool,
    _place: Hold,
}

impl Reader {
    /// Begins after an event, or now. `Err(None)`: they may not hear what they want.
    pub async fn begin(
        app: App,
        caller: Caller,
        wanted: Wanted,
        after: Option<i64>,
        place: Hold,
    ) -> Result<Self, Problem> {
        let topics = heard(&app, &caller, &wanted)
            .await?
            .ok_or_else(Problem::not_found)?;
        let (position, missed) = position(&app, after).await?;
        let mut opening = String::from("retry: 1000\n");
        if missed {
            opening.push_str("event: reset\ndata: {}\n");
        }
        let _ = write!(opening, "id: {position}\n\n");
        let now = Instant::now();
        Ok(Self {
            app,
            caller,
            wanted,
            topics,
            position,
            looked: now,
            said: now,
            opening: Some(opening),
            over: false,
            _place: place,
        })
    }

    /// The answer's body.
    pub fn body(self) -> Body {
        Body::from_stream(stream::unfold(self, |mut reader| async move {
            let piece = reader.next().await?;
            Some((
                Ok::<_, std::convert::Infallible>(Bytes::from(piece)),
                reader,
            ))
        }))
    }

    async fn next(&mut self) -> Option<String> {
        if let Some(opening) = self.opening.take() {
            return Some(opening);
        }
        let mut newest = self.app.tail.newest();
        while !self.over {
            if self.looked.elapsed() >= LOOKS && !self.look_again().await {
                self.over = true;
                return Some("event: end\ndata: {}\n\n".to_owned());
            }
            newest.mark_unchanged();
            match self.gather().await {
                Ok(piece) if !piece.is_empty() => return Some(self.say(piece)),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "reading events for a stream"
                    );
                    return None;
                }
            }
            if self.said.elapsed() >= BEAT {
                let beat = format!(": \nid: {}\n\n", self.position);
                return Some(self.say(beat));
            }
            let wake = (self.looked + LOOKS).min(self.said + BEAT);
            tokio::select! {
                changed = newest.changed() => {
                    if changed.is_err() {
                        return None;
                    }
                    sleep(GATHER).await;
                }
                () = sleep_until(wake) => {}
                () = self.app.stop.cancelled() => return None,
            }
        }
        None
    }

    fn say(&mut self, piece: String) -> String {
        self.said = Instant::now();
        piece
    }

    /// Whether they may go on.
    async fn look_again(&mut self) -> bool {
        self.looked = Instant::now();
        match heard(&self.app, &self.caller, &self.wanted).await {
            Ok(Some(topics)) => {
                self.topics = topics;
                true
            }
            Ok(None) | Err(_) => false,
        }
    }

    /// What is new for them.
    async fn gather(&mut self) -> Result<String, StoreError> {
        let mut text = String::new();
        let topics = &self.topics;
        let (events, position) = match self
            .app
            .tail
            .after(self.position, |topic| topics.iter().any(|t| t == topic))
        {
            After::Events(events, newest) => (events, newest),
            After::Behind => {
                let newest = self.app.store.last_event().await?;
                let events = self.app.store.events_after(topics, self.position).await?;
                let full = i64::try_from(events.len())
                    .is_ok_and(|count| count >= crate::store::events::MOST);
                let last = events.last().map_or(self.position, |event| event.seq);
                let position = if full { last } else { last.max(newest) };
                (events.into_iter().map(Arc::new).collect(), position)
            }
        };
        for event in &events {
            tell(&mut text, event);
        }
        self.position = position;
        Ok(text)
    }
}

/// One event; what it says is JSON, and so is one line.
fn tell(text: &mut String, event: &Event) {
    let kind: String = event.kind.chars().filter(char::is_ascii_graphic).collect();
    let topic = serde_json::Value::from(event.topic.as_str());
    let (seq, at, data) = (event.seq, event.at, &event.data);
    let _ = write!(
        text,
        "id: {seq}\nevent: {kind}\ndata: {{\"topic\":{topic},\"at\":{at},\"data\":{data}}}\n\n"
    );
}

/// Where to begin, and whether events were missed that the store has forgotten.
async fn position(app: &App, after: Option<i64>) -> Result<(i64, bool), Problem> {
    let (first, last) = app.store.kept_events().await?.unwrap_or((1, 0));
    Ok(match after {
        None => (last, false),
        Some(after) if after >= first - 1 && after <= last => (after, false),
        Some(after) => (last, after != last),
    })
}

/// The topics that somebody hears; `None`: what they stand on is gone, or they want what they may not.
async fn heard(
    app: &App,
    caller: &Caller,
    wanted: &Wanted,
) -> Result<Option<Vec<String>>, Problem> {
    let now = crate::clock::now();
    let Some((user, credential)) = caller.standing() else {
        return Ok(None);
    };
    let only = match &caller.who {
        Who::Nobody | Who::Runner(_) | Who::Person(_) => None,
        Who::Token(found) => Some(&found.1.workspace_id),
    };
    let Some(admin) = app.store.stands(user, credential, now).await? else {
        return Ok(None);
    };
    let visible = Visible::of(app.config.workspaces);
    let workspaces = app
        .store
        .workspaces_of(user, visible, "", WORKSPACES)
        .await?;
    let mut roots: Vec<String> = workspaces
        .into_iter()
        .filter(|workspace| only.is_none_or(|only| *only == workspace.id))
        .map(|workspace| format!("workspace/{}", workspace.id))
        .collect();
    if only.is_none() {
        roots.push(format!("user/{user}"));
        if admin {
            roots.push("instance".to_owned());
        }
    }
    let Wanted::Topics(topics) = wanted else {
        return Ok(Some(roots));
    };
    let may = |topic: &String| {
        roots.iter().any(|root| {
            let rest = topic.strip_prefix(root.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    };
    Ok(topics.iter().all(may).then(|| topics.clone()))
}
