//! What every handler shares: store, settings, tasks, limits. Cheap to clone, made once.

use std::ops::Deref;
use std::sync::Arc;

use gateway::tasks::Tasks;
use tokio_util::sync::CancellationToken;

use super::metrics::Metrics;
use super::rate::Rates;
use crate::settings::ConsoleConfig;
use crate::store::Store;

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
    /// Requests by client address and by account.
    pub rates: Rates,
    /// Numbers for collectors.
    pub metrics: Metrics,
    /// The API's description, made from the routes.
    pub description: serde_json::Value,
}

impl App {
    /// Of a store that is open.
    pub fn new(config: ConsoleConfig, store: Store, tasks: Tasks, stop: CancellationToken) -> Self {
        Self(Arc::new(Shared {
            store,
            config,
            tasks,
            stop,
            rates: Rates::default(),
            metrics: Metrics::default(),
            description: super::describe::document(super::routes::table().described()),
        }))
    }
}

impl Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}
