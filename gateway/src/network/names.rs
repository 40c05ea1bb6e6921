//! Names of networks that are used up: a name that somebody wished names one network, ever.
//!
//! The record, its readers and whoever counts by network tell networks apart by name alone; a second network under the
//! same name would have its flows read as the first one's. So a wished name is written down when its network is attached
//! and again when it ends, and refused from then on for as long as the record of it may be kept. Names that the gateway
//! draws (`n` and 16 hex digits; `selftest-` and 16 of them) never come twice and are not written down; nobody can wish
//! one.
//!
//! Each user has a share of its own, and names of runs (`run-` and 16 hex digits) have one beside it: who uses its share
//! up takes nobody else's. Names are remembered as hashes; what is too old is forgotten while the gateway runs.
//!
//! `STATE_DIR/names`: one line for each event ([`super::noted`]). Failure stance: a name that cannot be written down is
//! not given out; what is no whole line (a crash, a full disk) is dropped.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use netpolicy::ids::NetworkId;

use super::noted::{self, Noted, NotedFile};

/// Names that one user may wish in the time for which the record is kept: more than anybody thinks of.
const MOST_WISHED: usize = 20_000;
/// Runs of one user in that time: 23 a minute over a month, and 50 MB.
const MOST_RUNS: usize = 1_000_000;
/// How the names of the selftest's networks begin.
pub const PROBE: &str = "selftest-";
/// How often what is too old is looked for.
const PRUNE_MS: i64 = 60_000;

/// Why a wished name is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NameError {
    /// An earlier network had it.
    #[error("the name {0} is used up: an earlier network had it, and their records would mix")]
    UsedUp(NetworkId),
    /// It looks like one of the gateway's own.
    #[error("names like {0} are drawn by the gateway")]
    Drawn(NetworkId),
    /// The user wished too many names.
    #[error("this user wished {0} names already in the time for which the record is kept")]
    Full(usize),
}

/// When a name was written down last, and whose it was.
#[derive(Clone, Copy, Debug)]
struct Last {
    at: i64,
    uid: u32,
    is_run: bool,
}

/// Wished names of live and of former networks.
#[derive(Debug)]
pub struct Names {
    file: NotedFile,
    last: HashMap<noted::Key, Last>,
    /// Names of each user: wished, and of runs.
    shares: HashMap<(u32, bool), usize>,
    keep_ms: i64,
    pruned: i64,
}

impl Names {
    /// Reads what is kept and forgets what is older than the record can be.
    pub fn open(state_dir: &Path, now: i64, keep_ms: i64) -> io::Result<Self> {
        let path = state_dir.join("names");
        let mut last = HashMap::new();
        let dropped = noted::read(&path, |line| {
            let key = noted::key(&line.id);
            // a clock that was ahead does not keep a name for longer than it would be kept from now on
            let fresh = Last {
                at: line.at.min(now),
                uid: line.uid,
                is_run: is_run(&line.id),
            };
            last.insert(key, fresh);
        })?;
        if dropped > 0 {
            tracing::warn!(dropped, file = %path.display(), "lines that are no whole names were dropped");
        }
        let mut names = Self {
            file: NotedFile::closed(path)?,
            last,
            shares: HashMap::new(),
            keep_ms,
            pruned: now,
        };
        names.forget(now);
        names.rewrite()?;
        Ok(names)
    }

    /// Whether a user may have the name that it wishes.
    pub fn may_have(&mut self, id: &NetworkId, uid: u32, now: i64) -> Result<(), NameError> {
        if is_drawn(id) {
            return Err(NameError::Drawn(id.clone()));
        }
        // the other way round: a clock that was set back
        if !(0..PRUNE_MS).contains(&now.saturating_sub(self.pruned)) {
            self.forget(now);
        }
        if self.last.contains_key(&noted::key(id)) {
            return Err(NameError::UsedUp(id.clone()));
        }
        let most = if is_run(id) { MOST_RUNS } else { MOST_WISHED };
        let had = self.shares.get(&(uid, is_run(id))).copied();
        if had.is_some_and(|had| had >= most) {
            return Err(NameError::Full(most));
        }
        Ok(())
    }

