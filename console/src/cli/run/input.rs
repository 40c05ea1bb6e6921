//! What a run is given: copies of files, then what is piped to this command.
//!
//! A thread reads, because standard input can only be waited for; it ends with this process. Pieces wait for the run to
//! take them, so memory is bounded whatever is piped. A terminal is not given: a command that reads it would wait for
//! somebody who does not know.

use std::convert::Infallible;
use std::ffi::OsString;
use std::future::pending;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::pin::Pin;

use bytes::Bytes;
use runner::{Client, RunId, Takes};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

use super::tree::{Copy, measure, pack};
use crate::exit::{Failure, NOT_RUN};

/// Pieces that wait for the run to take them.
const WAITING: usize = 2;
const PIECE: usize = 64 * 1024;

/// What a run is to be given.
#[derive(Debug)]
pub struct Brought {
    copies: Vec<Copy>,
    stdin: bool,
}

impl Brought {
    /// Looks through what is to be copied, and at standard input.
    pub fn of(copies: &[OsString]) -> Result<Self, Failure> {
        let copies: Vec<Copy> = copies
            .iter()
            .map(|text| Copy::read(text))
            .collect::<Result<_, _>>()?;
        measure(&copies)?;
        Ok(Self {
            copies,
            stdin: is_piped(),
        })
    }

    /// What the runner is told about it.
    pub fn takes(&self) -> Takes {
        Takes {
            files: !self.copies.is_empty(),
            stdin: self.stdin,
        }
    }

    fn give(&self, to: &Sender<io::Result<Bytes>>) -> Result<(), Failure> {
        let mut gone = false;
        if !self.copies.is_empty() {
            let packed = pack(&self.copies, &mut |piece| {
                to.blocking_send(Ok(piece.into())).map_err(|_| {
                    gone = true;
                    io::ErrorKind::BrokenPipe.into()
                })
            });
            // a run that is over takes nothing, and says itself how it ended
            if gone {
                return Ok(());
            }
            packed?;
        }
        if self.stdin {
            let mut stdin = io::stdin().lock();
            let mut piece = vec![0; PIECE];
            loop {
                let length = stdin.read(&mut piece)?;
                let bytes = Bytes::copy_from_slice(piece.get(..length).unwrap_or_default());
                if length == 0 || to.blocking_send(Ok(bytes)).is_err() {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// A pipe, a socket or a file; not a terminal, and not what reads as nothing.
pub fn is_piped() -> bool {
    let kind = std::fs::metadata("/proc/self/fd/0").map(|found| found.file_type());
    kind.is_ok_and(|kind| kind.is_fifo() || kind.is_socket() || kind.is_file())
}

/// Gives it, from the moment at which the run is accepted.
pub struct Giving<'a> {
    client: &'a Client,
    brought: &'a Brought,
    under_way: Option<Pin<Box<dyn Future<Output = Option<Failure>> + 'a>>>,
}

impl<'a> Giving<'a> {
    /// Nothing is read yet.
    pub fn new(client: &'a Client, brought: &'a Brought) -> Self {
        Self {
            client,
            brought,
            under_way: None,
        }
    }

    /// The run waits for it.
    pub fn begin(&mut self, run: &RunId) {
        if self.brought.takes().is_nothing() || self.under_way.is_some() {
            return;
        }
        let (giving, pieces) = channel(WAITING);
        let (telling, told) = oneshot::channel();
        let brought = Brought {
            copies: self.brought.copies.clone(),
            stdin: self.brought.stdin,
        };
        std::thread::spawn(move || {
            if let Err(failure) = brought.give(&giving) {
                // an end without this would look like the end of the input
                let _ = giving.blocking_send(Err(io::ErrorKind::InvalidData.into()));
                let _ = telling.send(failure);
            }
        });
        let (client, run) = (self.client, run.clone());
        self.under_way = Some(Box::pin(give(client, run, pieces, told)));
    }

    /// Whether another run can be given the same: what was piped is read once.
    pub fn can_begin_again(&self) -> bool {
        !self.brought.takes().stdin
    }

    /// Returns only when something could not be read that should have been given.
    pub async fn broken(&mut self) -> Failure {
        if let Some(under_way) = &mut self.under_way
            && let Some(failure) = under_way.await
        {
            self.under_way = None;
            return failure.code(NOT_RUN);
        }
        self.under_way = None;
        match pending::<Infallible>().await {}
    }
}

async fn give(
    client: &Client,
    run: RunId,
    pieces: Receiver<io::Result<Bytes>>,
    told: oneshot::Receiver<Failure>,
) -> Option<Failure> {
    if let Err(error) = client.give(&run, pieces).await {
        let error = Failure::from_error(&error);
        tracing::debug!(%error, "giving a run its input");
        return told.await.ok();
    }
    None
}
