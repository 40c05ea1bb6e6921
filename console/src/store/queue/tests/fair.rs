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
