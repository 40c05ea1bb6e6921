//! The form of one journal line and the chain of hashes that ties it to the one before.
//!
//! A line is `{"seq":N,"t":MS,"prev":"…","hash":"…",…entry…}` in exactly this order. `hash` is SHA-256 over the 32
//! bytes of `prev` and the line's text without its two hashes (`{"seq":N,"t":MS,…entry…}`), so that a verifier works
//! on bytes and never has to serialise anything again. Owns no file and no clock.

use sha2::{Digest, Sha256};

/// One link: the hash of a line.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Link(pub [u8; 32]);

impl Link {
    /// What the first line of a journal follows.
    pub const ORIGIN: Self = Self([0; 32]);

    /// Reads 64 lower-case hex digits.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 64
            || !digits
                .iter()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(b))
        {
            return None;
        }
        let mut out = [0; 32];
        for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(out))
    }

    fn write_hex(self, into: &mut Vec<u8>) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        for byte in self.0 {
            for nibble in [byte >> 4, byte & 15] {
                into.push(DIGITS.get(usize::from(nibble)).copied().unwrap_or(b'0'));
            }
        }
    }
}

impl std::fmt::Display for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// A position in the chain: the number and hash of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// Number of the line, from 1; 0 before the first.
    pub seq: u64,
    /// Its hash.
    pub link: Link,
}

impl Position {
    /// Before the first line.
    pub const ORIGIN: Self = Self {
        seq: 0,
        link: Link::ORIGIN,
    };
}

/// Composes the line that follows a position. `body` is the entry's JSON object.
pub fn compose(after: Position, t: i64, body: &[u8], line: &mut Vec<u8>) -> Position {
    let seq = after.seq + 1;
    let fields = body.get(1..).unwrap_or(b"}");
    let start = format!("{{\"seq\":{seq},\"t\":{t},");
    let link = hash(after.link, start.as_bytes(), fields);
    line.extend_from_slice(start.as_bytes());
    line.extend_from_slice(b"\"prev\":\"");
    after.link.write_hex(line);
    line.extend_from_slice(b"\",\"hash\":\"");
    link.write_hex(line);
    line.extend_from_slice(b"\",");
    line.extend_from_slice(fields);
    line.push(b'\n');
    Position { seq, link }
}

fn hash(prev: Link, start: &[u8], fields: &[u8]) -> Link {
    let mut hasher = Sha256::new();
    hasher.update(prev.0);
    hasher.update(start);
    hasher.update(fields);
    Link(hasher.finalize().into())
}

/// A line taken apart, before anything about it is believed.
#[derive(Clone, Copy, Debug)]
pub struct Parsed {
    /// Its number.
    pub seq: u64,
    /// Milliseconds since the epoch.
    pub t: i64,
    /// The hash it claims to follow.
    pub prev: Link,
    /// The hash it claims.
    pub hash: Link,
    /// The hash that its bytes have.
    pub computed: Link,
}

/// Takes a line (without its newline) apart; `None` if it does not have the form.
pub fn parse(line: &str) -> Option<Parsed> {
    let rest = line.strip_prefix("{\"seq\":")?;
    let (seq, rest) = rest.split_once(",\"t\":")?;
    let (t, rest) = rest.split_once(",\"prev\":\"")?;
    let (prev, rest) = rest.split_once("\",\"hash\":\"")?;
    let (hash_text, fields) = rest.split_once("\",")?;
    let canonical = |digits: &str, number: String| (number == digits).then_some(());
    let (number, time) = (seq.parse::<u64>().ok()?, t.parse::<i64>().ok()?);
    canonical(seq, number.to_string())?;
    canonical(t, time.to_string())?;
    let (prev, claimed) = (Link::parse(prev)?, Link::parse(hash_text)?);
    let start = format!("{{\"seq\":{number},\"t\":{time},");
    let computed = hash(prev, start.as_bytes(), fields.as_bytes());
    Some(Parsed {
        seq: number,
        t: time,
        prev,
        hash: claimed,
        computed,
    })
}

impl Parsed {
    /// Whether this line is the one that follows a position, unchanged.
    pub fn follows(&self, position: Position) -> bool {
        self.seq == position.seq + 1 && self.prev == position.link && self.hash == self.computed
    }

    /// Where the chain stands after this line, by its own word.
    pub fn position(&self) -> Position {
        Position {
            seq: self.seq,
            link: self.hash,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_changed_byte_of_a_line_is_seen_and_the_line_itself_follows() {
        let mut line = Vec::new();
        let at = compose(
            Position::ORIGIN,
            1_700_000_000_000,
            br#"{"kind":"gap","window_ms":1000}"#,
            &mut line,
        );
        let text = std::str::from_utf8(&line).unwrap().trim_end();
        assert!(parse(text).unwrap().follows(Position::ORIGIN));
        assert_eq!(parse(text).unwrap().position(), at);
        for i in 0..text.len() {
            let mut bytes = text.as_bytes().to_vec();
            bytes[i] = if bytes[i] == b'7' { b'8' } else { b'7' };
            let changed = String::from_utf8(bytes).unwrap();
            assert!(
                !parse(&changed).is_some_and(|p| p.follows(Position::ORIGIN)),
                "byte {i}: {changed}"
            );
        }
    }

    #[test]
    fn a_line_parses_as_json_with_the_entry_beside_the_chain() {
        let mut line = Vec::new();
        compose(
            Position::ORIGIN,
            5,
            br#"{"kind":"gap","window_ms":1000}"#,
            &mut line,
        );
        let read: crate::record::Line = serde_json::from_slice(&line).unwrap();
        assert_eq!((read.seq, read.t), (1, 5));
        assert!(matches!(
            read.entry,
            crate::record::Entry::Gap { window_ms: 1000 }
        ));
    }
}
