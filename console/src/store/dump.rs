//! The whole store as rows, and back: the same for either engine, so that a backup of one may be restored into the other.
//!
//! Tables and their order are those of the migrations, so a table that a later one adds is in the next backup. What is
//! over soon anyway is left out: a session that was ended must not come back with an older store. Rows are read in one
//! snapshot while consoles go on serving; tables and rows are made in one transaction, which also ends what was under way:
//! a run of long ago does not begin, nor is its news told.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::TryStreamExt;
use serde_json::{Map, Value, json};
use sqlx::{AssertSqlSafe, Column, Row, TypeInfo};

use super::migrate::{self, KNOWN_VERSION, Migrate};
use super::{Lock, Store, StoreError, identities, transact};
use crate::clock::Millis;

/// Tables of what does not outlive a restore, or follows from the others.
const PASSING: [&str; 6] = [
    "sessions",
    "sign_ins",
    "owner_links",
    "attempts",
    "replays",
    "lanes",
];

/// A row: its table, and its columns that are not NULL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dumped {
    /// The table.
    pub table: String,
    /// Text, number, boolean, or `{"base64": …}`.
    pub row: Map<String, Value>,
}

/// What a store consists of, in this order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// Its version: once, first.
    Version(i64),
    /// A row.
    Row(Dumped),
}

/// Why rows are not written into a store.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A newer Sallyport made them.
    #[error("the backup is of version {found}, this Sallyport knows versions up to {known}")]
    Newer {
        /// The backup's.
        found: i64,
        /// The newest that this program knows.
        known: i64,
    },
    /// It is a store already.
    #[error("the store to restore into is not empty: it is at version {0}")]
    NotEmpty(i64),
    /// A row is none of this store's.
    #[error("a row of the backup fits no table of its version: {0}")]
    Row(String),
}

impl LoadError {
    /// What to do about it.
    pub const fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Newer { .. } => Some(
                "restore it with the Sallyport that made it, or a newer one; nothing was changed",
            ),
            Self::NotEmpty(_) => Some(
                "stop the console, and name another database or move this one away; nothing was changed",
            ),
            Self::Row(_) => None,
        }
    }
}

/// Tables up to a version, each after those that it refers to.
fn tables(version: i64) -> Vec<&'static str> {
    migrate::texts(version)
        .flat_map(str::lines)
        .filter_map(|line| line.strip_prefix("CREATE TABLE ")?.split(' ').next())
        .filter(|table| !PASSING.contains(table))
        .collect()
}

fn value<'r, R>(
    row: &'r R,
    column: &<R::Database as sqlx::Database>::Column,
) -> Result<Value, sqlx::Error>
where
    R: Row,
    usize: sqlx::ColumnIndex<R>,
    Option<String>: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    Option<bool>: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    Option<i64>: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    Option<Vec<u8>>: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
{
    let place = column.ordinal();
    Ok(match column.type_info().name() {
        "TEXT" => json!(row.try_get::<Option<String>, _>(place)?),
        "BOOLEAN" | "BOOL" => json!(row.try_get::<Option<bool>, _>(place)?),
        "BLOB" | "BYTEA" => {
            let bytes = row.try_get::<Option<Vec<u8>>, _>(place)?;
            bytes.map_or(
                Value::Null,
                |bytes| json!({ "base64": STANDARD.encode(bytes) }),
            )
        }
        _ => json!(row.try_get::<Option<i64>, _>(place)?),
    })
}

/// Whether a row does not outlive a restore: shown an older refresh token, a provider that gives a new one each time takes
/// back all that it gave.
fn is_passing(table: &str, row: &Map<String, Value>) -> bool {
    table == "sealed" && row.get("kind").and_then(Value::as_str) == Some(identities::KIND)
}

