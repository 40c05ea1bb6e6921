//! The store: SQLite by default, PostgreSQL by URL, one SQL text for both.
//!
//! [`on!`] runs a statement on whichever engine it is, [`transact!`] several in one transaction, [`row!`] declares what
//! a row becomes. One file per family of tables. Rules: placeholders are `$1`, times are BIGINT milliseconds, ids are
//! UUIDv7 texts, digests are BLOB or BYTEA; nothing but constants is ever SQL text. Refuses to own: who may.
//! Failure stance: a store that is newer than this program is not touched; what fails is told to the caller.

pub mod audit;
pub mod change;
pub mod codes;
pub mod denials;
pub mod dump;
pub mod events;
pub mod flows;
pub mod forget;
pub mod growth;
pub mod hardening;
pub mod identities;
pub mod jobs;
mod migrate;
pub mod notifications;
pub mod output;
pub mod queue;
pub mod replays;
pub mod runners;
pub mod runs;
mod sample;
pub mod sealed;
pub mod secrets;
pub mod sessions;
pub mod steps;
#[cfg(test)]
pub(crate) mod testing;
pub mod users;
mod within;
pub mod workspaces;

use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};

use crate::settings::Database;

pub use migrate::KNOWN_VERSION;

/// Whoever waits longer for a connection is told that the store is overloaded.
const PATIENCE: Duration = Duration::from_secs(10);
/// Readers of one SQLite file; writers take turns anyway.
const SQLITE_CONNECTIONS: u32 = 8;
/// PostgreSQL's default is 100 for all; several consoles share them.
const POSTGRES_CONNECTIONS: u32 = 16;

/// The store; cheap to clone.
#[derive(Clone, Debug)]
pub enum Store {
    /// One file of this machine.
    Sqlite(SqlitePool),
    /// A server, which several consoles may share.
    Postgres(PgPool),
}

/// What transactions of one kind exclude each other by. SQLite has one writer anyway; on PostgreSQL it is an advisory
/// lock, so that "look, then write" needs no retry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i64)]
pub enum Lock {
    /// Migrations.
    Schema = 0x5341_4c59_0001,
    /// Users, members, owners.
    Accounts = 0x5341_4c59_0002,
    /// The event log: sequence numbers become visible in their order.
    Events = 0x5341_4c59_0003,
    /// The audit chain.
    Audit = 0x5341_4c59_0004,
    /// Claims of idempotency keys.
    Replays = 0x5341_4c59_0005,
    /// Who runs next: limits are counted and a run is taken in one step.
    Queue = 0x5341_4c59_0006,
    /// Sealed values, and the keys that wrap them.
    Sealed = 0x5341_4c59_0007,
}

/// Why the store did not answer.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No file or no server.
    #[error("opening the store {what}")]
    Open {
        /// Its path, or that it is PostgreSQL.
        what: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A newer Sallyport has written it.
    #[error("the store is at version {found}, this Sallyport knows versions up to {known}")]
    Newer {
        /// Its version.
        found: i64,
        /// The newest that this program knows.
        known: i64,
    },
    /// There is a database, and no store in it.
    #[error("there is no store: the database is empty")]
    Absent,
    /// Whoever asks for a change is not signed in any more.
    #[error("whoever asked is not signed in any more")]
    SignedOut,
    /// Whoever asks for a change may not make it any more.
    #[error("whoever asked may not do this any more")]
    NotAllowed,
    /// A statement failed.
    #[error("asking the store")]
    Query(#[from] sqlx::Error),
}

impl StoreError {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Open { .. } | Self::Absent => Some(
                "look at `console.database` and `console.state_dir` of the configuration and who may use them",
            ),
            Self::Newer { .. } => Some(
                "start the Sallyport that wrote it, or a newer one; to go back, restore the backup made before the update",
            ),
            Self::SignedOut | Self::NotAllowed | Self::Query(_) => None,
        }
    }

    /// Whether a row with the same key is there already.
    pub fn is_taken(&self) -> bool {
        let Self::Query(error) = self else {
            return false;
        };
        error
            .as_database_error()
            .is_some_and(sqlx::error::DatabaseError::is_unique_violation)
    }
}

