//! Codes by which a person lets a program in: what the program asks for, until somebody who is signed in has said yes or
//! no, or the time is over.
//!
//! The store has the digest of the token to be from the start and makes it a token in the transaction of whoever says
//! yes, under their rights and with their audit entry. A code is settled once.
//!
//! Anybody may ask, so asking takes no lock that others need and leaves no audit entry, and nobody fills every place: of
//! one address only so many wait, and where all places are taken the greediest network's oldest code gives way.

use super::change::about;
use super::sessions::NewToken;
use super::{Lock, Store, StoreError, change, on, row, transact};
use crate::clock::{Millis, id};

row! {
    /// A code.
    pub struct Code {
        /// Its id.
        pub id: String,
        /// What a person types.
        pub code: String,
        /// The digest of the token to be.
        pub digest: Vec<u8>,
        /// What the program calls itself.
        pub name: String,
        /// `read` or `write`: the most that it asks for.
        pub scope: String,
        /// For how many days it asks, if it says.
        pub days: Option<i64>,
        /// From which address it was asked.
        pub address: String,
        /// What the program is.
        pub agent: String,
        /// `waiting`, `approved` or `refused`.
        pub state: String,
        /// When it was asked.
        pub created_at: Millis,
        /// When it is over.
        pub expires_at: Millis,
    }
}

/// A code to be.
#[derive(Clone, Copy, Debug)]
pub struct NewCode<'a> {
    /// What a person types.
    pub code: &'a str,
    /// The digest of the token to be.
    pub digest: &'a [u8],
    /// What the program calls itself.
    pub name: &'a str,
    /// `read` or `write`.
    pub scope: &'a str,
    /// For how many days.
    pub days: Option<i64>,
    /// From which address.
    pub address: &'a str,
    /// In which network that is: whoever has one address of it may have many.
    pub network: &'a str,
    /// What the program is.
    pub agent: &'a str,
    /// When it is over.
    pub ends: Millis,
}

/// How many may wait at once.
#[derive(Clone, Copy, Debug)]
pub struct Most {
    /// Of one address; further ones are refused.
    pub of_address: i64,
    /// Of everybody; for further ones the oldest of whoever has most gives way.
    pub of_all: i64,
}

/// The network with the most codes that wait, the address of it with the most, and of that the oldest one gives way.
const GREEDIEST: [&str; 3] = [
    "SELECT network FROM codes WHERE state = 'waiting' GROUP BY network ORDER BY count(*) DESC, min(created_at) LIMIT 1",
    "SELECT address FROM codes WHERE state = 'waiting' AND network = $1 GROUP BY address ORDER BY count(*) DESC, min(created_at) LIMIT 1",
    "DELETE FROM codes WHERE id = (SELECT id FROM codes WHERE state = 'waiting' AND network = $1 AND address = $2 \
     ORDER BY created_at, id LIMIT 1)",
];

/// Every column, for [`Code`].
macro_rules! codes_where {
    ($rest:literal) => {
        concat!("SELECT id, code, digest, name, scope, days, address, agent, state, created_at, expires_at FROM codes WHERE ", $rest)
    };
}

impl Store {
    /// Keeps a code; `None`: too many of its address wait. Two that come at the same time may both find the last place.
    pub async fn add_code(
        &self,
        new: NewCode<'_>,
        most: Most,
        now: Millis,
    ) -> Result<Option<String>, StoreError> {
        let made = id();
        Ok(transact!(self, tx => {
            sqlx::query("DELETE FROM codes WHERE expires_at <= $1").bind(now).execute(&mut *tx).await?;
            let own: i64 = sqlx::query_scalar(
                "SELECT count(*) FROM codes WHERE state = 'waiting' AND network = $1 AND address = $2")
                .bind(new.network)
                .bind(new.address)
                .fetch_one(&mut *tx)
                .await?;
            if own >= most.of_address {
                return Ok(None);
            }
            let all: i64 = sqlx::query_scalar("SELECT count(*) FROM codes WHERE state = 'waiting'")
                .fetch_one(&mut *tx)
                .await?;
            if all >= most.of_all {
                let [network, address, gone] = GREEDIEST;
                let network: Option<String> = sqlx::query_scalar(network).fetch_optional(&mut *tx).await?;
                let address: Option<String> = sqlx::query_scalar(address).bind(&network).fetch_optional(&mut *tx).await?;
                sqlx::query(gone).bind(&network).bind(&address).execute(&mut *tx).await?;
            }
            sqlx::query(
                "INSERT INTO codes (id, code, digest, name, scope, days, address, network, agent, state, created_at, expires_at) \
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'waiting', $10, $11)")
                .bind(&made)
                .bind(new.code)
                .bind(new.digest)
                .bind(new.name)
                .bind(new.scope)
                .bind(new.days)
                .bind(new.address)
                .bind(new.network)
                .bind(new.agent)
                .bind(now)
                .bind(new.ends)
                .execute(&mut *tx)
                .await?;
            Some(made)
        }))
    }

