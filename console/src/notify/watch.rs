//! Watches this machine's gateway: when enforcement is lost, and when it is back, that is an event.
//!
//! A gateway that is restarted seals on its way out and is silent for a moment, so a loss is one when it has lasted for a
//! while ([`GRACE`]). A console beside which nothing ever enforced has nothing to lose, and says nothing. That something
//! enforced on this machine, and whether its loss was told, is kept in the store: what is lost over a restart is told too.

use std::time::Duration;

use gateway::control::Client;
use serde_json::json;

use crate::clock::{self, Millis, SECOND};
use crate::server::app::App;
use crate::store::{Store, StoreError};

/// Asked so often.
const EVERY: Duration = Duration::from_secs(5);
/// A gateway that lives answers at once.
const PATIENCE: Duration = Duration::from_secs(2);
/// A restart takes less.
const GRACE: Millis = 20 * SECOND;

/// In the store: something enforces here, or its loss was not told yet.
const ENFORCED: i64 = 1;
/// In the store: its loss was told.
const LOST: i64 = 2;

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
    /// What was seen before the console was restarted; what is there now is lost until it is seen.
    pub async fn of(store: &Store, machine: &str, now: Millis) -> Result<Self, StoreError> {
        Ok(match store.watched(machine).await? {
            None => Self::Nothing,
            Some(LOST) => Self::Told,
            Some(_) => Self::Bad(now),
        })
    }

    /// What of it outlives the console.
    fn kept(&self) -> Option<i64> {
        match self {
            Self::Nothing => None,
            Self::Good | Self::Bad(_) => Some(ENFORCED),
            Self::Told => Some(LOST),
        }
    }

    /// Tells what is seen if it is news, and keeps it. After an error the next look does it again.
    pub async fn look(
        &mut self,
        (store, machine): (&Store, &str),
        seen: &Seen,
        now: Millis,
    ) -> Result<(), StoreError> {
        let mut next = self.clone();
        if next.see(seen.state == "enforcing", now) {
            let data = json!({ "machine": machine, "state": seen.state, "cause": seen.cause });
            store
                .append_event("instance", "enforcement", &data, now)
                .await?;
        }
        if let Some(kept) = next.kept().filter(|_| next.kept() != self.kept()) {
            store.keep_watched(machine, kept).await?;
        }
        *self = next;
        Ok(())
    }

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
    let machine = machine();
    let mut watch = None;
    loop {
        let looked = step(&app, &machine, &mut watch).await;
        if let Err(error) = looked {
            super::told(&error, "telling that enforcement changed");
        }
        tokio::time::sleep(EVERY).await;
    }
}

async fn step(app: &App, machine: &str, watch: &mut Option<Watch>) -> Result<(), StoreError> {
    let mut current = match watch.take() {
        Some(current) => current,
        None => Watch::of(&app.store, machine, clock::now()).await?,
    };
    let seen = look(app).await;
    let done = current
        .look((&app.store, machine), &seen, clock::now())
        .await;
    *watch = Some(current);
    done
}

/// What this machine is called: several consoles may have one store.
fn machine() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "localhost".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::each;

    #[tokio::test]
    async fn what_is_lost_over_a_restart_is_told_and_names_the_machine() {
        each(async |store| {
            let seen = |state: &str| Seen {
                state: state.into(),
                cause: None,
            };
            // what a console that begins at a second sees at others; what it tells then
            let console = async |machine: &str, begins: i64, looks: &[(&str, i64)]| {
                let before = store.last_event().await.unwrap();
                let mut watch = Watch::of(&store, machine, begins * SECOND).await.unwrap();
                for (state, at) in looks {
                    let seen = seen(state);
                    let look = watch.look((&store, machine), &seen, at * SECOND);
                    look.await.unwrap();
                }
                let told = store.events_since(before).await.unwrap();
                let told = told.into_iter().filter(|event| event.kind == "enforcement");
                told.map(|event| {
                    let data: serde_json::Value = serde_json::from_str(&event.data).unwrap();
                    assert_eq!(data["machine"], machine);
                    data["state"].as_str().unwrap().to_owned()
                })
                .collect::<Vec<_>>()
            };
            let nothing: [&str; 0] = [];
            let first = [("unknown", 0), ("unknown", 100), ("enforcing", 200)];
            assert_eq!(console("a", 0, &first).await, nothing);
            let good = [("unknown", 300), ("enforcing", 310)];
            assert_eq!(console("a", 300, &good).await, nothing);
            let lost = [("sealed", 400), ("sealed", 430), ("sealed", 500)];
            assert_eq!(console("a", 400, &lost).await, ["sealed"]);
            let still = [("sealed", 600), ("sealed", 700)];
            assert_eq!(console("a", 600, &still).await, nothing, "once");
            let back = [("enforcing", 800), ("enforcing", 810)];
            assert_eq!(console("a", 800, &back).await, ["enforcing"]);
            // a machine beside which nothing ever enforced
            assert_eq!(console("b", 900, &lost).await, nothing);
        })
        .await;
    }

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
