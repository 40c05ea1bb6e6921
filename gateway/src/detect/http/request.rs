//! Request heads.

use netpolicy::decide::Evidence;
use netpolicy::name::{Authority, Host};

use super::fields::{self, EndFinder, Field, Framing};
use super::{MOST_HEAD, is_token};

/// Longest method; the longest registered one has 17 letters.
const MOST_METHOD: usize = 32;
/// Fields that a connection option may not name: removing them downstream would change what was checked.
const PINNED: [&str; 4] = [
    "host",
    "content-length",
    "transfer-encoding",
    "authorization",
];

/// Where a request points.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// `/path?query`
    Origin(String),
    /// `http://authority/path?query`
    Absolute {
        /// Its authority; equal to the Host field.
        authority: Authority,
        /// Path and query.
        path: String,
    },
    /// `host:port` (CONNECT).
    Authority(Authority),
    /// `*` (OPTIONS).
    Asterisk,
}

/// A well-formed request head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Head {
    /// Method, as written.
    pub method: String,
    /// Target.
    pub target: Target,
    /// The Host field, if there is one (HTTP/1.0 may do without).
    pub host: Option<Authority>,
    /// Length of the body.
    pub framing: Framing,
    /// Whether the client wants to send another request on this connection.
    pub persistent: bool,
    /// Protocols it offers to switch to (lower case), where the connection options say so.
    pub upgrade: Vec<String>,
    /// 0 or 1.
    pub minor: u8,
    /// All fields, in order.
    pub fields: Vec<Field>,
    /// Bytes of the head with its empty line.
    pub length: usize,
}

/// Why a head is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HeadError {
    /// Wrong or ambiguous.
    #[error("{0}")]
    Malformed(&'static str),
    /// Longer than [`MOST_HEAD`].
    #[error("a head that is too long")]
    TooLong,
    /// An HTTP/2 connection preface.
    #[error("an HTTP/2 preface")]
    Http2,
    /// An `Expect` that is not `100-continue`.
    #[error("an expectation nobody can meet")]
    Expectation,
}

impl From<&'static str> for HeadError {
    fn from(why: &'static str) -> Self {
        Self::Malformed(why)
    }
}

/// Reads a head that arrives in pieces.
#[derive(Debug, Default)]
pub struct HeadReader(EndFinder);

impl HeadReader {
    /// Looks at everything received so far (`raw` only grows between calls). `None`: more bytes are needed.
    pub fn advance(&mut self, raw: &[u8]) -> Result<Option<Head>, HeadError> {
        let found = self.0.find(raw)?;
        if found.unwrap_or(raw.len()) > MOST_HEAD {
            return Err(HeadError::TooLong);
        }
        match found.and_then(|end| raw.get(..end)) {
            Some(head) => parse(head).map(Some),
            None => Ok(None),
        }
    }
}

impl Head {
    /// What the decision on bytes needs to know.
    pub fn evidence(&self) -> Evidence {
        let authority = match &self.target {
            Target::Absolute { authority, .. } | Target::Authority(authority) => Some(authority),
            Target::Origin(_) | Target::Asterisk => self.host.as_ref(),
        };
        Evidence::Http {
            host: authority.map(|a| a.host.clone()),
            port: authority.and_then(|a| a.port),
            method: self.method.clone(),
            path: self.path().to_owned(),
        }
    }

    /// Path and query as they will be sent; `*` for OPTIONS, empty for CONNECT.
    pub fn path(&self) -> &str {
        match &self.target {
            Target::Origin(path) | Target::Absolute { path, .. } => path,
            Target::Asterisk => "*",
            Target::Authority(_) => "",
        }
    }

    /// The path for the record: never the query.
    pub fn path_without_query(&self) -> &str {
        self.path().split('?').next().unwrap_or_default()
    }
}

