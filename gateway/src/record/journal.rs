//! Appending: one lock, one write(2), before the bytes of a flow move.
//!
//! A short or failed write is taken back, so the chain never has a hole. Space is allotted ahead of the writing end:
//! when the disk is full new flows are refused while closes and denials still have room. Retries happen by themselves:
//! every append and every tick tries again.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use netpolicy::ids::NetworkId;
use rustix::fs::{FallocateFlags, fallocate};
use tokio::sync::watch;

use super::age::Ages;
use super::chain::{self, Position};
use super::entry::Entry;
use super::fold::{Folds, Quota, Recorded, Verdict};
use super::head::Signatory;
use super::keep::CLOCK;
use super::{recover, segment, syslog};
use crate::context::now_ms;
use crate::metrics::Meters;
use crate::network::names;

/// Paths longer than this are cut in the record; a request line may be 64 KiB, and one entry must not be.
const PATH_LIMIT: usize = 2048;

/// Where the journal lives and how much of it is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalConfig {
    /// Folder of the segments.
    pub dir: PathBuf,
    /// Signing key.
    pub key: PathBuf,
    /// Where signed heads are anchored each minute.
    pub anchors: PathBuf,
    /// Where they are sent besides.
    pub syslog: Option<syslog::Target>,
    /// A segment is closed when it is this long.
    pub segment_bytes: u64,
    /// Space allotted ahead; half of it is the reserve for entries that are not new flows.
    pub ahead_bytes: u64,
    /// Older segments are removed.
    pub keep_ms: i64,
    /// The oldest segments above this are removed.
    pub keep_bytes: u64,
    /// Bytes that one network may write: a tenth of the whole by default, so that nobody pushes others' records out.
    pub network_bytes: u64,
    /// Entries that one network may write; a tenth of what the whole holds, at a kilobyte each.
    pub network_entries: u64,
}

impl JournalConfig {
    /// The defaults under a state folder: 64 MiB segments, 30 days, 10 GiB.
    pub fn under(state_dir: &Path) -> Self {
        Self {
            dir: state_dir.join("journal"),
            key: state_dir.join("journal.key"),
            anchors: state_dir.join("anchors.jsonl"),
            syslog: None,
            segment_bytes: 64 << 20,
            ahead_bytes: 1 << 20,
            keep_ms: 30 * 24 * 3600 * 1000,
            keep_bytes: 10 << 30,
            network_bytes: 1 << 30,
            network_entries: 1_000_000,
        }
    }
}

/// The journal cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{action} {path}")]
pub struct JournalError {
    /// What was being done.
    pub action: &'static str,
    /// To what.
    pub path: PathBuf,
    /// Why it failed.
    #[source]
    pub source: io::Error,
}

/// The journal cannot be written: new flows are refused.
#[derive(Debug, thiserror::Error)]
#[error("writing the journal")]
pub struct Unwritable(#[source] pub io::Error);

/// How far the journal is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalState {
    /// Number of the last line.
    pub last: u64,
    /// Lines that are not signed, and so perhaps not on disk.
    pub unsigned: u64,
    /// Length of all segments.
    pub bytes: u64,
}

/// The writing end.
#[derive(Debug)]
pub(super) struct Tail {
    pub file: Arc<File>,
    pub index: u64,
    pub length: u64,
    /// Bytes allotted in this segment; 0 where the file system cannot allot.
    pub allotted: u64,
    pub position: Position,
    line: Vec<u8>,
    body: Vec<u8>,
}

/// The hash-chained journal.
#[derive(Debug)]
pub struct Journal {
    pub(super) config: JournalConfig,
    pub(super) signatory: Signatory,
    pub(super) tail: Mutex<Tail>,
    folds: Mutex<Folds>,
    meters: Meters,
    /// The last write worked.
    working: AtomicBool,
    /// There is room for new flows, not only for the reserve.
    roomy: AtomicBool,
    written: watch::Sender<u64>,
    /// What the signed head on disk says; `None` until this process has signed one.
    pub(super) stated: Mutex<Option<Position>>,
    /// By which old segments are called old.
    pub(super) ages: Mutex<Ages>,
}

