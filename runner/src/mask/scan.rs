//! Finds patterns in what a run prints, which comes in chunks from two outputs, and writes stars in their place.
//!
//! Each output is followed alone and both as they are kept, one after the other; the order never changes. Invariants: what
//! could still become a match waits, with what was printed after it, up to a bound; past the bound, or when the owner has
//! waited long enough, it goes on, and what is no chance beginning of a match is masked then. Each byte costs one step of
//! an automaton (Aho and Corasick) for each of the two sequences that it is in, whatever is looked for; all matches count,
//! also overlapping ones and those inside of others.

use std::ops::Range;

use aho_corasick::Anchored;
use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::contiguous::NFA;

/// What stands where a secret stood.
const STARS: &[u8] = b"***";
/// What waits at most because of one output, while the other one prints.
const ROOM: usize = 64 << 10;
/// A shorter beginning that nothing followed is chance.
const CHANCE: usize = 4;

/// A byte that waits: it is masked.
const MASKED: u8 = 1;
/// It is of standard error.
const ERROR: u8 = 2;

/// What is looked for.
pub(super) struct Patterns {
    nfa: NFA,
    start: StateID,
    /// Bytes that some pattern begins with: all others are passed over.
    first: [bool; 256],
    /// How much of a pattern a state has seen, by its number; patterns are shorter than 256.
    depths: Vec<u8>,
}

impl Patterns {
    /// `None`: they are too many for one automaton, or none.
    pub(super) fn new(patterns: &[Vec<u8>]) -> Option<Self> {
        if patterns.is_empty() {
            return None;
        }
        let nfa = NFA::builder().prefilter(false).build(patterns).ok()?;
        let start = nfa.start_state(Anchored::No).ok()?;
        let mut first = [false; 256];
        for byte in patterns.iter().filter_map(|pattern| pattern.first()) {
            if let Some(known) = first.get_mut(usize::from(*byte)) {
                *known = true;
            }
        }
        let mut made = Self {
            nfa,
            start,
            first,
            depths: Vec::new(),
        };
        for pattern in patterns {
            made.measure(pattern);
        }
        Some(made)
    }

    /// Notes the depths of the states that lead to a pattern.
    fn measure(&mut self, pattern: &[u8]) {
        let mut state = self.start;
        // `1_u8..` would count on past the last byte of the longest pattern
        for (byte, depth) in pattern.iter().zip(1..=u8::MAX) {
            state = self.nfa.next_state(Anchored::No, state, *byte);
            if self.depths.len() <= state.as_usize() {
                self.depths.resize(state.as_usize() + 1, 0);
            }
            if let Some(known) = self.depths.get_mut(state.as_usize()) {
                *known = depth;
            }
        }
    }

    fn depth(&self, state: StateID) -> usize {
        self.depths
            .get(state.as_usize())
            .copied()
            .unwrap_or(0)
            .into()
    }

    fn begins(&self, byte: u8) -> bool {
        self.first.get(usize::from(byte)).copied().unwrap_or(true)
    }

    /// The longest pattern that ends here.
    fn matched(&self, state: StateID) -> Option<usize> {
        if !self.nfa.is_match(state) {
            return None;
        }
        let ends = 0..self.nfa.match_len(state);
        ends.map(|index| self.nfa.pattern_len(self.nfa.match_pattern(state, index)))
            .max()
    }
}

/// How far one sequence of bytes has come.
struct Track {
    state: StateID,
    /// Bytes that it had.
    count: usize,
    /// The newest of them that are masked already, in a row.
    masked: Range<usize>,
}

impl Track {
    const fn new(patterns: &Patterns) -> Self {
        Self {
            state: patterns.start,
            count: 0,
            masked: 0..0,
        }
    }

    /// Goes on by a byte; how many of the newest ones are to be masked.
    fn step(&mut self, patterns: &Patterns, byte: u8) -> usize {
        self.count += 1;
        if self.state == patterns.start && !patterns.begins(byte) {
            return 0;
        }
        self.state = patterns.nfa.next_state(Anchored::No, self.state, byte);
        let Some(length) = patterns.matched(self.state) else {
            return 0;
        };
        let start = self.count.saturating_sub(length);
        // a value of one letter, again and again, matches at each byte: only the new one is to be masked
        let known = self.masked.start <= start && start <= self.masked.end;
        let from = if known { self.masked.end } else { start };
        self.masked = if known { self.masked.start } else { start }..self.count;
        self.count - from
    }
}

/// Bytes of one output: `true` is standard error.
pub(super) type Piece = (bool, Vec<u8>);

