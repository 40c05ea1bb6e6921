//! Names of networks that are used up: a name that somebody wished names one network, ever.
//!
//! The record, its readers and whoever counts by network tell networks apart by name alone; a second network under the
//! same name would have its flows read as the first one's. So a wished name is written down when its network is attached
//! and again when it ends, and refused from then on for as long as the record of it may be kept. Names that the gateway
//! draws (`n` and 16 hex digits) never come twice and are not written down; nobody can wish one.
//!
//! `STATE_DIR/names`: one line for each event, milliseconds and name. Failure stance: a name that cannot be written down
//! is not given out; half a line at the end (a crash) is dropped.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use netpolicy::ids::NetworkId;

/// Wished names remembered at once: more than anybody needs in a month, and a few megabytes.
const MOST: usize = 100_000;

/// Why a wished name is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NameError {
    /// An earlier network had it.
    #[error("the name {0} is used up: an earlier network had it, and their records would mix")]
    UsedUp(NetworkId),
    /// It looks like one of the gateway's own.
    #[error("names like {0} are drawn by the gateway")]
    Drawn(NetworkId),
    /// Too many names were wished.
    #[error("{MOST} names were wished already")]
    Full,
}

/// Wished names of live and of former networks.
#[derive(Debug)]
pub struct Names {
    file: File,
    /// When each was written down last.
    last: HashMap<NetworkId, i64>,
}

impl Names {
    /// Reads what is kept and forgets what is older than the record can be.
    pub fn open(state_dir: &Path, now: i64, keep_ms: i64) -> io::Result<Self> {
        let path = state_dir.join("names");
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read?,
        };
        let mut last = HashMap::new();
        // a line is whole only with its end
        for line in text
            .split_inclusive('\n')
            .filter_map(|l| l.strip_suffix('\n'))
        {
            let parsed = line.split_once(' ').and_then(|(at, id)| {
                Some((at.parse::<i64>().ok()?, id.parse::<NetworkId>().ok()?))
            });
            let Some((at, id)) = parsed else {
                let text = format!("{}: {line:?} is no name with its time", path.display());
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            };
            last.insert(id, at);
        }
        last.retain(|_, at| now.saturating_sub(*at) <= keep_ms);
        let mut text = String::new();
        for (id, at) in &last {
            text.push_str(&line(*at, id));
        }
        let fresh = path.with_extension("new");
        let options = |file: &mut OpenOptions| file.create(true).mode(0o600).to_owned();
        let mut file = options(OpenOptions::new().write(true).truncate(true)).open(&fresh)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&fresh, &path)?;
        let file = options(OpenOptions::new().append(true)).open(&path)?;
        Ok(Self { file, last })
    }

    /// Whether a wished name may be given out.
    pub fn may_have(&self, id: &NetworkId) -> Result<(), NameError> {
        if is_drawn(id) {
            return Err(NameError::Drawn(id.clone()));
        }
        if self.last.contains_key(id) {
            return Err(NameError::UsedUp(id.clone()));
        }
        if self.last.len() >= MOST {
            return Err(NameError::Full);
        }
        Ok(())
    }

    /// Writes a name down before its network is acknowledged, and again when it ends. Drawn names need no line.
    pub fn note(&mut self, id: &NetworkId, now: i64) -> io::Result<()> {
        if is_drawn(id) {
            return Ok(());
        }
        self.file.write_all(line(now, id).as_bytes())?;
        self.last.insert(id.clone(), now);
        Ok(())
    }
}

fn line(at: i64, id: &NetworkId) -> String {
    format!("{at} {id}\n")
}

/// Whether a name has the form of those that the gateway draws.
pub fn is_drawn(id: &NetworkId) -> bool {
    id.as_str().strip_prefix('n').is_some_and(|digits| {
        digits.len() == 16
            && digits
                .bytes()
                .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MONTH: i64 = 30 * 24 * 3_600_000;

    fn id(text: &str) -> NetworkId {
        text.parse().unwrap()
    }

    #[test]
    fn a_name_is_refused_after_a_restart_too_until_its_record_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let mut names = Names::open(dir.path(), 0, MONTH).unwrap();
        assert_eq!(names.may_have(&id("dev")), Ok(()));
        names.note(&id("dev"), 1).unwrap();
        assert_eq!(
            names.may_have(&id("dev")),
            Err(NameError::UsedUp(id("dev")))
        );
        // it ended a month after it was attached: its last records are as young as that
        names.note(&id("dev"), MONTH).unwrap();
        let names = Names::open(dir.path(), 2 * MONTH, MONTH).unwrap();
        assert_eq!(
            names.may_have(&id("dev")),
            Err(NameError::UsedUp(id("dev")))
        );
        assert_eq!(names.may_have(&id("other")), Ok(()));
        let names = Names::open(dir.path(), 2 * MONTH + 1, MONTH).unwrap();
        assert_eq!(names.may_have(&id("dev")), Ok(()));
    }

    #[test]
    fn names_like_drawn_ones_cannot_be_wished_and_others_that_begin_so_can() {
        let dir = tempfile::tempdir().unwrap();
        let mut names = Names::open(dir.path(), 0, MONTH).unwrap();
        let drawn = id("n0123456789abcdef");
        assert_eq!(names.may_have(&drawn), Err(NameError::Drawn(drawn.clone())));
        names.note(&drawn, 1).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("names")).unwrap(), "");
        for text in ["n", "nightly", "n0123456789abcde", "n0123456789abcdeg"] {
            assert_eq!(names.may_have(&id(text)), Ok(()), "{text}");
        }
    }

    #[test]
    fn half_a_line_is_dropped_and_a_damaged_one_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("names");
        fs::write(&path, "5 dev\n6 ot").unwrap();
        let names = Names::open(dir.path(), 7, MONTH).unwrap();
        assert_eq!(names.may_have(&id("ot")), Ok(()));
        assert!(names.may_have(&id("dev")).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "5 dev\n");
        fs::write(&path, "dev\n").unwrap();
        assert!(Names::open(dir.path(), 7, MONTH).is_err());
    }
}
