//! People and how they prove who they are: passwords, the secrets of sessions and tokens, what a name may be.
//!
//! Owns no rows (those are `store`'s) and no decision about who may what (`access`). Secrets are random, 256 bits,
//! handed out once and kept as digests; a password is kept as Argon2id.

pub mod cookie;
pub mod discovery;
pub mod github;
pub mod jwt;
pub mod names;
pub mod oidc;
pub mod password;
pub mod secret;
pub mod variables;

use std::time::Duration;

use crate::clock::{DAY, MINUTE, Millis};

/// A session ends this long after it began, however it is used.
pub const SESSION: Millis = 7 * DAY;
/// The first owner's link.
pub const OWNER_LINK: Millis = DAY;
/// Wrong passwords are counted over this time.
pub const GUESSING: Millis = 15 * MINUTE;
/// Sign-ins of one account in that time before it must wait; a person mistypes a few.
pub const GUESSES_AT_ACCOUNT: i64 = 10;
/// Sign-ins from one address in that time; an office shares one.
pub const GUESSES_FROM_ADDRESS: i64 = 50;
/// What whoever guessed too often is told.
pub const WAIT: Duration = Duration::from_mins(15);
