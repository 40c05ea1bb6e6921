//! The first owner's link: printed once, kept as a digest, good for a day, and only while there is nobody.

use super::ServeError;
use super::app::App;
use crate::accounts::OWNER_LINK;
use crate::accounts::secret::{Opens, Secret};
use crate::clock;
use crate::settings::{AppUrl, ConsoleConfig};
use crate::store::{Store, StoreError};

/// At the start: prints a link if there is no owner and no link that somebody may still hold.
pub async fn greet(app: &App) -> Result<(), ServeError> {
    let now = clock::now();
    if !app.config.workspaces {
        app.store.share_with_everybody(now).await?;
    }
    match app.store.unclaimed(now).await? {
        None => {}
        Some(true) => tracing::warn!(
            "there is no owner yet; the link that was printed is still good, `sallyport console owner-link` prints another"
        ),
        Some(false) => {
            if let Some(link) = offer(&app.store, &app.config).await? {
                tracing::warn!(
                    "there is no owner yet; whoever opens this within a day becomes it: {link}"
                );
            }
        }
    }
    Ok(())
}

/// A new link in place of earlier ones; `None`: there is an owner.
pub async fn fresh_link(config: &ConsoleConfig) -> Result<Option<String>, ServeError> {
    let store = Store::open(&config.database).await?;
    let link = offer(&store, config).await;
    store.close().await;
    link
}

async fn offer(store: &Store, config: &ConsoleConfig) -> Result<Option<String>, ServeError> {
    let secret = Secret::fresh(Opens::Instance)?;
    let now = clock::now();
    let kept: Result<bool, StoreError> = store
        .offer_instance(&secret.digest, now, now + OWNER_LINK)
        .await;
    let origin = config
        .url
        .as_ref()
        .map_or_else(|| format!("http://{}", config.listen), AppUrl::origin);
    // behind `#` a browser sends it to nobody, and no proxy logs it
    Ok(kept?.then(|| format!("{origin}/#owner={}", secret.text)))
}
