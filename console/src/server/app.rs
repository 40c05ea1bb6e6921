//! What every handler shares: store, settings, tasks, limits. Cheap to clone, made once.

use std::ops::Deref;
use std::sync::Arc;

use gateway::tasks::Tasks;
use tokio_util::sync::CancellationToken;

use super::ServeError;
use super::follow::Tail;
use super::held::Held;
use super::metrics::Metrics;
use super::rate::Rates;
use super::turns::Turns;
use crate::accounts::password::Passwords;
use crate::outbound::Outbound;
use crate::settings::ConsoleConfig;
use crate::store::Store;
use crate::vault::Vault;

/// Questions to the policy engine that are worked on at once: the other processors are everybody else's.
const THINKING: usize = 1;
/// So many more may wait.
const WAITING: usize = 32;

/// The console's shared state.
#[derive(Clone, Debug)]
pub struct App(Arc<Shared>);

/// What is in it.
#[derive(Debug)]
pub struct Shared {
    /// The store.
    pub store: Store,
    /// The settings.
    pub config: ConsoleConfig,
    /// The one place that spawns.
    pub tasks: Tasks,
    /// Fires when the console is to end: streams end, no connection is accepted any more.
    pub stop: CancellationToken,
    /// The one place that hashes passwords.
    pub passwords: Passwords,
    /// The one way by which it calls anybody.
    pub outbound: Outbound,
    /// The keys of what is sealed.
    pub vault: Vault,
    /// Requests by client address and by account.
    pub rates: Rates,
    /// The end of the event log.
    pub tail: Tail,
    /// Streams by account.
    pub readers: Held,
    /// Questions to the policy engine, by account.
    pub thinkers: Held,
    /// The one place that answers them.
    pub thinking: Turns,
    /// Numbers for collectors.
    pub metrics: Metrics,
    /// The API's description, made from the routes.
    pub description: serde_json::Value,
}

impl App {
    /// Of a store that is open.
    pub fn new(
        config: ConsoleConfig,
        store: Store,
        tasks: Tasks,
        stop: CancellationToken,
    ) -> Result<Self, ServeError> {
        let outbound = Outbound::new(config.outbound.clone(), &config.gateway.pools)?;
        Ok(Self(Arc::new(Shared {
            outbound,
            vault: Vault::at(config.key_file.clone()),
            store,
            config,
            tasks,
            stop,
            passwords: Passwords::new()?,
            rates: Rates::default(),
            tail: Tail::default(),
            readers: Held::default(),
            thinkers: Held::default(),
            thinking: Turns::new(THINKING, WAITING),
            metrics: Metrics::default(),
            description: super::describe::document(super::routes::table().described()),
        })))
    }
}

impl Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}
