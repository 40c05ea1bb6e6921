//! The file of used names: whole lines, appended, and now and then written anew.
//!
//! `MILLISECONDS UID NAME .` and a newline; the full stop tells a whole line from the beginning of one. Lines of before
//! (`MILLISECONDS NAME`) are read as root's. Invariant: what a failed write left is cut off or ended before the next line
//! is written, so that no line grows together with another.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use netpolicy::ids::NetworkId;
use sha2::{Digest, Sha256};

/// A name as it is remembered.
pub type Key = [u8; 16];

/// The longest line that is read: a name has 40 characters, numbers have 20.
const LONGEST: u64 = 128;
/// Old lines that are not worth writing the file anew.
const FEW: usize = 10_000;

/// The key of a name.
pub fn key(id: &NetworkId) -> Key {
    let hash = Sha256::digest(id.as_str());
    let mut key = Key::default();
    for (to, from) in key.iter_mut().zip(hash) {
        *to = from;
    }
    key
}

/// One event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Noted {
    /// Milliseconds since the epoch.
    pub at: i64,
    /// Whose network it was.
    pub uid: u32,
    /// Its name.
    pub id: NetworkId,
}

impl Noted {
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let (at, uid, id) = match words.as_slice() {
            [at, uid, id, "."] => (at, uid, id),
            [at, id] => (at, &"0", id),
            _ => return None,
        };
        Some(Self {
            at: at.parse().ok()?,
            uid: uid.parse().ok()?,
            id: id.parse().ok()?,
        })
    }

    fn line(&self) -> String {
        format!("{} {} {} .\n", self.at, self.uid, self.id)
    }
}

/// Reads every whole line; returns how many were none. A file that is not there has none.
pub fn read(path: &Path, mut each: impl FnMut(Noted)) -> io::Result<usize> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        opened => opened?,
    };
    let mut reader = BufReader::new(file);
    let (mut dropped, mut line) = (0, Vec::new());
    loop {
        line.clear();
        let mut limited = io::Read::take(&mut reader, LONGEST);
        if limited.read_until(b'\n', &mut line)? == 0 {
            return Ok(dropped);
        }
        let text = line
            .strip_suffix(b"\n")
            .and_then(|line| std::str::from_utf8(line).ok());
        match text.and_then(Noted::parse) {
            Some(noted) => each(noted),
            None => dropped += 1,
        }
    }
}

/// The file while it is written to.
#[derive(Debug)]
pub struct NotedFile {
    path: PathBuf,
    file: File,
    /// Bytes of whole lines.
    length: u64,
    lines: usize,
    /// A failed write left something behind them.
    torn: bool,
}

impl NotedFile {
    /// The file as it is; [`NotedFile::rewrite`] comes before the first line.
    pub fn closed(path: PathBuf) -> io::Result<Self> {
        let file = options().create(true).append(true).open(&path)?;
        Ok(Self {
            path,
            file,
            length: 0,
            lines: 0,
            torn: true,
        })
    }

    /// Writes one more line, whole or not at all.
    pub fn append(&mut self, noted: &Noted) -> io::Result<()> {
        let mut line = noted.line();
        if self.torn {
            line.insert(0, '\n');
        }
        if let Err(error) = self.file.write_all(line.as_bytes()) {
            self.torn = self.file.set_len(self.length).is_err() || self.torn;
            return Err(error);
        }
        self.torn = false;
        self.length = self.file.metadata()?.len();
        self.lines += 1;
        Ok(())
    }

    /// Whether most lines are of names that have later ones, or are forgotten.
    pub fn is_mostly_old(&self, live: usize) -> bool {
        self.lines > live.saturating_mul(4).saturating_add(FEW)
    }

    /// Writes the file anew, with what becomes of each line.
    pub fn rewrite(&mut self, mut keep: impl FnMut(Noted) -> Option<Noted>) -> io::Result<()> {
        let fresh = self.path.with_extension("new");
        let file = options()
            .create(true)
            .write(true)
            .truncate(true)
            .open(&fresh)?;
        let mut writer = BufWriter::new(file);
        let (mut lines, mut failed) = (0, None);
        read(&self.path, |noted| {
            if let Some(kept) = keep(noted)
                && failed.is_none()
            {
                failed = writer.write_all(kept.line().as_bytes()).err();
                lines += 1;
            }
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        let file = writer
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        fs::rename(&fresh, &self.path)?;
        self.file = options().append(true).open(&self.path)?;
        self.length = self.file.metadata()?.len();
        (self.lines, self.torn) = (lines, false);
        Ok(())
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(at: i64, id: &str) -> Noted {
        Noted {
            at,
            uid: 7,
            id: id.parse().unwrap(),
        }
    }

    fn all(path: &Path) -> (Vec<Noted>, usize) {
        let mut found = Vec::new();
        let dropped = read(path, |noted| found.push(noted)).unwrap();
        (found, dropped)
    }

    #[test]
    fn a_full_disk_leaves_no_half_line_for_the_next_one_to_grow_on() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().to_owned();
        // a disk of its own, in a mount namespace of its own: gone with the thread
        let outcome = std::thread::spawn(move || {
            use nix::mount::{MsFlags, mount};
            use nix::sched::{CloneFlags, unshare};
            unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS).unwrap();
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount(None::<&str>, "/", None::<&str>, private, None::<&str>).unwrap();
            let (none, size) = (MsFlags::empty(), Some("size=64k"));
            mount(Some("tmpfs"), &at, Some("tmpfs"), none, size).unwrap();
            let path = at.join("names");
            let mut file = NotedFile::closed(path.clone()).unwrap();
            file.rewrite(Some).unwrap();
            // a page is full in the middle of a line
            while file.length < 4_060 {
                file.append(&noted(1_796_000_000_000, "before")).unwrap();
            }
            let before = all(&path).0.len();
            let filler = fs::write(at.join("filler"), vec![0; 1 << 20]);
            assert!(filler.is_err(), "the disk is full");
            let refused = file.append(&noted(1_796_000_000_001, "does-not-fit-into-the-page"));
            assert!(refused.is_err());
            assert_eq!(
                all(&path),
                (vec![noted(1_796_000_000_000, "before"); before], 0)
            );
            fs::remove_file(at.join("filler")).unwrap();
            file.append(&noted(1_796_000_000_002, "afterwards"))
                .unwrap();
            let (found, dropped) = all(&path);
            assert_eq!((found.len(), dropped), (before + 1, 0));
            assert_eq!(found.last(), Some(&noted(1_796_000_000_002, "afterwards")));
        });
        outcome.join().unwrap();
    }
}
