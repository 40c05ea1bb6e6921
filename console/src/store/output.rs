//! What runs print: bytes as they came, numbered from the first one.
//!
//! A runner tells a piece with the number of its first byte. What was told already is not kept twice, what would leave a
//! gap is not taken: a runner that was cut off asks where to go on and goes on there. Past [`MOST_KEPT`] bytes are
//! counted and not kept, and a reader can see that.

use super::queue::{HOLD, Held, Hold};
use super::runs::topic;
use super::within::Within;
use super::{Store, StoreError, on, row, transact};
use crate::clock::Millis;

/// Kept of one run.
pub const MOST_KEPT: i64 = 64 << 20;
/// What a row costs besides its bytes: a run that prints single bytes must not fill the disk with rows.
const ROW: i64 = 64;

/// Where it was printed to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Printed {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Printed {
    /// As the store and the API write it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// Some bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece<'a> {
    /// Where they were printed to.
    pub to: Printed,
    /// They.
    pub data: &'a [u8],
    /// When.
    pub at: Millis,
}

/// What became of telling something with a cursor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// It is kept, or was before.
    Taken {
        /// Where to go on.
        next: i64,
    },
    /// Something before it is missing.
    Gap {
        /// Where to go on.
        next: i64,
    },
    /// The run is not this runner's any more.
    Stale,
}

row! {
    /// A piece that is kept.
    pub struct Chunk {
        /// The number of its first byte.
        pub starts: i64,
        /// `stdout` or `stderr`.
        pub stream: String,
        /// Its bytes.
        pub data: Vec<u8>,
        /// When it was printed.
        pub at: Millis,
    }
}

fn length(data: &[u8]) -> i64 {
    i64::try_from(data.len()).unwrap_or(i64::MAX)
}

/// A row to be.
struct Row<'a> {
    starts: i64,
    piece: Piece<'a>,
}

/// What is new of some pieces, and the numbers after it.
struct Fresh<'a> {
    rows: Vec<Row<'a>>,
    next: i64,
    kept: i64,
}

fn fresh<'a>(starts: i64, pieces: &[Piece<'a>], held: &Held) -> Fresh<'a> {
    let (mut at, mut next, mut kept) = (starts, held.output_next, held.output_kept);
    let mut rows = Vec::new();
    for piece in pieces {
        let end = at.saturating_add(length(piece.data));
        if end > next {
            let known = usize::try_from(next - at).unwrap_or(0);
            let count = held.output_rows + i64::try_from(rows.len()).unwrap_or(i64::MAX);
            let room = usize::try_from(MOST_KEPT - kept - (count + 1) * ROW).unwrap_or(0);
            let data = piece.data.get(known..).unwrap_or_default();
            let data = data.get(..room.min(data.len())).unwrap_or_default();
            if !data.is_empty() {
                kept += length(data);
                rows.push(Row {
                    starts: next,
                    piece: Piece { data, ..*piece },
                });
            }
            next = end;
        }
        at = end;
    }
    Fresh { rows, next, kept }
}

impl Store {
    /// Keeps what a run printed from byte `starts` on.
    pub async fn tell_output(
        &self,
        hold: &Hold,
        starts: i64,
        pieces: &[Piece<'_>],
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
            if starts > held.output_next || starts < 0 {
                return Ok(Told::Gap { next: held.output_next });
            }
            let Fresh { rows, next, kept } = fresh(starts, pieces, &held);
            let count = held.output_rows + i64::try_from(rows.len()).unwrap_or(i64::MAX);
            if next == held.output_next {
                return Ok(Told::Taken { next });
            }
            for row in rows {
                sqlx::query("INSERT INTO run_output (run_id, starts, stream, data, at) VALUES ($1, $2, $3, $4, $5)")
                    .bind(&hold.run)
                    .bind(row.starts)
                    .bind(row.piece.to.word())
                    .bind(row.piece.data)
                    .bind(row.piece.at)
                    .execute(&mut *tx)
                    .await?;
            }
            sqlx::query("UPDATE queue SET output_next = $1, output_kept = $2, output_rows = $3 WHERE run_id = $4")
                .bind(next)
                .bind(kept)
                .bind(count)
                .bind(&hold.run)
                .execute(&mut *tx)
                .await?;
            let told = serde_json::json!({ "next": next }).to_string();
            tx.tell(&[(&topic(&held.workspace_id, &hold.run), "output", &told)], now).await?;
            Told::Taken { next }
        }))
    }

    /// What a run printed from byte `from` on: pieces of together at least `bytes`, if there are so many. The first piece
    /// may begin before `from`.
    pub async fn output(&self, run: &str, from: i64, bytes: i64) -> Result<Vec<Chunk>, StoreError> {
        // the piece that holds `from` is the last one that starts at or before it
        let first: Option<i64> = on!(self, pool => sqlx::query_scalar(
            "SELECT max(starts) FROM run_output WHERE run_id = $1 AND starts <= $2")
            .bind(run).bind(from).fetch_one(pool).await)?;
        Ok(on!(self, pool => sqlx::query_as(
            "SELECT starts, stream, data, at FROM run_output \
             WHERE run_id = $1 AND starts >= $2 AND starts < $3 ORDER BY starts LIMIT 4096")
            .bind(run).bind(first.unwrap_or(from)).bind(from.saturating_add(bytes)).fetch_all(pool).await)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_past_the_limit_is_counted_and_not_kept_also_in_single_bytes() {
        let mut held = Held {
            workspace_id: String::new(),
            state: String::new(),
            cancel_at: None,
            output_next: 5,
            output_kept: MOST_KEPT - 10 - ROW,
            output_rows: 0,
            flow_seq: 0,
            flows_kept: 0,
            step_seq: 0,
            steps_kept: 0,
        };
        let piece = Piece {
            to: Printed::Stdout,
            data: &[b'x'; 40],
            at: 0,
        };
        let some = fresh(5, &[piece, piece], &held);
        assert_eq!(
            (some.rows.len(), some.next, some.kept),
            (1, 85, MOST_KEPT - ROW)
        );
        held.output_kept = 0;
        held.output_rows = MOST_KEPT / ROW;
        let none = fresh(0, &[piece], &held);
        assert_eq!((none.rows.len(), none.next), (0, 40));
    }
}
