//! Claimers that race, die and come late; rules of overlap, retry and limits.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};

use futures_util::future::join_all;
use gateway::record::Line;
use serde_json::json;

mod fair;
mod told;

use super::*;
use crate::jobs::spec::{JobSpec, OverlapRule, OverlapSpec, RetryOn, RetrySpec};
use crate::store::flows::FlowFilter;
use crate::store::output::{Piece, Printed, Told};
use crate::store::steps::Step;
use crate::store::testing::{each, record, workspace};

const RULES: QueueRules = QueueRules {
    lease: 100,
    per_workspace: 1_000,
};

const DONE: End<'static> = End {
    state: "succeeded",
    reason: None,
    message: None,
    exit_code: Some(0),
};

const FAILED: End<'static> = End {
    state: "failed",
    reason: Some("exited"),
    message: Some("it\0 failed"),
    exit_code: Some(1),
};

fn new<'a>(workspace: &'a str, job: &'a str, spec: &'a JobSpec) -> NewRun<'a> {
    NewRun {
        workspace,
        job: Some(job),
        name: job,
        spec,
        cause: Cause::Person,
        by: None,
        slot: None,
        attempt: 1,
        retry_of: None,
        input: None,
        ready_at: 0,
    }
}

async fn queued(store: &Store, new: &NewRun<'_>, now: Millis) -> String {
    match store.submit_run(new, now).await.unwrap() {
        Submitted::Queued(run) => run,
        other => panic!("{other:?}"),
    }
}

async fn claim(store: &Store, runner: &str, now: Millis) -> Option<Claimed> {
    let claimer = Claimer {
        runner,
        workspace: None,
        most: 1_000,
    };
    store.claim_run(claimer, &RULES, now).await.unwrap()
}

async fn state(store: &Store, workspace: &str, run: &str) -> String {
    store.run(workspace, run).await.unwrap().unwrap().state
}

fn overlap(rule: OverlapRule, most: Option<u32>) -> JobSpec {
    let overlap = OverlapSpec {
        rule,
        most,
        group: None,
    };
    JobSpec {
        overlap,
        ..JobSpec::default()
    }
}

#[tokio::test]
async fn claimers_that_race_take_each_run_once_and_never_more_of_a_job_than_its_rule() {
    each(async |store| {
        let w = workspace(&store).await;
        let specs = [
            ("one", overlap(OverlapRule::Queue, None), 12),
            ("three", overlap(OverlapRule::Parallel, Some(3)), 18),
        ];
        let mut all = Vec::new();
        for (job, spec, runs) in &specs {
            for _ in 0..*runs {
                all.push(queued(&store, &new(&w, job, spec), 1).await);
            }
        }
        let live =
            BTreeMap::from(specs.map(|(job, ..)| (job, (AtomicI64::new(0), AtomicI64::new(0)))));
        let claimers = (0..8).map(|n| {
            let (store, live) = (store.clone(), &live);
            async move {
                let mut taken = Vec::new();
                let runner = format!("r{n}");
                while store.waiting_runs(&w_of(&store).await).await.unwrap() > 0 {
                    let Some(claimed) = claim(&store, &runner, 5).await else {
                        continue;
                    };
                    let (now, most) = &live[&*claimed.run.job_name];
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    assert_eq!(store.begin_run(&claimed.hold, 6).await.unwrap(), Begun::Yes);
                    assert!(
                        store
                            .run_started(&claimed.hold, &json!({}), 7)
                            .await
                            .unwrap()
                    );
                    now.fetch_sub(1, Ordering::SeqCst);
                    let done = store.finish_run(&claimed.hold, &DONE, 8).await.unwrap();
                    assert_eq!(done, Finished::Done { retry: None });
                    taken.push(claimed.run.id);
                }
                taken
            }
        });
        let mut taken: Vec<String> = join_all(claimers).await.into_iter().flatten().collect();
        taken.sort();
        all.sort();
        assert_eq!(taken, all);
        assert_eq!(live["one"].1.load(Ordering::SeqCst), 1);
        assert!((1..=3).contains(&live["three"].1.load(Ordering::SeqCst)));
    })
    .await;
}

/// The one workspace that [`workspace`] made.
async fn w_of(store: &Store) -> String {
    on!(store, pool => sqlx::query_scalar("SELECT workspace_id FROM runs LIMIT 1").fetch_one(pool).await).unwrap()
}

