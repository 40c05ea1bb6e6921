//! Forward migrations: numbered texts, one per engine, applied in one transaction in their order.
//!
//! A text that was released never changes; what it made is changed by the next one. There is no way back but a backup.

use sqlx::AssertSqlSafe;

use super::{Lock, Store, StoreError, transact};
use crate::clock::Millis;

/// One step.
struct Migration {
    version: i64,
    name: &'static str,
    sqlite: &'static str,
    postgres: &'static str,
}

macro_rules! migration {
    ($version:literal, $name:literal) => {
        Migration {
            version: $version,
            name: $name,
            sqlite: include_str!(concat!("migrations/sqlite/", $name, ".sql")),
            postgres: include_str!(concat!("migrations/postgres/", $name, ".sql")),
        }
    };
}

/// Every step; the numbers are consecutive from 1.
const MIGRATIONS: &[Migration] = &[
    migration!(1, "0001_events"),
    migration!(2, "0002_accounts"),
    migration!(3, "0003_audit"),
    migration!(4, "0004_replays"),
    migration!(5, "0005_runs"),
    migration!(6, "0006_secrets"),
    migration!(7, "0007_runners"),
    migration!(8, "0008_identities"),
    migration!(9, "0009_notifications"),
    migration!(10, "0010_denied_names"),
    migration!(11, "0011_codes"),
    migration!(12, "0012_identity_turns"),
    migration!(13, "0013_turns"),
    migration!(14, "0014_runner_keys"),
    migration!(15, "0015_fair_codes"),
    migration!(16, "0016_bounded_retention"),
    migration!(17, "0017_lanes"),
    migration!(18, "0018_flows_of_jobs"),
];

/// The newest version that this program knows.
pub const KNOWN_VERSION: i64 = match MIGRATIONS.last() {
    Some(step) => step.version,
    None => 0,
};

const VERSIONS: &str = "CREATE TABLE IF NOT EXISTS schema_versions \
    (version BIGINT PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL)";

/// The statements of every step up to a version, as SQLite has them.
pub(super) fn texts(version: i64) -> impl Iterator<Item = &'static str> {
    let steps = MIGRATIONS.iter();
    steps
        .filter(move |step| step.version <= version)
        .map(|step| step.sqlite)
}

/// Migrating, in a transaction that excludes others of [`Lock::Schema`].
pub(super) trait Migrate {
    /// The version that is found; 0 of a store without a table.
    async fn found_version(&mut self) -> Result<i64, sqlx::Error>;

    /// Applies the steps after one version, up to another.
    async fn migrate(&mut self, after: i64, upto: i64, now: Millis) -> Result<(), sqlx::Error>;
}

macro_rules! migrate {
    ($engine:ty, $text:ident) => {
        impl Migrate for sqlx::Transaction<'_, $engine> {
            async fn found_version(&mut self) -> Result<i64, sqlx::Error> {
                sqlx::query(VERSIONS).execute(&mut **self).await?;
                let found: Option<i64> = sqlx::query_scalar("SELECT max(version) FROM schema_versions")
                    .fetch_one(&mut **self)
                    .await?;
                Ok(found.unwrap_or(0))
            }

            async fn migrate(&mut self, after: i64, upto: i64, now: Millis) -> Result<(), sqlx::Error> {
                let missing = (after + 1)..=upto;
                for step in MIGRATIONS.iter().filter(|step| missing.contains(&step.version)) {
                    for statement in step.$text.split(";\n").map(str::trim).filter(|s| !s.is_empty()) {
                        sqlx::query(AssertSqlSafe(statement)).execute(&mut **self).await?;
                    }
                    sqlx::query("INSERT INTO schema_versions (version, name, applied_at) VALUES ($1, $2, $3)")
                        .bind(step.version)
                        .bind(step.name)
                        .bind(now)
                        .execute(&mut **self)
                        .await?;
                    tracing::info!(version = step.version, name = step.name, "the store was migrated");
                }
                Ok(())
            }
        }
    };
}

migrate!(sqlx::Sqlite, sqlite);
migrate!(sqlx::Postgres, postgres);

impl Store {
    /// Applies what is missing. Consoles that start at the same time wait for one of them.
    pub(super) async fn migrate(&self, now: Millis) -> Result<(), StoreError> {
        transact!(self, Lock::Schema, tx => {
            let found = tx.found_version().await?;
            if found > KNOWN_VERSION {
                return Err(StoreError::Newer { found, known: KNOWN_VERSION });
            }
            tx.migrate(found, KNOWN_VERSION, now).await?;
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_numbered_without_gaps() {
        for (place, step) in (1..).zip(MIGRATIONS) {
            assert_eq!(step.version, place, "{}", step.name);
            assert!(
                step.name.starts_with(&format!("{place:04}_")),
                "{}",
                step.name
            );
        }
    }

    #[test]
    fn both_engines_get_the_same_tables() {
        let tables = |text: &str| -> Vec<String> {
            text.lines()
                // triggers are each engine's own
                .filter(|l| l.starts_with("CREATE TABLE") || l.starts_with("CREATE INDEX"))
                .map(|l| l.trim_end_matches(" STRICT").to_owned())
                .collect()
        };
        for step in MIGRATIONS {
            assert_eq!(tables(step.sqlite), tables(step.postgres), "{}", step.name);
        }
    }
}
