//! Telling people and programs: events become deliveries, deliveries become webhooks and mail.
//!
//! [`news`] says which events are worth telling and [`watch`] makes those about enforcement, [`keep_reading`] queues them,
//! [`keep_sending`] sends what is due, by the guarded client alone; how many at the same time, [`sending`] says. What is
//! sent carries an id that is the same at each attempt, so that a receiver knows a double.
//! Failure stance: what cannot be sent is tried again, ever more slowly, and given up after [`MOST_ATTEMPTS`]; how each
//! attempt ended can be read.

mod mail;
mod sending;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_denied;
#[cfg(test)]
mod tests_turns;
pub mod watch;
mod webhook;

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::clock::{self, HOUR, MINUTE, Millis, SECOND};
use crate::jobs::spec::JobSpec;
use crate::server::app::App;
use crate::store::StoreError;
use crate::store::denials::Denied;
use crate::store::events::{self, Event};
use crate::store::notifications::{Delivery, News, Notification};

pub use sending::{keep_sending, send_due};
pub use webhook::{fresh_key, signature};

/// About what somebody can be told.
pub const TOPICS: [&str; 4] = [
    "run.failed",
    "run.succeeded",
    "run.denied",
    "gateway.enforcement",
];
/// What the test button sends.
pub const TEST: &str = "test";

/// Whoever claims a delivery has this long; longer than [`WHOLE`].
const CLAIM: Millis = MINUTE;
/// What takes longer to be sent, by whatever way, is tried again.
const WHOLE: Duration = Duration::from_secs(40);
/// Five minutes, half an hour, two hours, and so on would be too slow for a first try again.
const PAUSES: [Millis; 6] = [
    10 * SECOND,
    MINUTE,
    5 * MINUTE,
    30 * MINUTE,
    2 * HOUR,
    6 * HOUR,
];
/// Then it is given up.
const MOST_ATTEMPTS: usize = PAUSES.len() + 1;
/// Without being woken: other consoles' events, and what is tried again.
const EVERY: Duration = Duration::from_secs(5);

/// Why something was not delivered, in words for who set it up.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Undelivered(pub String);

/// A run that is over.
struct Over {
    workspace: String,
    run: String,
    /// What is told about its end itself.
    topic: Option<&'static str>,
    data: Value,
}

/// The run that an event says is over.
fn over(event: &Event) -> Option<Over> {
    let workspace = event.topic.strip_prefix("workspace/")?;
    if event.kind != "run" || workspace.contains('/') {
        return None;
    }
    let data: Value = serde_json::from_str(&event.data).ok()?;
    let topic = match data.get("state")?.as_str()? {
        "failed" | "timed_out" | "lost" => Some("run.failed"),
        "succeeded" => Some("run.succeeded"),
        "cancelled" => None,
        _ => return None,
    };
    Some(Over {
        workspace: workspace.to_owned(),
        run: data.get("run")?.as_str()?.to_owned(),
        topic,
        data,
    })
}

/// Names that jobs are told to have been denied by the events that are read together.
type ToldNames = HashSet<(String, String)>;

