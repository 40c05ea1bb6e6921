//! What this machine's own command line does with the store itself, before there is anybody who could ask the API: the
//! token of the runner beside this console, and a sample run.

use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use super::ServeError;
use crate::accounts::secret::{Opens, Secret, offered};
use crate::clock;
use crate::settings::ConsoleConfig;
use crate::store::Store;

/// What the runner beside this console is called.
const NAME: &str = "this machine";

/// Why the runner beside this console has no token.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// The store.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The file.
    #[error("writing the runner's token")]
    File(#[from] io::Error),
}

/// Sees to it that this file has the token of a runner; one that is good is left as it is.
pub async fn runner_token(config: &ConsoleConfig, file: &Path) -> Result<(), LocalError> {
    let store = Store::open(&config.database)
        .await
        .map_err(ServeError::from)?;
    let done = keep_token(&store, file).await;
    store.close().await;
    done
}

async fn keep_token(store: &Store, file: &Path) -> Result<(), LocalError> {
    let now = clock::now();
    let there = std::fs::read_to_string(file).unwrap_or_default();
    if let Some(digest) = offered(Opens::Runner, there.trim())
        && store
            .runner(&digest, now)
            .await
            .map_err(ServeError::from)?
            .is_some()
    {
        return Ok(());
    }
    let secret = Secret::fresh(Opens::Runner).map_err(ServeError::from)?;
    store
        .add_runner(NAME, None, &secret.digest, now)
        .await
        .map_err(ServeError::from)?;
    if let Some(folder) = file.parent() {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
    }
    // written beside it and moved: a runner that reads meanwhile reads the old one or the new one
    let new = file.with_extension("new");
    let _ = std::fs::remove_file(&new);
    let mut options = std::fs::OpenOptions::new();
    let mut kept = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    io::Write::write_all(&mut kept, secret.text.as_bytes())?;
    kept.sync_all()?;
    std::fs::rename(&new, file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::store::testing::each;

    #[tokio::test]
    async fn a_token_is_kept_while_it_is_good_and_its_owners_alone() {
        each(async |store| {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("deep/token");
            keep_token(&store, &file).await.unwrap();
            let first = std::fs::read_to_string(&file).unwrap();
            assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
            keep_token(&store, &file).await.unwrap();
            assert_eq!(std::fs::read_to_string(&file).unwrap(), first);
            let runners = store.runners("", 10).await.unwrap();
            assert_eq!(runners.len(), 1);
            store.end_runner(&runners[0].id).await.unwrap();
            keep_token(&store, &file).await.unwrap();
            assert_ne!(std::fs::read_to_string(&file).unwrap(), first);
        })
        .await;
    }
}
