//! Every kind of frame that a sandbox with all rights inside can put on its link, and that nothing may let through.
//!
//! Pure: lists and bytes. Each frame carries a mark of its own, so that whoever sees it anywhere knows which it was. A
//! new kind is one more line in [`inet`], [`ends`] or [`link`]; nothing else has to know of it.

mod ends;
mod inet;
mod link;
pub mod packet;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::control::api::Family;
use crate::kernel::links::OUTER_MAC;

/// Documentation addresses (RFC 5737, RFC 3849): never anybody's.
pub const NOBODY4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// See [`NOBODY4`].
pub const NOBODY6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

/// Bytes of a mark.
pub const MARK: usize = 16;

/// Marks of one time that the suite runs: a number that nobody knows before, and which frame it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marks {
    nonce: [u8; MARK - 2],
}

impl Marks {
    /// Fresh ones.
    pub fn new() -> std::io::Result<Self> {
        let mut nonce = [0; MARK - 2];
        getrandom::fill(&mut nonce).map_err(|e| std::io::Error::other(e.to_string()))?;
        Ok(Self { nonce })
    }

    /// The mark with this number.
    pub fn number(&self, number: u16) -> [u8; MARK] {
        let mut mark = [0; MARK];
        for (to, from) in mark
            .iter_mut()
            .zip(self.nonce.iter().copied().chain(number.to_be_bytes()))
        {
            *to = from;
        }
        mark
    }

    /// The label of a name that carries a mark.
    pub fn label(&self, number: u16) -> String {
        use std::fmt::Write as _;
        self.number(number)
            .iter()
            .fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            })
    }

    /// The number of the mark that a frame carries, as bytes or as a label of a name.
    pub fn found_in(&self, frame: &[u8]) -> Option<u16> {
        let bytes = frame
            .windows(MARK)
            .find_map(|part| part.strip_prefix(&self.nonce));
        if let Some([high, low]) = bytes {
            return Some(u16::from_be_bytes([*high, *low]));
        }
        let label = self.label(0);
        let (nonce, _) = label.split_at_checked(2 * (MARK - 2))?;
        let is = |part: &&[u8]| {
            part.get(..nonce.len())
                .is_some_and(|p| p.eq_ignore_ascii_case(nonce.as_bytes()))
        };
        let found = frame.windows(2 * MARK).find(is)?;
        let digits = std::str::from_utf8(found.get(nonce.len()..)?).ok()?;
        u16::from_str_radix(digits, 16).ok()
    }
}

/// Whom the frames know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Places {
    /// The probe's own addresses.
    pub own: (Ipv4Addr, Ipv6Addr),
    /// Another sandbox's.
    pub other: (Ipv4Addr, Ipv6Addr),
    /// The service addresses.
    pub service: (Ipv4Addr, Ipv6Addr),
    /// Addresses of the machine.
    pub host: (Option<Ipv4Addr>, Option<Ipv6Addr>),
}

/// One frame that must go nowhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Forbidden {
    /// Stable name.
    pub check: &'static str,
    /// Family.
    pub family: Family,
    /// What it tries, as a thing that goes nowhere.
    pub what: &'static str,
    /// The frame, its Ethernet header included.
    pub frame: Vec<u8>,
}

/// All of them, each with the mark of its place in the list.
pub fn all(places: &Places, marks: &Marks) -> Vec<Forbidden> {
    let mut list = List {
        marks,
        done: Vec::new(),
    };
    for family in [Family::Ipv4, Family::Ipv6] {
        inet::protocols(&mut list, places, family);
        inet::transports(&mut list, places, family);
        ends::destinations(&mut list, places, family);
        ends::sources(&mut list, places, family);
    }
    inet::only_v4(&mut list, places);
    inet::only_v6(&mut list, places);
    ends::embedded(&mut list, places);
    link::neighbours(&mut list, places);
    link::foreign(&mut list, places);
    link::addressed(&mut list, places);
    list.done
}

/// A list that gives out marks.
struct List<'a> {
    marks: &'a Marks,
    done: Vec<Forbidden>,
}

impl List<'_> {
    /// The next frame's mark.
    fn mark(&self) -> [u8; MARK] {
        self.marks
            .number(u16::try_from(self.done.len()).unwrap_or(u16::MAX))
    }

    /// The next frame's name.
    fn label(&self) -> String {
        self.marks
            .label(u16::try_from(self.done.len()).unwrap_or(u16::MAX))
    }

    fn frame(&mut self, check: &'static str, what: &'static str, frame: Vec<u8>) {
        self.done.push(Forbidden {
            check,
            family: Family::Ethernet,
            what,
            frame,
        });
    }

    fn packet(&mut self, check: &'static str, what: &'static str, packet: &packet::Packet) {
        let (ethertype, bytes) = packet.bytes();
        let family = if packet.ends.from.is_ipv6() {
            Family::Ipv6
        } else {
            Family::Ipv4
        };
        let frame = ethernet(OUTER_MAC, ethertype, &bytes);
        self.done.push(Forbidden {
            check,
            family,
            what,
            frame,
        });
    }
}

/// A frame from an address that is nobody's: a sandbox may choose it.
pub fn ethernet(to: [u8; 6], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = to.to_vec();
    frame.extend([0x02, 0x53, 0x50, 0, 0, 0x77]);
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    frame
}

fn of(family: Family, pair: (Ipv4Addr, Ipv6Addr)) -> IpAddr {
    if family == Family::Ipv6 {
        pair.1.into()
    } else {
        pair.0.into()
    }
}
