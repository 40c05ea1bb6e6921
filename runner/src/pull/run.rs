//! One run of a console: may it begin, its secrets, its life, what is told about it, how it ended.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};

use super::line::AskError;
use super::tale::Tale;
use super::{Pauses, Puller};
use crate::drive;
use crate::job::Job;
use crate::mask::{LEAST, Left, Mask, Passed, Streams};
use crate::pod::network_id;
use crate::protocol::{Begin, Ending, Fenced, Finish, Heard, Work, context};
use crate::run::{EndReason, Event, RunId};

/// The last record of a network is written before its detachment is answered; the follower is as far behind as it is busy.
const LAST_RECORD: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(50);
/// Events between a run and what tells them.
const WAITING: usize = 8;

fn now() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Carries a run out, to the console's last answer about it.
pub async fn run(puller: &Puller, work: Work, tale: Arc<Tale>) {
    let fence = work.fence;
    let id = work.run.clone();
    let path = |verb: &str| format!("/runner/v1/runs/{id}/{verb}");
    let ending = match ask::<Begin>(puller, &path("begin"), &Fenced { fence }, &tale).await {
        Ok(Some(Begin::Yes)) => {
            let tell_path = path("tell");
            let (ending, ()) = tokio::join!(
                live(puller, work, &tale),
                tell(puller, &tell_path, fence, &tale)
            );
            ending
        }
        Ok(_) => Ending::Cancelled,
        Err(error) => {
            tracing::warn!(run = id, %error, "a run that was given to this runner does not begin");
            return;
        }
    };
    if tale.is_abandoned() {
        return;
    }
    let finish = Finish { fence, end: ending };
    if let Err(error) = ask::<()>(puller, &path("finish"), &finish, &tale).await {
        tracing::warn!(run = id, %error, "telling the console how a run ended");
    }
}

/// Asks until there is an answer, or it does not matter any more.
async fn ask<T: serde::de::DeserializeOwned>(
    puller: &Puller,
    path: &str,
    body: &impl serde::Serialize,
    tale: &Tale,
) -> Result<Option<T>, AskError> {
    let mut line = puller.line();
    let mut pauses = Pauses::new();
    loop {
        match line.ask(path, body).await {
            Err(error @ AskError::Away(_)) if !tale.is_abandoned() => pauses.after(&error).await,
            answered => return answered,
        }
    }
}

/// Tells everything that there is to tell.
async fn tell(puller: &Puller, path: &str, fence: i64, tale: &Tale) {
    let mut line = puller.line();
    let mut pauses = Pauses::new();
    while let Some(batch) = tale.batch(fence).await {
        match line.ask::<Heard>(path, &batch.tell).await {
            Ok(heard) => {
                tale.heard(
                    &batch,
                    heard.map_or(batch.tell.starts, |heard| heard.output),
                );
                pauses = Pauses::new();
            }
            Err(AskError::Away(why)) => pauses.after(&AskError::Away(why)).await,
            Err(error) => {
                // the run's end is noticed by whoever keeps it; what it printed is nobody's any more
                tracing::warn!(%error, "a run is given up");
                tale.abandon();
            }
        }
    }
}

/// Runs it.
async fn live(puller: &Puller, work: Work, tale: &Arc<Tale>) -> Ending {
    let id = work.run.clone();
    let ending = match job(puller, &work).await {
        Ok(Sent { job, mask, left }) => {
            let (events, mut waiting) = mpsc::channel(WAITING);
            let driven = puller.runner.clone();
            // a task of its own: its clean-up is not dropped half done
            puller.runner.tasks.spawn(
                "run",
                async move { drive::drive(&driven, job, events).await },
            );
            if !left.is_nothing() {
                let (short, lines, plain) = (left.short, left.lines, left.plain);
                let told = serde_json::json!({ "least": LEAST, "short": short, "lines": lines, "plain": plain });
                tale.step("not_masked", told, now());
            }
            let mut follow = Follow {
                puller,
                id: &id,
                tale,
                streams: mask.streams(),
                mask,
                own: None,
                input: work.input.map(|input| input.0),
            };
            let mut ending = failed("internal", "the runner lost the run");
            while let Some(event) = follow.next(&mut waiting).await {
                if let Some(end) = follow.take(event).await {
                    ending = end;
                }
            }
            follow.finish().await;
            follow.settle().await;
            ending
        }
        Err(ending) => ending,
    };
    tale.close();
    ending
}

fn failed(code: &str, message: &str) -> Ending {
    Ending::Failed {
        code: code.to_owned(),
        message: message.to_owned(),
    }
}

/// A job as it was sent.
struct Sent {
    /// Checked, with its secrets in its environment.
    job: Job,
    /// Of these secrets.
    mask: Mask,
    left: Left,
}