#[tokio::test]
async fn a_claimer_that_dies_before_it_begins_loses_the_run_to_another_and_changes_nothing_any_more()
 {
    each(async |store| {
        let w = workspace(&store).await;
        let run = queued(&store, &new(&w, "j", &JobSpec::default()), 1).await;
        let dead = claim(&store, "dead", 10).await.unwrap();
        assert_eq!(store.give_up(110).await.unwrap(), 0);
        assert_eq!(store.give_up(111).await.unwrap(), 1);
        assert_eq!(state(&store, &w, &run).await, "queued");
        let next = claim(&store, "next", 112).await.unwrap();
        assert!(next.hold.fence > dead.hold.fence);
        stale_in_every_way(&store, &w, &dead.hold).await;
        assert_eq!(store.begin_run(&next.hold, 113).await.unwrap(), Begun::Yes);
        assert!(
            store
                .run_started(&next.hold, &json!({}), 114)
                .await
                .unwrap()
        );
        stale_in_every_way(&store, &w, &dead.hold).await;
        let done = store.finish_run(&next.hold, &DONE, 115).await.unwrap();
        assert_eq!(done, Finished::Done { retry: None });
        stale_in_every_way(&store, &w, &dead.hold).await;
        assert_eq!(
            store.finish_run(&next.hold, &DONE, 116).await.unwrap(),
            Finished::Again
        );
        // the right fence in somebody else's hands
        let thief = Hold {
            runner: "dead".into(),
            ..next.hold.clone()
        };
        assert_eq!(
            store.finish_run(&thief, &FAILED, 116).await.unwrap(),
            Finished::Stale
        );
        assert_eq!(state(&store, &w, &run).await, "succeeded");
    })
    .await;
}

