//! Watches this machine's gateway: when enforcement is lost, and when it is back, that is an event.
//!
//! A gateway that is restarted seals on its way out and is silent for a moment, so a loss is one when it has lasted for a
//! while ([`GRACE`]). A console beside which nothing ever enforced has nothing to lose, and says nothing.

use std::time::Duration;

use gateway::control::Client;
use serde_json::json;

use crate::clock::{self, Millis, SECOND};
use crate::server::app::App;

/// Asked so often.
const EVERY: Duration = Duration::from_secs(5);
/// A gateway that lives answers at once.
const PATIENCE: Duration = Duration::from_secs(2);
/// A restart takes less.
const GRACE: Millis = 20 * SECOND;

/// What the gateway says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// `enforcing`, `sealed`, `without_enforcement`, or `unknown`.
    pub state: String,
    /// Why it is not enforcing.
    pub cause: Option<String>,
}

/// What was seen so far.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Watch {
    /// Nothing ever enforced here.
    #[default]
    Nothing,
    /// It enforces.
    Good,
    /// It does not, since then.
    Bad(Millis),
    /// It does not, and that was told.
    Told,
}

impl Watch {
    /// Whether what is seen now is news.
    pub fn see(&mut self, enforcing: bool, now: Millis) -> bool {
        let (next, news) = match (&*self, enforcing) {
            (Self::Nothing, false) => (Self::Nothing, false),
            (Self::Nothing | Self::Good | Self::Bad(_), true) => (Self::Good, false),
            (Self::Good, false) => (Self::Bad(now), false),
            (Self::Bad(since), false) if now - since >= GRACE => (Self::Told, true),
            (Self::Bad(since), false) => (Self::Bad(*since), false),
            (Self::Told, false) => (Self::Told, false),
            (Self::Told, true) => (Self::Good, true),
        };
        *self = next;
        news
    }
}

async fn look(app: &App) -> Seen {
    let client = Client::new(&app.config.gateway.control);
    match tokio::time::timeout(PATIENCE, client.posture()).await {
        Ok(Ok(posture)) => Seen {
            state: posture.state,
            cause: posture.cause,
        },
        _ => Seen {
            state: "unknown".to_owned(),
            cause: Some("no gateway answers on this machine".to_owned()),
        },
    }
}

/// Watches until the console stops.
pub async fn keep_watching(app: App) {
    let mut watch = Watch::default();
    loop {
        let seen = look(&app).await;
        let (before, now) = (watch.clone(), clock::now());
        if watch.see(seen.state == "enforcing", now) {
            let data = json!({ "state": seen.state, "cause": seen.cause });
            let told = app
                .store
                .append_event("instance", "enforcement", &data, now);
            if let Err(error) = told.await {
                // told with the next look
                watch = before;
                super::told(&error, "telling that enforcement changed");
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_that_lasts_is_news_once_and_so_is_its_end() {
        let mut watch = Watch::default();
        let mut see = |enforcing, at| watch.see(enforcing, at * SECOND);
        assert!(!see(false, 0), "nothing was lost");
        assert!(!see(false, 1_000), "still nothing");
        assert!(!see(true, 1_001));
        // a restart
        assert!(!see(false, 1_005));
        assert!(!see(false, 1_010));
        assert!(!see(true, 1_015));
        assert!(!see(false, 1_020));
        assert!(!see(false, 1_035));
        assert!(see(false, 1_040), "it lasts");
        assert!(!see(false, 1_100), "once");
        assert!(see(true, 1_105), "it is back");
        assert!(!see(true, 1_110));
    }
}
