//! Work from a console: asks for it, keeps it, runs it by the same path as every other run, and tells what it does.
//!
//! The runner connects outward, to `runner.console`, with the token in `runner.token_file` ([`crate::protocol`]). Owns
//! which runs are a console's; [`run`] is one of them. Failure stance: a console that is away is asked again for ever,
//! its runs go on meanwhile; a run that the console has given up is ended here.

pub mod flows;
pub mod line;
mod run;
pub mod tale;
pub mod trust;

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::ClientConfig;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use self::flows::Taps;
use self::line::{Address, AskError, Identity, Line};
use self::tale::Tale;
use crate::Runner;
use crate::protocol::{Claim, Hello, Keep, Kept, Welcome, Work};
use crate::run::{EndReason, RunId};
use crate::sealed::OwnKey;

/// Before a console that is away is asked again.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// It doubles up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Before a token that is not known, or a process that was superseded, is tried again.
const REFUSED: Duration = Duration::from_secs(5);

/// Everything about one console.
pub struct Puller {
    runner: Arc<Runner>,
    address: Address,
    trust: Option<Arc<ClientConfig>>,
    identity: Mutex<Identity>,
    key: OwnKey,
    taps: Arc<Taps>,
    runs: Mutex<HashMap<String, Pulled>>,
    /// How many there are.
    count: watch::Sender<usize>,
    /// Told when there are others.
    changed: Notify,
}

/// A run of the console.
struct Pulled {
    fence: i64,
    tale: Arc<Tale>,
    /// Its id here, once it has one.
    own: Option<RunId>,
    ending: bool,
}

/// Pulls until dropped; as often as another token is needed it begins anew.
pub async fn pull(
    runner: Arc<Runner>,
    address: Address,
    trust: Option<Arc<ClientConfig>>,
    live: watch::Sender<usize>,
) {
    let taps = Arc::new(Taps::default());
    let (following, gateway) = (taps.clone(), runner.pods.gateway.clone());
    runner.tasks.spawn("flows for the console", async move {
        following.follow(&gateway).await;
    });
    let session = RunId::allot().to_string();
    let key = loop {
        match OwnKey::kept(&runner.config.state_dir.join("runner-key")) {
            Ok(key) => break key,
            Err(error) => tracing::error!(%error, "the runner's own key"),
        }
        sleep(LONGEST_PAUSE).await;
    };
    let puller = Arc::new(Puller {
        runner,
        address,
        trust,
        identity: Mutex::new(Identity {
            token: String::new(),
            session,
        }),
        key,
        taps,
        runs: Mutex::default(),
        count: live,
        changed: Notify::new(),
    });
    puller.hello().await;
    let keeping = puller.clone();
    puller.runner.tasks.spawn("keep runs", async move {
        keeping.keep().await;
    });
    puller.claim().await;
}

/// Who has the file is this runner.
fn token(path: &Path) -> std::io::Result<String> {
    if std::fs::metadata(path)?.mode() & 0o077 != 0 {
        let told = "others than its owner may read it: chmod 600 it";
        return Err(std::io::Error::new(
            std::io::ErrorKind::PermissionDenied,
            told,
        ));
    }
    Ok(std::fs::read_to_string(path)?.trim().to_owned())
}

/// Pauses that grow.
struct Pauses(Duration);

impl Pauses {
    const fn new() -> Self {
        Self(FIRST_PAUSE)
    }

    async fn after(&mut self, error: &AskError) {
        let refused = matches!(
            error,
            AskError::Superseded | AskError::Unknown | AskError::Refused { .. }
        );
        // one that is only starting is no news
        if refused || self.0 == LONGEST_PAUSE {
            tracing::warn!(%error, "the console");
        } else {
            tracing::info!(%error, "waiting for the console");
        }
        sleep(if refused { REFUSED } else { self.0 }).await;
        self.0 = (self.0 * 2).min(LONGEST_PAUSE);
    }
}

impl Puller {
    fn line(&self) -> Line {
        let identity = self.with_identity(|identity| identity.clone());
        let (address, trust) = (self.address.clone(), self.trust.clone());
        Line::new(address, trust, identity, self.runner.tasks.clone())
    }

    fn with<T>(&self, act: impl FnOnce(&mut HashMap<String, Pulled>) -> T) -> T {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let done = act(&mut runs);
        self.count.send_replace(runs.len());
        done
    }

    /// Until the console knows this process by the token in the file.
    async fn hello(&self) {
        let facts = self.runner.pods.backend.facts();
        let session = self.with_identity(|identity| identity.session.clone());
        let hello = Hello {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            session,
            key: self.key.public().text(),
            engine: facts.name.clone(),
            isolation: facts.isolation.clone(),
            most: u32::try_from(self.runner.config.max_runs).unwrap_or(u32::MAX),
        };
        let mut pauses = Pauses::new();
        loop {
            // another one may have been written meanwhile
            match token(&self.runner.config.token_file) {
                Ok(token) => self.with_identity(|identity| identity.token = token),
                Err(error) => {
                    pauses
                        .after(&AskError::Away(format!(
                            "there is no token for it: {error}"
                        )))
                        .await;
                    continue;
                }
            }
            match self.line().ask::<Welcome>("/runner/v1/hello", &hello).await {
                Ok(welcome) => {
                    let runner = welcome.map(|welcome| welcome.runner).unwrap_or_default();
                    tracing::info!(runner, "pulling work from the console");
                    return;
                }
                Err(error) => pauses.after(&error).await,
            }
        }
    }

