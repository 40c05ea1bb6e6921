//! A stream of server-sent events, read line by line, with the number of the last one for coming back.
//!
//! What a line says beyond that is the caller's; a line that is longer than any event is the end of the stream.

use std::time::Duration;

use tokio::time::timeout;

use super::call::CallError;
use super::client::{Client, Wire};

/// A console says something every 15 seconds.
const SILENCE: Duration = Duration::from_secs(50);
/// An event says at most 64 KiB.
const LINE: usize = 256 << 10;
/// A number of an event.
const NUMBER: usize = 32;

/// What a stream said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Said {
    /// Something happened, or it lives.
    Something,
    /// It ended, or fell silent: come back.
    Over,
    /// Whoever listens may not any more.
    Ended,
}

/// A stream of one topic.
pub struct Events<'a> {
    client: &'a Client,
    path: String,
    wire: Option<Wire>,
    rest: Vec<u8>,
    last: Option<String>,
}

impl<'a> Events<'a> {
    /// Of a topic; nothing is asked yet.
    pub fn new(client: &'a Client, topic: &str) -> Self {
        Self {
            client,
            path: format!("/api/v1/events?topics={topic}"),
            wire: None,
            rest: Vec::new(),
            last: None,
        }
    }

    /// Listens, after the last event that was seen.
    pub async fn open(&mut self) -> Result<(), CallError> {
        self.rest.clear();
        self.wire = Some(self.client.stream(&self.path, self.last.as_deref()).await?);
        Ok(())
    }

    /// Waits until it says something.
    pub async fn next(&mut self) -> Said {
        let Some(wire) = &mut self.wire else {
            return Said::Over;
        };
        let said = match timeout(SILENCE, wire.next()).await {
            Ok(Some(Ok(piece))) => {
                self.rest.extend_from_slice(&piece);
                self.lines()
            }
            Ok(Some(Err(_)) | None) | Err(_) => Said::Over,
        };
        if said != Said::Something {
            self.wire = None;
        }
        said
    }

    /// Takes whole lines in.
    fn lines(&mut self) -> Said {
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end();
            if let Some(number) = line.strip_prefix("id: ") {
                let fits = number.len() <= NUMBER && number.bytes().all(|b| b.is_ascii_digit());
                self.last = fits.then(|| number.to_owned());
            }
            if line == "event: end" {
                return Said::Ended;
            }
        }
        if self.rest.len() > LINE {
            return Said::Over;
        }
        Said::Something
    }
}
