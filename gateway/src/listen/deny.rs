//! Says no in the language that the client spoke: 403 with a reason, a TLS alert, or a reset.
//!
//! Nothing is said that the sandbox did not say itself, apart from the reason; policy and rule only where the policy
//! explains itself. Every text is escaped by the JSON writer, header values come from fixed lists.

use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::detect::Language;
use crate::relay::{Answer, Explain, Refusal, reset, send};

/// Record header of a TLS 1.2 alert, level fatal, `access_denied` (RFC 8446 6.2).
const ACCESS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];
/// What a client still sends while it is told no is read for this long, or the kernel's reset would overtake the answer.
const LINGER: Duration = Duration::from_secs(1);
/// And for this many bytes.
const MOST_LINGER: usize = 256 * 1024;

/// Tells the client and closes.
pub async fn say(client: TcpStream, refusal: &Refusal, destination: &str, explain: Explain) {
    match refusal.language {
        Language::Other => reset(&client),
        // answered on its stream
        Language::Http2 => last_words(client, &[]).await,
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