fn parse(head: &[u8]) -> Result<Head, HeadError> {
    let line_end = head
        .iter()
        .position(|b| *b == b'\r')
        .ok_or("no start line")?;
    let (line, rest) = head.split_at(line_end);
    let (method, target, minor) = start_line(line)?;
    let fields = fields::parse(rest)?;
    let host = fields::single(&fields, "host")?
        .map(Authority::parse)
        .transpose()
        .map_err(|_| "a host that is no host")?;
    if minor == 1 && host.is_none() {
        return Err("no host".into());
    }
    let target = parse_target(method, target)?;
    agree(&target, host.as_ref())?;
    let framing = fields::framing(&fields)?.unwrap_or(Framing::Empty);
    if minor == 0 && framing == Framing::Chunked {
        return Err("a transfer coding in HTTP/1.0".into());
    }
    let options = fields::list(&fields, "connection");
    if options.iter().any(|o| PINNED.contains(&o.as_str())) {
        return Err("a connection option that names a checked field".into());
    }
    let option = |name: &str| options.iter().any(|o| o == name);
    if let Some(expect) = fields::single(&fields, "expect")?
        && !expect.eq_ignore_ascii_case(b"100-continue")
    {
        return Err(HeadError::Expectation);
    }
    Ok(Head {
        method: String::from_utf8_lossy(method).into_owned(),
        target,
        host,
        framing,
        persistent: if minor == 1 {
            !option("close")
        } else {
            option("keep-alive") && !option("close")
        },
        upgrade: if option("upgrade") {
            fields::list(&fields, "upgrade")
        } else {
            Vec::new()
        },
        minor,
        length: head.len(),
        fields,
    })
}

/// Method, target and minor version, split at exactly two single blanks.
fn start_line(line: &[u8]) -> Result<(&[u8], &[u8], u8), HeadError> {
    let mut parts = line.split(|b| *b == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err("a start line that has not three parts".into());
    };
    let minor = match version {
        b"HTTP/1.1" => 1,
        b"HTTP/1.0" => 0,
        b"HTTP/2.0" => return Err(HeadError::Http2),
        _ => return Err("an unknown version".into()),
    };
    if method.is_empty() || method.len() > MOST_METHOD || !method.iter().all(|b| is_token(*b)) {
        return Err("a method that is no token".into());
    }
    // a backslash or a fragment is read as something else by some server
    if target.is_empty()
        || !target
            .iter()
            .all(|b| (b'!'..=b'~').contains(b) && !b"\\#".contains(b))
    {
        return Err("a byte that no target holds".into());
    }
    Ok((method, target, minor))
}

fn parse_target(method: &[u8], target: &[u8]) -> Result<Target, HeadError> {
    let text = || String::from_utf8_lossy(target).into_owned();
    if method == b"CONNECT" {
        let authority =
            Authority::parse(target).map_err(|_| "a CONNECT target that is no authority")?;
        return Ok(Target::Authority(authority));
    }
    match target {
        [b'/', ..] => Ok(Target::Origin(text())),
        b"*" if method == b"OPTIONS" => Ok(Target::Asterisk),
        _ => absolute(target),
    }
}

fn absolute(target: &[u8]) -> Result<Target, HeadError> {
    let scheme = target
        .first_chunk::<7>()
        .filter(|s| s.eq_ignore_ascii_case(b"http://"));
    let rest = scheme
        .and_then(|s| target.get(s.len()..))
        .ok_or("a target of another form or scheme")?;
    let end = rest
        .iter()
        .position(|b| b"/?".contains(b))
        .unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let authority =
        Authority::parse(authority).map_err(|_| "a target without a proper authority")?;
    let mut path = String::from_utf8_lossy(path).into_owned();
    if !path.starts_with('/') {
        path.insert(0, '/');
    }
    Ok(Target::Absolute { authority, path })
}

/// A request that names its host twice must name the same one.
fn agree(target: &Target, host: Option<&Authority>) -> Result<(), HeadError> {
    let (named, default) = match target {
        Target::Absolute { authority, .. } => (authority, 80),
        Target::Authority(authority) => (authority, 443),
        Target::Origin(_) | Target::Asterisk => return Ok(()),
    };
    let Some(host) = host else { return Ok(()) };
    let connect = matches!(target, Target::Authority(_));
    let port = |a: &Authority| a.port.unwrap_or(default);
    // many clients leave the port out of the Host of a CONNECT
    let ports_agree = port(named) == port(host) || (connect && host.port.is_none());
    let hosts_agree = match (&named.host, &host.host) {
        (Host::Name(a), Host::Name(b)) => a == b,
        (Host::Address(a), Host::Address(b)) => a == b,
        (Host::Name(_), Host::Address(_)) | (Host::Address(_), Host::Name(_)) => false,
    };
    if hosts_agree && ports_agree {
        Ok(())
    } else {
        Err("a target that names another host than the Host field".into())
    }
}