impl Journal {
    /// Opens or makes a journal. After an unclean end a torn tail is cut and the loss window is written down.
    pub fn open(config: JournalConfig) -> Result<Self, JournalError> {
        let fail = |action, path: &Path| {
            let path = path.to_owned();
            move |source| JournalError {
                action,
                path,
                source,
            }
        };
        fs::create_dir_all(&config.dir)
            .map_err(fail("making the journal's folder", &config.dir))?;
        let signatory =
            Signatory::open(&config.key).map_err(fail("opening the journal's key", &config.key))?;
        let found =
            recover::recover(&config.dir).map_err(fail("reading the journal in", &config.dir))?;
        let path = segment::path(&config.dir, found.index);
        let file = open_segment(&path).map_err(fail("opening the segment", &path))?;
        let length = file
            .metadata()
            .map_err(fail("measuring the segment", &path))?
            .len();
        let tail = Tail {
            file: Arc::new(file),
            index: found.index,
            length,
            allotted: 0,
            position: found.position,
            line: Vec::new(),
            body: Vec::new(),
        };
        let folds = Folds::new(Quota {
            bytes: config.network_bytes,
            entries: config.network_entries,
            keep_ms: config.keep_ms,
        });
        let ages = Ages::read(&config.dir.join(CLOCK), Instant::now(), now_ms());
        let journal = Self {
            signatory,
            tail: Mutex::new(tail),
            folds: Mutex::new(folds),
            meters: Meters::default(),
            working: AtomicBool::new(true),
            roomy: AtomicBool::new(true),
            written: watch::Sender::new(found.position.seq),
            stated: Mutex::new(None),
            ages: Mutex::new(ages),
            config,
        };
        journal.allot(&mut journal.tail());
        journal
            .state_head(super::head::About::Head)
            .map_err(fail("signing the head in", &journal.config.dir))?;
        if let Some(window_ms) = found.lost_ms {
            journal
                .write(&Entry::Gap { window_ms }, now_ms())
                .map_err(|e| fail("writing to", &path)(e.0))?;
        }
        Ok(journal)
    }

    /// Appends with write(2) before it returns. Denials are folded above a rate; a network that has used its quota
    /// opens no more flows.
    pub fn append(&self, mut entry: Entry) -> Result<(), Unwritable> {
        if Self::is_of_probe(&entry) {
            return Ok(());
        }
        let now = now_ms();
        cut_path(&mut entry);
        if matches!(entry, Entry::Open(_)) && !self.roomy.load(Ordering::Relaxed) {
            return Err(Unwritable(io::ErrorKind::StorageFull.into()));
        }
        let verdict = self.folds().admit(&entry, now);
        let appended = match verdict {
            Verdict::Write => self.write(&entry, now),
            Verdict::Folded => Ok(()),
            Verdict::OverQuota => Err(Unwritable(io::ErrorKind::QuotaExceeded.into())),
        };
        // A flow that cannot be recorded is refused; everything else happened whether or not it was written down.
        if appended.is_ok() || !matches!(entry, Entry::Open(_)) {
            self.meters.record(&entry);
        }
        appended
    }

    /// Flows of the gateway's own probes are not written one by one: what they show stands in the record as one selftest.
    fn is_of_probe(entry: &Entry) -> bool {
        let comes_or_goes = matches!(entry, Entry::Network(_));
        !comes_or_goes && entry.network().is_some_and(names::is_probe)
    }

    /// What a network holds of its share.
    pub fn recorded(&self, network: &NetworkId) -> Recorded {
        self.folds().recorded(network)
    }

    /// Goes on with what a network held when an earlier gateway ended.
    pub fn restore(&self, network: &NetworkId, recorded: Recorded) {
        self.folds().restore(network, recorded);
    }

    /// Whether new flows can be recorded; doors refuse them when not.
    pub fn writable(&self) -> bool {
        self.working.load(Ordering::Relaxed) && self.roomy.load(Ordering::Relaxed)
    }

    /// Follows the number of the last written line.
    pub fn written(&self) -> watch::Receiver<u64> {
        self.written.subscribe()
    }

    /// Number of the last written line.
    pub fn last(&self) -> u64 {
        *self.written.borrow()
    }

    /// What is counted. It lives here because every door reports here, and metrics are views of the same facts.
    pub fn meters(&self) -> &Meters {
        &self.meters
    }

    /// How far it is.
    pub fn state(&self) -> JournalState {
        let last = self.last();
        let signed = *self.stated.lock().unwrap_or_else(PoisonError::into_inner);
        let segments = segment::list(&self.config.dir).unwrap_or_default();
        let length = |s: &segment::Segment| fs::metadata(&s.path).map_or(0, |m| m.len());
        JournalState {
            last,
            unsigned: last.saturating_sub(signed.map_or(0, |p| p.seq)),
            bytes: segments.iter().map(length).sum(),
        }
    }

