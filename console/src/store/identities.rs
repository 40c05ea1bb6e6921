//! Who is who at a sign-in provider, and sign-ins that are under way there.

use super::change::about;
use super::sealed::put_sealed;
use super::users::{Home, NewUser, insert_user};
use super::{Lock, Store, StoreError, on, row, transact};
use crate::access::Role;
use crate::clock::{MINUTE, Millis, id};
use crate::vault::Sealed;

/// The kind of a sealed token of a provider.
pub const KIND: &str = "identity";
/// Whom their provider has not confirmed for so long has no access until it does: what an operator was promised about
/// people who leave a group. Stands as a number in [`super::change::STANDING`] and in the lookup of sessions.
pub const CONFIRMED: Millis = 15 * MINUTE;

/// Whose turn it is to be asked about.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// Whose people are asked about.
    pub provider: &'static str,
    /// Who was confirmed later than this is fresh.
    pub since: Millis,
    /// Who was asked about later than this is being asked about, or was just now.
    pub asked: Millis,
}

row! {
    /// A person of a provider.
    pub struct Identity {
        /// Its id.
        pub id: String,
        /// The provider.
        pub provider: String,
        /// Who they are there.
        pub subject: String,
        /// What they are called there.
        pub login: String,
        /// Who they are here.
        pub user_id: String,
        /// Counts the tokens that were kept for it.
        pub tokens: i64,
        /// When the provider last said that they may come in.
        pub checked_at: Millis,
        /// When it was last asked about them; later than that: no answer came, or none that says anything.
        pub asked_at: Millis,
    }
}

row! {
    /// A sign-in that is under way.
    pub struct SignIn {
        /// At which provider.
        pub provider: String,
        /// Comes back in the token.
        pub nonce: String,
        /// Proves that who exchanges the code is who asked for it.
        pub verifier: String,
    }
}

/// A sign-in that begins.
#[derive(Clone, Copy, Debug)]
pub struct NewSignIn<'a> {
    /// Digest of what comes back with the browser.
    pub state: &'a [u8],
    /// Digest of the browser's cookie.
    pub browser: &'a [u8],
    /// What else it is bound to.
    pub bound: &'a SignIn,
    /// When it is over.
    pub ends: Millis,
}

/// Who somebody is, by a provider's word.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// The provider.
    pub provider: &'a str,
    /// Who they are there.
    pub subject: &'a str,
    /// What they are called there.
    pub login: &'a str,
    /// Whether whoever has this name may come in: then it is one person's for good.
    pub login_is_listed: bool,
}

/// What became of somebody's first sign-in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Admitted {
    /// They are this user.
    As(String),
    /// Somebody else has the address here.
    AddressTaken,
    /// Somebody else came by this name before.
    LoginTaken,
    /// There is no owner yet, and the first owner comes by the link.
    NoOwner,
}

/// Every column.
macro_rules! identities_where {
    ($rest:literal) => {
        concat!("SELECT id, provider, subject, login, user_id, tokens, checked_at, asked_at FROM identities WHERE ", $rest)
    };
}

impl Store {
    /// Keeps a sign-in that begins.
    pub async fn begin_sign_in(&self, new: NewSignIn<'_>) -> Result<(), StoreError> {
        on!(self, pool => sqlx::query(
            "INSERT INTO sign_ins (state, browser, provider, nonce, verifier, expires_at) VALUES ($1, $2, $3, $4, $5, $6)")
            .bind(new.state).bind(new.browser).bind(&new.bound.provider).bind(&new.bound.nonce)
            .bind(&new.bound.verifier).bind(new.ends).execute(pool).await.map(|_| ()))?;
        Ok(())
    }

    /// The sign-in of this state, if it began in this browser; it can be taken once.
    pub async fn take_sign_in(
        &self,
        state: &[u8],
        browser: &[u8],
        now: Millis,
    ) -> Result<Option<SignIn>, StoreError> {
        Ok(on!(self, pool => sqlx::query_as(
            "DELETE FROM sign_ins WHERE state = $1 AND browser = $2 AND expires_at > $3 RETURNING provider, nonce, verifier")
            .bind(state).bind(browser).bind(now).fetch_optional(pool).await)?)
    }

