//! Response heads, as far as framing needs them.
//!
//! A response goes to the client as it came; it is read only to know where it ends and whether another request may
//! follow. A response that cannot be read for certain is relayed until its sender closes, and nothing more is sent on
//! that connection: a confused server can hurt one exchange, never the next one.

use super::MOST_HEAD;
use super::fields::{self, EndFinder, Framing};

/// What a response head says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResponseHead {
    /// Status code.
    pub status: u16,
    /// Length of its body.
    pub framing: Framing,
    /// Whether the server keeps the connection.
    pub persistent: bool,
    /// Bytes of the head with its empty line.
    pub length: usize,
}

/// Reads a response head that arrives in pieces.
#[derive(Debug, Default)]
pub struct ResponseReader(EndFinder);

impl ResponseReader {
    /// Looks at everything received so far. `Err`: cannot be read for certain.
    pub fn advance(
        &mut self,
        raw: &[u8],
        method: &str,
    ) -> Result<Option<ResponseHead>, &'static str> {
        let found = self.0.find(raw)?;
        if found.unwrap_or(raw.len()) > MOST_HEAD {
            return Err("a response head that is too long");
        }
        match found.and_then(|end| raw.get(..end)) {
            Some(head) => parse(head, method).map(Some),
            None => Ok(None),
        }
    }
}

fn parse(head: &[u8], method: &str) -> Result<ResponseHead, &'static str> {
    let line_end = head
        .iter()
        .position(|b| *b == b'\r')
        .ok_or("no status line")?;
    let (line, rest) = head.split_at(line_end);
    let (version, after) = line.split_at_checked(9).ok_or("a short status line")?;
    let minor = match version {
        b"HTTP/1.1 " => 1,
        b"HTTP/1.0 " => 0,
        _ => return Err("an unknown version"),
    };
    let status = match after {
        [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9']
        | [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', b' ', ..] => {
            u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0')
        }
        _ => return Err("a status that is no status"),
    };
    let fields = fields::parse(rest)?;
    let options = fields::list(&fields, "connection");
    let option = |name: &str| options.iter().any(|o| o == name);
    let stated = fields::framing(&fields)?;
    if minor == 0 && stated == Some(Framing::Chunked) {
        return Err("a transfer coding in HTTP/1.0");
    }
    let bodiless = method == "HEAD" || status < 200 || matches!(status, 204 | 304);
    let framing = if bodiless {
        Framing::Empty
    } else {
        stated.unwrap_or(Framing::UntilClose)
    };
    let keeps = if minor == 1 {
        !option("close")
    } else {
        option("keep-alive") && !option("close")
    };
    Ok(ResponseHead {
        status,
        framing,
        persistent: keeps && framing != Framing::UntilClose,
        length: head.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(raw: &[u8], method: &str) -> Result<Option<ResponseHead>, &'static str> {
        ResponseReader::default().advance(raw, method)
    }

    #[test]
    fn http_30_ambiguous_responses_are_not_read() {
        for raw in [
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
                .as_slice(),
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            b"HTTP/1.1 200 OK\nContent-Length: 5\n\n",
            b"HTTP/3.1 200 OK\r\n\r\n",
            b"HTTP/1.1 2000 OK\r\n\r\n",
            b"HTTP/1.1 099 OK\r\n\r\n",
            b"ICY 200 OK\r\n\r\n",
        ] {
            assert!(
                read(raw, "GET").is_err(),
                "{:?}",
                String::from_utf8_lossy(raw)
            );
        }
    }

    #[test]
    fn bodies_end_where_the_method_and_status_say() {
        let head = |raw: &[u8], method| read(raw, method).unwrap().unwrap();
        let sized = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        assert_eq!(head(sized, "GET").framing, Framing::Length(5));
        assert_eq!(head(sized, "HEAD").framing, Framing::Empty);
        assert_eq!(
            head(
                b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n",
                "GET"
            )
            .framing,
            Framing::Empty
        );
        assert_eq!(
            head(b"HTTP/1.1 304\r\nContent-Length: 5\r\n\r\n", "GET").framing,
            Framing::Empty
        );
        assert_eq!(
            head(b"HTTP/1.1 101 Switching\r\n\r\n", "GET").framing,
            Framing::Empty
        );
        let open = head(b"HTTP/1.1 200 OK\r\n\r\n", "GET");
        assert_eq!(
            (open.framing, open.persistent),
            (Framing::UntilClose, false)
        );
        assert!(!head(b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n", "GET").persistent);
        assert!(head(sized, "GET").persistent);
        assert!(
            !head(
                b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n",
                "GET"
            )
            .persistent
        );
    }
}
