//! Passwords: Argon2id, a few at a time, the same work whether the account exists or not.

use std::sync::Arc;

use crate::server::turns::{TurnError, Turns};
use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};

/// Each costs 19 MiB and some 20 ms of a core; more at once would be a way to exhaust the machine.
const AT_ONCE: usize = 2;
/// So many may wait for their turn, a second and a half; more would wait longer than anybody does.
const WAITING: usize = 128;
/// Shorter ones are guessed.
pub const SHORTEST: usize = 12;
/// Longer ones are work for us and no safer.
pub const LONGEST: usize = 256;

/// The one place where passwords are hashed.
#[derive(Clone, Debug)]
pub struct Passwords {
    turns: Turns,
    /// Checked against where there is no account.
    decoy: Arc<str>,
}

/// Why a password was not hashed.
#[derive(Debug, thiserror::Error)]
pub enum HashError {
    /// No memory, no random numbers, or the console stops.
    #[error("hashing a password: {0}")]
    Failed(String),
    /// Too many wait already.
    #[error("too many passwords wait to be hashed")]
    Busy,
}

impl HashError {
    fn of<E: std::fmt::Display>(error: E) -> Self {
        Self::Failed(format!("{error}"))
    }
}

impl Passwords {
    /// Makes the decoy.
    pub fn new() -> Result<Self, HashError> {
        let decoy = hash("a password that nobody has")?;
        Ok(Self {
            turns: Turns::new(AT_ONCE, WAITING),
            decoy: decoy.into(),
        })
    }

    /// What the store keeps of a password.
    pub async fn hash(&self, password: String) -> Result<String, HashError> {
        self.turns.take(move || hash(&password)).await?
    }

    /// Whether it is the password; `kept` is `None` where there is no account or it has none.
    pub async fn verify(&self, password: String, kept: Option<String>) -> Result<bool, HashError> {
        let (kept, is_real) = match kept {
            Some(kept) => (kept, true),
            None => (self.decoy.to_string(), false),
        };
        self.turns
            .take(move || {
                let parsed = PasswordHash::new(&kept).map_err(HashError::of)?;
                let fits = Argon2::default()
                    .verify_password(password.as_bytes(), &parsed)
                    .is_ok();
                Ok(fits && is_real)
            })
            .await?
    }
}

impl From<TurnError> for HashError {
    fn from(error: TurnError) -> Self {
        match error {
            TurnError::Busy => Self::Busy,
            error @ TurnError::Failed(_) => Self::of(error),
        }
    }
}

fn hash(password: &str) -> Result<String, HashError> {
    let hashed = Argon2::default().hash_password(password.as_bytes());
    hashed.map(|h| h.to_string()).map_err(HashError::of)
}

/// What is wrong with a new password.
pub fn mistake(password: &str) -> Option<String> {
    let length = password.chars().count();
    if length < SHORTEST {
        Some(format!("at least {SHORTEST} characters"))
    } else if password.len() > LONGEST {
        Some(format!("at most {LONGEST} bytes"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_comes_to_a_full_waiting_room_is_told_at_once() {
        let passwords = Passwords::new().unwrap();
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let gate = Arc::new(std::sync::Mutex::new(gate));
        // nobody's turn ends before the gate opens, however busy the machine is
        let mut inside: Vec<_> = (0..AT_ONCE + WAITING)
            .map(|_| {
                let gate = gate.clone();
                let waits = move || {
                    gate.lock().unwrap().recv().unwrap_err();
                };
                Box::pin(passwords.turns.take(waits))
            })
            .collect();
        for one in &mut inside {
            assert!(futures_util::poll!(one).is_pending());
        }
        let late = passwords.verify("x".to_owned(), None).await;
        assert!(matches!(late, Err(HashError::Busy)), "{late:?}");
        drop(open);
        futures_util::future::join_all(inside).await;
        assert!(!passwords.verify("x".to_owned(), None).await.unwrap());
    }

    #[tokio::test]
    async fn only_the_password_fits_and_no_account_has_the_decoys() {
        let passwords = Passwords::new().unwrap();
        let kept = passwords
            .hash("correct horse battery".to_owned())
            .await
            .unwrap();
        assert!(
            kept.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"),
            "{kept}"
        );
        let verify = async |password: &str, kept: Option<&String>| {
            passwords
                .verify(password.to_owned(), kept.cloned())
                .await
                .unwrap()
        };
        assert!(verify("correct horse battery", Some(&kept)).await);
        assert!(!verify("correct horse batter", Some(&kept)).await);
        assert!(!verify("a password that nobody has", None).await);
    }
}