    /// Writes a name down before its network is acknowledged, and again when it ends. Drawn names need no line.
    pub fn note(&mut self, id: &NetworkId, uid: u32, now: i64) -> io::Result<()> {
        if is_drawn(id) {
            return Ok(());
        }
        let (id, is_run) = (id.clone(), is_run(id));
        let key = noted::key(&id);
        self.file.append(&Noted { at: now, uid, id })?;
        let fresh = Last {
            at: now,
            uid,
            is_run,
        };
        if self.last.insert(key, fresh).is_none() {
            *self.shares.entry((uid, is_run)).or_default() += 1;
        }
        if self.file.is_mostly_old(self.last.len()) {
            // the lines that are there stay good
            let rewritten = self.rewrite();
            if let Err(error) = rewritten {
                tracing::warn!(%error, "the file of used names could not be made smaller");
            }
        }
        Ok(())
    }

    /// Forgets what is older than the record can be.
    fn forget(&mut self, now: i64) {
        self.pruned = now;
        let keep_ms = self.keep_ms;
        self.last
            .retain(|_, last| now.saturating_sub(last.at) <= keep_ms);
        self.shares.clear();
        for last in self.last.values() {
            *self.shares.entry((last.uid, last.is_run)).or_default() += 1;
        }
    }

    /// Leaves only lines of names that are remembered, each once.
    fn rewrite(&mut self) -> io::Result<()> {
        let mut left = self.last.clone();
        self.file.rewrite(|line| {
            let last = left.remove(&noted::key(&line.id))?;
            Some(Noted {
                at: last.at,
                uid: last.uid,
                id: line.id,
            })
        })
    }
}

/// Whether a name has the form of those that the gateway draws.
pub fn is_drawn(id: &NetworkId) -> bool {
    id.as_str().strip_prefix('n').is_some_and(is_hex16) || is_probe(id)
}

/// Whether a network is one of the gateway's own, in which it tries itself: nobody's traffic.
pub fn is_probe(id: &NetworkId) -> bool {
    id.as_str().strip_prefix(PROBE).is_some_and(is_hex16)
}

/// A fresh name for a network of the selftest.
pub(crate) fn probe() -> io::Result<NetworkId> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|e| io::Error::other(e.to_string()))?;
    let name = format!("{PROBE}{:016x}", u64::from_be_bytes(random));
    name.parse().map_err(io::Error::other)
}

/// Whether a name has the form of those that runners wish for their runs.
fn is_run(id: &NetworkId) -> bool {
    id.as_str().strip_prefix("run-").is_some_and(is_hex16)
}