/// What of an event is worth telling.
async fn news(app: &App, event: &Event, told: &mut ToldNames) -> Result<Vec<News>, StoreError> {
    if event.topic == "instance" && event.kind == "enforcement" {
        let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
        let topic = "gateway.enforcement";
        let body = json!({ "type": topic, "at": event.at, "event": event.seq, "data": data });
        return Ok(vec![News::asked("", topic, &body)]);
    }
    let Some(over) = over(event) else {
        return Ok(Vec::new());
    };
    let body = |topic: &str, data: &Value| json!({ "type": topic, "at": event.at, "workspace": over.workspace, "event": event.seq, "data": data });
    let mut all: Vec<News> = over
        .topic
        .map(|topic| News::asked(&over.workspace, topic, &body(topic, &over.data)))
        .into_iter()
        .collect();
    let Some(run) = app.store.told_run(&over.workspace, &over.run).await? else {
        return Ok(all);
    };
    if let Some(job) = &run.job_id {
        let mut fresh = app.store.fresh_denials(job, &over.run).await?;
        fresh
            .names
            .retain(|name| told.insert((job.clone(), name.clone())));
        let keeps = fresh.keeps();
        let first = !fresh.full || told.insert((job.clone(), keeps.concat()));
        if !fresh.names.is_empty() && first {
            let data = json!({ "run": over.run, "job": job, "name": run.job_name, "names": fresh.names, "more": fresh.more,
                "full": fresh.full });
            let mut denied = News::asked(&over.workspace, "run.denied", &body("run.denied", &data));
            denied.denied = Some(Denied {
                job: job.clone(),
                names: keeps,
            });
            all.push(denied);
        }
    }
    // a job may say itself who is told, and when
    let own = JobSpec::read(&run.spec).ok().and_then(|spec| spec.notify);
    let Some(own) = own else {
        return Ok(all);
    };
    let gone = app
        .store
        .unknown_notifications(&over.workspace, &own.to)
        .await?;
    // where none of them is there any more, the workspace's are told rather than nobody
    if own.to.is_empty() || gone.len() < own.to.len() {
        for one in &mut all {
            let wanted = own.on.iter().any(|on| on.topic() == one.topic);
            one.to = Some(if wanted { own.to.clone() } else { Vec::new() });
        }
    }
    Ok(all)
}

/// Follows the event log until the console stops.
pub async fn keep_reading(app: App) {
    let mut rung = events::rung();
    loop {
        match read(&app).await {
            Ok(true) => continue,
            Ok(false) => {}
            Err(error) => told(&error, "reading events for notifications"),
        }
        let _ = tokio::time::timeout(EVERY, rung.changed()).await;
    }
}

/// Queues the news of the next events; whether there were any.
pub async fn read(app: &App) -> Result<bool, StoreError> {
    let from = app.store.notified().await?;
    let events = app.store.events_since(from).await?;
    let Some(last) = events.last() else {
        return Ok(false);
    };
    let (mut all, mut told) = (Vec::new(), ToldNames::new());
    for event in &events {
        all.extend(news(app, event, &mut told).await?);
    }
    app.store
        .queue_news((from, last.seq), &all, clock::now())
        .await?;
    Ok(true)
}

fn told(error: &StoreError, doing: &str) {
    tracing::warn!(
        error = error as &dyn std::error::Error,
        doing,
        "notifications wait"
    );
}

/// Tries once to deliver something; whether it was taken.
async fn attempt(
    app: &App,
    whom: &Notification,
    delivery: &Delivery,
    now: Millis,
) -> Result<bool, StoreError> {
    let sent = tokio::time::timeout(WHOLE, send(app, whom, delivery)).await;
    let slow = || Undelivered("it was not taken in time".to_owned());
    let (state, outcome) = match sent.unwrap_or_else(|_| Err(slow())) {
        Ok(outcome) => ("done", outcome),
        Err(error) => {
            let made = usize::try_from(delivery.attempts).unwrap_or(MOST_ATTEMPTS) + 1;
            let state = if made >= MOST_ATTEMPTS {
                "failed"
            } else {
                "waiting"
            };
            (state, error.to_string())
        }
    };
    let pause = usize::try_from(delivery.attempts)
        .ok()
        .and_then(|made| PAUSES.get(made));
    let again = now + pause.copied().unwrap_or_default();
    // what a stranger's server says may be anything
    let outcome: String = outcome
        .chars()
        .filter(|c| !c.is_control())
        .take(300)
        .collect();
    app.store
        .delivered(&delivery.id, state, &outcome, again)
        .await?;
    Ok(state == "done")
}

async fn send(app: &App, whom: &Notification, delivery: &Delivery) -> Result<String, Undelivered> {
    match whom.kind.as_str() {
        "webhook" => webhook::send(app, whom, delivery).await,
        _ => mail::send(app, whom, delivery).await,
    }
}

/// An error with what caused it, for who set a notification up. No call's error holds more than an origin.
fn chain(error: &dyn std::error::Error) -> Undelivered {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    Undelivered(text)
}
