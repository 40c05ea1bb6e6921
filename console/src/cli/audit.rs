//! `sallyport audit`: the log of what people and tokens changed, read from the console's store.

use clap::Subcommand;
use console::store::Store;
use console::store::audit::Chain;

use super::{Shared, wait};
use crate::exit::{Failure, Outcome, Verdict};
use crate::show::{self, Format};

/// Entries that are read at once.
const AT_ONCE: i64 = 1000;

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Follow the hash chain from its first entry; keep the head elsewhere to notice when the newest entries are gone
    Verify,
    /// Print every entry as a line of JSON
    Export,
}

pub fn perform(verb: &Verb, shared: &Shared) -> Verdict {
    let config = shared.load()?.console;
    let format = shared.format();
    wait(async {
        let store = Store::open(&config.database).await.map_err(|error| {
            let failure = Failure::from_error(&error);
            match error.hint() {
                Some(hint) => failure.hint(hint),
                None => failure,
            }
        })?;
        let read = read(&store, matches!(verb, Verb::Export), format).await;
        store.close().await;
        read
    })
}

async fn read(store: &Store, export: bool, format: Format) -> Verdict {
    let mut chain = Chain::default();
    let mut seen = 0;
    loop {
        let entries = store.audit_after(None, seen, AT_ONCE).await;
        let entries = entries.map_err(|error| Failure::from_error(&error))?;
        let Some(last) = entries.last() else { break };
        seen = last.seq;
        for entry in &entries {
            if export {
                show::json_line(entry)?;
            } else if let Err(broken) = chain.follow(entry) {
                match format {
                    Format::Json => {
                        show::json(&serde_json::json!({ "ok": false, "entry": broken.0 }))?;
                    }
                    Format::Text => show::out(broken)?,
                }
                return Ok(Outcome::Negative);
            }
        }
    }
    match format {
        _ if export => {}
        Format::Json => show::json(
            &serde_json::json!({ "ok": true, "entries": chain.entries, "head": chain.head }),
        )?,
        Format::Text => show::out(format_args!(
            "{} entries hold; head {}",
            chain.entries, chain.head
        ))?,
    }
    Ok(Outcome::Good)
}