    /// The code that somebody typed, while it waits.
    pub async fn code(&self, code: &str, now: Millis) -> Result<Option<Code>, StoreError> {
        Ok(on!(self, pool => sqlx::query_as(
            codes_where!("code = $1 AND state = 'waiting' AND expires_at > $2"))
            .bind(code).bind(now).fetch_optional(pool).await)?)
    }

    /// What became of a code.
    pub async fn code_state(&self, id: &str, now: Millis) -> Result<Option<String>, StoreError> {
        Ok(
            on!(self, pool => sqlx::query_scalar("SELECT state FROM codes WHERE id = $1 AND expires_at > $2")
            .bind(id).bind(now).fetch_optional(pool).await)?,
        )
    }

    /// Says yes: the code's token is a token from now on. `None`: it does not wait any more.
    pub async fn approve_code(
        &self,
        code: &str,
        token: NewToken<'_>,
        now: Millis,
    ) -> Result<Option<String>, StoreError> {
        let made = id();
        about(format!("workspace={} token={made}", token.workspace));
        Ok(change!(self, Lock::Accounts, tx => {
            let settled = sqlx::query(
                "UPDATE codes SET state = 'approved' WHERE id = $1 AND digest = $2 AND state = 'waiting' AND expires_at > $3")
                .bind(code)
                .bind(token.digest)
                .bind(now)
                .execute(&mut *tx)
                .await?
                .rows_affected();
            if settled != 1 {
                return Ok(None);
            }
            sqlx::query(
                "INSERT INTO tokens (id, workspace_id, user_id, name, scope, digest, created_at, expires_at) \
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8)")
                .bind(&made)
                .bind(token.workspace)
                .bind(token.user)
                .bind(token.name)
                .bind(token.scope)
                .bind(token.digest)
                .bind(now)
                .bind(token.ends)
                .execute(&mut *tx)
                .await?;
            Some(made)
        }))
    }

    /// Says no; `false`: it does not wait any more.
    pub async fn refuse_code(&self, code: &str, now: Millis) -> Result<bool, StoreError> {
        about(format!("code={code}"));
        Ok(change!(self, Lock::Accounts, tx => {
            let settled = sqlx::query(
                "UPDATE codes SET state = 'refused' WHERE id = $1 AND state = 'waiting' AND expires_at > $2")
                .bind(code)
                .bind(now)
                .execute(&mut *tx)
                .await?
                .rows_affected();
            settled == 1
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::each;
    use super::*;

    const MOST: Most = Most {
        of_address: 3,
        of_all: 12,
    };

    async fn ask(store: &Store, network: &str, address: &str, at: Millis) -> Option<String> {
        let code = id();
        let new = NewCode {
            code: &code,
            digest: code.as_bytes(),
            name: "ci",
            scope: "read",
            days: None,
            address,
            network,
            agent: "",
            ends: at + 1000,
        };
        store.add_code(new, MOST, at).await.unwrap()
    }

    #[tokio::test]
    async fn strangers_who_take_every_place_push_each_other_out_and_not_the_owner() {
        each(async |store| {
            let early = ask(&store, "home", "home", 1).await.unwrap();
            // of one network with an address for each, and of one address with all that it may have
            let mut greedy = Vec::new();
            for n in 0..40 {
                greedy.push(ask(&store, "wide", &format!("w{n}"), 2 + n).await.unwrap());
            }
            for n in 0..3 {
                assert!(ask(&store, "one", "one", 50 + n).await.is_some());
            }
            assert_eq!(ask(&store, "one", "one", 60).await, None);
            let late = ask(&store, "office", "office", 61).await.unwrap();
            for owner in [&early, &late] {
                let state = store.code_state(owner, 62).await.unwrap();
                assert_eq!(state.as_deref(), Some("waiting"));
            }
            // the oldest gave way, and the newest of theirs is still there
            assert_eq!(store.code_state(&greedy[0], 62).await.unwrap(), None);
            assert!(store.code_state(&greedy[39], 62).await.unwrap().is_some());
            let all: i64 = on!(&store, pool => sqlx::query_scalar("SELECT count(*) FROM codes").fetch_one(pool).await).unwrap();
            assert_eq!(all, MOST.of_all);
            // what is settled takes nobody's place
            assert!(store.refuse_code(&late, 63).await.unwrap());
            assert!(ask(&store, "office", "office", 64).await.is_some());
            assert_eq!(store.code_state(&late, 65).await.unwrap().as_deref(), Some("refused"));
        })
        .await;
    }
}
