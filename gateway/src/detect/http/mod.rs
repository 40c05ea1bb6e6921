//! HTTP/1 heads, read strictly (RFC 9110, RFC 9112).
//!
//! A head that two servers could read differently is refused, whatever lenient servers do with it: bare LF or CR,
//! folded lines, blanks before a colon, control bytes, two lengths, a length beside a coding, any coding but exactly
//! `chunked`, two hosts, no host, a target whose authority is not the Host. The head is forwarded as it came, so
//! nothing here rewrites.

mod fields;
mod request;
mod response;

pub use fields::{Field, Framing};
pub use request::{Head, HeadError, HeadReader, Target};
pub use response::{ResponseHead, ResponseReader};

/// Longest head; browsers and proxies stop at 8 to 64 KiB.
pub const MOST_HEAD: usize = 64 * 1024;

/// RFC 9110 5.6.2.
pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// What a field value may hold: blanks, visible ASCII and the bytes of other alphabets.
pub(crate) fn is_field_byte(byte: u8) -> bool {
    byte == b'\t' || (b' '..=b'~').contains(&byte) || byte >= 0x80
}
