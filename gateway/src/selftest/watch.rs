//! Who watches that nothing passes: witnesses in the uplink and in another sandbox.
//!
//! Frames are told apart by their marks alone, so that other traffic of a busy machine says nothing.

use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

use super::AT_ONCE;
use super::frames::Marks;
use crate::kernel::witness::{LONGEST, Witness};
use crate::kernel::{KernelError, Ns};

/// Where the gateway's own connections begin.
const UPLINK: &str = "the uplink";

/// Every mark that was seen, and where.
#[derive(Debug)]
pub struct Watch {
    marks: Marks,
    /// Where everything that a sandbox sends comes in, whatever becomes of it then.
    entry: Witness,
    entered: BTreeSet<u16>,
    witnesses: Vec<(&'static str, Witness)>,
    seen: BTreeSet<(u16, &'static str)>,
    /// Why there is none in the uplink, where that is not ours to watch.
    pub blind: Option<String>,
}

impl Watch {
    /// In the namespace of the calling thread and in another sandbox's; `entry` is where sandboxes' links end.
    pub fn open(marks: Marks, entry: &Ns, other: &Ns) -> Result<Self, KernelError> {
        let mut witnesses = vec![("another sandbox", other.run(Witness::open)?)];
        let mut blind = None;
        match Witness::open() {
            Ok(witness) => witnesses.push((UPLINK, witness)),
            // a gateway of an ordinary user has no rights over the machine's links
            Err(error)
                if error
                    .errno()
                    .is_some_and(|e| e == libc::EPERM || e == libc::EACCES) =>
            {
                blind = Some(crate::control::problems::chain(&error));
            }
            Err(error) => return Err(error),
        }
        Ok(Self {
            marks,
            entry: entry.run(Witness::open)?,
            entered: BTreeSet::new(),
            witnesses,
            seen: BTreeSet::new(),
            blind,
        })
    }

    /// Reads what has come so far.
    pub fn look(&mut self) {
        let mut buffer = [0; LONGEST];
        while let Ok(frame) = self.entry.receive(&mut buffer) {
            self.entered.extend(self.marks.found_in(frame));
        }
        for (place, witness) in &self.witnesses {
            while let Ok(frame) = witness.receive(&mut buffer) {
                if let Some(number) = self.marks.found_in(frame) {
                    self.seen.insert((number, place));
                }
            }
        }
    }

    /// Looks until all of these frames have come in, and then for a time; whether all have. A frame waits on its way in
    /// for as long as the machine has other work.
    pub fn look_for_all(&mut self, frames: &[Vec<u8>], time: Duration) -> bool {
        let due = Instant::now() + AT_ONCE;
        while !frames.iter().all(|frame| self.has_entered(frame)) && Instant::now() < due {
            self.look_for(Duration::from_millis(1));
        }
        self.look_for(time);
        frames.iter().all(|frame| self.has_entered(frame))
    }

    /// Whether a frame has come in, by its mark.
    pub fn has_entered(&self, frame: &[u8]) -> bool {
        let number = self.marks.found_in(frame);
        number.is_some_and(|number| self.entered.contains(&number))
    }

    /// Goes on looking for a time.
    pub fn look_for(&mut self, time: Duration) {
        let due = Instant::now() + time;
        while Instant::now() < due {
            self.look();
            std::thread::park_timeout(Duration::from_millis(1));
        }
        self.look();
    }

    /// Looks until a mark has come; where it was seen.
    pub fn wait_for(&mut self, number: u16) -> Option<&'static str> {
        let due = Instant::now() + AT_ONCE;
        loop {
            self.look();
            let place = self.seen(number);
            if place.is_some() || Instant::now() >= due {
                return place;
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }

    /// Where a mark was seen.
    pub fn seen(&self, number: u16) -> Option<&'static str> {
        self.seen
            .iter()
            .find(|(n, _)| *n == number)
            .map(|(_, place)| *place)
    }

    /// Where a frame was seen, by its mark.
    pub fn seen_of(&self, frame: &[u8]) -> Option<&'static str> {
        self.seen(self.marks.found_in(frame)?)
    }

    /// Whether a mark was seen in the uplink.
    pub fn went_out(&self, number: u16) -> bool {
        self.seen.contains(&(number, UPLINK))
    }

    /// How many frames no witness saw for want of room.
    pub fn missed(&mut self) -> io::Result<u64> {
        let places = self.witnesses.iter_mut().map(|(_, witness)| witness);
        let witnesses = places.chain([&mut self.entry]);
        witnesses.map(Witness::missed).sum()
    }
}

/// Tries a non-blocking act until it works or the time is up.
pub fn wait<T>(due: Instant, mut act: impl FnMut() -> io::Result<T>) -> Option<T> {
    loop {
        match act() {
            Ok(done) => return Some(done),
            Err(_) if Instant::now() < due => std::thread::park_timeout(Duration::from_millis(1)),
            Err(_) => return None,
        }
    }
}
