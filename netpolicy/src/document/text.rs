//! What may stand in a document's text at all: UTF-8, no control characters, nothing that a reader cannot see.
//!
//! A reviewer must see what the machine reads. Bidirectional controls reorder text on the screen (CVE-2021-42574),
//! invisible characters hide differences, odd blanks look like separators. All are mistakes, also when an escape in a
//! quoted text makes them.

use super::mistake::Mistakes;

/// Reads bytes as UTF-8 text. A byte order mark at the very beginning is taken off.
pub fn decode<'a>(bytes: &'a [u8], mistakes: &mut Mistakes) -> Option<&'a str> {
    let start = mistakes.place(1, 1);
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        mistakes.hint(&start, "the file is UTF-16", "save it as UTF-8");
        return None;
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) => {
            let good = bytes.get(..error.valid_up_to()).unwrap_or_default();
            let good = std::str::from_utf8(good).unwrap_or_default();
            let line = good.matches('\n').count() + 1;
            let column = good.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
            let at = mistakes.place(line, column);
            mistakes.hint(&at, "the file is not UTF-8", "save it as UTF-8");
            None
        }
    }
}

/// Notes every character that may not stand in a document, with its place.
pub fn check(text: &str, mistakes: &mut Mistakes) {
    for (line, content) in text.split('\n').enumerate() {
        let content = content.strip_suffix('\r').unwrap_or(content);
        for (column, character) in content.chars().enumerate() {
            if let Some(what) = unusual(character).filter(|_| character != '\t') {
                let at = mistakes.place(line + 1, column + 1);
                let message = format!(
                    "{what} (U+{:04X}) cannot stand in a document",
                    u32::from(character)
                );
                mistakes.hint(&at, message, "remove it");
            }
        }
    }
}

/// Why a character may not stand in a document, if it may not.
pub fn unusual(character: char) -> Option<&'static str> {
    let code = u32::from(character);
    match code {
        0 => Some("a NUL character"),
        0x01..=0x1f | 0x7f..=0x9f | 0x2028 | 0x2029 => Some("a control character"),
        0x061c | 0x200e | 0x200f | 0x202a..=0x202e | 0x2066..=0x206f => {
            Some("a bidirectional control")
        }
        0xfeff => Some("a byte order mark"),
        0x00ad
        | 0x034f
        | 0x115f
        | 0x1160
        | 0x17b4
        | 0x17b5
        | 0x180b..=0x180f
        | 0x200b..=0x200d
        | 0x2060..=0x2065
        | 0x3164
        | 0xfe00..=0xfe0f
        | 0xffa0
        | 0xfff0..=0xfffb
        | 0x1bca0..=0x1bca3
        | 0x1d173..=0x1d17a
        | 0xe0000..=0xe0fff => Some("an invisible character"),
        0x00a0 | 0x1680 | 0x2000..=0x200a | 0x202f | 0x205f | 0x3000 => Some("an unusual blank"),
        0xfdd0..=0xfdef => Some("a non-character"),
        _ if code & 0xfffe == 0xfffe => Some("a non-character"),
        0xe000..=0xf8ff | 0xf_0000.. => Some("a private-use character"),
        0xfffd => Some("a replacement character"),
        _ => None,
    }
}