/// Every row in one snapshot. Asked for a version, an engine has no answer without the table, so `$there` counts it.
macro_rules! dump {
    ($pool:expr, $begin:literal, $there:literal, $each:expr) => {{
        let mut tx = $pool.begin_with($begin).await?;
        let there: i64 = sqlx::query_scalar($there).fetch_one(&mut *tx).await?;
        if there == 0 {
            return Err(StoreError::Absent.into());
        }
        let version: Option<i64> = sqlx::query_scalar("SELECT max(version) FROM schema_versions")
            .fetch_one(&mut *tx)
            .await?;
        let version = version.ok_or(StoreError::Absent)?;
        if version > KNOWN_VERSION {
            let (found, known) = (version, KNOWN_VERSION);
            return Err(StoreError::Newer { found, known }.into());
        }
        $each(Part::Version(version))?;
        for table in tables(version) {
            let statement = format!("SELECT * FROM {table}");
            let mut rows = sqlx::query(AssertSqlSafe(statement)).fetch(&mut *tx);
            while let Some(found) = rows.try_next().await? {
                let mut row = Map::new();
                for column in found.columns() {
                    let value = value(&found, column)?;
                    if !value.is_null() {
                        row.insert(column.name().to_owned(), value);
                    }
                }
                if !is_passing(table, &row) {
                    let table = table.to_owned();
                    $each(Part::Row(Dumped { table, row }))?;
                }
            }
        }
        tx.commit().await?;
    }};
}

/// A word that may stand in a statement.
fn is_word(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    !text.is_empty() && text.bytes().all(fits)
}

/// Inserts a row.
macro_rules! insert {
    ($tx:ident, $known:expr, $row:expr) => {{
        let Dumped { table, row } = $row;
        let wrong = || LoadError::Row(table.chars().take(40).collect());
        if !$known.contains(&table.as_str()) || !row.keys().all(|key| is_word(key)) {
            return Err(wrong().into());
        }
        let columns: Vec<&str> = row.keys().map(String::as_str).collect();
        let places: Vec<String> = (1..=columns.len()).map(|n| format!("${n}")).collect();
        let (columns, places) = (columns.join(", "), places.join(", "));
        let statement = format!("INSERT INTO {table} ({columns}) VALUES ({places})");
        let mut query = sqlx::query(AssertSqlSafe(statement));
        for value in row.values() {
            query = match value {
                Value::String(text) => query.bind(text.clone()),
                Value::Bool(flag) => query.bind(*flag),
                Value::Number(number) => query.bind(number.as_i64().ok_or_else(wrong)?),
                Value::Object(bytes) => {
                    let text = bytes.get("base64").and_then(Value::as_str);
                    let bytes = text.and_then(|text| STANDARD.decode(text).ok());
                    query.bind(bytes.ok_or_else(wrong)?)
                }
                Value::Null | Value::Array(_) => return Err(wrong().into()),
            };
        }
        query.execute(&mut *$tx).await?;
    }};
}

/// What was under way at the time of the backup is over; `$1` is the present.
const OVER: [&str; 2] = [
    "UPDATE runs SET state = 'lost', reason = 'restored', ended_at = $1, \
     output_bytes = q.output_next, output_kept = q.output_kept, flows_kept = q.flows_kept, flows_dropped = q.flows_dropped, \
     denied = q.denied, up = q.up, down = q.down FROM queue q WHERE q.run_id = runs.id",
    "UPDATE deliveries SET state = 'failed', outcome = 'restored', next_at = $1 WHERE state = 'waiting'",
];
/// What kept it under way; events that were not read yet are no news either.
const GONE: [&str; 2] = [
    "DELETE FROM queue",
    "DELETE FROM notified WHERE id = 'events'",
];

/// Columns that PostgreSQL numbers by itself: numbers go on after the ones that were restored.
const NUMBERED: &str = "SELECT table_name || '.' || column_name FROM information_schema.columns \
     WHERE table_schema = current_schema() AND column_default LIKE 'nextval%'";

