//! Whoever queues thousands of runs delays nobody else's.

use std::time::{Duration, Instant};

use super::*;
use crate::store::change::Effect;

/// A runner with room for everything.
const WIDE: Claimer<'static> = Claimer {
    runner: "wide",
    workspace: None,
    most: 100_000,
};

/// Rows as thousands of submits would have made them.
async fn crowd(store: &Store, workspace: &str, count: usize) {
    let spec = overlap(OverlapRule::Parallel, Some(100_000));
    let first = queued(store, &new(workspace, "crowd", &spec), 1).await;
    for statement in [
        "INSERT INTO runs (id, workspace_id, job_id, job_name, state, cause, attempt, spec, queued_at, fence, output_bytes, \
         output_kept, flows_kept, flows_dropped, denied, up, down) \
         SELECT $1 || n.n, r.workspace_id, r.job_id, r.job_name, 'queued', r.cause, 1, r.spec, 1, 0, 0, 0, 0, 0, 0, 0, 0 \
         FROM runs r, (WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < $2) SELECT n FROM n) n \
         WHERE r.id = $3",
        "INSERT INTO queue (run_id, workspace_id, lane, lane_most, ready_at, state, runner_id, fence, lease_until, claims, \
         output_next, output_kept, output_rows, flow_seq, flows_kept, flows_dropped, denied, up, down, step_seq, steps_kept) \
         SELECT $1 || n.n, q.workspace_id, q.lane, q.lane_most, 0, 'queued', '', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 \
         FROM queue q, (WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < $2) SELECT n FROM n) n \
         WHERE q.run_id = $3",
    ] {
        on!(store, pool => sqlx::query(statement)
            .bind(format!("{first}-"))
            .bind(i64::try_from(count - 1).unwrap())
            .bind(&first)
            .execute(pool)
            .await
            .map(|_| ()))
        .unwrap();
    }
}

/// The workspaces of the next claims.
async fn claims(store: &Store, count: usize) -> Vec<String> {
    let mut claimed = Vec::new();
    for _ in 0..count {
        let next = store.claim_run(WIDE, &RULES, 9).await.unwrap();
        claimed.push(next.expect("a run waits").run.workspace_id);
    }
    claimed
}

#[tokio::test]
async fn ten_thousand_runs_of_one_workspace_starve_nobody() {
    each(async |store| {
        let (crowded, small) = (workspace(&store).await, workspace(&store).await);
        crowd(&store, &crowded, 10_000).await;
        let spec = overlap(OverlapRule::Parallel, Some(100));
        for _ in 0..5 {
            queued(&store, &new(&small, "b", &spec), 8).await;
        }
        let begun = Instant::now();
        let order = claims(&store, 12).await;
        let turns = order.iter().take(10).filter(|of| **of == small);
        assert_eq!(turns.count(), 5, "{order:?}");
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "{:?}",
            begun.elapsed()
        );
        // the twin: alone it takes everything
        assert!(order[10..].iter().all(|of| *of == crowded), "{order:?}");
    })
    .await;
}

#[tokio::test]
async fn a_runner_for_one_run_at_a_time_serves_workspaces_in_turn() {
    each(async |store| {
        let (crowded, small) = (workspace(&store).await, workspace(&store).await);
        crowd(&store, &crowded, 200).await;
        let spec = overlap(OverlapRule::Parallel, Some(100));
        let one = Claimer { most: 1, ..WIDE };
        let mut order = Vec::new();
        for _ in 0..6 {
            queued(&store, &new(&small, "b", &spec), 8).await;
        }
        for _ in 0..10 {
            let claimed = store.claim_run(one, &RULES, 9).await.unwrap().unwrap();
            order.push(claimed.run.workspace_id == small);
            store.finish_run(&claimed.hold, &DONE, 9).await.unwrap();
        }
        // each second one, though nothing else is live when it asks
        assert_eq!(order.iter().filter(|small| **small).count(), 5, "{order:?}");
        assert!(order.windows(2).all(|two| two[0] != two[1]), "{order:?}");
    })
    .await;
}

