//! The chunked coding, read strictly and passed on unchanged (RFC 9112 7.1).
//!
//! Servers disagree about bare LF, blanks, long sizes and endless extensions, and each disagreement is a way to hide a
//! second request in a body. So only the one plain form passes.

/// Digits of a size: 2^60 bytes are enough, and nothing overflows.
const MOST_DIGITS: u8 = 15;
/// Bytes of one chunk's extensions; nobody uses them, floods do.
const MOST_EXTENSION: u16 = 1024;
/// Bytes of the trailer section.
const MOST_TRAILER: u32 = 16 * 1024;

/// Where in the coding the next byte stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
    Size { digits: u8, size: u64 },
    Extension { used: u16, size: u64 },
    SizeLf { size: u64 },
    Data { left: u64 },
    DataCr,
    DataLf,
    Trailer { used: u32, line: TrailerLine },
    TrailerLf { used: u32, last: bool },
    Done,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TrailerLine {
    Start,
    Name,
    Value,
}

/// The body is not chunked in the one accepted form.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a chunked body that is malformed")]
pub struct Malformed;

/// Follows one chunked body.
#[derive(Clone, Debug)]
pub struct Chunks(At);

impl Default for Chunks {
    fn default() -> Self {
        Self(At::Size { digits: 0, size: 0 })
    }
}

impl Chunks {
    /// Reads on and says how many of the bytes belong to this body; fewer than given only at its end.
    pub fn advance(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        let mut used = 0;
        while let Some(rest) = bytes.get(used..).filter(|rest| !rest.is_empty()) {
            match self.0 {
                At::Done => break,
                At::Data { left } => {
                    let here = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    used += here;
                    let left = left - here as u64;
                    self.0 = if left == 0 {
                        At::DataCr
                    } else {
                        At::Data { left }
                    };
                }
                at => {
                    let Some(byte) = rest.first() else { break };
                    self.0 = step(at, *byte)?;
                    used += 1;
                }
            }
        }
        Ok(used)
    }

    /// Whether the last chunk and its trailers have been read.
    pub fn is_done(&self) -> bool {
        self.0 == At::Done
    }
}

fn step(at: At, byte: u8) -> Result<At, Malformed> {
    match (at, byte) {
        (At::Size { digits, size }, b';') if digits > 0 => Ok(At::Extension { used: 0, size }),
        (At::Size { digits, size }, b'\r') if digits > 0 => Ok(At::SizeLf { size }),
        (At::Size { digits, size }, _) if digits < MOST_DIGITS => {
            let digit = char::from(byte).to_digit(16).ok_or(Malformed)?;
            Ok(At::Size {
                digits: digits + 1,
                size: size * 16 + u64::from(digit),
            })
        }
        (At::Extension { size, .. }, b'\r') => Ok(At::SizeLf { size }),
        (At::Extension { used, size }, b'\t' | b' '..=b'~') if used < MOST_EXTENSION => {
            Ok(At::Extension {
                used: used + 1,
                size,
            })
        }
        (At::SizeLf { size: 0 }, b'\n') => Ok(At::Trailer {
            used: 0,
            line: TrailerLine::Start,
        }),
        (At::SizeLf { size }, b'\n') => Ok(At::Data { left: size }),
        (At::DataCr, b'\r') => Ok(At::DataLf),
        (At::DataLf, b'\n') => Ok(At::Size { digits: 0, size: 0 }),
        (At::Trailer { used, line }, _) if used < MOST_TRAILER => trailer(used + 1, line, byte),
        (At::TrailerLf { last: true, .. }, b'\n') => Ok(At::Done),
        (At::TrailerLf { used, last: false }, b'\n') => Ok(At::Trailer {
            used,
            line: TrailerLine::Start,
        }),
        _ => Err(Malformed),
    }
}

fn trailer(used: u32, line: TrailerLine, byte: u8) -> Result<At, Malformed> {
    match (line, byte) {
        (TrailerLine::Start, b'\r') => Ok(At::TrailerLf { used, last: true }),
        (TrailerLine::Name, b':') => Ok(At::Trailer {
            used,
            line: TrailerLine::Value,
        }),
        (TrailerLine::Start | TrailerLine::Name, byte) if super::http::is_token(byte) => {
            Ok(At::Trailer {
                used,
                line: TrailerLine::Name,
            })
        }
        (TrailerLine::Value, b'\r') => Ok(At::TrailerLf { used, last: false }),
        (TrailerLine::Value, byte) if super::http::is_field_byte(byte) => Ok(At::Trailer {
            used,
            line: TrailerLine::Value,
        }),
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(body: &[u8]) -> Result<(usize, bool), Malformed> {
        let mut chunks = Chunks::default();
        let used = chunks.advance(body)?;
        Ok((used, chunks.is_done()))
    }

    #[test]
    fn http_09_odd_chunk_syntax_is_refused() {
        let long_extension = [b"5;".as_slice(), &vec![b'a'; 1 << 20]].concat();
        let refused: [&[u8]; 14] = [
            b"5\nhello\r\n0\r\n\r\n",
            b"5;a\nb\r\nhello",
            b"ffffffffffffffff1\r\n",
            &[b'0'; 1000],
            &long_extension,
            b"\r\n",
            b";a\r\n",
            b" 5\r\n",
            b"5 \r\nhello",
            b"+5\r\nhello",
            b"0x5\r\nhello",
            b"5\r\nhelloX\n",
            b"0\r\nname value\r\n",
            b"0\r\nname : value\r\n",
        ];
        for body in refused {
            assert_eq!(
                whole(body),
                Err(Malformed),
                "{:?}",
                String::from_utf8_lossy(body.get(..20).unwrap_or(body))
            );
        }
        assert_eq!(
            whole(b"0\r\n"),
            Ok((3, false)),
            "the final line end is part of the body"
        );
    }

    #[test]
    fn the_plain_form_passes_and_ends_where_it_ends() {
        assert_eq!(whole(b"5\r\nhello\r\n0\r\n\r\nGET /"), Ok((15, true)));
        assert_eq!(
            whole(b"5;name=\"x y\"\r\nhello\r\nA\r\n0123456789\r\n0\r\nX-Sum: 1 2\r\n\r\n"),
            Ok((53, true))
        );
    }

    #[test]
    fn any_cut_reads_the_same() {
        let body = b"5;x\r\nhello\r\n10\r\n0123456789abcdef\r\n0\r\nA: b\r\n\r\nrest";
        let expected = whole(body).unwrap();
        for cut in 0..body.len() {
            let mut chunks = Chunks::default();
            let first = chunks.advance(&body[..cut]).unwrap();
            let second = if chunks.is_done() {
                0
            } else {
                chunks.advance(&body[first..]).unwrap()
            };
            assert_eq!((first + second, chunks.is_done()), expected, "cut at {cut}");
        }
    }
}
