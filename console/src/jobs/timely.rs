//! What a console does by the clock: starts what is due, and gives up runs whose runner is not heard of any more.
//!
//! Every console does both; whoever comes second finds it done ([`Store::fire_job`], [`Store::give_up`]). A time of a
//! schedule has one run, whichever consoles ran or did not. Failure stance: what fails is logged and done a moment later.

use std::time::Duration;

use super::schedule::Schedule;
use super::spec::{CatchUp, JobSpec};
use crate::clock::{self, MINUTE, Millis};
use crate::server::app::App;
use crate::store::jobs::Job;
use crate::store::queue::{Cause, NewRun, Submitted};
use crate::store::{Store, StoreError};

/// A schedule is told in minutes.
const EVERY: Duration = Duration::from_secs(1);
/// Jobs at once.
const MOST: i64 = 100;
/// A time that passed longer ago passed while no console ran.
const LATE: Millis = MINUTE;

/// Until the console stops.
pub async fn keep_time(app: App) {
    let mut turns = tokio::time::interval(EVERY);
    turns.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        turns.tick().await;
        let now = clock::now();
        let done = async {
            app.store.give_up(now).await?;
            fire_due(&app.store, now).await
        };
        if let Err(error) = done.await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "starting what is due"
            );
        }
    }
}

/// Submits a run for every job that is due; returns how many.
pub async fn fire_due(store: &Store, now: Millis) -> Result<u64, StoreError> {
    let mut fired = 0;
    loop {
        let due = store.due_jobs(now, MOST).await?;
        for job in &due {
            fired += u64::from(fire(store, job, now).await?);
        }
        if due.is_empty() {
            return Ok(fired);
        }
    }
}

async fn fire(store: &Store, job: &Job, now: Millis) -> Result<bool, StoreError> {
    let spec = JobSpec::read(&job.spec).ok();
    let schedule = spec.as_ref().and_then(|spec| spec.schedule.as_ref());
    let schedule = schedule.and_then(|spec| Some((spec.catch_up, Schedule::parse(spec).ok()?)));
    let (Some(spec), Some((catch_up, schedule)), Some(first)) = (&spec, schedule, job.next_at)
    else {
        tracing::error!(
            job = job.id,
            "a job's schedule cannot be read and is not followed any more"
        );
        store.fire_job(job, None, None, now).await?;
        return Ok(false);
    };
    let due = schedule.due(first, now);
    let run = NewRun {
        workspace: &job.workspace_id,
        job: Some(&job.id),
        name: &job.name,
        spec,
        cause: Cause::Schedule,
        by: job.created_by.as_deref(),
        slot: Some(due.latest),
        attempt: 1,
        retry_of: None,
        input: None,
        ready_at: now,
    };
    let passed = catch_up == CatchUp::Never && now - due.latest > LATE;
    let run = Some(&run).filter(|_| !passed);
    let fired = store.fire_job(job, due.next, run, now).await?;
    if due.times > 1 && fired.is_some() {
        tracing::info!(
            job = job.id,
            times = due.times,
            "times of a schedule passed while no console ran"
        );
    }
    if fired == Some(Submitted::Full) {
        tracing::warn!(
            job = job.id,
            "the queue of its workspace is full: a time of its schedule passed without a run"
        );
    }
    Ok(matches!(
        fired,
        Some(Submitted::Queued(_) | Submitted::Skipped(_))
    ))
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;

    use super::*;
    use crate::clock::HOUR;
    use crate::jobs::spec::{OverlapRule, OverlapSpec, ScheduleSpec};
    use crate::store::jobs::JobWrite;
    use crate::store::queue::Claimer;
    use crate::store::runs::{Run, RunFilter};
    use crate::store::testing::{each, workspace};

    /// 2027-01-15T08:00:00Z
    const EIGHT: Millis = 1_800_000_000_000;

    async fn hourly(store: &Store, workspace: &str, name: &str, catch_up: CatchUp) -> String {
        let spec = JobSpec {
            schedule: Some(ScheduleSpec {
                cron: "0 * * * *".into(),
                timezone: "UTC".into(),
                catch_up,
            }),
            overlap: OverlapSpec {
                rule: OverlapRule::Parallel,
                ..OverlapSpec::default()
            },
            ..JobSpec::default()
        };
        let write = JobWrite {
            workspace,
            name,
            spec: &serde_json::to_string(&spec).unwrap(),
            enabled: true,
            next_at: Some(EIGHT),
        };
        store.add_job(&write, None, 1).await.unwrap().unwrap()
    }

    async fn runs(store: &Store, workspace: &str, job: &str) -> Vec<Run> {
        let filter = RunFilter { job, state: "" };
        store.runs(workspace, filter, "", 100).await.unwrap()
    }

    #[tokio::test]
    async fn several_consoles_fire_each_time_once() {
        each(async |store| {
            let w = workspace(&store).await;
            let job = hourly(&store, &w, "j", CatchUp::Once).await;
            for hour in 0..5 {
                let now = EIGHT + hour * HOUR + 5;
                let consoles = (0..6).map(|_| fire_due(&store, now));
                let fired: u64 = join_all(consoles)
                    .await
                    .into_iter()
                    .map(Result::unwrap)
                    .sum();
                assert_eq!(fired, 1, "at {now}");
            }
            let mut slots: Vec<_> = runs(&store, &w, &job)
                .await
                .iter()
                .filter_map(|run| run.slot)
                .collect();
            slots.sort_unstable();
            assert_eq!(slots, [0, 1, 2, 3, 4].map(|hour| EIGHT + hour * HOUR));
        })
        .await;
    }

    #[tokio::test]
    async fn times_that_passed_while_no_console_ran_are_caught_up_with_once_or_never() {
        each(async |store| {
            let w = workspace(&store).await;
            let once = hourly(&store, &w, "once", CatchUp::Once).await;
            let never = hourly(&store, &w, "never", CatchUp::Never).await;
            let back = EIGHT + 49 * HOUR + HOUR / 2;
            assert_eq!(fire_due(&store, back).await.unwrap(), 1);
            assert_eq!(fire_due(&store, back + 1).await.unwrap(), 0);
            let caught = runs(&store, &w, &once).await;
            assert_eq!(
                caught.iter().map(|run| run.slot).collect::<Vec<_>>(),
                [Some(EIGHT + 49 * HOUR)]
            );
            assert_eq!(caught[0].cause, "schedule");
            assert_eq!(runs(&store, &w, &never).await, []);
            assert_eq!(fire_due(&store, EIGHT + 50 * HOUR).await.unwrap(), 2);
        })
        .await;
    }

    #[tokio::test]
    async fn a_schedule_that_cannot_be_read_stops_and_does_not_stop_others() {
        each(async |store| {
            let w = workspace(&store).await;
            let write = JobWrite {
                workspace: &w,
                name: "broken",
                spec: "{]",
                enabled: true,
                next_at: Some(1),
            };
            let broken = store.add_job(&write, None, 1).await.unwrap().unwrap();
            hourly(&store, &w, "good", CatchUp::Once).await;
            assert_eq!(fire_due(&store, EIGHT).await.unwrap(), 1);
            assert_eq!(store.job(&w, &broken).await.unwrap().unwrap().next_at, None);
            let claimer = Claimer {
                runner: "r",
                workspace: None,
                most: 1,
            };
            let claimed = store
                .claim_run(claimer, &crate::store::queue::QueueRules::default(), EIGHT)
                .await
                .unwrap();
            assert_eq!(claimed.unwrap().run.job_name, "good");
        })
        .await;
    }
}
