//! Any bytes as a client's half of an HTTP/2 connection: no panic, an end, and requests that go on as they were judged.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use gateway::relay::http2::{request, server_settings};
use netpolicy::decide::Evidence;
use netpolicy::name::Authority;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What a client begins with (RFC 9113 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Gives these bytes and then waits; takes whatever is said.
struct Fed<'a>(&'a [u8]);

impl AsyncRead for Fed<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.0.is_empty() {
            return Poll::Pending;
        }
        let (now, later) = self.0.split_at(self.0.len().min(into.remaining()));
        into.put_slice(now);
        self.0 = later;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Fed<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// One run: the bytes behind the preface.
pub fn run(bytes: &[u8]) {
    walk(bytes);
}

/// See [`run`]; how many requests were read and could be judged.
pub fn walk(bytes: &[u8]) -> usize {
    let all = [PREFACE, bytes].concat();
    let mut context = Context::from_waker(Waker::noop());
    let mut begin = pin!(server_settings().handshake::<_, bytes::Bytes>(Fed(&all)));
    let Poll::Ready(Ok(mut connection)) = begin.as_mut().poll(&mut context) else {
        return 0;
    };
    let mut judged = 0;
    // until nothing more comes: of an ended connection h2 tells no requests
    while let Poll::Ready(Some(Ok((asked, _respond)))) = connection.poll_accept(&mut context) {
        let (mut head, _body) = asked.into_parts();
        let Ok(evidence) = request::evidence(&head) else {
            continue;
        };
        if request::name_authority(&mut head).is_ok() {
            goes_on_as_judged(&head.uri, &evidence);
            judged += 1;
        }
    }
    judged
}

/// The one authority that is sent on is the one that was decided, and the target is whole.
fn goes_on_as_judged(uri: &http::Uri, evidence: &Evidence) {
    let asked = match evidence {
        Evidence::Http {
            host, port, path, ..
        } => Some((host, port, path)),
        _ => None,
    };
    let (host, port, path) = asked.expect("a request");
    let sent = uri.authority().expect("an authority").as_str();
    let sent = Authority::parse(sent.as_bytes()).expect("a host");
    assert_eq!((Some(&sent.host), sent.port), (host.as_ref(), *port));
    assert!(path.bytes().all(|b| b.is_ascii_graphic()), "{path:?}");
}

/// A frame (RFC 9113 4.1).
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}
