//! A run's timeline: what its runner did and saw, numbered by the runner from 1.

use super::output::Told;
use super::queue::{HOLD, Held, Hold};
use super::runs::topic;
use super::within::Within;
use super::{Store, StoreError, on, row, transact};
use crate::clock::Millis;

/// Kept of one run; a runner that tells more is not lacking anything that matters.
pub const MOST_STEPS: i64 = 2_000;
/// More is no word.
const LONGEST_KIND: usize = 40;
/// More is no step.
const LONGEST_DATA: usize = 16 << 10;

row! {
    /// One entry of the timeline.
    pub struct Step {
        /// Its number.
        pub seq: i64,
        /// When.
        pub at: Millis,
        /// What kind: `preparing`, `started`, `output_limit`, `ended`, ….
        pub kind: String,
        /// What, as JSON.
        pub data: String,
    }
}

impl Step {
    /// Whether it can be kept. A runner is not trusted with more than its runs.
    fn fits(&self) -> bool {
        let word = |b: u8| b.is_ascii_lowercase() || b == b'_';
        self.kind.len() <= LONGEST_KIND
            && self.kind.bytes().all(word)
            && self.data.len() <= LONGEST_DATA
            && !self.data.contains('\0')
    }
}

impl Store {
    /// Keeps steps. Those that were told are not kept twice; those that do not fit are not kept.
    pub async fn tell_steps(
        &self,
        hold: &Hold,
        steps: &[Step],
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
            let (mut next, mut kept) = (held.step_seq, held.steps_kept);
            for step in steps {
                if step.seq <= next {
                    continue;
                }
                next = step.seq;
                if kept >= MOST_STEPS || !step.fits() {
                    continue;
                }
                kept += 1;
                sqlx::query("INSERT INTO run_steps (run_id, seq, at, kind, data) VALUES ($1, $2, $3, $4, $5)")
                    .bind(&hold.run)
                    .bind(step.seq)
                    .bind(step.at)
                    .bind(&step.kind)
                    .bind(&step.data)
                    .execute(&mut *tx)
                    .await?;
            }
            if next > held.step_seq {
                sqlx::query("UPDATE queue SET step_seq = $1, steps_kept = $2 WHERE run_id = $3")
                    .bind(next)
                    .bind(kept)
                    .bind(&hold.run)
                    .execute(&mut *tx)
                    .await?;
                let told = serde_json::json!({ "next": next }).to_string();
                tx.tell(&[(&topic(&held.workspace_id, &hold.run), "steps", &told)], now).await?;
            }
            Told::Taken { next }
        }))
    }

    /// The timeline of a run after a number.
    pub async fn steps(&self, run: &str, after: i64, most: i64) -> Result<Vec<Step>, StoreError> {
        Ok(on!(self, pool => sqlx::query_as(
            "SELECT seq, at, kind, data FROM run_steps WHERE run_id = $1 AND seq > $2 ORDER BY seq LIMIT $3")
            .bind(run).bind(after).bind(most).fetch_all(pool).await)?)
    }
}
