//! The file behind the leases of one network: one fact a line, appended with one write(2).
//!
//! Every line carries a checksum, so that a flipped bit is seen instead of believed. A last line without its end was
//! being written when the gateway died: nothing was answered on its ground, so it is cut off. The directory is on
//! /run: it must outlive the gateway, not the machine, so nothing is synced.

use std::hash::Hasher;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use netpolicy::name::Name;
use siphasher::sip::SipHasher13;

use super::LeaseError;

/// First line; another version is another text.
const HEADER: &str = "sallyport leases 1";

/// One durable fact.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Fact {
    /// The name counts against the budget.
    Asked(Name),
    /// The addresses stand for the name.
    Lease(Name, Ipv4Addr, Ipv6Addr),
    /// The real address was answered for the name.
    Bind(IpAddr, Name),
}

impl Fact {
    fn text(&self) -> String {
        match self {
            Self::Asked(name) => format!("asked {name}"),
            Self::Lease(name, v4, v6) => format!("lease {name} {v4} {v6}"),
            Self::Bind(address, name) => format!("bind {address} {name}"),
        }
    }

    fn line(&self) -> String {
        let text = self.text();
        format!("{text} {:016x}\n", checksum(&text))
    }

    fn parse(line: &str) -> Result<Self, &'static str> {
        let (text, sum) = line.rsplit_once(' ').ok_or("the line has no checksum")?;
        if format!("{:016x}", checksum(text)) != sum {
            return Err("the checksum does not fit the line");
        }
        let name =
            |text: &str| Name::parse_ascii(text.as_bytes()).map_err(|_| "the name is malformed");
        let mut words = text.split(' ');
        let fact = match (
            words.next(),
            words.next(),
            words.next(),
            words.next(),
            words.next(),
        ) {
            (Some("asked"), Some(n), None, None, None) => Self::Asked(name(n)?),
            (Some("lease"), Some(n), Some(v4), Some(v6), None) => {
                let v4 = v4.parse().map_err(|_| "the IPv4 address is malformed")?;
                Self::Lease(
                    name(n)?,
                    v4,
                    v6.parse().map_err(|_| "the IPv6 address is malformed")?,
                )
            }
            (Some("bind"), Some(address), Some(n), None, None) => Self::Bind(
                address.parse().map_err(|_| "the address is malformed")?,
                name(n)?,
            ),
            _ => return Err("the line says nothing that is known"),
        };
        Ok(fact)
    }
}

/// Against accidents, not against people: whoever can write this file can do worse.
fn checksum(text: &str) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(text.as_bytes());
    hasher.finish()
}

#[derive(Debug)]
pub(super) struct File {
    path: PathBuf,
    handle: std::fs::File,
    /// Octets known to be whole lines.
    length: u64,
    lines: usize,
    /// The last write failed and may have left a piece of a line.
    torn: bool,
}

impl File {
    /// Opens or makes the file and hands every fact to `restore`, in order.
    pub(super) fn open(
        path: &Path,
        mut restore: impl FnMut(Fact) -> Result<(), &'static str>,
    ) -> Result<Self, LeaseError> {
        let mut handle = options().read(true).open(path).map_err(LeaseError::Write)?;
        // a device could be read for ever
        if !handle.metadata().map_err(LeaseError::Write)?.is_file() {
            return Err(LeaseError::Write(std::io::ErrorKind::InvalidInput.into()));
        }
        let mut bytes = Vec::new();
        handle.read_to_end(&mut bytes).map_err(LeaseError::Write)?;
        let whole = bytes
            .iter()
            .rposition(|b| *b == b'\n')
            .map_or(0, |at| at + 1);
        let damaged = |line, what| LeaseError::Damaged {
            path: path.display().to_string(),
            line,
            what,
        };
        let text = std::str::from_utf8(bytes.get(..whole).unwrap_or_default());
        let text = text.map_err(|e| {
            damaged(
                lines_before(&bytes, e.valid_up_to()) + 1,
                "the line is not text",
            )
        })?;
        let mut lines = 0;
        for (index, line) in text.lines().enumerate() {
            if index == 0 {
                if line != HEADER {
                    return Err(damaged(
                        1,
                        "the file does not begin like leases of this version",
                    ));
                }
            } else {
                Fact::parse(line)
                    .and_then(&mut restore)
                    .map_err(|what| damaged(index + 1, what))?;
            }
            lines = index + 1;
        }
        let mut file = Self {
            path: path.to_owned(),
            handle,
            length: whole as u64,
            lines,
            torn: false,
        };
        if bytes.len() > whole {
            file.handle
                .set_len(file.length)
                .map_err(LeaseError::Write)?;
        }
        if lines == 0 {
            file.put(&format!("{HEADER}\n"), 1)?;
        }
        Ok(file)
    }

    /// Writes fail from now on, as on a full disk.
    #[cfg(test)]
    pub(super) fn break_handle(&mut self) {
        self.handle = std::fs::File::open(&self.path).expect("the file exists");
    }

    /// Lines so far.
    pub(super) fn lines(&self) -> usize {
        self.lines
    }

    /// Writes facts; when it returns, they outlive this process.
    pub(super) fn append(&mut self, facts: &[Fact]) -> Result<(), LeaseError> {
        let text: String = facts.iter().map(Fact::line).collect();
        self.put(&text, facts.len())
    }

    fn put(&mut self, text: &str, lines: usize) -> Result<(), LeaseError> {
        if self.torn {
            // what was written of a failed line must not become the beginning of this one
            self.handle
                .set_len(self.length)
                .map_err(LeaseError::Write)?;
        }
        self.torn = true;
        self.handle
            .write_all(text.as_bytes())
            .map_err(LeaseError::Write)?;
        self.torn = false;
        self.length = self.length.saturating_add(text.len() as u64);
        self.lines += lines;
        Ok(())
    }

    /// Replaces the file by one that says only these facts. The old one stays until the new one is whole.
    pub(super) fn rewrite(&mut self, facts: impl Iterator<Item = Fact>) -> Result<(), LeaseError> {
        let mut text = format!("{HEADER}\n");
        facts.for_each(|fact| text.push_str(&fact.line()));
        let beside = self.path.with_extension("new");
        let mut handle = options().open(&beside).map_err(LeaseError::Write)?;
        handle.set_len(0).map_err(LeaseError::Write)?;
        handle
            .write_all(text.as_bytes())
            .map_err(LeaseError::Write)?;
        std::fs::rename(&beside, &self.path).map_err(LeaseError::Write)?;
        *self = Self {
            path: std::mem::take(&mut self.path),
            handle,
            length: text.len() as u64,
            lines: text.lines().count(),
            torn: false,
        };
        Ok(())
    }
}

fn options() -> std::fs::OpenOptions {
    let mut options = std::fs::OpenOptions::new();
    options
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
    options
}

fn lines_before(bytes: &[u8], at: usize) -> usize {
    bytes.iter().take(at).filter(|b| **b == b'\n').count()
}
