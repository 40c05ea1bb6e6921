//! Chooses the reader for the first bytes of a flow and turns what it read into evidence.
//!
//! | rule speaks | bytes | what is seen |
//! |---|---|---|
//! | `tls` | a ClientHello | TLS with its name; anything else is opaque or malformed and the decision refuses it |
//! | `http` | an HTTP/1 head | its host; anything else is malformed, TLS is seen as TLS; HTTP/2 is known by its preface |
//! | `any` | a ClientHello or an HTTP/1 head | the same, so that the name must agree; everything else is opaque at once |
//!
//! `any` holds bytes back only while they are the beginning of a ClientHello or of a request of a known method, so a
//! protocol in which the client says one byte and waits is not delayed. HTTP/2 with prior knowledge is opaque there.

use netpolicy::decide::Evidence;
use netpolicy::policy::Speaks;

use super::hello::{Hello, HelloReader, Progress};
use super::http::{Head, HeadError, HeadReader, MOST_HEAD};

/// Methods whose first letters make `any` wait for the rest of the line. Few, because a protocol in which the client says
/// one such letter and waits would wait in vain; other methods are seen when their line comes in one piece.
const METHODS: [&[u8]; 10] = [
    b"GET ",
    b"HEAD ",
    b"POST ",
    b"PUT ",
    b"DELETE ",
    b"CONNECT ",
    b"OPTIONS ",
    b"TRACE ",
    b"PATCH ",
    b"PROPFIND ",
];

/// The language a denial is spoken in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Language {
    /// A fatal alert.
    Tls,
    /// A 403.
    Http,
    /// A 403 on its stream, said already.
    Http2,
    /// A reset.
    Other,
}

/// What was seen in full.
#[derive(Clone, Debug)]
pub struct Seen {
    /// For the decision.
    pub evidence: Evidence,
    /// For a denial.
    pub language: Language,
    /// The hello, if it was one.
    pub hello: Option<Hello>,
    /// The head, or why there is none, if it had to be one or looked like one.
    pub head: Option<Result<Head, HeadError>>,
}

impl Seen {
    /// Bytes without meaning, or none at all.
    pub fn opaque() -> Self {
        Self {
            evidence: Evidence::Opaque,
            language: Language::Other,
            hello: None,
            head: None,
        }
    }

    fn tls(hello: Hello) -> Self {
        Self {
            evidence: Evidence::Tls {
                name: hello.name.clone(),
            },
            language: Language::Tls,
            hello: Some(hello),
            head: None,
        }
    }

    fn tls_malformed(why: &'static str) -> Self {
        tracing::debug!(why, "a ClientHello was refused");
        Self {
            evidence: Evidence::TlsMalformed,
            language: Language::Tls,
            hello: None,
            head: None,
        }
    }

    fn http(read: Result<Head, HeadError>) -> Self {
        let evidence = match &read {
            Ok(head) => head.evidence(),
            Err(why) => {
                tracing::debug!(%why, "a request head was refused");
                Evidence::HttpMalformed
            }
        };
        Self {
            evidence,
            language: Language::Http,
            hello: None,
            head: Some(read),
        }
    }
}

/// Whether the bytes suffice.
#[derive(Clone, Debug)]
pub enum Sight {
    /// More bytes are needed; none may be forwarded yet.
    Need,
    /// They do.
    Seen(Box<Seen>),
}

/// Follows the first bytes of one flow.
#[derive(Debug)]
pub struct Sniffer {
    speaks: Speaks,
    hello: HelloReader,
    head: HeadReader,
}

impl Sniffer {
    /// Under a rule that judges bytes this way.
    pub fn new(speaks: Speaks) -> Self {
        Self {
            speaks,
            hello: HelloReader::default(),
            head: HeadReader::default(),
        }
    }

    /// Looks at everything received so far (`raw` only grows between calls).
    pub fn advance(&mut self, raw: &[u8]) -> Sight {
        match self.hello.advance(raw) {
            Progress::Need => Sight::Need,
            Progress::Hello(hello) => seen(Seen::tls(hello)),
            Progress::Malformed(why) => seen(Seen::tls_malformed(why)),
            Progress::NotTls => self.not_tls(raw),
        }
    }

    /// What the bytes are when no more will come in time: half a hello or head is malformed, not opaque.
    pub fn give_up(&mut self, raw: &[u8]) -> Seen {
        match (self.advance(raw), raw.first()) {
            (Sight::Seen(seen), _) => *seen,
            (Sight::Need, None) => Seen::opaque(),
            (Sight::Need, Some(22)) => Seen::tls_malformed("it ended early"),
            (Sight::Need, Some(_)) => Seen::http(Err(HeadError::Malformed("it ended early"))),
        }
    }

    fn not_tls(&mut self, raw: &[u8]) -> Sight {
        let reads_head = match self.speaks {
            Speaks::Tls => Some(false),
            Speaks::Http => Some(true),
            Speaks::Any => is_http(raw),
        };
        match reads_head {
            None => Sight::Need,
            Some(false) => seen(Seen::opaque()),
            Some(true) => match self.head.advance(raw) {
                Ok(None) => Sight::Need,
                Ok(Some(head)) => seen(Seen::http(Ok(head))),
                Err(why) => seen(Seen::http(Err(why))),
            },
        }
    }
}

fn seen(seen: Seen) -> Sight {
    Sight::Seen(Box::new(seen))
}

/// Whether bytes on an `any` rule are an HTTP/1 request; `None` while they may become one.
fn is_http(raw: &[u8]) -> Option<bool> {
    let known = METHODS
        .iter()
        .find(|m| raw.starts_with(m) || m.starts_with(raw));
    let Some(line_end) = raw.iter().take(MOST_HEAD).position(|b| *b == b'\n') else {
        return match known {
            Some(_) if raw.len() <= MOST_HEAD => None,
            // a request line that never ends is refused by the head reader
            known => Some(known.is_some()),
        };
    };
    let line = raw.get(..line_end).unwrap_or_default();
    let last = line
        .strip_suffix(b"\r")
        .unwrap_or(line)
        .rsplit(u8::is_ascii_whitespace)
        .next()
        .unwrap_or_default();
    Some(last.starts_with(b"HTTP/1") || (known.is_some() && last.starts_with(b"HTTP/")))
}
