//! Writing pcapng (draft-ietf-opsawg-pcapng): one section, one Ethernet interface, packets, counts.
//!
//! Blocks are little-endian and padded to four bytes; options end with an empty one. Pure: bytes in, bytes out.

use crate::kernel::Seen;

const SECTION_HEADER: u32 = 0x0A0D_0D0A;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;
/// Tells the byte order.
const MAGIC: u32 = 0x1A2B_3C4D;
/// `LINKTYPE_ETHERNET`.
const ETHERNET: u16 = 1;
/// Longest text of an option; its length has 16 bits.
const LONGEST_TEXT: usize = 4096;

/// What the file says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Section {
    /// Name of the link.
    pub link: String,
    /// Whose it is.
    pub description: String,
    /// Under which policy.
    pub comment: String,
    /// What was asked for; empty: everything.
    pub filter: String,
}

/// A frame to write.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// When, how long, where to.
    pub seen: Seen,
    /// The captured part.
    pub bytes: &'a [u8],
}

/// A block under construction.
struct Block(Vec<u8>);

impl Block {
    fn new(kind: u32) -> Self {
        let mut bytes = kind.to_le_bytes().to_vec();
        // the length, known at the end
        bytes.extend([0; 4]);
        Self(bytes)
    }

    fn put(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn padded(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    fn option(self, code: u16, value: &[u8]) -> Self {
        let length = u16::try_from(value.len()).unwrap_or(0);
        self.put(&code.to_le_bytes())
            .put(&length.to_le_bytes())
            .padded(value.get(..usize::from(length)).unwrap_or_default())
    }

    fn text(self, code: u16, text: &str) -> Self {
        let mut end = text.len().min(LONGEST_TEXT);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let text = text.get(..end).unwrap_or_default();
        if text.is_empty() {
            self
        } else {
            self.option(code, text.as_bytes())
        }
    }

    fn finish(self) -> Vec<u8> {
        let mut bytes = self.option(0, &[]).0;
        let length = u32::try_from(bytes.len() + 4)
            .unwrap_or(u32::MAX)
            .to_le_bytes();
        if let Some(place) = bytes.get_mut(4..8) {
            place.copy_from_slice(&length);
        }
        bytes.extend(length);
        bytes
    }
}

/// The beginning of the file.
pub fn begin(section: &Section) -> Vec<u8> {
    let application = concat!("sallyport ", env!("CARGO_PKG_VERSION"));
    let mut bytes = Block::new(SECTION_HEADER)
        .put(&MAGIC.to_le_bytes())
        // version 1.0, length of the section not known
        .put(&1_u16.to_le_bytes())
        .put(&0_u16.to_le_bytes())
        .put(&(-1_i64).to_le_bytes())
        .text(4, application)
        .finish();
    let interface = Block::new(INTERFACE)
        .put(&ETHERNET.to_le_bytes())
        .put(&[0; 2])
        // no limit on the captured length
        .put(&0_u32.to_le_bytes())
        .text(1, &section.comment)
        .text(2, &section.link)
        .text(3, &section.description)
        // times are nanoseconds
        .option(9, &[9]);
    let interface = if section.filter.is_empty() {
        interface
    } else {
        // kind 0: a text of the capturing program's own
        interface.option(11, &[&[0], section.filter.as_bytes()].concat())
    };
    bytes.extend(interface.finish());
    bytes
}

/// One frame.
pub fn packet(into: &mut Vec<u8>, packet: &Packet<'_>) {
    let captured = u32::try_from(packet.bytes.len()).unwrap_or(u32::MAX);
    let length = u32::try_from(packet.seen.length).unwrap_or(u32::MAX);
    // as the link sees it: 2 is sent, to the sandbox; 1 is received, from it
    let direction: u32 = if packet.seen.to_sandbox { 2 } else { 1 };
    let block = Block::new(PACKET)
        .put(&0_u32.to_le_bytes())
        .put(&time(packet.seen.at_ns))
        .put(&captured.to_le_bytes())
        .put(&length.to_le_bytes())
        .padded(packet.bytes)
        .option(2, &direction.to_le_bytes());
    into.extend(block.finish());
}

/// A remark in the course of the file: an empty packet that carries a comment.
pub fn remark(text: &str, at_ms: i64) -> Vec<u8> {
    Block::new(PACKET)
        .put(&0_u32.to_le_bytes())
        .put(&time(nanoseconds(at_ms)))
        .put(&[0; 8])
        .text(1, text)
        .finish()
}

/// How many frames there were and how many are missing.
pub fn statistics(received: u64, dropped: u64, at_ms: i64) -> Vec<u8> {
    Block::new(STATISTICS)
        .put(&0_u32.to_le_bytes())
        .put(&time(nanoseconds(at_ms)))
        .option(4, &received.to_le_bytes())
        .option(5, &dropped.to_le_bytes())
        .finish()
}

fn nanoseconds(ms: i64) -> u64 {
    u64::try_from(ms).unwrap_or(0).saturating_mul(1_000_000)
}

/// Upper half first.
fn time(ns: u64) -> [u8; 8] {
    ns.rotate_left(32).to_le_bytes()
}
