//! How many are told something at the same time: a receiver that hangs keeps only its own waiting.
//!
//! Receivers are told one thing after the other, and many receivers at once: a few of one host or of the mail server, some
//! of one workspace, more of all workspaces of one owner, [`AT_ONCE`] of all; workspaces have turns, and who takes nothing
//! gives its place up. So whoever makes receivers that hang holds up their own workspaces, and of others only who is told
//! at the same host. The fewer places are free the fewer of them one owner may have ([`SHARE`]), so it takes more than a
//! dozen owners together to hold everybody up, for [`WHOLE`](super::WHOLE) at a time.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::{CLAIM, attempt, told};
use crate::clock::{self, Millis};
use crate::outbound::Target;
use crate::server::app::App;
use crate::store::StoreError;
use crate::store::events;
use crate::store::notifications::Due;

/// Receivers in all.
const AT_ONCE: usize = 64;
/// Of one workspace.
const OF_ONE_WORKSPACE: usize = 8;
/// Of all workspaces of one owner: making more of them gives nobody more places.
const OF_ONE_OWNER: usize = 16;
/// An owner has another place only while this many times as many as they have are free: whoever comes later finds some.
const SHARE: usize = 3;
/// At one host, or by the mail server.
const AT_ONE_TARGET: usize = 4;
/// To one receiver before others have their turn.
const IN_A_ROW: usize = 10;
/// Without being woken: other consoles' events, and what is tried again.
const EVERY: Duration = Duration::from_secs(5);

/// What is being sent.
struct Sending {
    app: App,
    under_way: FuturesUnordered<BoxFuture<'static, (Due, usize)>>,
    /// How many are under way by workspace, by its owner, and by target.
    counts: HashMap<(Counted, String), usize>,
    /// Who is being told.
    told: Vec<String>,
    /// How much was sent so far.
    sent: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Counted {
    Workspace,
    Owner,
    Target,
}

/// Where a receiver is.
fn target(whom: &Due) -> String {
    match Target::parse(&whom.address) {
        Ok(target) if whom.kind == "webhook" => target.host.to_string(),
        _ => whom.kind.clone(),
    }
}

impl Sending {
    fn of(app: App) -> Self {
        Self {
            app,
            under_way: FuturesUnordered::new(),
            counts: HashMap::new(),
            told: Vec::new(),
            sent: 0,
        }
    }

    /// What a receiver counts as, and how many of that may be under way.
    fn limits(whom: &Due) -> [((Counted, String), usize); 3] {
        [
            (
                (Counted::Workspace, whom.workspace_id.clone()),
                OF_ONE_WORKSPACE,
            ),
            ((Counted::Owner, whom.owner.clone()), OF_ONE_OWNER),
            ((Counted::Target, target(whom)), AT_ONE_TARGET),
        ]
    }

    /// Places that the owner of a receiver has.
    fn of_owner(&self, whom: &Due) -> usize {
        let key = (Counted::Owner, whom.owner.clone());
        self.counts.get(&key).copied().unwrap_or_default()
    }

    /// Begins to tell whoever is due and has room.
    async fn begin(&mut self, now: Millis) -> Result<(), StoreError> {
        let store = self.app.store.clone();
        let looking = store.due_notifications(now);
        tokio::pin!(looking);
        // who is being told goes on meanwhile: they may hold the connections to the store that the look waits for
        let due = loop {
            tokio::select! {
                due = &mut looking => break due?,
                Some(done) = self.under_way.next() => self.over(&done),
            }
        };
        for whom in due {
            let limits = Self::limits(&whom);
            let room = limits
                .iter()
                .all(|(key, most)| self.counts.get(key).is_none_or(|count| count < most));
            let free = AT_ONCE.saturating_sub(self.under_way.len());
            if free > self.of_owner(&whom) * SHARE && room && !self.told.contains(&whom.id) {
                for (key, _) in limits {
                    *self.counts.entry(key).or_default() += 1;
                }
                self.told.push(whom.id.clone());
                let telling = tell(self.app.clone(), whom, now);
                self.under_way.push(Box::pin(telling));
            }
        }
        Ok(())
    }

    /// One receiver was told all that it is told for now. `None`: nothing is under way.
    async fn end(&mut self) -> Option<()> {
        let done = self.under_way.next().await?;
        self.over(&done);
        Some(())
    }

    fn over(&mut self, (whom, sent): &(Due, usize)) {
        for (key, _) in Self::limits(whom) {
            if let Some(count) = self.counts.get_mut(&key) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(&key);
                }
            }
        }
        self.told.retain(|id| *id != whom.id);
        self.sent += sent;
    }
}

/// Tells one receiver what is due, one after the other, as long as it takes it; how much that was.
async fn tell(app: App, due: Due, now: Millis) -> (Due, usize) {
    let begun = Instant::now();
    let mut sent = 0;
    let whom = match app.store.notification(&due.id).await {
        Ok(Some(whom)) => whom,
        Ok(None) => return (due, sent),
        Err(error) => {
            told(&error, "sending notifications");
            return (due, sent);
        }
    };
    while sent < IN_A_ROW {
        let passed = Millis::try_from(begun.elapsed().as_millis()).unwrap_or_default();
        let at = now.saturating_add(passed);
        let done = match app.store.claim_delivery(&whom.id, at, at + CLAIM).await {
            Ok(Some(delivery)) => attempt(&app, &whom, &delivery, at).await,
            Ok(None) => break,
            Err(error) => Err(error),
        };
        match done {
            Ok(taken) => {
                sent += 1;
                if !taken {
                    break;
                }
            }
            Err(error) => {
                told(&error, "sending notifications");
                break;
            }
        }
    }
    (due, sent)
}

/// Sends what is due until the console stops.
pub async fn keep_sending(app: App) {
    let mut rung = events::rung();
    let mut sending = Sending::of(app);
    loop {
        if let Err(error) = sending.begin(clock::now()).await {
            told(&error, "looking for notifications that are due");
        }
        tokio::select! {
            Some(()) = sending.end() => {}
            _ = tokio::time::timeout(EVERY, rung.changed()) => {}
        }
    }
}

/// Sends what is due and waits for the end of it; how many that were.
pub async fn send_due(app: &App, now: Millis) -> Result<usize, StoreError> {
    let mut sending = Sending::of(app.clone());
    loop {
        sending.begin(now).await?;
        if sending.end().await.is_none() {
            return Ok(sending.sent);
        }
    }
}
