//! The forms in which a secret value is looked for: as it is, by line, and as programs usually encode it.
//!
//! Owns the list, which README.md repeats: plain, lines of it, base64 (both alphabets; unbroken at each of the three
//! alignments; as lines of 64 or 76 only where the value begins the text), hexadecimal (unbroken), percent-encoded, JSON,
//! quoted for a shell. Refuses to own anything that somebody does to a value on purpose: whoever may run a program with a
//! secret can always write it in another way.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::alphabet::{Alphabet, STANDARD, URL_SAFE};
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};

/// Shorter values (and lines) are words that output is full of: masking them destroys it and hides nothing.
pub const LEAST: usize = 6;
/// Longer texts are looked for in pieces, so little output is ever held back. A last piece is up to twice as long.
const PIECE: usize = 128;
/// What `base64` and PEM write in a line.
const WRAPS: [usize; 2] = [76, 64];

/// A value as it is: by line, and as a whole where a line alone would not be looked for.
pub(super) fn plain(value: &str) -> BTreeSet<Vec<u8>> {
    let mut forms = BTreeSet::new();
    let whole = value.trim();
    for line in lines(value) {
        pieces(line.as_bytes(), &mut forms);
    }
    if has_short_lines(value) {
        pieces(whole.replace("\r\n", "\n").as_bytes(), &mut forms);
        let returns = whole.replace("\r\n", "\n").replace('\n', "\r\n");
        pieces(returns.as_bytes(), &mut forms);
    }
    forms
}

fn lines(value: &str) -> impl Iterator<Item = &str> {
    let lines = value.trim().lines().map(str::trim);
    lines.filter(|line| !line.is_empty())
}

/// Whether a line of it is not looked for alone.
pub(super) fn has_short_lines(value: &str) -> bool {
    lines(value).any(|line| line.len() < LEAST)
}

/// A value and its lines as programs encode them.
pub(super) fn encoded(value: &str) -> BTreeSet<Vec<u8>> {
    let mut forms = BTreeSet::new();
    let whole = value.trim();
    let lines = whole.lines().map(str::trim);
    for text in lines.chain([whole]).filter(|text| text.len() >= LEAST) {
        base64(text.as_bytes(), &mut forms);
        for form in hex(text.as_bytes()) {
            pieces(form.as_bytes(), &mut forms);
        }
        for form in percent(text.as_bytes()).into_iter().chain(quoted(text)) {
            if form != text {
                pieces(form.as_bytes(), &mut forms);
            }
        }
    }
    forms
}

/// Cuts a text; what is shorter than the least is left out.
fn pieces(text: &[u8], forms: &mut BTreeSet<Vec<u8>>) {
    let mut rest = text;
    while let Some((piece, after)) = rest
        .split_at_checked(PIECE)
        .filter(|(_, after)| after.len() >= PIECE)
    {
        forms.insert(piece.to_vec());
        rest = after;
    }
    if rest.len() >= LEAST {
        forms.insert(rest.to_vec());
    }
}

/// What of a base64 text a value alone determines, whatever stands before and behind it.
fn base64(value: &[u8], forms: &mut BTreeSet<Vec<u8>>) {
    for alphabet in [&STANDARD, &URL_SAFE] {
        for before in 0..3 {
            let text = determined(alphabet, before, value);
            pieces(text.as_bytes(), forms);
            if before == 0 {
                for line in WRAPS
                    .iter()
                    .flat_map(|width| text.as_bytes().chunks(*width))
                {
                    pieces(line, forms);
                }
            }
        }
    }
}

fn determined(alphabet: &Alphabet, before: usize, value: &[u8]) -> String {
    let bytes = [vec![0; before], value.to_vec()].concat();
    let text = GeneralPurpose::new(alphabet, NO_PAD).encode(&bytes);
    // a digit has six bits: those with a bit of a neighbour are not the value's alone
    let (from, to) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
    text.get(from..to).unwrap_or_default().to_owned()
}

fn hex(value: &[u8]) -> [String; 2] {
    let mut text = String::with_capacity(value.len() * 2);
    for byte in value {
        let _ = write!(text, "{byte:02x}");
    }
    let upper = text.to_ascii_uppercase();
    [text, upper]
}

/// As in URLs and forms: what libraries leave as it is differs, and so does the case of the digits.
fn percent(value: &[u8]) -> Vec<String> {
    let mut forms = Vec::new();
    for kept in ["-._~", "-._~/", "-._~!*'()"] {
        for space in ["%20", "+"] {
            let (mut upper, mut lower) = (String::new(), String::new());
            for byte in value {
                let character = char::from(*byte);
                if byte.is_ascii_alphanumeric() || (byte.is_ascii() && kept.contains(character)) {
                    upper.push(character);
                    lower.push(character);
                } else if *byte == b' ' {
                    upper.push_str(space);
                    lower.push_str(space);
                } else {
                    let _ = write!(upper, "%{byte:02X}");
                    let _ = write!(lower, "%{byte:02x}");
                }
            }
            forms.extend([upper, lower]);
        }
    }
    forms
}

/// Inside of JSON, with what libraries escape beside what they must, and of a shell's single quotes.
fn quoted(text: &str) -> Vec<String> {
    let json = serde_json::to_string(text).unwrap_or_default();
    let json = json
        .strip_prefix('"')
        .and_then(|json| json.strip_suffix('"'))
        .unwrap_or_default();
    let mut ascii = String::new();
    for unit in json.encode_utf16() {
        match char::from_u32(unit.into()).filter(char::is_ascii) {
            Some(character) => ascii.push(character),
            None => {
                let _ = write!(ascii, "\\u{unit:04x}");
            }
        }
    }
    let web = json
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026");
    let slashed = json.replace('/', "\\/");
    let shell = text.replace('\'', "'\\''");
    vec![json.to_owned(), ascii, web, slashed, shell]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_what_no_neighbour_changes() {
        let value = "a?>secret+/~value";
        for before in ["", "x", "yz"] {
            let mut seen = 0;
            for after in ["", "\n", "??"] {
                let whole = format!("{before}{value}{after}");
                for alphabet in [&STANDARD, &URL_SAFE] {
                    let text = GeneralPurpose::new(alphabet, NO_PAD).encode(&whole);
                    let form = determined(alphabet, before.len(), value.as_bytes());
                    assert!(text.contains(&form), "{form} in {text}");
                    assert!(form.len() >= value.len() * 4 / 3 - 2, "{form}");
                    seen += 1;
                }
            }
            assert_eq!(seen, 6);
        }
    }

    #[test]
    fn long_texts_are_pieces_that_leave_nothing_out() {
        let long = "0123456789".repeat(100);
        let mut forms = BTreeSet::new();
        pieces(long.as_bytes(), &mut forms);
        assert!(
            forms
                .iter()
                .all(|form| (PIECE..2 * PIECE).contains(&form.len()))
        );
        assert_eq!(
            plain("short\nab"),
            BTreeSet::from([b"short\nab".to_vec(), b"short\r\nab".to_vec()])
        );
        assert_eq!(plain("true\n"), BTreeSet::new());
        assert_eq!(plain(" \r\n"), BTreeSet::new());
        assert_eq!(encoded("tiny"), BTreeSet::new());
    }
}