#[tokio::test]
async fn a_hundred_runs_that_are_queued_at_once_are_all_taken_once() {
    each(async |store| {
        let mut workspaces = Vec::new();
        for _ in 0..4 {
            workspaces.push(workspace(&store).await);
        }
        let spec = overlap(OverlapRule::Parallel, Some(100));
        let begun = Instant::now();
        let submitted = join_all((0..100).map(|n| {
            let new = new(&workspaces[n % 4], "a", &spec);
            let store = &store;
            async move { store.submit_run(&new, 1).await.unwrap() }
        }))
        .await;
        assert!(submitted.iter().all(Effect::changed));
        let taken = join_all((0..8).map(|n| {
            let store = &store;
            async move {
                let runner = format!("r{n}");
                let mut taken = Vec::new();
                while let Some(claimed) = claim(store, &runner, 9).await {
                    store.finish_run(&claimed.hold, &DONE, 9).await.unwrap();
                    taken.push(claimed.run.id);
                }
                taken
            }
        }))
        .await;
        let mut taken: Vec<String> = taken.into_iter().flatten().collect();
        taken.sort();
        taken.dedup();
        assert_eq!(taken.len(), 100);
        assert!(
            begun.elapsed() < Duration::from_mins(1),
            "{:?}",
            begun.elapsed()
        );
    })
    .await;
}

#[tokio::test]
async fn whoever_asks_in_vain_locks_nothing() {
    each(async |store| {
        let w = workspace(&store).await;
        let spec = overlap(OverlapRule::Parallel, Some(1));
        queued(&store, &new(&w, "a", &spec), 1).await;
        queued(&store, &new(&w, "a", &spec), 1).await;
        let held = store.claim_run(WIDE, &RULES, 9).await.unwrap();
        assert!(held.is_some());
        // the second one waits for the first: nobody may take it, and asking needs no turn at writing
        let asked = match &store {
            Store::Sqlite(pool) => {
                let writer = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
                let asked = store.claim_run(WIDE, &RULES, 9);
                let asked = tokio::time::timeout(Duration::from_secs(2), asked).await;
                writer.rollback().await.unwrap();
                asked
            }
            Store::Postgres(pool) => {
                let mut writer = pool.begin().await.unwrap();
                sqlx::query("SELECT pg_advisory_xact_lock($1)")
                    .bind(Lock::Queue as i64)
                    .execute(&mut *writer)
                    .await
                    .unwrap();
                let asked = store.claim_run(WIDE, &RULES, 9);
                let asked = tokio::time::timeout(Duration::from_secs(2), asked).await;
                writer.rollback().await.unwrap();
                asked
            }
        };
        assert_eq!(asked.expect("it does not wait").unwrap(), None);
    })
    .await;
}

/// A workspace with lanes in each of which one run is live and others wait for it.
async fn blocked(store: &Store, workspace: &str, lanes: i64) {
    let spec = overlap(OverlapRule::Queue, None);
    let job = format!("blocked {workspace}");
    let first = queued(store, &new(workspace, &job, &spec), 1).await;
    let live = "CASE WHEN n.n % 2 = 0 THEN 'running' ELSE 'queued' END";
    let numbers = "(WITH RECURSIVE n(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < 2 * $2 - 1) SELECT n FROM n) n";
    for statement in [
        format!(
            "INSERT INTO runs (id, workspace_id, job_id, job_name, state, cause, attempt, spec, queued_at, fence, output_bytes, \
         output_kept, flows_kept, flows_dropped, denied, up, down) \
         SELECT $1 || n.n, r.workspace_id, r.job_id, r.job_name, {live}, r.cause, 1, r.spec, 1, 0, 0, 0, 0, 0, 0, 0, 0 \
         FROM runs r, {numbers} WHERE r.id = $3"
        ),
        format!(
            "INSERT INTO queue (run_id, workspace_id, lane, lane_most, ready_at, state, runner_id, fence, lease_until, claims, \
         output_next, output_kept, output_rows, flow_seq, flows_kept, flows_dropped, denied, up, down, step_seq, steps_kept) \
         SELECT $1 || n.n, q.workspace_id, q.lane || (n.n / 2), 1, 0, {live}, 'other', 0, 1000, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 \
         FROM queue q, {numbers} WHERE q.run_id = $3"
        ),
    ] {
        on!(store, pool => sqlx::query(sqlx::AssertSqlSafe(statement.as_str()))
            .bind(format!("{first}-"))
            .bind(lanes)
            .bind(&first)
            .execute(pool)
            .await
            .map(|_| ()))
        .unwrap();
    }
    let cancelled = store.cancel_run(workspace, &first, 2).await.unwrap();
    assert_eq!(cancelled, Cancel::Done);
}