fn is_hex16(digits: &str) -> bool {
    digits.len() == 16
        && digits
            .bytes()
            .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const MONTH: i64 = 30 * 24 * 3_600_000;

    fn id(text: &str) -> NetworkId {
        text.parse().unwrap()
    }

    fn used_up(text: &str) -> Result<(), NameError> {
        Err(NameError::UsedUp(id(text)))
    }

    #[test]
    fn a_name_is_refused_after_a_restart_too_until_its_record_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let mut names = Names::open(dir.path(), 0, MONTH).unwrap();
        assert_eq!(names.may_have(&id("dev"), 7, 0), Ok(()));
        names.note(&id("dev"), 7, 1).unwrap();
        assert_eq!(names.may_have(&id("dev"), 8, 1), used_up("dev"));
        // it ended a month after it was attached: its last records are as young as that
        names.note(&id("dev"), 7, MONTH).unwrap();
        let mut names = Names::open(dir.path(), 2 * MONTH, MONTH).unwrap();
        assert_eq!(names.may_have(&id("dev"), 7, 2 * MONTH), used_up("dev"));
        assert_eq!(names.may_have(&id("other"), 7, 2 * MONTH), Ok(()));
        // and it is forgotten without a restart
        let later = 2 * MONTH + PRUNE_MS;
        assert_eq!(names.may_have(&id("dev"), 7, later), Ok(()));
        let mut names = Names::open(dir.path(), 2 * MONTH + 1, MONTH).unwrap();
        assert_eq!(names.may_have(&id("dev"), 7, 2 * MONTH + 1), Ok(()));
        assert_eq!(fs::read_to_string(dir.path().join("names")).unwrap(), "");
    }

    #[test]
    fn names_like_drawn_ones_cannot_be_wished_and_others_that_begin_so_can() {
        let dir = tempfile::tempdir().unwrap();
        let mut names = Names::open(dir.path(), 0, MONTH).unwrap();
        let drawn = id("n0123456789abcdef");
        let refused = Err(NameError::Drawn(drawn.clone()));
        assert_eq!(names.may_have(&drawn, 7, 0), refused);
        names.note(&drawn, 7, 1).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("names")).unwrap(), "");
        let probe = probe().unwrap();
        assert!(is_probe(&probe) && !is_probe(&drawn));
        let refused = Err(NameError::Drawn(probe.clone()));
        assert_eq!(names.may_have(&probe, 7, 0), refused);
        for text in [
            "n",
            "nightly",
            "n0123456789abcde",
            "n0123456789abcdeg",
            "selftest-mine",
        ] {
            assert_eq!(names.may_have(&id(text), 7, 0), Ok(()), "{text}");
        }
    }

    #[test]
    fn who_wished_too_many_names_takes_none_of_anybody_elses_nor_of_the_runs() {
        let dir = tempfile::tempdir().unwrap();
        let mut names = Names::open(dir.path(), 0, MONTH).unwrap();
        for n in 0..MOST_WISHED {
            names.note(&id(&format!("w{n}")), 7, 1).unwrap();
        }
        let full = Err(NameError::Full(MOST_WISHED));
        assert_eq!(names.may_have(&id("more"), 7, 1), full);
        assert_eq!(names.may_have(&id("more"), 8, 1), Ok(()));
        let run = id("run-0123456789abcdef");
        assert_eq!(names.may_have(&run, 7, 1), Ok(()));
        names.note(&run, 7, 1).unwrap();
        // no run's name comes twice either
        assert!(names.may_have(&run, 7, 1).is_err());
        let mut names = Names::open(dir.path(), 2, MONTH).unwrap();
        assert_eq!(names.may_have(&id("more"), 7, 2), full);
        let later = 2 + MONTH + PRUNE_MS;
        assert_eq!(names.may_have(&id("more"), 7, later), Ok(()));
    }

    #[test]
    fn a_long_life_does_not_make_the_file_long() {
        let dir = tempfile::tempdir().unwrap();
        let mut names = Names::open(dir.path(), 0, MONTH).unwrap();
        for round in 0..30_000 {
            names.note(&id("dev"), 7, round).unwrap();
        }
        let text = fs::read_to_string(dir.path().join("names")).unwrap();
        assert!(text.lines().count() < 20_000, "{}", text.lines().count());
        let mut names = Names::open(dir.path(), 30_000, MONTH).unwrap();
        assert_eq!(names.may_have(&id("dev"), 7, 30_000), used_up("dev"));
    }

    #[test]
    fn torn_and_damaged_lines_are_dropped_and_never_keep_a_gateway_from_starting() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("names");
        let whole = "5 7 dev .\n";
        let text = format!("{whole}4 old\nnonsense\n6 7 fu1796 7 merged .\n\u{0}\n6 7 ot");
        fs::write(&path, text).unwrap();
        let mut names = Names::open(dir.path(), 7, MONTH).unwrap();
        for free in ["ot", "fu1796", "nonsense", "merged"] {
            assert_eq!(names.may_have(&id(free), 7, 7), Ok(()), "{free}");
        }
        for taken in ["dev", "old"] {
            assert_eq!(names.may_have(&id(taken), 7, 7), used_up(taken));
        }
        let mut left: Vec<String> = fs::read_to_string(&path)
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect();
        left.sort();
        assert_eq!(left, ["4 0 old .", "5 7 dev ."]);
        // a time far ahead does not keep the name for ever
        fs::write(&path, format!("{} 7 dev .\n", i64::MAX)).unwrap();
        let mut names = Names::open(dir.path(), 7, MONTH).unwrap();
        let later = 7 + MONTH + PRUNE_MS;
        assert_eq!(names.may_have(&id("dev"), 7, later), Ok(()));
    }
}