impl Store {
    /// Reads every row, as they all were at one moment, of whatever version they are.
    pub async fn dump<E: From<StoreError> + From<sqlx::Error>>(
        &self,
        mut each: impl FnMut(Part) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Self::Sqlite(pool) => dump!(
                pool,
                "BEGIN",
                "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'schema_versions'",
                each
            ),
            Self::Postgres(pool) => {
                dump!(
                    pool,
                    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
                    "SELECT count(*) FROM information_schema.tables \
                     WHERE table_schema = current_schema() AND table_name = 'schema_versions'",
                    each
                );
            }
        }
        Ok(())
    }

    /// Makes the tables of a version, writes rows into them and brings them to this program's: all of it or nothing.
    pub async fn load<E>(
        &self,
        version: i64,
        rows: &mut impl Iterator<Item = Result<Dumped, E>>,
        now: Millis,
    ) -> Result<(), E>
    where
        E: From<LoadError> + From<StoreError> + From<sqlx::Error>,
    {
        if !(1..=KNOWN_VERSION).contains(&version) {
            let (found, known) = (version, KNOWN_VERSION);
            return Err(LoadError::Newer { found, known }.into());
        }
        let (known, postgres) = (tables(version), matches!(self, Self::Postgres(_)));
        transact!(self, Lock::Schema, tx => {
            let found = tx.found_version().await?;
            if found > 0 {
                return Err(LoadError::NotEmpty(found).into());
            }
            tx.migrate(0, version, now).await?;
            for row in rows {
                insert!(tx, known, row?);
            }
            if postgres {
                let numbered: Vec<String> = sqlx::query_scalar(NUMBERED).fetch_all(&mut *tx).await?;
                for (table, column) in numbered.iter().filter_map(|text| text.split_once('.')) {
                    let statement = format!(
                        "SELECT setval(pg_get_serial_sequence('{table}', '{column}'), \
                         (SELECT COALESCE(max({column}), 0) + 1 FROM {table}), false)"
                    );
                    sqlx::query(AssertSqlSafe(statement)).execute(&mut *tx).await?;
                }
            }
            tx.migrate(version, KNOWN_VERSION, now).await?;
            for over in OVER {
                sqlx::query(over).bind(now).execute(&mut *tx).await?;
            }
            for gone in GONE {
                sqlx::query(gone).execute(&mut *tx).await?;
            }
        });
        Ok(())
    }

    /// Does something while there is no store in the database, and none is made.
    pub async fn while_absent(&self, act: impl FnOnce()) -> Result<(), StoreError> {
        transact!(self, Lock::Schema, tx => {
            if tx.found_version().await? == 0 {
                act();
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::on;
    use super::super::queue::{Cause, Claimer, NewRun, QueueRules, Submitted};
    use super::super::testing::{Postgres, each, workspace};
    use super::*;
    use crate::backup::BackupError;
    use crate::jobs::spec::JobSpec;
    use crate::settings::Database;

    async fn version(store: &Store) -> Result<i64, StoreError> {
        let mut version = 0;
        let read = store.dump(|part| -> Result<(), StoreError> {
            if let Part::Version(found) = part {
                version = found;
            }
            Ok(())
        });
        read.await.map(|()| version)
    }

    async fn older(store: &Store, version: i64) -> Result<(), StoreError> {
        transact!(store, Lock::Schema, tx => {
            tx.found_version().await?;
            tx.migrate(0, version, 1).await?;
        });
        Ok(())
    }

    async fn absent(store: &Store) -> bool {
        let mut absent = false;
        store.while_absent(|| absent = true).await.unwrap();
        absent
    }

    #[tokio::test]
    async fn a_store_is_read_as_it_is_and_none_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing/console.db");
        let refused = Store::existing(&Database::Sqlite(missing.clone())).await;
        assert!(
            matches!(refused, Err(StoreError::Open { .. })),
            "{refused:?}"
        );
        assert!(!missing.exists() && !folder.path().join("missing").exists());
        for database in [
            Database::Sqlite(folder.path().join("old.db")),
            Postgres::shared().database(),
        ] {
            let store = Store::untouched(&database).await.unwrap();
            let refused = version(&store).await;
            assert!(matches!(refused, Err(StoreError::Absent)), "{refused:?}");
            assert!(absent(&store).await && absent(&store).await);
            older(&store, 5).await.unwrap();
            assert!(!absent(&store).await);
            store.close().await;
            let store = Store::existing(&database).await.unwrap();
            for _ in 0..2 {
                assert_eq!(version(&store).await.unwrap(), 5);
            }
            let newer =
                "INSERT INTO schema_versions (version, name, applied_at) VALUES (900, 'x', 1)";
            on!(&store, pool => sqlx::query(newer).execute(pool).await.map(|_| ())).unwrap();
            let refused = version(&store).await;
            let newer = matches!(refused, Err(StoreError::Newer { found: 900, .. }));
            assert!(newer, "{refused:?}");
            store.close().await;
        }
    }

    async fn queued(store: &Store, workspace: &str) -> String {
        let new = NewRun {
            workspace,
            job: None,
            name: "j",
            spec: &JobSpec::default(),
            cause: Cause::Person,
            by: None,
            slot: None,
            attempt: 1,
            retry_of: None,
            input: None,
            ready_at: 1,
        };
        match store.submit_run(&new, 1).await.unwrap() {
            Submitted::Queued(run) => run,
            other => panic!("{other:?}"),
        }
    }

    const CLAIMER: Claimer<'static> = Claimer {
        runner: "r",
        workspace: None,
        most: 9,
    };

    #[tokio::test]
    async fn what_was_under_way_is_over_after_a_restore() {
        each(async |store| {
            store.notified().await.unwrap();
            let place = workspace(&store).await;
            let runs = [queued(&store, &place).await, queued(&store, &place).await];
            let rules = QueueRules::default();
            assert!(store.claim_run(CLAIMER, &rules, 2).await.unwrap().is_some());
            let receiver = "INSERT INTO notifications (id, workspace_id, name, kind, address, topics, created_at) \
                 VALUES ('n', $1, 'N', 'webhook', 'a', '[]', 1)";
            on!(&store, pool => sqlx::query(receiver).bind(&place).execute(pool).await.map(|_| ())).unwrap();
            store.deliver("n", "run", "{}", 3).await.unwrap();
            store.begin_ring("k", 1).await.unwrap();
            for kind in [identities::KIND, crate::store::secrets::KIND] {
                let sealed = "INSERT INTO sealed (id, kind, workspace_id, version, key_id, wrapped, body) \
                     VALUES ($1, $1, '', 1, 'k', $2, $2)";
                on!(&store, pool => sqlx::query(sealed).bind(kind).bind(&b"x"[..]).execute(pool).await.map(|_| ())).unwrap();
            }
            let mut rows = Vec::new();
            let read = store.dump(|part| -> Result<(), BackupError> {
                if let Part::Row(row) = part {
                    rows.push(row);
                }
                Ok(())
            });
            read.await.unwrap();
            // what asks a provider about somebody is left out
            let sealed: Vec<&Dumped> = rows.iter().filter(|row| row.table == "sealed").collect();
            assert!(sealed.len() == 1 && sealed[0].row["id"] == crate::store::secrets::KIND);
            let folder = tempfile::tempdir().unwrap();
            for database in [
                Database::Sqlite(folder.path().join("new.db")),
                Postgres::shared().database(),
            ] {
                let target = Store::untouched(&database).await.unwrap();
                let mut rows = rows.iter().cloned().map(Ok::<_, BackupError>);
                target.load(KNOWN_VERSION, &mut rows, 9).await.unwrap();
                for run in &runs {
                    let run = target.run(&place, run).await.unwrap().unwrap();
                    assert_eq!((&*run.state, run.ended_at), ("lost", Some(9)));
                    assert_eq!(run.reason.as_deref(), Some("restored"));
                }
                assert_eq!(target.give_up(i64::MAX).await.unwrap(), 0);
                let claimed = target.claim_run(CLAIMER, &rules, 9_999_999).await.unwrap();
                assert!(claimed.is_none(), "{claimed:?}");
                assert_eq!(target.due_notifications(i64::MAX).await.unwrap(), []);
                let outcome = "SELECT outcome FROM deliveries WHERE state = 'failed'";
                let outcome: String = on!(&target, pool => sqlx::query_scalar(outcome).fetch_one(pool).await).unwrap();
                assert_eq!(outcome, "restored");
                let events = target.last_event().await.unwrap();
                assert_eq!(target.notified().await.unwrap(), events);
                assert!(events > 0);
                target.close().await;
            }
        })
        .await;
    }
}