/// What a run prints.
pub(super) struct Scan {
    out: Track,
    error: Track,
    both: Track,
    /// Bytes that wait, and what is known about each.
    held: Vec<u8>,
    flags: Vec<u8>,
    /// Whether the last byte that went on was a masked one, by output.
    starred: [bool; 2],
    /// Bytes that went on.
    gone: u64,
}

impl Scan {
    pub(super) const fn new(patterns: &Patterns) -> Self {
        Self {
            out: Track::new(patterns),
            error: Track::new(patterns),
            both: Track::new(patterns),
            held: Vec::new(),
            flags: Vec::new(),
            starred: [false; 2],
            gone: 0,
        }
    }

    /// Takes a chunk and gives what cannot become part of a match any more.
    pub(super) fn push(&mut self, patterns: &Patterns, error: bool, chunk: &[u8]) -> Vec<Piece> {
        let source = if error { ERROR } else { 0 };
        let own = if error {
            &mut self.error
        } else {
            &mut self.out
        };
        self.held.extend_from_slice(chunk);
        for byte in chunk {
            self.flags.push(source);
            let alone = own.step(patterns, *byte);
            let together = self.both.step(patterns, *byte);
            mask(&mut self.flags, Some(source), alone);
            mask(&mut self.flags, None, together);
        }
        let waits = self.waits(patterns);
        if self.held.len() - waits > ROOM {
            return self.release(patterns);
        }
        self.emit(waits)
    }

    /// The number of the byte that waits longest.
    pub(super) fn oldest(&self) -> Option<u64> {
        (!self.held.is_empty()).then_some(self.gone)
    }

    /// It has waited for long, or nothing more comes: gives what waits.
    pub(super) fn release(&mut self, patterns: &Patterns) -> Vec<Piece> {
        self.mask_beginnings(patterns, CHANCE);
        self.emit(self.held.len())
    }

    /// What comes next is lost: the beginning of a match counts as one.
    pub(super) fn cut(&mut self, patterns: &Patterns) -> Vec<Piece> {
        self.mask_beginnings(patterns, 1);
        self.emit(self.held.len())
    }

    fn mask_beginnings(&mut self, patterns: &Patterns, least: usize) {
        for (source, track) in self.tracks() {
            let depth = patterns.depth(track);
            if depth >= least {
                mask(&mut self.flags, source, depth);
            }
        }
    }

    fn tracks(&self) -> [(Option<u8>, StateID); 3] {
        [
            (Some(0), self.out.state),
            (Some(ERROR), self.error.state),
            (None, self.both.state),
        ]
    }

    /// The first byte that must wait.
    fn waits(&self, patterns: &Patterns) -> usize {
        let places = self.tracks().map(|(source, state)| {
            let depth = patterns.depth(state);
            let mut newest = self.flags.iter().enumerate().rev();
            let begun = newest
                .by_ref()
                .filter(|(_, flag)| is_of(**flag, source))
                .take(depth);
            begun.last().map_or(self.flags.len(), |(place, _)| place)
        });
        places.into_iter().min().unwrap_or_default()
    }

    /// Gives the first bytes.
    fn emit(&mut self, upto: usize) -> Vec<Piece> {
        self.gone += upto as u64;
        let mut pieces: Vec<Piece> = Vec::new();
        let mut bytes = self.held.drain(..upto);
        let flags: Vec<u8> = self.flags.drain(..upto).collect();
        for run in flags.chunk_by(|one, other| one == other) {
            let flag = run.first().copied().unwrap_or_default();
            let source = flag & ERROR != 0;
            let text: Vec<u8> = bytes.by_ref().take(run.len()).collect();
            let [out, error] = &mut self.starred;
            let starred = if source { error } else { out };
            let masked = flag & MASKED != 0;
            let shown = if masked { STARS } else { &text };
            let again = std::mem::replace(starred, masked) && masked;
            match pieces.last_mut() {
                _ if again => {}
                Some((last, before)) if *last == source => before.extend_from_slice(shown),
                _ => pieces.push((source, shown.to_vec())),
            }
        }
        pieces
    }
}

fn is_of(flag: u8, source: Option<u8>) -> bool {
    source.is_none_or(|source| flag & ERROR == source)
}

/// Masks the newest bytes of a sequence.
fn mask(flags: &mut [u8], source: Option<u8>, count: usize) {
    let newest = flags.iter_mut().rev();
    for flag in newest.filter(|flag| is_of(**flag, source)).take(count) {
        *flag |= MASKED;
    }
}
