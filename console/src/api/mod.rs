//! The API's resources, one file each: what is asked, what is answered, which rows of the store are read or written.
//!
//! A handler is reached only by who may (`server::guard`); it decides nothing about that beyond what depends on rows.

pub mod about;
pub mod audit;
pub mod checklist;
mod checklist_place;
pub mod codes;
pub mod devices;
pub mod events;
pub mod evidence;
pub mod flows;
pub mod gateway;
pub mod hooks;
#[cfg(test)]
mod hooks_tests;
pub mod jobs;
pub mod members;
pub mod notifications;
pub mod now;
pub mod owner;
pub mod policies;
pub mod providers;
pub mod pull;
pub mod runners;
pub mod runs;
#[cfg(test)]
pub(crate) mod runs_tests;
pub mod secrets;
pub mod session;
pub mod sources;
pub mod store;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
mod tests_checklist;
#[cfg(test)]
mod tests_codes;
#[cfg(test)]
mod tests_double;
#[cfg(test)]
mod tests_download;
#[cfg(test)]
mod tests_gateway;
#[cfg(test)]
mod tests_hostile;
#[cfg(test)]
mod tests_membership;
#[cfg(test)]
mod tests_providers;
#[cfg(test)]
mod tests_runners;
#[cfg(test)]
mod tests_secrets;
#[cfg(test)]
mod tests_sources;
#[cfg(test)]
mod tests_tokens;
mod thinking;
pub mod tokens;
pub mod told;
pub mod tries;
pub mod users;
pub mod workspaces;

use crate::accounts::password::{self, HashError};
use crate::server::app::App;
use crate::server::problem::{Problem, Wrong};

/// Collects what is wrong with several fields.
struct Fields(Vec<Wrong>);

impl Fields {
    const fn new() -> Self {
        Self(Vec::new())
    }

    /// The value, or an empty one whose mistake is noted.
    fn take<T: Default>(&mut self, value: Result<T, Wrong>) -> T {
        value.unwrap_or_else(|wrong| {
            self.0.push(wrong);
            T::default()
        })
    }

    fn password(&mut self, text: &str) {
        let wrong = password::mistake(text).map(|message| Wrong::new("password", message));
        self.0.extend(wrong);
    }

    fn done(self) -> Result<(), Problem> {
        Problem::unless_empty(self.0)
    }
}

impl From<HashError> for Problem {
    fn from(error: HashError) -> Self {
        if matches!(error, HashError::Busy) {
            return Self::busy("too many passwords are being checked; try again");
        }
        tracing::error!(%error, "a request failed");
        Self::internal()
    }
}

impl From<crate::accounts::secret::NoRandom> for Problem {
    fn from(error: crate::accounts::secret::NoRandom) -> Self {
        tracing::error!(%error, "a request failed");
        Self::internal()
    }
}

/// Email and password must be a way in.
fn by_password(app: &App) -> Result<(), Problem> {
    if app.config.email_password {
        return Ok(());
    }
    Err(Problem::forbidden(
        "email and password are switched off (`auth.email_password`)",
    ))
}
