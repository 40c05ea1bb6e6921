//! `sallyport keys`: the instance key that wraps every secret at rest.

use clap::Subcommand;
use console::store::Store;
use console::vault::{Vault, VaultError};

use super::{Shared, wait};
use crate::exit::{Failure, Outcome, Verdict};
use crate::show::{self, Format};

const ROTATE: &str = "\
Makes another key and wraps every secret with it, while consoles go on serving; nothing is decrypted on the way out. The \
new key lies beside the old one (FILE.next) until nothing needs the old one any more, then takes its place. If it is \
interrupted, even by kill -9, run it again. Where several consoles share a store, give each machine the file FILE.next \
first, or share the folder. Keep a copy of the new key where you keep the old one's.";

const FORGET: &str = "\
For who has lost the key for good. Every secret of every workspace is deleted; names, accounts and everything else stay. \
Consoles must be started again afterwards.";

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Replace the instance key without loss, while consoles serve
    #[command(after_help = ROTATE)]
    Rotate {
        /// Also sign everybody out
        #[arg(long)]
        revoke_sessions: bool,
    },
    /// Say which key is in use, and whether the file has it
    Show,
    /// Delete every secret, because the key is lost
    #[command(after_help = FORGET)]
    Forget {
        /// That every secret is to be deleted
        #[arg(long, required = true)]
        i_lose_every_secret: bool,
    },
}

pub fn perform(verb: &Verb, shared: &Shared) -> Verdict {
    let config = shared.load()?.console;
    wait(async {
        let store = Store::open(&config.database).await;
        let store = store.map_err(|error| failure(&VaultError::Store(error)))?;
        let vault = Vault::at(config.key_file.clone());
        let done = work(verb, shared, &store, &vault).await;
        store.close().await;
        done.map_err(|error| failure(&error))?
    })
}

async fn work(
    verb: &Verb,
    shared: &Shared,
    store: &Store,
    vault: &Vault,
) -> Result<Verdict, VaultError> {
    let json = matches!(shared.format(), Format::Json);
    let file = vault.file().display().to_string();
    match verb {
        Verb::Rotate { revoke_sessions } => {
            let rotated = vault.rotate(store).await?;
            let ended = if *revoke_sessions {
                store.end_every_session().await?
            } else {
                0
            };
            let (key, values) = (&rotated.key, rotated.values);
            let told = if json {
                show::json(
                    &serde_json::json!({ "key": key, "values": values, "sessions_ended": ended }),
                )
            } else {
                show::out(format_args!(
                    "{file} holds the new key {key}; it wraps {values} more values; {ended} sessions ended"
                ))
            };
            Ok(told.map(|()| Outcome::Good))
        }
        Verb::Show => {
            vault.ready(store).await?;
            let ring = store.ring().await?;
            let current = ring
                .iter()
                .find(|key| key.current)
                .map_or("", |key| &key.id);
            let turning = ring.len() > 1;
            let told = if json {
                show::json(
                    &serde_json::json!({ "key": current, "file": file, "rotating": turning }),
                )
            } else if turning {
                show::out(format_args!(
                    "{current} in {file}; a rotation was interrupted, `sallyport keys rotate` finishes it"
                ))
            } else {
                show::out(format_args!("{current} in {file}"))
            };
            Ok(told.map(|()| Outcome::Good))
        }
        Verb::Forget { .. } => {
            let lost = vault.forget(store).await?;
            let told = if json {
                show::json(&serde_json::json!({ "deleted": lost }))
            } else {
                show::out(format_args!("{lost} secrets are deleted"))
            };
            Ok(told.map(|()| Outcome::Good))
        }
    }
}

fn failure(error: &VaultError) -> Failure {
    let mut failure = Failure::from_error(error);
    failure.hint = error.hint().map(str::to_owned);
    failure
}
