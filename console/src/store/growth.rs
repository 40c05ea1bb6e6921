//! How large the store is and how it grows.

use super::{Store, StoreError, on, row};
use crate::clock::Millis;

row! {
    /// What runs hold.
    pub struct Held {
        /// How many there are.
        pub runs: i64,
        /// Bytes that they printed and that are kept.
        pub output_bytes: i64,
        /// Flows that are kept.
        pub flows: i64,
        /// When the oldest one was over.
        pub oldest: Option<Millis>,
    }
}

row! {
    /// What a day brought, by the ends of its runs.
    pub struct Day {
        /// Its beginning (UTC).
        pub at: Millis,
        /// Runs.
        pub runs: i64,
        /// Bytes that they printed and that are kept.
        pub output_bytes: i64,
        /// Flows that are kept.
        pub flows: i64,
    }
}

const HELD: &str = "SELECT count(*) AS runs, CAST(COALESCE(sum(output_kept), 0) AS BIGINT) AS output_bytes, \
    CAST(COALESCE(sum(flows_kept), 0) AS BIGINT) AS flows, min(ended_at) AS oldest FROM runs";

const DAYS: &str = "SELECT ended_at / 86400000 * 86400000 AS at, count(*) AS runs, \
    CAST(COALESCE(sum(output_kept), 0) AS BIGINT) AS output_bytes, CAST(COALESCE(sum(flows_kept), 0) AS BIGINT) AS flows \
    FROM runs WHERE ended_at >= $1 GROUP BY ended_at / 86400000 ORDER BY 1";

impl Store {
    /// Bytes of the whole store, what is free in it included.
    pub async fn size(&self) -> Result<i64, StoreError> {
        Ok(match self {
            Self::Sqlite(pool) => {
                let pages =
                    "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()";
                sqlx::query_scalar(pages).fetch_one(pool).await?
            }
            Self::Postgres(pool) => {
                let size = "SELECT pg_database_size(current_database())";
                sqlx::query_scalar(size).fetch_one(pool).await?
            }
        })
    }

    /// What runs hold.
    pub async fn held(&self) -> Result<Held, StoreError> {
        Ok(on!(self, pool => sqlx::query_as(HELD).fetch_one(pool).await)?)
    }

    /// What each day since a time brought; days without a run are left out.
    pub async fn days(&self, since: Millis) -> Result<Vec<Day>, StoreError> {
        Ok(on!(self, pool => sqlx::query_as(DAYS).bind(since).fetch_all(pool).await)?)
    }
}
