//! Where the record is read from: the journal's own files, or the gateway where this user may not open them.
//!
//! Owns the choice, and reading lines from either. Refuses to own what lines mean. Lines go by one at a time, whichever
//! way they come; a record that was broken off is told, for a part of it would look like all of it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ::gateway::control::Client;
use ::gateway::record::{Reader, segment};
use serde_json::Value;

use super::{Shared, wait};
use crate::exit::Failure;

/// Names of networks that are remembered for a hint.
const MOST_NAMES: usize = 8;

/// A record that can be read.
#[derive(Debug)]
pub enum Journal {
    /// The folder of its segments.
    Folder(PathBuf),
    /// The gateway that writes it, which lets observers look.
    Gateway(Client),
}

impl Journal {
    /// The named folder, else the configured gateway's, else the gateway itself.
    pub fn find(named: Option<&Path>, shared: &Shared) -> Result<Self, Failure> {
        if let Some(folder) = named {
            return match is_open(folder) {
                Ok(true) => Ok(Self::Folder(folder.to_owned())),
                Ok(false) => Err(nothing(folder)),
                Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(unread(
                    folder, &error,
                )
                .hint(
                    "without the name of a folder, observers are given the record by the gateway",
                )),
                Err(error) => Err(unread(folder, &error)),
            };
        }
        let config = shared.load_to_ask()?.gateway;
        match is_open(&config.journal.dir) {
            Ok(true) => Ok(Self::Folder(config.journal.dir)),
            Ok(false) => Err(nothing(&config.journal.dir)),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                Ok(Self::Gateway(Client::new(config.control)))
            }
            Err(error) => Err(unread(&config.journal.dir, &error)),
        }
    }

    /// Gives out every line after a number as it stands, without its newline.
    pub fn each(
        &self,
        after: u64,
        take: &mut dyn FnMut(&str) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        match self {
            Self::Folder(folder) => {
                let failed = |e: std::io::Error| unread(folder, &e);
                let mut reader = Reader::open(folder, after).map_err(failed)?;
                while let Some(line) = reader.next_line().map_err(failed)? {
                    take(&line)?;
                }
                Ok(())
            }
            Self::Gateway(client) => wait(from_gateway(client, after, take)),
        }
    }
}

async fn from_gateway(
    client: &Client,
    after: u64,
    take: &mut dyn FnMut(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let counters = client.counters().await?;
    let last = counters.get("records").and_then(Value::as_u64);
    let last = last.unwrap_or_default();
    if after >= last {
        return Ok(());
    }
    let (mut lines, mut seen) = (client.records(after).await?, after);
    while let Some(line) = lines.next_bytes().await? {
        let line = String::from_utf8_lossy(&line);
        seen = seq_of(&line).unwrap_or(seen);
        take(&line)?;
    }
    if seen < last {
        return Err(Failure::new(format!(
            "the gateway broke the record off: {seen} of {last} came"
        )));
    }
    Ok(())
}

/// A line's number, wherever in it that stands.
fn seq_of(line: &str) -> Option<u64> {
    let value: Value = serde_json::from_str(line).ok()?;
    value.get("seq")?.as_u64()
}

/// Whether the folder holds a segment and this user may read it.
fn is_open(folder: &Path) -> std::io::Result<bool> {
    match segment::list(folder) {
        Ok(segments) => match segments.first() {
            Some(first) => std::fs::File::open(&first.path).map(|_| true),
            None => Ok(false),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// There is no record in a folder.
pub fn nothing(folder: &Path) -> Failure {
    Failure::new(format!("there is no journal at {}", folder.display())).hint(
        "a gateway makes one when it starts; name its folder with --journal or --record, or the gateway's configuration with --config",
    )
}

/// A record that cannot be read.
pub fn unread(folder: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("reading the journal {}: {error}", folder.display()))
}

/// Which networks a record is about, to tell a network without flows from a name that nobody had.
#[derive(Debug, Default)]
pub struct Networks {
    wanted: Option<String>,
    found: bool,
    others: Vec<String>,
}

impl Networks {
    /// Looks for this one.
    pub fn wanting(wanted: Option<&str>) -> Self {
        Self {
            wanted: wanted.map(str::to_owned),
            ..Self::default()
        }
    }

    /// A record of a network went by.
    pub fn saw(&mut self, network: &str) {
        if self
            .wanted
            .as_deref()
            .is_none_or(|wanted| wanted == network)
        {
            self.found = true;
        } else if !self.others.iter().any(|other| other == network) {
            // the youngest are the likeliest to be meant
            if self.others.len() == MOST_NAMES {
                self.others.remove(0);
            }
            self.others.push(network.to_owned());
        }
    }

    /// Fails if the wanted one never went by.
    pub fn known(&self) -> Result<(), Failure> {
        let Some(wanted) = self.wanted.as_deref().filter(|_| !self.found) else {
            return Ok(());
        };
        let hint = if self.others.is_empty() {
            "it holds nothing of any other either".to_owned()
        } else {
            format!("the last networks in it: {}", self.others.join(", "))
        };
        let message = format!("the record holds nothing of a network {wanted:?}");
        Err(Failure::new(message).hint(hint))
    }
}