    /// The user who somebody is; made at their first sign-in. Nobody becomes a user who is there already: an address
    /// that a provider names is no proof here.
    pub async fn admit_identity(
        &self,
        known: Known<'_>,
        user: &NewUser,
        home: Home,
        now: Millis,
    ) -> Result<Admitted, StoreError> {
        Ok(transact!(self, Lock::Accounts, tx => {
            let found: Option<(String, String)> = sqlx::query_as("SELECT id, user_id FROM identities WHERE provider = $1 AND subject = $2")
                .bind(known.provider)
                .bind(known.subject)
                .fetch_optional(&mut *tx)
                .await?;
            let (users, same, taken): (i64, i64, i64) = sqlx::query_as(
                "SELECT (SELECT count(*) FROM users), \
                 (SELECT count(*) FROM identities WHERE provider = $1 AND lower(login) = lower($2)), \
                 (SELECT count(*) FROM users WHERE email = $3)")
                .bind(known.provider)
                .bind(known.login)
                .bind(&user.email)
                .fetch_one(&mut *tx)
                .await?;
            match found {
                Some((identity, user)) => {
                    sqlx::query("UPDATE identities SET login = $1, checked_at = $2, asked_at = $2 WHERE id = $3")
                        .bind(known.login)
                        .bind(now)
                        .bind(&identity)
                        .execute(&mut *tx)
                        .await?;
                    Admitted::As(user)
                }
                None if users == 0 => Admitted::NoOwner,
                None if same > 0 && known.login_is_listed => Admitted::LoginTaken,
                None if taken > 0 => Admitted::AddressTaken,
                None => {
                    let made = insert_user!(tx, user, home, now);
                    sqlx::query(
                        "INSERT INTO identities (id, provider, subject, login, user_id, tokens, checked_at, asked_at) \
                         VALUES ($1, $2, $3, $4, $5, 0, $6, $6)")
                        .bind(id())
                        .bind(known.provider)
                        .bind(known.subject)
                        .bind(known.login)
                        .bind(&made)
                        .bind(now)
                        .execute(&mut *tx)
                        .await?;
                    Admitted::As(made)
                }
            }
        }))
    }

    /// A provider's person by the user that they are.
    pub async fn identity_of(&self, user: &str) -> Result<Option<Identity>, StoreError> {
        Ok(
            on!(self, pool => sqlx::query_as(identities_where!("user_id = $1"))
            .bind(user).fetch_optional(pool).await)?,
        )
    }

    /// Claims the provider's next person with a live session or a token about whom it has said nothing since `turn.since`
    /// and whom nobody has claimed since `turn.asked` without an answer, longest ago first. Another console claims others, for `now` is when
    /// it is claimed. Comes as it was before that.
    pub async fn claim_identity(
        &self,
        turn: Turn,
        now: Millis,
    ) -> Result<Option<Identity>, StoreError> {
        Ok(transact!(self, Lock::Sealed, tx => {
            let next: Option<Identity> = sqlx::query_as(identities_where!(
                "provider = $4 AND checked_at < $1 AND (asked_at <= $2 OR asked_at <= checked_at) AND (EXISTS (SELECT 1 FROM sessions s WHERE s.user_id = identities.user_id AND s.expires_at > $3) \
                 OR EXISTS (SELECT 1 FROM tokens t WHERE t.user_id = identities.user_id)) ORDER BY asked_at LIMIT 1"))
                .bind(turn.since)
                .bind(turn.asked)
                .bind(now)
                .bind(turn.provider)
                .fetch_optional(&mut *tx)
                .await?;
            if let Some(next) = &next {
                sqlx::query("UPDATE identities SET asked_at = $1 WHERE id = $2")
                    .bind(now)
                    .bind(&next.id)
                    .execute(&mut *tx)
                    .await?;
            }
            next
        }))
    }

    /// Notes that the provider has just said that somebody may still come in.
    pub async fn confirm_identity(&self, identity: &str, now: Millis) -> Result<(), StoreError> {
        on!(self, pool => sqlx::query("UPDATE identities SET checked_at = $1 WHERE id = $2")
            .bind(now).bind(identity).execute(pool).await.map(|_| ()))?;
        Ok(())
    }

    /// Whether somebody's provider, if they have one, has confirmed them within [`CONFIRMED`].
    pub async fn is_confirmed(&self, user: &str, now: Millis) -> Result<bool, StoreError> {
        let stale: i64 = on!(self, pool => sqlx::query_scalar(
            "SELECT count(*) FROM identities WHERE user_id = $1 AND checked_at <= $2")
            .bind(user).bind(now - CONFIRMED).fetch_one(pool).await)?;
        Ok(stale == 0)
    }

    /// Keeps what asks the provider again, in place of what did before; `false`: seal it again.
    pub async fn keep_tokens(
        &self,
        identity: &Identity,
        sealed: &Sealed,
    ) -> Result<bool, StoreError> {
        let version = identity.tokens + 1;
        Ok(transact!(self, Lock::Sealed, tx => {
            let kept = put_sealed!(tx, KIND, &identity.id, "", version, sealed);
            if kept {
                sqlx::query("UPDATE identities SET tokens = $1 WHERE id = $2")
                    .bind(version)
                    .bind(&identity.id)
                    .execute(&mut *tx)
                    .await?;
            }
            kept
        }))
    }

    /// Ends what a user has by a provider's word: sessions, and the tokens that act for them. Nothing, and `false`, if the
    /// provider has let them in since it was asked.
    pub async fn end_access(&self, asked: &Identity) -> Result<bool, StoreError> {
        Ok(transact!(self, Lock::Accounts, tx => {
            let same: i64 = sqlx::query_scalar("SELECT count(*) FROM identities WHERE id = $1 AND checked_at = $2")
                .bind(&asked.id)
                .bind(asked.checked_at)
                .fetch_one(&mut *tx)
                .await?;
            if same == 1 {
                for over in ["DELETE FROM sessions WHERE user_id = $1", "DELETE FROM tokens WHERE user_id = $1"] {
                    sqlx::query(over).bind(&asked.user_id).execute(&mut *tx).await?;
                }
            }
            same == 1
        }))
    }
}
