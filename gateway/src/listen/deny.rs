//! Says no in the language that the client spoke: 403 with a reason, a TLS alert, or a reset.
//!
//! Nothing is said that the sandbox did not say itself, apart from the reason; policy and rule only where the policy
//! explains itself. Every text is escaped by the JSON writer, header values come from fixed lists.

use std::time::Duration;

use netpolicy::decide::Denial;
use netpolicy::reason::Reason;
use serde::Serialize;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::detect::Language;
use crate::relay::{Refusal, reset, send};

/// Record header of a TLS 1.2 alert, level fatal, `access_denied` (RFC 8446 6.2).
const ACCESS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];
/// What a client still sends while it is told no is read for this long, or the kernel's reset would overtake the answer.
const LINGER: Duration = Duration::from_secs(1);
/// And for this many bytes.
const MOST_LINGER: usize = 256 * 1024;

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
    /// Head and body.
    pub fn render(&self) -> Vec<u8> {
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
        let body = serde_json::to_vec(&body).unwrap_or_default();
        let head = format!(
            "HTTP/1.1 {} {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nSallyport-Reason: {}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n",
            self.status,
            phrase(self.status),
            body.len(),
            denial.reason.code(),
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

/// Tells the client and closes.
pub async fn say(client: TcpStream, refusal: &Refusal, destination: &str, explain: Explain) {
    match refusal.language {
        Language::Other => reset(&client),
        Language::Tls => last_words(client, &ACCESS_DENIED).await,
        Language::Http => {
            let error = "egress_denied";
            let answer = Answer {
                status: refusal.status,
                error,
                denial: &refusal.denial,
                destination,
                explain,
            };
            let mut bytes = answer.render();
            if !refusal.body {
                let head = bytes
                    .windows(4)
                    .position(|end| end == b"\r\n\r\n")
                    .map_or(bytes.len(), |at| at + 4);
                bytes.truncate(head);
            }
            last_words(client, &bytes).await;
        }
    }
}

/// Sends, finishes, and reads what the client still had on its way, so that it gets to read the answer.
pub async fn last_words(client: TcpStream, bytes: &[u8]) {
    if bytes.is_empty() && matches!(client.try_read(&mut [0]), Ok(0)) {
        // the client has finished: closing says all there is to say
        return;
    }
    let said = async {
        if send(&client, bytes).await.is_ok() {
            linger(&client).await;
        }
    };
    if timeout(LINGER, said).await.is_err() {
        tracing::trace!("a denied client did not close in time");
    }
}

/// Finishes sending and reads until the client does too.
pub(crate) async fn linger(client: &TcpStream) {
    use tokio::io::Interest;
    if socket2::SockRef::from(client)
        .shutdown(std::net::Shutdown::Write)
        .is_err()
    {
        return;
    }
    let mut read = 0;
    let mut scratch = [0; 2048];
    while read < MOST_LINGER {
        match client
            .ready(Interest::READABLE)
            .await
            .and_then(|_| client.try_read(&mut scratch))
        {
            Ok(0) => return,
            Ok(more) => read += more,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}
