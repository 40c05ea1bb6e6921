//! How records become rows: each once, a close into the row of its flow, sums beside them, all in one transaction with
//! the cursor.

use std::collections::BTreeMap;

use gateway::record::Line;

use super::{Flow, FlowRate, MOST_KEPT, RATE, number};
use crate::clock::Millis;
use crate::store::output::Told;
use crate::store::queue::{HOLD, Held, Hold};
use crate::store::runs::topic;
use crate::store::within::Within;
use crate::store::{Store, StoreError, transact};

/// What some records add up to.
#[derive(Default)]
struct Sums {
    kept: i64,
    dropped: i64,
    denied: i64,
    up: i64,
    down: i64,
    /// By the beginning of the stretch, so that transactions lock the rows in one order.
    rates: BTreeMap<Millis, FlowRate>,
}

impl Sums {
    fn add(&mut self, flow: &Flow) {
        let starts = flow.at - flow.at.rem_euclid(RATE);
        let rate = self.rates.entry(starts).or_insert(FlowRate {
            starts,
            permitted: 0,
            denied: 0,
            failed: 0,
            up: 0,
            down: 0,
        });
        match flow.outcome.as_str() {
            "denied" => {
                rate.denied += flow.times;
                self.denied += flow.times;
            }
            "failed" => rate.failed += flow.times,
            _ if flow.is_open => rate.permitted += flow.times,
            _ => {}
        }
        for (sum, more) in [
            (&mut rate.up, flow.up),
            (&mut rate.down, flow.down),
            (&mut self.up, flow.up),
            (&mut self.down, flow.down),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

const CLOSED: &str = "UPDATE flows SET is_open = $1, http = $2, up = $3, down = $4, duration_ms = $5, ending = $6 \
    WHERE run_id = $7 AND flow = $8 AND is_open = $9";

const KEEP: &str = "INSERT INTO flows (run_id, workspace_id, seq, at, outcome, flow, is_open, door, protocol, name, address, \
    port, upstream, class, http, up, down, duration_ms, ending, reason, policy, layer, file, line, commit_id, times, job_id) VALUES \
    ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, \
    (SELECT job_id FROM runs WHERE id = $1))";

const COUNT: &str = "UPDATE queue SET flow_seq = $1, flows_kept = flows_kept + $2, flows_dropped = flows_dropped + $3, \
    denied = denied + $4, up = up + $5, down = down + $6 WHERE run_id = $7";

const ADD_RATE: &str = "INSERT INTO flow_rates (workspace_id, starts, permitted, denied, failed, up, down) \
    VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (workspace_id, starts) DO UPDATE SET \
    permitted = flow_rates.permitted + excluded.permitted, denied = flow_rates.denied + excluded.denied, \
    failed = flow_rates.failed + excluded.failed, up = flow_rates.up + excluded.up, down = flow_rates.down + excluded.down";

/// Writes flows, in a transaction that holds the run's row.
trait Keep {
    /// Ends an open flow; `false`: none is open.
    async fn close(&mut self, run: &str, flow: &Flow) -> Result<bool, sqlx::Error>;
    /// Inserts a row.
    async fn keep(&mut self, run: &str, workspace: &str, flow: &Flow) -> Result<(), sqlx::Error>;
    /// Adds sums.
    async fn add(
        &mut self,
        run: &str,
        workspace: &str,
        seq: i64,
        sums: &Sums,
    ) -> Result<(), sqlx::Error>;
}

macro_rules! keep {
    ($engine:ty) => {
        impl Keep for sqlx::Transaction<'_, $engine> {
            async fn close(&mut self, run: &str, flow: &Flow) -> Result<bool, sqlx::Error> {
                let closed = sqlx::query(CLOSED)
                    .bind(false)
                    .bind(&flow.http)
                    .bind(flow.up)
                    .bind(flow.down)
                    .bind(flow.duration_ms)
                    .bind(&flow.ending)
                    .bind(run)
                    .bind(flow.flow)
                    .bind(true)
                    .execute(&mut **self)
                    .await?;
                Ok(closed.rows_affected() > 0)
            }

            async fn keep(
                &mut self,
                run: &str,
                workspace: &str,
                flow: &Flow,
            ) -> Result<(), sqlx::Error> {
                let statement = sqlx::query(KEEP)
                    .bind(run)
                    .bind(workspace)
                    .bind(flow.seq)
                    .bind(flow.at)
                    .bind(&flow.outcome)
                    .bind(flow.flow)
                    .bind(flow.is_open)
                    .bind(&flow.door)
                    .bind(&flow.protocol)
                    .bind(&flow.name)
                    .bind(&flow.address)
                    .bind(flow.port)
                    .bind(&flow.upstream)
                    .bind(&flow.class)
                    .bind(&flow.http)
                    .bind(flow.up)
                    .bind(flow.down)
                    .bind(flow.duration_ms)
                    .bind(&flow.ending)
                    .bind(&flow.reason)
                    .bind(&flow.policy)
                    .bind(&flow.layer)
                    .bind(&flow.file)
                    .bind(flow.line)
                    .bind(&flow.commit_id)
                    .bind(flow.times);
                statement.execute(&mut **self).await.map(|_| ())
            }

            async fn add(
                &mut self,
                run: &str,
                workspace: &str,
                seq: i64,
                sums: &Sums,
            ) -> Result<(), sqlx::Error> {
                sqlx::query(COUNT)
                    .bind(seq)
                    .bind(sums.kept)
                    .bind(sums.dropped)
                    .bind(sums.denied)
                    .bind(sums.up)
                    .bind(sums.down)
                    .bind(run)
                    .execute(&mut **self)
                    .await?;
                for rate in sums.rates.values() {
                    sqlx::query(ADD_RATE)
                        .bind(workspace)
                        .bind(rate.starts)
                        .bind(rate.permitted)
                        .bind(rate.denied)
                        .bind(rate.failed)
                        .bind(rate.up)
                        .bind(rate.down)
                        .execute(&mut **self)
                        .await?;
                }
                Ok(())
            }
        }
    };
}

keep!(sqlx::Sqlite);
keep!(sqlx::Postgres);

impl Store {
    /// Keeps what the gateway recorded about a run. The lines are of this run's network; their numbers have gaps where
    /// others' are.
    pub async fn tell_flows(
        &self,
        hold: &Hold,
        lines: &[Line],
        now: Millis,
    ) -> Result<Told, StoreError> {
        Ok(transact!(self, tx => {
            let held: Option<Held> = sqlx::query_as(HOLD)
                .bind(&hold.run)
                .bind(&hold.runner)
                .bind(hold.fence)
                .fetch_optional(&mut *tx)
                .await?;
            let Some(held) = held else { return Ok(Told::Stale) };
            let mut next = held.flow_seq;
            let mut sums = Sums::default();
            for line in lines {
                let seq = number(line.seq);
                if seq <= next {
                    continue;
                }
                next = seq;
                let Some(flow) = Flow::read(line) else { continue };
                sums.add(&flow);
                if flow.ends() && tx.close(&hold.run, &flow).await? {
                    continue;
                }
                if held.flows_kept + sums.kept >= MOST_KEPT {
                    sums.dropped += flow.times;
                    continue;
                }
                tx.keep(&hold.run, &held.workspace_id, &flow).await?;
                sums.kept += 1;
            }
            if next > held.flow_seq {
                tx.add(&hold.run, &held.workspace_id, next, &sums).await?;
                let told = serde_json::json!({ "next": next, "denied": sums.denied }).to_string();
                tx.tell(&[(&topic(&held.workspace_id, &hold.run), "flows", &told)], now).await?;
            }
            Told::Taken { next }
        }))
    }
}
