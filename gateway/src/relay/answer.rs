//! What a denied request is told: status, reason and help as JSON, the same through every version of HTTP.

use std::net::SocketAddr;

use netpolicy::decide::{Denial, Destination, Intent};
use netpolicy::reason::Reason;
use serde::Serialize;

/// The body of every 403.
#[derive(Debug, Serialize)]
struct Body<'a> {
    error: &'static str,
    reason: Reason,
    destination: &'a str,
    help: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
}

/// Whether denials name policy and rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Explain {
    /// They do.
    Yes,
    /// Only the reason.
    No,
}

/// An HTTP answer that is not the origin's.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// Status code.
    pub status: u16,
    /// What the body's `error` says.
    pub error: &'static str,
    /// What was decided or failed.
    pub denial: &'a Denial,
    /// What the client asked for.
    pub destination: &'a str,
    /// See [`Explain`].
    pub explain: Explain,
}

impl Answer<'_> {
    /// The body.
    pub fn body(&self) -> Vec<u8> {
        let denial = self.denial;
        let explained = self.explain == Explain::Yes;
        let body = Body {
            error: self.error,
            reason: denial.reason,
            destination: self.destination,
            help: denial.reason.guide(),
            policy: denial.policy.as_deref().filter(|_| explained),
            rule: denial
                .rule
                .as_ref()
                .filter(|_| explained)
                .map(ToString::to_string),
            note: denial.note.as_deref().filter(|_| explained),
        };
        // plain strings and numbers always serialise
        let mut bytes = serde_json::to_vec(&body).unwrap_or_default();
        // a terminal shows it as a line of its own
        bytes.push(b'\n');
        bytes
    }

    /// Head and body as HTTP/1.1.
    pub fn render(&self) -> Vec<u8> {
        let body = self.body();
        let head = format!(
            "HTTP/1.1 {} {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nSallyport-Reason: {}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n",
            self.status,
            phrase(self.status),
            body.len(),
            self.denial.reason.code(),
        );
        [head.into_bytes(), body].concat()
    }
}

fn phrase(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        403 => "Forbidden",
        417 => "Expectation Failed",
        431 => "Request Header Fields Too Large",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Denied",
    }
}

/// The destination as a denial says it to the sandbox: what it asked for, nothing it did not say itself.
pub(crate) fn destination_text(intent: &Intent, heard: Option<&str>) -> String {
    match (heard, &intent.to) {
        (Some(heard), _) => format!("{heard}:{}", intent.port),
        (None, Destination::Name { name, .. }) => format!("{name}:{}", intent.port),
        (None, Destination::Address { address, .. }) => {
            SocketAddr::new(*address, intent.port).to_string()
        }
    }
}
