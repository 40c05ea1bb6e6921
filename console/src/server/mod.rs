//! The console's server: opens the store, binds its listeners, serves the API until it is told to stop.
//!
//! `stack` has everything that stands around a handler, `routes` every route, `guard` who may. A listener that cannot be
//! bound or a store that cannot be opened starts nothing; later failures are answers, not ends.

pub mod address;
pub mod app;
mod describe;
pub mod follow;
mod front;
pub(crate) mod guard;
mod health;
pub mod held;
pub mod idempotent;
pub mod identify;
pub mod input;
mod listen;
pub mod local;
pub mod membership;
mod metrics;
mod origin;
pub mod owner;
pub mod page;
pub mod problem;
pub mod rate;
pub mod routes;
mod sandbox;
mod stack;
pub mod stream;
pub mod tag;
#[cfg(test)]
pub(crate) mod testing;
pub mod tidy;
pub mod tls;
pub mod turns;

use std::io;
use std::net::SocketAddr;

use gateway::tasks::Tasks;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::accounts::password::HashError;
use crate::accounts::secret::NoRandom;
use crate::outbound::AuthorityError;
use crate::settings::ConsoleConfig;
use crate::store::{Store, StoreError};
use crate::vault::VaultError;
use app::App;
use listen::Door;

/// Why the console does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Something else has the address, or it is none of this machine.
    #[error("binding {address}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Passwords cannot be hashed here.
    #[error(transparent)]
    Passwords(#[from] HashError),
    /// No random numbers.
    #[error(transparent)]
    Random(#[from] NoRandom),
    /// The store does not open.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Further certificate authorities cannot be had.
    #[error(transparent)]
    Authorities(#[from] AuthorityError),
    /// The certificate of the people port.
    #[error(transparent)]
    Tls(#[from] tls::TlsError),
    /// The instance key is not there, or is another one.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl ServeError {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Bind { .. } => {
                Some("set `console.listen` to an address that is free on this machine")
            }
            Self::Store(error) => error.hint(),
            Self::Vault(error) => error.hint(),
            Self::Authorities(_) => Some("`network.ca_file` is a file of certificates (PEM)"),
            Self::Tls(_) => Some("`console.tls` names a certificate and its key (PEM files)"),
            Self::Passwords(_) | Self::Random(_) => None,
        }
    }
}

/// The routes with everything around them.
pub fn router(app: &App) -> axum::Router {
    stack::around(routes::table().router(app), app)
}

/// Serves until `stop`, then answers what is under way and lets go of the store.
pub async fn run(config: ConsoleConfig, stop: CancellationToken) -> Result<(), ServeError> {
    let secure = config.tls.as_ref().map(tls::acceptor).transpose()?;
    let people = bind(config.listen).await?;
    let management = match config.management {
        Some(address) => Some(bind(address).await?),
        None => None,
    };
    let store = Store::open(&config.database).await?;
    let tasks = Tasks::default();
    let listen = config.listen;
    let app = App::new(config, store, tasks.clone(), stop)?;
    app.vault.ready(&app.store).await?;
    owner::greet(&app).await?;
    tasks.spawn("membership", membership::keep_checked(app.clone()));
    tasks.spawn("news", crate::notify::keep_reading(app.clone()));
    tasks.spawn(
        "enforcement",
        crate::notify::watch::keep_watching(app.clone()),
    );
    tasks.spawn("notifications", crate::notify::keep_sending(app.clone()));
    tasks.spawn("rotation", finish_rotation(app.clone()));
    tasks.spawn("tidy", tidy::keep_tidy(app.clone()));
    tasks.spawn("time", crate::jobs::timely::keep_time(app.clone()));
    tasks.spawn("follow", follow::follow(app.clone()));
    tasks.spawn("listen", follow::listen(app.clone()));
    if let Some(listener) = management {
        let served = listen::serve(
            listener,
            health::router(app.clone()),
            app.clone(),
            Door::Management,
        );
        tasks.spawn("management", served);
    }
    tracing::info!(address = %listen, store = app.store.engine(), "the console answers");
    listen::serve(people, router(&app), app.clone(), Door::People(secure)).await;
    tasks.shut_down().await;
    app.store.close().await;
    Ok(())
}

/// A rotation of the instance key that was interrupted is finished.
async fn finish_rotation(app: App) {
    if let Err(error) = app.vault.finish_rotation(&app.store).await {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "finishing a rotation of the instance key"
        );
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, ServeError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| ServeError::Bind { address, source })
}

#[cfg(test)]
mod again;
#[cfg(test)]
mod hurried;
#[cfg(test)]
mod secure;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod tests;