/// Runs one expression on the pool of either engine: `on!(store, pool => sqlx::query("…").execute(pool).await)`.
macro_rules! on {
    ($store:expr, $pool:ident => $body:expr) => {
        match $store {
            $crate::store::Store::Sqlite($pool) => $body,
            $crate::store::Store::Postgres($pool) => $body,
        }
    };
}
pub(crate) use on;

/// Runs a block in one transaction that excludes others of the same [`Lock`]; `?` in it rolls back.
///
/// Without a lock it excludes nobody (SQLite has one writer anyway): the block's first statement updates the row that it
/// is about. Locks are taken in the order `Queue`, rows, `Events`.
macro_rules! transact {
    ($store:expr, $tx:ident => $body:block) => {
        match $store {
            $crate::store::Store::Sqlite(pool) => {
                let mut $tx = pool.begin_with("BEGIN IMMEDIATE").await?;
                let done = $body;
                $tx.commit().await?;
                $crate::store::events::ring();
                done
            }
            $crate::store::Store::Postgres(pool) => {
                let mut $tx = pool.begin_with("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
                let done = $body;
                $tx.commit().await?;
                $crate::store::events::ring();
                done
            }
        }
    };
    ($store:expr, $lock:expr, $tx:ident => $body:block) => {
        match $store {
            $crate::store::Store::Sqlite(pool) => {
                let mut $tx = pool.begin_with("BEGIN IMMEDIATE").await?;
                let done = $body;
                $tx.commit().await?;
                $crate::store::events::ring();
                done
            }
            $crate::store::Store::Postgres(pool) => {
                // whatever the server's default is: with an older snapshot, waiting for the lock would show nothing new
                let mut $tx = pool.begin_with("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
                sqlx::query("SELECT pg_advisory_xact_lock($1)")
                    .bind($lock as i64)
                    .execute(&mut *$tx)
                    .await?;
                let done = $body;
                $tx.commit().await?;
                $crate::store::events::ring();
                done
            }
        }
    };
}
pub(crate) use change::change;
pub(crate) use transact;

/// Declares a row: a struct whose fields are columns of the same name on either engine.
macro_rules! row {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$about:meta])* pub $field:ident: $kind:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct $name { $($(#[$about])* pub $field: $kind,)* }
        $crate::store::row!(@from $name, sqlx::sqlite::SqliteRow, $($field)*);
        $crate::store::row!(@from $name, sqlx::postgres::PgRow, $($field)*);
    };
    (@from $name:ident, $row:path, $($field:ident)*) => {
        impl<'r> sqlx::FromRow<'r, $row> for $name {
            fn from_row(row: &'r $row) -> Result<Self, sqlx::Error> {
                use sqlx::Row;
                Ok(Self { $($field: row.try_get(stringify!($field))?,)* })
            }
        }
    };
}
pub(crate) use row;

impl Store {
    /// Opens it and brings it to this program's version.
    pub async fn open(database: &Database) -> Result<Self, StoreError> {
        let store = Self::untouched(database).await?;
        store.migrate(crate::clock::now()).await?;
        Ok(store)
    }

    /// Opens one that is there, of whatever version it is: for a backup. Nothing is made.
    pub async fn existing(database: &Database) -> Result<Self, StoreError> {
        if let Database::Sqlite(path) = database {
            std::fs::metadata(path).map_err(|e| open_error(&path.display().to_string(), e))?;
        }
        Self::connect(database).await
    }

    /// Opens it as it is, without a table if it is new: for a restore.
    pub async fn untouched(database: &Database) -> Result<Self, StoreError> {
        if let Database::Sqlite(path) = database {
            private_file(path).map_err(|e| open_error(&path.display().to_string(), e))?;
        }
        Self::connect(database).await
    }

    async fn connect(database: &Database) -> Result<Self, StoreError> {
        Ok(match database {
            Database::Sqlite(path) => {
                let options = SqliteConnectOptions::new()
                    .filename(path)
                    .journal_mode(SqliteJournalMode::Wal)
                    // what was answered is on the disk, also where the machine loses its power
                    .synchronous(SqliteSynchronous::Full)
                    .foreign_keys(true)
                    .busy_timeout(PATIENCE);
                let pool = SqlitePoolOptions::new()
                    .max_connections(SQLITE_CONNECTIONS)
                    .acquire_timeout(PATIENCE)
                    .connect_with(options)
                    .await
                    .map_err(|e| open_error(&path.display().to_string(), e))?;
                Self::Sqlite(pool)
            }
            Database::Postgres(url) => {
                let what = "in PostgreSQL";
                let options: PgConnectOptions = url
                    .reveal()
                    .parse()
                    .map_err(|e: sqlx::Error| open_error(what, e))?;
                let pool = PgPoolOptions::new()
                    .max_connections(POSTGRES_CONNECTIONS)
                    .acquire_timeout(PATIENCE)
                    .connect_with(options.application_name("sallyport"))
                    .await
                    .map_err(|e| open_error(what, e))?;
                Self::Postgres(pool)
            }
        })
    }

    /// Whether it answers.
    pub async fn ping(&self) -> Result<(), StoreError> {
        on!(self, pool => sqlx::query("SELECT 1").execute(pool).await.map(|_| ()))?;
        Ok(())
    }

    /// Its name for people.
    pub const fn engine(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "sqlite",
            Self::Postgres(_) => "postgres",
        }
    }

    /// Lets go of every connection.
    pub async fn close(&self) {
        on!(self, pool => pool.close().await);
    }
}

/// A text as a part of a LIKE pattern with `ESCAPE '!'`.
fn literal(text: &str) -> String {
    text.replace('!', "!!")
        .replace('%', "!%")
        .replace('_', "!_")
}

fn open_error(
    what: &str,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> StoreError {
    StoreError::Open {
        what: what.to_owned(),
        source: source.into(),
    }
}

/// SQLite would make the file readable by everybody under a usual umask; its journal takes the file's mode.
fn private_file(path: &Path) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
    }
    let mut options = std::fs::OpenOptions::new();
    options
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::testing::{Postgres, each};
    use super::*;

    #[tokio::test]
    async fn a_store_opens_twice_and_answers_on_both_engines() {
        each(async |store| {
            store.ping().await.unwrap();
            store.migrate(5).await.unwrap();
        })
        .await;
    }

    #[tokio::test]
    async fn a_newer_store_is_refused_and_left_as_it_is() {
        each(async |store| {
            let next = KNOWN_VERSION + 1;
            on!(&store, pool => sqlx::query("INSERT INTO schema_versions (version, name, applied_at) VALUES ($1, $2, $3)")
                .bind(next).bind("later").bind(1_i64).execute(pool).await.map(|_| ()))
            .unwrap();
            let error = store.migrate(5).await.unwrap_err();
            assert!(matches!(error, StoreError::Newer { found, .. } if found == next), "{error}");
            assert!(error.hint().unwrap().contains("backup"), "{error}");
        })
        .await;
    }

    #[tokio::test]
    async fn the_file_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/console.db");
        let store = Store::open(&Database::Sqlite(path.clone())).await.unwrap();
        store.ping().await.unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o077, 0);
        store.close().await;
    }

    #[tokio::test]
    async fn consoles_that_start_at_the_same_time_migrate_once() {
        let server = Postgres::shared();
        let database = server.database();
        let (one, two) = tokio::join!(Store::open(&database), Store::open(&database));
        let (one, two) = (one.unwrap(), two.unwrap());
        let versions: i64 = on!(&one, pool => sqlx::query_scalar("SELECT count(*) FROM schema_versions").fetch_one(pool).await).unwrap();
        assert_eq!(versions, KNOWN_VERSION);
        one.close().await;
        two.close().await;
    }
}