    /// The file of the anchors, for readers.
    pub fn anchors(&self) -> &Path {
        &self.config.anchors
    }

    /// The folder of the segments, for readers.
    pub fn dir(&self) -> &Path {
        &self.config.dir
    }

    /// Writes what was folded and is due, or all of it at an end.
    pub(super) fn settle(&self, all: bool) {
        let now = now_ms();
        let due = self.folds().due(now, all);
        for entry in due {
            if let Err(error) = self.write(&entry, now) {
                tracing::error!(error = %error.0, "folded denials could not be recorded");
            }
        }
    }

    /// Tries again where writing or allotting failed before.
    pub(super) fn retry(&self) {
        let mut tail = self.tail();
        self.allot(&mut tail);
        if !self.working.load(Ordering::Relaxed) && tail.file.set_len(tail.length).is_ok() {
            self.working.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn folds(&self) -> MutexGuard<'_, Folds> {
        self.folds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, entry: &Entry, now: i64) -> Result<(), Unwritable> {
        let mut tail = self.tail();
        let outcome = self.write_line(&mut tail, entry, now);
        self.working.store(outcome.is_ok(), Ordering::Relaxed);
        match outcome {
            Ok(bytes) => {
                self.written.send_replace(tail.position.seq);
                drop(tail);
                self.folds().wrote(entry, bytes);
                Ok(())
            }
            Err(error) => Err(Unwritable(error)),
        }
    }

    fn write_line(&self, tail: &mut Tail, entry: &Entry, now: i64) -> io::Result<u64> {
        if tail.length >= self.config.segment_bytes {
            self.rotate(tail)?;
        }
        tail.body.clear();
        serde_json::to_writer(&mut tail.body, entry)?;
        tail.line.clear();
        let next = chain::compose(tail.position, now, &tail.body, &mut tail.line);
        // At the known length, not at the file's end: what a failed write left there is written over.
        if let Err(error) = tail.file.write_all_at(&tail.line, tail.length) {
            // Best effort now, and again before the next success counts (`retry`); a reader ignores half a line.
            let _ = tail.file.set_len(tail.length);
            return Err(error);
        }
        let bytes = tail.line.len() as u64;
        tail.length += bytes;
        tail.position = next;
        if tail.allotted != 0 && tail.length + self.config.ahead_bytes / 2 > tail.allotted {
            self.allot(tail);
        }
        Ok(bytes)
    }

    /// Allots space ahead of the writing end, and says whether new flows still have room.
    fn allot(&self, tail: &mut Tail) {
        let wanted = tail.length + self.config.ahead_bytes;
        if tail.allotted >= wanted - self.config.ahead_bytes / 2 {
            return;
        }
        match fallocate(&*tail.file, FallocateFlags::KEEP_SIZE, 0, wanted) {
            Ok(()) => {
                tail.allotted = wanted;
                self.roomy.store(true, Ordering::Relaxed);
            }
            Err(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT) => {
                if self.roomy.swap(false, Ordering::Relaxed) {
                    tracing::error!(
                        "no space for the journal: new flows are refused until there is"
                    );
                }
            }
            // A file system that cannot allot ahead: a full disk is noticed by the write itself.
            Err(_) => {}
        }
    }

    fn rotate(&self, tail: &mut Tail) -> io::Result<()> {
        let fresh = open_segment(&segment::path(&self.config.dir, tail.index + 1))?;
        // Gives back what was allotted and not used.
        tail.file.set_len(tail.length)?;
        tail.file.sync_data()?;
        tail.file = Arc::new(fresh);
        tail.index += 1;
        tail.length = 0;
        tail.allotted = 0;
        self.allot(tail);
        File::open(&self.config.dir)?.sync_all()
    }
}

fn open_segment(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o640)
        .open(path)
}

fn cut_path(entry: &mut Entry) {
    if let Entry::Close(close) = entry
        && let Some((_, path)) = &mut close.http
        && path.len() > PATH_LIMIT
    {
        let end = (0..=PATH_LIMIT)
            .rev()
            .find(|i| path.is_char_boundary(*i))
            .unwrap_or(0);
        path.truncate(end);
    }
}
