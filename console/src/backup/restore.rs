//! Making a store of a backup.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde::de::DeserializeOwned;

use super::{BackupError, End, FORMAT, Head, Line, Opens, Summary, failed};
use crate::clock;
use crate::settings::Database;
use crate::store::dump::{Dumped, LoadError};
use crate::store::{KNOWN_VERSION, Store};
use crate::vault::key::{InstanceKey, KeyFile};

/// A run's output is kept in pieces; no row is longer than this.
const LONGEST_LINE: u64 = 64 << 20;

/// Where a backup is restored to.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The store to be: nothing may be in it.
    pub database: &'a Database,
    /// Where the instance key is kept, if it is inside.
    pub key_file: &'a Path,
}

/// Restores a backup. Nothing is touched before it opens; of what fails an empty database stays, which may be restored
/// into. Its file is not removed: a console that was started meanwhile has its store there.
pub async fn restore(into: Target<'_>, opens: &Opens, path: &Path) -> Result<Summary, BackupError> {
    let file = File::open(path).map_err(|source| failed("reading", path, source))?;
    let mut lines = Lines(BufReader::new(opens.decrypt(BufReader::new(file))?));
    let head: Head = lines.next()?.ok_or(BackupError::Broken("it is empty"))?;
    if head.format != FORMAT {
        return Err(BackupError::Broken("it begins in another way"));
    }
    if head.version > KNOWN_VERSION {
        let (found, known) = (head.version, KNOWN_VERSION);
        return Err(LoadError::Newer { found, known }.into());
    }
    let store = Store::untouched(into.database).await?;
    let restored = fill(&store, into.key_file, &head, &mut lines).await;
    store.close().await;
    restored
}

async fn fill<R: Read>(
    store: &Store,
    key_file: &Path,
    head: &Head,
    lines: &mut Lines<R>,
) -> Result<Summary, BackupError> {
    let kept = KeyFile::at(key_file.to_owned());
    let mut rows = Rows {
        lines,
        count: 0,
        end: None,
        kept: &kept,
        made: false,
    };
    let loaded = store.load(head.version, &mut rows, clock::now()).await;
    let (end, made) = (rows.end, rows.made);
    match (loaded, end) {
        (Ok(()), Some(end)) => Ok(Summary {
            rows: end.rows,
            at: head.at,
            has_key: end.key.is_some(),
            key_id: end.key_id,
        }),
        (result, _) => {
            if made {
                // only while no store needs it: an answer that got lost is no rollback
                let forget = || {
                    let _ = std::fs::remove_file(kept.path());
                };
                if let Err(error) = store.while_absent(forget).await {
                    tracing::warn!(%error, "the instance key of the backup stays: whether the store was made is not known");
                }
            }
            Err(result
                .err()
                .unwrap_or(BackupError::Broken("its end is missing")))
        }
    }
}

/// Rows out of a file: they end when its end was seen, and the key that was inside is kept by then.
struct Rows<'a, R> {
    lines: &'a mut Lines<R>,
    count: u64,
    end: Option<End>,
    kept: &'a KeyFile,
    /// The key was made here.
    made: bool,
}

impl<R: Read> Rows<'_, R> {
    fn read(&mut self) -> Result<Option<Dumped>, BackupError> {
        if self.end.is_some() {
            return Ok(None);
        }
        match self.lines.next()? {
            Some(Line::Row(table, row)) => {
                self.count += 1;
                Ok(Some(Dumped { table, row }))
            }
            Some(Line::End(end)) if end.rows == self.count => {
                // the last piece of the file is known to be its last one only when it was read to its end
                if self.lines.next::<serde_json::Value>()?.is_some() {
                    return Err(BackupError::Broken("something follows its end"));
                }
                self.keep(&end)?;
                self.end = Some(end);
                Ok(None)
            }
            Some(Line::End(_)) => Err(BackupError::Broken("rows are missing")),
            None => Err(BackupError::Broken("its end is missing")),
        }
    }

    /// Keeps the instance key: before the store is there, which does not open without it.
    fn keep(&mut self, end: &End) -> Result<(), BackupError> {
        let Some(text) = &end.key else { return Ok(()) };
        let key = InstanceKey::parse(text).ok_or(BackupError::Broken("the key in it is none"))?;
        match self.kept.read()? {
            Some(there) if there.id() == key.id() => {}
            Some(_) => {
                let file = self.kept.path().display();
                let told = format!("{file} holds another instance key than the backup");
                return Err(BackupError::Key(told));
            }
            None => self.made = self.kept.create(&key)?,
        }
        Ok(())
    }
}

impl<R: Read> Iterator for Rows<'_, R> {
    type Item = Result<Dumped, BackupError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

/// Lines of a stream, each a JSON text, none of them endless.
struct Lines<R>(BufReader<R>);

impl<R: Read> Lines<R> {
    fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, BackupError> {
        let mut line = Vec::new();
        let read = self
            .0
            .by_ref()
            .take(LONGEST_LINE)
            .read_until(b'\n', &mut line);
        read.map_err(|error| BackupError::Closed(error.to_string()))?;
        if line.is_empty() {
            return Ok(None);
        }
        let parsed = serde_json::from_slice(&line);
        parsed
            .map(Some)
            .map_err(|_| BackupError::Broken("a line is cut or foreign"))
    }
}