/// How long asking for work takes: the best of a few, for a busy machine may be slow by itself.
async fn asking(store: &Store) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..20 {
        let begun = Instant::now();
        assert_eq!(store.claim_run(WIDE, &RULES, 9).await.unwrap(), None);
        best = best.min(begun.elapsed());
    }
    best
}

#[tokio::test]
async fn ten_thousand_lanes_without_room_cost_who_asks_nothing() {
    each(async |store| {
        let empty = asking(&store).await;
        let mut workspaces = Vec::new();
        for _ in 0..100 {
            let w = workspace(&store).await;
            blocked(&store, &w, 100).await;
            workspaces.push(w);
        }
        on!(&store, pool => sqlx::query("ANALYZE").execute(pool).await.map(|_| ())).unwrap();
        let waiting: i64 = on!(&store, pool => sqlx::query_scalar("SELECT count(*) FROM queue WHERE state = 'queued'")
            .fetch_one(pool).await)
        .unwrap();
        assert_eq!(waiting, 10_000);
        let full = asking(&store).await;
        println!("{}: asking takes {empty:?} of an empty queue, {full:?} of a blocked one", store.engine());
        assert!(full < empty * 10 + Duration::from_millis(2), "{empty:?} {full:?}");
        // its twin: where a lane has room its run is found among all of them
        let last = workspaces.last().unwrap();
        let spec = overlap(OverlapRule::Queue, None);
        let run = queued(&store, &new(last, "free", &spec), 3).await;
        let begun = Instant::now();
        let claimed = store.claim_run(WIDE, &RULES, 9).await.unwrap().unwrap();
        println!("{}: a claim among them takes {:?}", store.engine(), begun.elapsed());
        assert_eq!(claimed.run.id, run);
        // and one of a lane whose live run ends
        let hold = "SELECT run_id FROM queue WHERE state = 'running' AND workspace_id = $1 LIMIT 1";
        let over: String = on!(&store, pool => sqlx::query_scalar(hold).bind(last).fetch_one(pool).await).unwrap();
        let hold = Hold { run: over.clone(), runner: "other".into(), fence: 0 };
        assert_eq!(store.finish_run(&hold, &DONE, 9).await.unwrap(), Finished::Done { retry: None });
        let freed = store.claim_run(WIDE, &RULES, 9).await.unwrap().unwrap();
        assert_eq!(freed.run.workspace_id, *last);
        assert_eq!(store.claim_run(WIDE, &RULES, 9).await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn a_lane_is_what_the_queue_says_of_it_whatever_happened() {
    each(async |store| {
        let w = workspace(&store).await;
        let (one, two) = (overlap(OverlapRule::Parallel, Some(1)), overlap(OverlapRule::Parallel, Some(2)));
        let first = queued(&store, &new(&w, "j", &one), 1).await;
        queued(&store, &new(&w, "j", &one), 2).await;
        // the job was changed meanwhile: of the same lane, with room for more
        let wider = queued(&store, &new(&w, "j", &two), 3).await;
        let claimed = store.claim_run(WIDE, &RULES, 9).await.unwrap().unwrap();
        assert_eq!(claimed.run.id, first);
        let next = store.claim_run(WIDE, &RULES, 9).await.unwrap().unwrap();
        assert_eq!(next.run.id, wider);
        assert_eq!(store.claim_run(WIDE, &RULES, 9).await.unwrap(), None);
        // a runner that is not heard of any more gives its place back, and its run waits again
        assert_eq!(store.give_up(1_000).await.unwrap(), 2);
        let again = store.claim_run(WIDE, &RULES, 1_000).await.unwrap().unwrap();
        assert_eq!(again.run.id, first);
        let kept = "SELECT (SELECT count(*) FROM lanes), (SELECT count(*) FROM (SELECT DISTINCT lane, lane_most FROM queue \
            WHERE state = 'queued') AS waiting)";
        let both: (i64, i64) = on!(&store, pool => sqlx::query_as(kept).fetch_one(pool).await).unwrap();
        assert_eq!(both.0, both.1);
    })
    .await;
}
