//! Header fields and what they say about the body and the connection.

use super::{is_field_byte, is_token};

/// More fields than this are refused; real requests stay under 100.
const MOST_FIELDS: usize = 256;

/// One field, as offsets into its head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Field {
    /// Lower-case name.
    pub name: String,
    /// Value without blanks around it.
    pub value: Vec<u8>,
}

/// How long the body is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// No body.
    Empty,
    /// So many bytes.
    Length(u64),
    /// Chunked coding.
    Chunked,
    /// Until the sender closes (responses only).
    UntilClose,
}

/// Splits the lines after the start line into fields. `section` ends before the empty line.
pub(super) fn parse(section: &[u8]) -> Result<Vec<Field>, &'static str> {
    let mut fields = Vec::new();
    for line in lines(section) {
        if fields.len() >= MOST_FIELDS {
            return Err("too many fields");
        }
        fields.push(field(line)?);
    }
    Ok(fields)
}

/// Lines of a section whose line ends were checked when the head's end was looked for.
fn lines(section: &[u8]) -> impl Iterator<Item = &[u8]> {
    section
        .split(|b| *b == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .filter(|line| !line.is_empty())
}

fn field(line: &[u8]) -> Result<Field, &'static str> {
    let colon = line
        .iter()
        .position(|b| *b == b':')
        .ok_or("a field without a colon")?;
    let (name, rest) = line.split_at(colon);
    if name.is_empty() || !name.iter().all(|b| is_token(*b)) {
        return Err("a field name that is no token (folded line, blank before the colon)");
    }
    let value = rest.get(1..).unwrap_or_default();
    if !value.iter().all(|b| is_field_byte(*b)) {
        return Err("a control byte in a field value");
    }
    Ok(Field {
        name: String::from_utf8_lossy(name).to_ascii_lowercase(),
        value: trim(value).to_vec(),
    })
}

/// Optional white space is blank and tab only (RFC 9110 5.6.3); `trim_ascii` would take form feeds too.
pub(super) fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// The only field of this name; two are an error.
pub(super) fn single<'a>(
    fields: &'a [Field],
    name: &str,
) -> Result<Option<&'a [u8]>, &'static str> {
    let mut found = fields.iter().filter(|f| f.name == name);
    let first = found.next();
    if found.next().is_some() {
        return Err("a field that must be alone occurs twice");
    }
    Ok(first.map(|f| f.value.as_slice()))
}

/// Lower-case members of a list field, over all its lines.
pub(super) fn list(fields: &[Field], name: &str) -> Vec<String> {
    let values = fields.iter().filter(|f| f.name == name);
    values
        .flat_map(|f| f.value.split(|b| *b == b','))
        .map(|member| String::from_utf8_lossy(trim(member)).to_ascii_lowercase())
        .filter(|member| !member.is_empty())
        .collect()
}

/// Body length from `Content-Length` and `Transfer-Encoding`; `None` when neither is there.
pub(super) fn framing(fields: &[Field]) -> Result<Option<Framing>, &'static str> {
    let length = single(fields, "content-length")?;
    let coding = single(fields, "transfer-encoding")?;
    match (length, coding) {
        (Some(_), Some(_)) => Err("a length beside a coding"),
        (Some(length), None) => decimal(length)
            .map(|n| Some(Framing::Length(n)))
            .ok_or("a length that is no number"),
        (None, Some(coding)) if coding.eq_ignore_ascii_case(b"chunked") => {
            Ok(Some(Framing::Chunked))
        }
        (None, Some(_)) => Err("a transfer coding other than chunked"),
        (None, None) => Ok(None),
    }
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Finds where a head ends: the empty line. Only CRLF ends a line; linear over all calls.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EndFinder {
    scanned: usize,
    line_start: usize,
}

impl EndFinder {
    /// Length of the head with its empty line, once it is there.
    pub(super) fn find(&mut self, raw: &[u8]) -> Result<Option<usize>, &'static str> {
        while let Some(byte) = raw.get(self.scanned) {
            let after_cr = self
                .scanned
                .checked_sub(1)
                .and_then(|before| raw.get(before))
                == Some(&b'\r');
            match (byte, after_cr) {
                (b'\n', true) => {
                    let empty = self.scanned == self.line_start + 1;
                    self.scanned += 1;
                    self.line_start = self.scanned;
                    if empty {
                        return Ok(Some(self.scanned));
                    }
                }
                (b'\n', false) => return Err("a line feed alone"),
                (_, true) => return Err("a carriage return alone"),
                (0, _) => return Err("a NUL byte"),
                _ => self.scanned += 1,
            }
        }
        Ok(None)
    }
}
