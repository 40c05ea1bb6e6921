//! An HTTP/1.1 origin that keeps connections alive and logs every head as it arrived.

use std::io::{Read, Write};
use std::time::Duration;

use super::{Origins, port};
use crate::namespace::Namespace;

/// One request as the origin saw it.
#[derive(Clone, Debug)]
pub struct Request {
    /// Connection it came on.
    pub connection: u64,
    /// Raw head, blank line included.
    pub head: Vec<u8>,
    /// Whether it came through TLS.
    pub secure: bool,
}

impl Request {
    /// The head as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.head).into_owned()
    }
}

pub(super) fn start(origins: &Origins, namespace: &Namespace) {
    for port in [port::HTTP, port::HTTP_ALT] {
        origins.serve(namespace, port, |origins, id, mut stream| {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(30)));
            serve(origins, id, false, &mut stream);
        });
    }
}

/// Answers requests until the peer closes. Bodies with a length are read, chunked ones to their end.
pub(super) fn serve(origins: &Origins, id: u64, secure: bool, stream: &mut (impl Read + Write)) {
    let mut pending = Vec::new();
    while let Some(end) = fill_until(stream, &mut pending, b"\r\n\r\n") {
        let head: Vec<u8> = pending.drain(..end).collect();
        origins.requests.push(Request {
            connection: id,
            head: head.clone(),
            secure,
        });
        let text = String::from_utf8_lossy(&head).to_ascii_lowercase();
        let length = text.lines().find_map(|l| {
            l.strip_prefix("content-length:")?
                .trim()
                .parse::<usize>()
                .ok()
        });
        if text.contains("transfer-encoding: chunked") {
            let Some(end) = fill_until(stream, &mut pending, b"0\r\n\r\n") else {
                break;
            };
            pending.drain(..end);
        } else if let Some(length) = length {
            if fill(stream, &mut pending, length).is_none() {
                break;
            }
            pending.drain(..length);
        }
        let body = format!("lab connection {id}\n");
        let reply = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nContent-Type: text/plain\r\n\r\n",
            body.len()
        );
        let body = if text.starts_with("head ") {
            String::new()
        } else {
            body
        };
        if stream
            .write_all(reply.as_bytes())
            .and_then(|()| stream.write_all(body.as_bytes()))
            .is_err()
        {
            break;
        }
        let _ = stream.flush();
        if text.contains("connection: close") {
            break;
        }
    }
    origins.ended.push((id, false));
}

fn fill(stream: &mut impl Read, pending: &mut Vec<u8>, length: usize) -> Option<()> {
    let mut buffer = vec![0; 16_384];
    while pending.len() < length {
        let read = stream.read(&mut buffer).ok().filter(|n| *n > 0)?;
        pending.extend_from_slice(&buffer[..read]);
    }
    Some(())
}

fn fill_until(stream: &mut impl Read, pending: &mut Vec<u8>, mark: &[u8]) -> Option<usize> {
    loop {
        if let Some(at) = pending.windows(mark.len()).position(|w| w == mark) {
            return Some(at + mark.len());
        }
        let wanted = pending.len() + 1;
        fill(stream, pending, wanted)?;
    }
}
