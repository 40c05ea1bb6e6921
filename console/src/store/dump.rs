//! The whole store as rows, and back: the same for either engine, so that a backup of one may be restored into the other.
//!
//! Tables and their order are those of the migrations, so a table that a later one adds is in the next backup. What is
//! over soon anyway is left out: a session that was ended must not come back with an older store. Rows are read in one
//! snapshot while consoles go on serving; tables and rows are made in one transaction.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::TryStreamExt;
use serde_json::{Map, Value, json};
use sqlx::{AssertSqlSafe, Column, Row, TypeInfo};

use super::migrate::{self, KNOWN_VERSION, Migrate};
use super::{Lock, Store, StoreError, transact};
use crate::clock::Millis;

/// Tables of what does not outlive a restore.
const PASSING: [&str; 5] = ["sessions", "sign_ins", "owner_links", "attempts", "replays"];

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

/// Every row in one snapshot.
macro_rules! dump {
    ($pool:expr, $begin:literal, $each:expr) => {{
        let mut tx = $pool.begin_with($begin).await?;
        let version: i64 = sqlx::query_scalar("SELECT max(version) FROM schema_versions")
            .fetch_one(&mut *tx)
            .await?;
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
                let table = table.to_owned();
                $each(Part::Row(Dumped { table, row }))?;
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

/// Columns that PostgreSQL numbers by itself: numbers go on after the ones that were restored.
const NUMBERED: &str = "SELECT table_name || '.' || column_name FROM information_schema.columns \
     WHERE table_schema = current_schema() AND column_default LIKE 'nextval%'";

impl Store {
    /// Reads every row, as they all were at one moment.
    pub async fn dump<E: From<sqlx::Error>>(
        &self,
        mut each: impl FnMut(Part) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Self::Sqlite(pool) => dump!(pool, "BEGIN", each),
            Self::Postgres(pool) => {
                dump!(
                    pool,
                    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
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
        });
        Ok(())
    }
}