    fn with_identity<T>(&self, act: impl FnOnce(&mut Identity) -> T) -> T {
        act(&mut self.identity.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes runs as long as there is room and the runner does not stop.
    async fn claim(self: &Arc<Self>) {
        let mut line = self.line();
        let mut count = self.count.subscribe();
        let mut pauses = Pauses::new();
        loop {
            let _ = count
                .wait_for(|live| *live < self.runner.config.max_runs)
                .await;
            self.taps.ready().await;
            if self.runner.is_stopping() {
                return;
            }
            let claim = Claim {
                holding: self.with(|runs| runs.keys().cloned().collect()),
            };
            let asked = tokio::select! {
                asked = line.ask::<Work>("/runner/v1/claim", &claim) => asked,
                () = self.runner.stopping.cancelled() => return,
            };
            match asked {
                Ok(None) => pauses = Pauses::new(),
                Ok(Some(work)) => {
                    pauses = Pauses::new();
                    self.begin(work);
                }
                Err(AskError::Unknown) => {
                    // it was revoked: nothing of it is this runner's any more, until it gets another one
                    self.drop_all();
                    self.hello().await;
                    line = self.line();
                }
                Err(AskError::Superseded) => {
                    self.drop_all();
                    tracing::error!(
                        "another process with the same token is this runner now; this one pulls no more work"
                    );
                    return;
                }
                Err(error) => pauses.after(&error).await,
            }
        }
    }

    fn begin(self: &Arc<Self>, work: Work) {
        let tale = Arc::new(Tale::default());
        let pulled = Pulled {
            fence: work.fence,
            tale: tale.clone(),
            own: None,
            ending: false,
        };
        self.with(|runs| runs.insert(work.run.clone(), pulled));
        self.changed.notify_one();
        let puller = self.clone();
        self.runner.tasks.spawn("console run", async move {
            let run = work.run.clone();
            run::run(&puller, work, tale).await;
            puller.with(|runs| runs.remove(&run));
            puller.changed.notify_one();
        });
    }

    /// Keeps the leases of all runs, and ends those that are to end.
    async fn keep(self: Arc<Self>) {
        let mut line = self.line();
        let mut pauses = Pauses::new();
        loop {
            let changed = self.changed.notified();
            let keep = self.with(|runs| Keep {
                runs: runs
                    .iter()
                    .map(|(run, pulled)| (run.clone(), pulled.fence))
                    .collect(),
                ending: runs
                    .iter()
                    .filter(|(_, pulled)| pulled.ending)
                    .map(|(run, _)| run.clone())
                    .collect(),
            });
            if keep.runs.is_empty() {
                changed.await;
                continue;
            }
            let kept = tokio::select! {
                kept = line.ask::<Kept>("/runner/v1/keep", &keep) => kept,
                // one more to keep, and to hear of
                () = changed => continue,
            };
            match kept {
                Ok(kept) => {
                    pauses = Pauses::new();
                    let kept = kept.unwrap_or(Kept {
                        cancelled: Vec::new(),
                        stale: Vec::new(),
                    });
                    for run in &kept.cancelled {
                        self.end(run);
                    }
                    for run in &kept.stale {
                        self.give_up(run);
                    }
                    if !kept.stale.is_empty() {
                        // they are ending; there is no hurry to hear it again
                        sleep(FIRST_PAUSE).await;
                    }
                }
                Err(error) => pauses.after(&error).await,
            }
        }
    }

    /// Somebody wants it to end.
    fn end(&self, run: &str) {
        let own = self.with(|runs| {
            let pulled = runs.get_mut(run)?;
            pulled.ending = true;
            pulled.own.clone()
        });
        if let Some(own) = own {
            self.runner.runs.end(&own, EndReason::Cancelled);
        }
    }

    /// It is not this runner's any more.
    fn give_up(&self, run: &str) {
        if let Some(tale) = self.with(|runs| runs.get(run).map(|pulled| pulled.tale.clone())) {
            tale.abandon();
        }
        self.end(run);
    }

    fn drop_all(&self) {
        let all: Vec<String> = self.with(|runs| runs.keys().cloned().collect());
        for run in &all {
            self.give_up(run);
        }
    }

    /// The run has an identity here; `true`: it is to end already.
    fn accepted(&self, run: &str, own: &RunId) -> bool {
        self.with(|runs| {
            runs.get_mut(run).is_none_or(|pulled| {
                pulled.own = Some(own.clone());
                pulled.ending
            })
        })
    }
}
