//! How much of a run's output is passed on.
//!
//! Owns the total and the marker event. Output is bytes: nothing in it is ever read as control, and nothing is held back
//! to find line ends. Refuses to own pace: a slow reader slows the workload down, a full meter only drops.

use crate::run::{Data, Event};
use crate::sandbox::Chunk;

/// Counts what was passed on.
#[derive(Debug)]
pub struct Meter {
    left: u64,
    limit: u64,
}

impl Meter {
    /// A meter that passes on this many bytes.
    pub const fn new(limit: u64) -> Self {
        Self { left: limit, limit }
    }

    /// What to send for a chunk: the chunk, its beginning, or the marker once the limit is reached, then nothing.
    pub fn pass(&mut self, chunk: Chunk) -> Vec<Event> {
        if self.left == 0 {
            return Vec::new();
        }
        let (bytes, make): (_, fn(Data) -> Event) = match chunk {
            Chunk::Out(bytes) => (bytes, Event::Stdout),
            Chunk::Err(bytes) => (bytes, Event::Stderr),
        };
        let fits = bytes
            .len()
            .min(usize::try_from(self.left).unwrap_or(usize::MAX));
        self.left -= fits as u64;
        let mut events = vec![make(Data {
            data: bytes.slice(..fits),
        })];
        if self.left == 0 {
            events.push(Event::OutputLimit { bytes: self.limit });
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn out(text: &'static str) -> Chunk {
        Chunk::Out(text.into())
    }

    #[test]
    fn output_past_the_limit_is_dropped_behind_one_marker() {
        let mut meter = Meter::new(5);
        assert_eq!(
            meter.pass(out("abc")),
            [Event::Stdout(Data { data: "abc".into() })]
        );
        let cut = meter.pass(Chunk::Err("defg".into()));
        assert_eq!(
            cut,
            [
                Event::Stderr(Data { data: "de".into() }),
                Event::OutputLimit { bytes: 5 }
            ]
        );
        assert!(meter.pass(out("more")).is_empty());
    }
}
