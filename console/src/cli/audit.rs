//! `sallyport audit`: the log of what people and tokens changed. `list` asks a console for a workspace's; `verify` and
//! `export` read all of it from the console's store, so that its chain can be followed.

use clap::{Args, Subcommand};
use console::store::Store;
use console::store::audit::Chain;

use serde_json::Value;

use super::remote::{At, Session, cell, text, time};
use super::{Shared, wait};
use crate::exit::{Failure, Outcome, Verdict};
use crate::show::{self, Format};

/// Entries that are read at once.
const AT_ONCE: i64 = 1000;

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Entries of a workspace's log, by a token of one of its admins that may write: the newest, or all after one
    List(List),
    /// Follow the hash chain from its first entry; keep the head elsewhere to notice when the newest entries are gone
    Verify,
    /// Print every entry as a line of JSON
    Export,
}

const LIST_HELP: &str = "\
Examples:
  sallyport audit list
  sallyport audit list --after 1200 --limit 10000 -o json";

/// `sallyport audit list`
#[derive(Debug, Args)]
#[command(after_help = LIST_HELP)]
pub struct List {
    /// Entries after this number, oldest first [default: the newest]
    #[arg(long, value_name = "SEQ", value_parser = clap::value_parser!(i64).range(0..))]
    after: Option<i64>,
    /// At most so many
    #[arg(long, default_value_t = 50, value_name = "N")]
    limit: usize,
    #[command(flatten)]
    at: At,
}

fn list(list: &List, shared: &Shared) -> Verdict {
    let entries = wait(async {
        let session = list.at.enter().await?;
        entries(&session, list).await
    })?;
    list.at
        .form(shared)
        .print(&Value::Array(entries.clone()), || {
            let row = |entry: &Value| {
                let of = |key: &str| cell(&text(entry, key));
                [
                    of("seq"),
                    time(entry, "at"),
                    of("action"),
                    of("subject"),
                    of("credential"),
                    of("address"),
                    of("status"),
                ]
            };
            show::table(
                ["seq", "at", "action", "of", "by", "from", "status"],
                entries.iter().map(row),
            )
        })?;
    Ok(Outcome::Good)
}

/// Pages of entries until there are enough, or no more.
async fn entries(session: &Session, list: &List) -> Result<Vec<Value>, Failure> {
    let mut entries: Vec<Value> = Vec::new();
    // before the first that there can be: from the newest on
    let (word, mut seq) = match list.after {
        Some(after) => ("after", after),
        None => ("before", i64::MAX),
    };
    while entries.len() < list.limit {
        let path = session.path(&format!("audit?{word}={seq}"));
        let page = session.client.get(&path).await?.body;
        let items = page
            .get("items")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        let last = items.last().and_then(|entry| entry.get("seq")?.as_i64());
        let Some(last) = last.filter(|last| {
            if list.after.is_some() {
                *last > seq
            } else {
                *last < seq
            }
        }) else {
            break;
        };
        seq = last;
        entries.extend(items);
    }
    entries.truncate(list.limit);
    Ok(entries)
}

pub fn perform(verb: &Verb, shared: &Shared) -> Verdict {
    if let Verb::List(arguments) = verb {
        return list(arguments, shared);
    }
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
