//! What a run prints, made safe for a terminal: colours of its own text pass, every other control is shown as what it is.
//!
//! Pieces end anywhere, so the beginning of a letter or of a sequence is kept until the rest is there; both are short,
//! and what is longer is none. Refuses to own: output that is not for a terminal, which passes as it is.

use crate::show::is_unsafe;

/// The longest sequence that sets a colour: `ESC [ 38;2;255;255;255;48;2;255;255;255 m`.
const LONGEST: usize = 40;
/// Sets everything back.
const RESET: &str = "\u{1b}[0m";

/// One stream of output.
#[derive(Debug, Default)]
pub struct Terminal {
    rest: Vec<u8>,
    coloured: bool,
}

impl Terminal {
    /// The next bytes, as they may be written.
    pub fn take(&mut self, bytes: &[u8]) -> String {
        self.rest.extend_from_slice(bytes);
        let kept = std::mem::take(&mut self.rest);
        let (whole, begun) = split(&kept);
        self.rest = begun.to_vec();
        self.write(whole)
    }

    /// What is left, and no colour for what comes after.
    pub fn end(&mut self) -> String {
        let kept = std::mem::take(&mut self.rest);
        let mut text = self.write(&kept);
        if std::mem::take(&mut self.coloured) {
            text.push_str(RESET);
        }
        text
    }

    fn write(&mut self, bytes: &[u8]) -> String {
        let shown = String::from_utf8_lossy(bytes);
        let mut rest: &str = &shown;
        let mut text = String::with_capacity(rest.len());
        while let Some(c) = rest.chars().next() {
            if let Some(length) = colour(rest.as_bytes()) {
                let (sequence, after) = rest.split_at(length);
                text.push_str(sequence);
                self.coloured = true;
                rest = after;
                continue;
            }
            rest = rest.get(c.len_utf8()..).unwrap_or_default();
            match c {
                '\n' | '\t' => text.push(c),
                '\r' if rest.starts_with('\n') => {}
                // a line that was written over is a line of its own: what stood there stays
                '\r' => text.push('\n'),
                c if is_unsafe(c) => text.extend(c.escape_default()),
                c => text.push(c),
            }
        }
        text
    }
}

/// The length of a sequence that sets colours, if the text begins with one. Hidden text (8) and blinking (5, 6) are no colours.
fn colour(bytes: &[u8]) -> Option<usize> {
    let rest = bytes.strip_prefix(b"\x1b[")?;
    let end = rest
        .iter()
        .take(LONGEST)
        .position(|b| !b.is_ascii_digit() && *b != b';')?;
    let parameters = std::str::from_utf8(rest.get(..end)?).ok()?;
    let is_wide = parameters.contains("38;") || parameters.contains("48;");
    let hides = !is_wide
        && parameters
            .split(';')
            .any(|number| matches!(number.trim_start_matches('0'), "5" | "6" | "8"));
    (rest.get(end) == Some(&b'm') && !hides).then_some(end + 3)
}

/// Whole letters and sequences, and the beginning of one.
fn split(bytes: &[u8]) -> (&[u8], &[u8]) {
    let tail = bytes.len().saturating_sub(LONGEST);
    let recent = bytes.get(tail..).unwrap_or_default();
    let escape = recent.iter().rposition(|b| *b == 0x1b).filter(|at| {
        let rest = recent.get(at + 1..).unwrap_or_default();
        let inner = rest.strip_prefix(b"[");
        rest.is_empty()
            || inner.is_some_and(|inner| inner.iter().all(|b| b.is_ascii_digit() || *b == b';'))
    });
    if let Some(at) = escape {
        return bytes.split_at(tail + at);
    }
    if bytes.ends_with(b"\r") {
        return bytes.split_at(bytes.len() - 1);
    }
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => bytes.split_at(error.valid_up_to()),
        // bytes that are no text at all: the beginning of a letter is at their end alone
        Err(_) => {
            let begun = (1..=3).find(|back| {
                let last = bytes.len().checked_sub(*back).and_then(|at| bytes.get(at..));
                last.is_some_and(|last| matches!(std::str::from_utf8(last), Err(e) if e.error_len().is_none() && e.valid_up_to() == 0))
            });
            bytes.split_at(bytes.len() - begun.unwrap_or(0))
        }
        Ok(_) => (bytes, &[]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(bytes: &[u8], piece: usize) -> String {
        let mut terminal = Terminal::default();
        let mut text: String = bytes
            .chunks(piece)
            .map(|piece| terminal.take(piece))
            .collect();
        text.push_str(&terminal.end());
        text
    }

    #[test]
    fn nothing_but_colour_reaches_the_terminal_however_it_is_cut() {
        let hostile = "a\u{1b}]52;c;Zm9v\u{7}b\u{1b}[2J\u{1b}[31mred\u{1b}[0m ü€😀\u{202e}x\u{9b}5n\u{1b}[8mhidden\r\nover\rwrite\u{1b}[38;5;8mgrey\u{1b}P+q\u{1b}\\ \u{1b}[1;31\u{1b}[?1049h";
        let whole = shown(hostile.as_bytes(), 10_000);
        for piece in 1..9 {
            assert_eq!(shown(hostile.as_bytes(), piece), whole, "{piece}");
        }
        let mut left = whole.clone();
        for allowed in ["\u{1b}[31m", "\u{1b}[0m", "\u{1b}[38;5;8m"] {
            assert!(left.contains(allowed), "{allowed:?} in {whole:?}");
            left = left.replace(allowed, "");
        }
        assert!(!left.chars().any(|c| c != '\n' && is_unsafe(c)), "{left:?}");
        assert!(
            whole.contains("ü€😀") && whole.contains("over\nwrite"),
            "{whole:?}"
        );
        assert!(whole.ends_with(RESET));
    }

    #[test]
    fn bytes_that_are_no_text_are_shown_and_kept_no_longer_than_a_letter() {
        let mut terminal = Terminal::default();
        assert_eq!(terminal.take(b"a\xff\xfe\xe2\x82"), "a\u{fffd}\u{fffd}");
        assert_eq!(terminal.take(b"\xac"), "€");
        let digits = [b"\x1b[".as_slice(), &[b'1'; 10_000]].concat();
        assert!(shown(&digits, 7).starts_with("\\u{1b}[111"));
    }
}
