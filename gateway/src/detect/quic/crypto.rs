//! The handshake bytes of one connection, put together from CRYPTO frames in any order (RFC 9000 19.6).
//!
//! Two frames that say different bytes at one place are malformed: two readers could read two hellos. What was read stays,
//! so that a later packet cannot say another hello than the one that was judged.

use super::packet::varint;
use crate::detect::hello::{Progress, read_message};
use crate::detect::wire::Wire;

/// Hellos of real clients stay under 4 KiB, post-quantum key shares included.
const MOST: usize = 16 * 1024;

/// Bytes with holes.
#[derive(Debug, Default)]
pub(super) struct Handshake {
    bytes: Vec<u8>,
    known: Vec<bool>,
    /// Where the judged hello ends; a second one (after HelloRetryRequest) is not read.
    judged: Option<usize>,
}

impl Handshake {
    /// Whether its hello was read.
    pub fn is_read(&self) -> bool {
        self.judged.is_some()
    }

    /// Takes the frames of a decrypted Initial in; the hello, when it is complete for the first time.
    pub fn frames(&mut self, payload: &[u8]) -> Progress {
        let mut wire = Wire::new(payload);
        if wire.is_empty() {
            return Progress::Malformed("a packet without frames");
        }
        while !wire.is_empty() {
            match self.frame(&mut wire) {
                Some(Ok(())) => {}
                Some(Err(why)) => return Progress::Malformed(why),
                None => return Progress::Malformed("a frame that does not fit"),
            }
        }
        self.progress()
    }

    fn frame(&mut self, wire: &mut Wire<'_>) -> Option<Result<(), &'static str>> {
        match varint(wire)? {
            // PADDING, PING
            0 | 1 => {}
            kind @ (2 | 3) => acknowledgement(wire, kind == 3)?,
            6 => {
                let offset = varint(wire)?;
                let length = varint(wire)?;
                return Some(self.put(offset, wire.take(length)?));
            }
            // CONNECTION_CLOSE: code, frame type, reason
            0x1c => {
                varint(wire)?;
                varint(wire)?;
                let reason = varint(wire)?;
                wire.take(reason)?;
            }
            _ => return Some(Err("a frame that no Initial carries")),
        }
        Some(Ok(()))
    }

    fn put(&mut self, offset: usize, data: &[u8]) -> Result<(), &'static str> {
        let end = offset.saturating_add(data.len());
        if end > MOST {
            return Err("a hello that is too long");
        }
        // a second hello follows a HelloRetryRequest; what it says is not judged, so it is not kept either
        let end = self.judged.map_or(end, |judged| end.min(judged));
        let Some(taken) = end.checked_sub(offset) else {
            return Ok(());
        };
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
            self.known.resize(end, false);
        }
        let places = self.bytes.iter_mut().zip(&mut self.known).skip(offset);
        for ((byte, known), new) in places.zip(data.iter().take(taken)) {
            if *known && byte != new {
                return Err("two hellos in one");
            }
            (*byte, *known) = (*new, true);
        }
        Ok(())
    }

    fn progress(&mut self) -> Progress {
        if self.is_read() {
            return Progress::Need;
        }
        let complete = self.known.iter().position(|known| !known);
        let prefix = self.bytes.get(..complete.unwrap_or(self.bytes.len()));
        let prefix = prefix.unwrap_or_default();
        let progress = read_message(prefix);
        if matches!(progress, Progress::Hello(_)) {
            if prefix.len() != self.bytes.len() {
                return Progress::Malformed("bytes after the hello");
            }
            self.judged = Some(self.bytes.len());
            self.bytes.shrink_to_fit();
            self.known.shrink_to_fit();
        }
        progress
    }
}

/// ACK: largest, delay, count of ranges, first range, ranges; three counts more with ECN.
fn acknowledgement(wire: &mut Wire<'_>, ecn: bool) -> Option<()> {
    varint(wire)?;
    varint(wire)?;
    let ranges = varint(wire)?;
    varint(wire)?;
    for _ in 0..ranges {
        varint(wire)?;
        varint(wire)?;
    }
    if ecn {
        for _ in 0..3 {
            varint(wire)?;
        }
    }
    Some(())
}