async fn job(puller: &Puller, work: &Work) -> Result<Sent, Ending> {
    let mut request = work.job.clone();
    let (mut mask, mut left) = (Mask::none(), Left::default());
    if let Some(sealed) = &work.sealed {
        let opened = puller.key.open(&context(&work.run, work.fence), &sealed.0);
        let opened = opened.map_err(|error| failed("secrets", &error.to_string()))?;
        let secrets: std::collections::BTreeMap<String, String> =
            serde_json::from_slice(&opened)
                .map_err(|_| failed("secrets", "what was sealed is no set of secrets"))?;
        request.env.extend(secrets.clone());
        // the largest ones take a second
        let made = tokio::task::spawn_blocking(move || Mask::new(&secrets)).await;
        (mask, left) = made
            .map_err(|_| failed("internal", "the runner lost the run"))?
            .map_err(|error| failed("secrets", &error.to_string()))?;
    }
    match Job::check(request, &puller.runner.config.limits) {
        Ok(job) => Ok(Sent { job, mask, left }),
        Err(mistakes) => {
            let told = format!("the job has mistakes: {mistakes}");
            Err(failed("bad_request", &mask.text(&told)))
        }
    }
}

/// What is known of a run that is being driven.
struct Follow<'a> {
    puller: &'a Puller,
    id: &'a str,
    tale: &'a Arc<Tale>,
    own: Option<RunId>,
    input: Option<bytes::Bytes>,
    mask: Mask,
    streams: Streams,
}

impl Follow<'_> {
    /// Tells what of the output may be told.
    async fn print(&self, passed: Passed) {
        for (error, data) in passed {
            self.tale.print(error, data, now()).await;
        }
    }

    /// The next event; what waits for more output does not wait for ever, also while the other output goes on.
    async fn next(&mut self, waiting: &mut mpsc::Receiver<Event>) -> Option<Event> {
        let now = Instant::now();
        if let Some(until) = self.streams.patient_until(now) {
            // an event that is there already would be taken before the time is looked at
            if now < until
                && let Ok(event) = timeout_at(until, waiting.recv()).await
            {
                return event;
            }
            let passed = self.streams.release();
            self.print(passed).await;
        }
        waiting.recv().await
    }

    /// Takes one event; how it ended, if it is the last one.
    async fn take(&mut self, event: Event) -> Option<Ending> {
        match &event {
            Event::OutputLimit { .. } => {
                let passed = self.streams.cut();
                self.print(passed).await;
            }
            Event::Ended { .. } | Event::Failed(_) => self.finish().await,
            _ => {}
        }
        let (tale, mask) = (self.tale, self.mask.clone());
        let step = |kind: &str, mut data: serde_json::Value| {
            mask.json(&mut data);
            tale.step(kind, data, now());
        };
        match event {
            Event::Accepted { run } => self.accepted(run),
            Event::Preparing { step: what } => {
                step("preparing", serde_json::json!({ "step": what }));
            }
            Event::Started(started) => {
                step("started", serde_json::to_value(started).unwrap_or_default());
            }
            Event::Stdout(data) => {
                let passed = self.streams.take(false, data.data);
                self.print(passed).await;
            }
            Event::Stderr(data) => {
                let passed = self.streams.take(true, data.data);
                self.print(passed).await;
            }
            Event::OutputLimit { bytes } => {
                step("output_limit", serde_json::json!({ "bytes": bytes }));
            }
            // the console has the records themselves
            Event::Flows(_) => {}
            Event::Ended {
                code,
                reason,
                leftovers,
            } => {
                step(
                    "ended",
                    serde_json::json!({ "code": code, "reason": reason, "leftovers": leftovers }),
                );
                return Some(Ending::Ended { code, reason });
            }
            Event::Failed(failure) => {
                step("failed", serde_json::to_value(&failure).unwrap_or_default());
                let hint = failure
                    .hint
                    .map(|hint| format!(" ({hint})"))
                    .unwrap_or_default();
                let mistakes = failure.mistakes.join("; ");
                let colon = if mistakes.is_empty() { "" } else { ": " };
                return Some(failed(
                    &failure.code,
                    &mask.text(&format!("{}{colon}{mistakes}{hint}", failure.message)),
                ));
            }
        }
        None
    }

    /// Tells what of the output waited for more of it.
    async fn finish(&mut self) {
        let passed = self.streams.release();
        self.print(passed).await;
    }

    fn accepted(&mut self, run: RunId) {
        if let Some(network) = network_id(&run) {
            self.puller.taps.open(network, self.tale.clone());
        }
        if self.puller.accepted(self.id, &run) {
            self.puller.runner.runs.end(&run, EndReason::Cancelled);
        }
        if let Some(giving) = self.puller.runner.runs.give_input(&run) {
            // without any it is over at once
            let input = self.input.take().unwrap_or_default();
            self.puller.runner.tasks.spawn("input", async move {
                // a run that reads no more is no failure
                let _ = giving.send(input).await;
            });
        }
        self.own = Some(run);
    }

    /// Waits for the last record of its network.
    async fn settle(&self) {
        let Some(network) = self.own.as_ref().and_then(network_id) else {
            return;
        };
        let until = Instant::now() + LAST_RECORD;
        while !self.tale.is_network_over() && !self.tale.is_abandoned() && Instant::now() < until {
            sleep(STEP).await;
        }
        self.puller.taps.close(&network);
    }
}