/// Everything that a holder can say, by one who is none.
async fn stale_in_every_way(store: &Store, workspace: &str, hold: &Hold) {
    let before = store.run(workspace, &hold.run).await.unwrap();
    assert_eq!(store.keep_run(hold, &RULES, 200).await.unwrap(), None);
    assert_eq!(store.begin_run(hold, 200).await.unwrap(), Begun::Stale);
    assert!(!store.run_started(hold, &json!({}), 200).await.unwrap());
    let piece = Piece {
        to: Printed::Stdout,
        data: b"late",
        at: 200,
    };
    let told = store.tell_output(hold, 0, &[piece], 200).await.unwrap();
    assert_eq!(told, Told::Stale);
    let step = Step {
        seq: 9,
        at: 200,
        kind: "late".into(),
        data: "{}".into(),
    };
    assert_eq!(
        store.tell_steps(hold, &[step], 200).await.unwrap(),
        Told::Stale
    );
    assert_eq!(
        store
            .tell_flows(hold, &[record(9, "late.example")], 200)
            .await
            .unwrap(),
        Told::Stale
    );
    assert_eq!(
        store.finish_run(hold, &FAILED, 200).await.unwrap(),
        Finished::Stale
    );
    assert_eq!(store.run(workspace, &hold.run).await.unwrap(), before);
    assert!(store.output(&hold.run, 0, 10).await.unwrap().is_empty());
    assert!(store.steps(&hold.run, 0, 10).await.unwrap().is_empty());
    assert!(
        store
            .flows(&hold.run, FlowFilter::default(), 0, 10)
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn a_run_that_has_begun_is_lost_with_its_runner_and_only_the_retry_rule_makes_another() {
    each(async |store| {
        let w = workspace(&store).await;
        let retry = RetrySpec {
            most: 1,
            on: vec![RetryOn::Lost],
            wait_seconds: 1,
        };
        let spec = JobSpec {
            retry,
            ..JobSpec::default()
        };
        let never = RetrySpec {
            most: 9,
            on: vec![RetryOn::Failed],
            wait_seconds: 1,
        };
        let other = JobSpec {
            retry: never,
            ..JobSpec::default()
        };
        for (spec, again) in [(&spec, true), (&other, false)] {
            let run = queued(&store, &new(&w, "j", spec), 1).await;
            let dead = claim(&store, "dead", 10).await.unwrap();
            assert_eq!(store.begin_run(&dead.hold, 11).await.unwrap(), Begun::Yes);
            assert_eq!(store.give_up(111).await.unwrap(), 1);
            let lost = store.run(&w, &run).await.unwrap().unwrap();
            assert_eq!(
                (lost.state.as_str(), lost.reason.as_deref()),
                ("lost", Some("runner_lost"))
            );
            assert_eq!(
                store.finish_run(&dead.hold, &DONE, 112).await.unwrap(),
                Finished::Stale
            );
            assert!(claim(&store, "next", 112).await.is_none(), "it waits first");
            let next = claim(&store, "next", 1_111).await;
            assert_eq!(next.is_some(), again);
            let Some(next) = next else { continue };
            assert_eq!(
                (next.run.attempt, next.run.retry_of.as_deref()),
                (2, Some(&*run))
            );
            assert_eq!(next.run.cause, "retry");
            store.begin_run(&next.hold, 1_112).await.unwrap();
            assert_eq!(store.give_up(5_000).await.unwrap(), 1);
            assert!(
                claim(&store, "third", 1_000_000).await.is_none(),
                "there is one retry"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn a_run_that_ends_its_runners_is_not_given_out_for_ever() {
    each(async |store| {
        let w = workspace(&store).await;
        let run = queued(&store, &new(&w, "j", &JobSpec::default()), 1).await;
        let mut claims = 0;
        let mut now = 10;
        while claim(&store, "dies", now).await.is_some() {
            claims += 1;
            now += 200;
            assert_eq!(store.give_up(now).await.unwrap(), 1);
        }
        assert_eq!(claims, 5);
        assert_eq!(state(&store, &w, &run).await, "lost");
    })
    .await;
}

#[tokio::test]
async fn heartbeats_keep_a_run_and_bring_the_news_that_it_is_cancelled() {
    each(async |store| {
        let w = workspace(&store).await;
        let retry = RetrySpec {
            most: 5,
            ..RetrySpec::default()
        };
        let spec = JobSpec {
            retry,
            ..JobSpec::default()
        };
        let run = queued(&store, &new(&w, "j", &spec), 1).await;
        let waits = queued(&store, &new(&w, "j", &spec), 2).await;
        let held = claim(&store, "r", 10).await.unwrap();
        let beat = store
            .keep_run(&held.hold, &RULES, 100)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            beat,
            Beat {
                lease_until: 200,
                cancelled: false
            }
        );
        assert_eq!(store.give_up(150).await.unwrap(), 0);
        assert_eq!(
            store.cancel_run("other", &run, 150).await.unwrap(),
            Cancel::NotThere
        );
        assert_eq!(
            store.cancel_run(&w, &waits, 150).await.unwrap(),
            Cancel::Done
        );
        assert_eq!(state(&store, &w, &waits).await, "cancelled");
        assert_eq!(
            store.cancel_run(&w, &run, 150).await.unwrap(),
            Cancel::Asked
        );
        let beat = store
            .keep_run(&held.hold, &RULES, 160)
            .await
            .unwrap()
            .unwrap();
        assert!(beat.cancelled);
        assert_eq!(
            store.begin_run(&held.hold, 161).await.unwrap(),
            Begun::Cancelled
        );
        // its runner dies on the way: nobody runs what somebody cancelled
        assert_eq!(store.give_up(1_000).await.unwrap(), 1);
        assert_eq!(state(&store, &w, &run).await, "cancelled");
        assert_eq!(
            store.cancel_run(&w, &run, 1_001).await.unwrap(),
            Cancel::Over
        );
        assert!(claim(&store, "r", 1_000_000).await.is_none());
    })
    .await;
}

#[tokio::test]
async fn a_run_that_finds_another_is_skipped_or_waits_as_the_rule_says_and_groups_count_as_one() {
    each(async |store| {
        let w = workspace(&store).await;
        let skip = overlap(OverlapRule::Skip, None);
        let first = queued(&store, &new(&w, "s", &skip), 1).await;
        let second = store.submit_run(&new(&w, "s", &skip), 2).await.unwrap();
        let Submitted::Skipped(second) = second else {
            panic!("{second:?}")
        };
        let skipped = store.run(&w, &second).await.unwrap().unwrap();
        assert_eq!(
            (skipped.state.as_str(), skipped.reason.as_deref()),
            ("skipped", Some("overlap"))
        );
        let held = claim(&store, "r", 3).await.unwrap();
        assert_eq!(held.run.id, first);
        store.finish_run(&held.hold, &DONE, 4).await.unwrap();
        queued(&store, &new(&w, "s", &skip), 5).await;
        let grouped = OverlapSpec {
            group: Some("g".into()),
            ..OverlapSpec::default()
        };
        let grouped = JobSpec {
            overlap: grouped,
            ..JobSpec::default()
        };
        let a = queued(&store, &new(&w, "a", &grouped), 6).await;
        let b = queued(&store, &new(&w, "b", &grouped), 7).await;
        claim(&store, "r", 8).await.unwrap();
        let held = claim(&store, "r", 8).await.unwrap();
        assert_eq!(held.run.id, a);
        assert_eq!(claim(&store, "r", 8).await, None);
        store.finish_run(&held.hold, &DONE, 9).await.unwrap();
        assert_eq!(claim(&store, "r", 10).await.unwrap().run.id, b);
    })
    .await;
}

#[tokio::test]
async fn limits_of_runner_and_workspace_hold_and_leave_others_their_turn() {
    each(async |store| {
        let (w, v) = (workspace(&store).await, workspace(&store).await);
        let spec = overlap(OverlapRule::Parallel, Some(100));
        for _ in 0..3 {
            queued(&store, &new(&w, "a", &spec), 1).await;
        }
        let of_v = queued(&store, &new(&v, "b", &spec), 2).await;
        let rules = QueueRules {
            per_workspace: 1,
            ..RULES
        };
        let one = Claimer {
            runner: "one",
            workspace: None,
            most: 1,
        };
        assert!(store.claim_run(one, &rules, 3).await.unwrap().is_some());
        assert_eq!(store.claim_run(one, &rules, 3).await.unwrap(), None);
        let two = Claimer {
            runner: "two",
            workspace: None,
            most: 9,
        };
        let next = store.claim_run(two, &rules, 3).await.unwrap().unwrap();
        assert_eq!(next.run.id, of_v);
        assert_eq!(store.claim_run(two, &rules, 3).await.unwrap(), None);
        let bound = Claimer {
            runner: "three",
            workspace: Some(&v),
            most: 9,
        };
        assert_eq!(store.claim_run(bound, &RULES, 3).await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn a_workspace_that_submits_without_end_is_refused() {
    each(async |store| {
        let w = workspace(&store).await;
        let spec = JobSpec::default();
        for n in 0..1_000 {
            queued(&store, &new(&w, "a", &spec), n).await;
        }
        assert_eq!(
            store.submit_run(&new(&w, "a", &spec), 1).await.unwrap(),
            Submitted::Full
        );
        let v = workspace(&store).await;
        queued(&store, &new(&v, "a", &spec), 1).await;
    })
    .await;
}

#[tokio::test]
async fn what_happens_to_a_run_is_told_to_its_readers_and_to_the_workspace() {
    each(async |store| {
        let w = workspace(&store).await;
        let run = queued(&store, &new(&w, "j", &JobSpec::default()), 1).await;
        let held = claim(&store, "r", 2).await.unwrap().hold;
        store.begin_run(&held, 3).await.unwrap();
        store.run_started(&held, &json!({}), 4).await.unwrap();
        store.finish_run(&held, &DONE, 5).await.unwrap();
        let states = |events: Vec<crate::store::events::Event>| -> Vec<String> {
            let state = |e: &crate::store::events::Event| {
                serde_json::from_str::<serde_json::Value>(&e.data).unwrap()["state"].clone()
            };
            events
                .iter()
                .map(|e| state(e).as_str().unwrap().to_owned())
                .collect()
        };
        let expected = ["queued", "claimed", "preparing", "running", "succeeded"];
        assert_eq!(
            states(store.events_after(&[topic(&w, &run)], 0).await.unwrap()),
            expected
        );
        assert_eq!(
            states(store.events_after(&[workspace_topic(&w)], 0).await.unwrap()),
            expected
        );
    })
    .await;
}

#[tokio::test]
async fn old_runs_are_forgotten_with_all_that_is_kept_of_them_and_live_ones_are_not() {
    each(async |store| {
        let w = workspace(&store).await;
        let spec = overlap(OverlapRule::Parallel, Some(9));
        let old = queued(&store, &new(&w, "j", &spec), 1).await;
        let live = queued(&store, &new(&w, "j", &spec), 2).await;
        let held = claim(&store, "r", 3).await.unwrap().hold;
        claim(&store, "r", 3).await.unwrap();
        let piece = Piece {
            to: Printed::Stderr,
            data: b"x",
            at: 3,
        };
        store.tell_output(&held, 0, &[piece], 3).await.unwrap();
        store
            .tell_flows(&held, &[record(1, "a.example")], 3)
            .await
            .unwrap();
        let step = Step {
            seq: 1,
            at: 3,
            kind: "started".into(),
            data: "{}".into(),
        };
        store.tell_steps(&held, &[step], 3).await.unwrap();
        store.finish_run(&held, &DONE, 10).await.unwrap();
        assert_eq!(store.forget_runs(10, 100).await.unwrap(), 0);
        assert_eq!(store.forget_runs(11, 100).await.unwrap(), 1);
        assert_eq!(store.run(&w, &old).await.unwrap(), None);
        assert!(store.output(&old, 0, 10).await.unwrap().is_empty());
        assert_eq!(store.forget_runs(Millis::MAX, 100).await.unwrap(), 0);
        assert_eq!(state(&store, &w, &live).await, "claimed");
    })
    .await;
}
