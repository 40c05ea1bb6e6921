//! What a run reads, on its way from whoever gives it to the engine.
//!
//! Invariants: at most a few pieces wait anywhere, so a command that does not read slows the giver down; the end of what
//! is given is the end of what is read, and nothing else is; a command that reads no more ends the giving, not the run.

use std::convert::Infallible;

use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use crate::sandbox::Input;

/// The two ends of a run's input.
pub(super) struct Feeding {
    ends: Option<(mpsc::Receiver<Bytes>, Input)>,
}

impl Feeding {
    /// Of a workload that reads, if there is somebody who may give.
    pub(super) fn new(arriving: Option<mpsc::Receiver<Bytes>>, input: Option<Input>) -> Self {
        Self {
            ends: arriving.zip(input),
        }
    }

    /// Passes on what arrives, and then keeps the connection, which may carry the output as well, until it is dropped.
    pub(super) async fn pass(self) -> Infallible {
        let Some((mut arriving, mut input)) = self.ends else {
            return std::future::pending().await;
        };
        let mut passed = Ok(());
        while let Some(bytes) = arriving.recv().await {
            passed = async {
                input.write_all(&bytes).await?;
                input.flush().await
            }
            .await;
            if passed.is_err() {
                break;
            }
        }
        drop(arriving);
        if let Err(error) = passed {
            tracing::debug!(%error, "the command reads no more");
        } else if let Err(error) = input.shutdown().await {
            tracing::debug!(%error, "ending what the command reads");
        }
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn what_is_given_is_read_up_to_its_end_and_a_slow_reader_slows_the_giver_down() {
        let (giving, arriving) = mpsc::channel(2);
        let (ours, mut theirs) = tokio::io::duplex(16);
        let given = async {
            for _ in 0..100 {
                giving.send(Bytes::from_static(&[7; 100])).await.unwrap();
            }
            drop(giving);
            let mut all = Vec::new();
            theirs.read_to_end(&mut all).await.unwrap();
            all.len()
        };
        // nobody reads yet: it cannot be given
        let feeding = Feeding::new(Some(arriving), Some(Box::pin(ours)));
        let stuck = std::time::Duration::from_millis(50);
        tokio::select! {
            never = feeding.pass() => match never {},
            given = tokio::time::timeout(stuck, given) => assert!(given.is_err()),
        }
        // and with a reader all of it arrives, then the end
        let (giving, arriving) = mpsc::channel(2);
        let (ours, mut theirs) = tokio::io::duplex(16);
        let feeding = Feeding::new(Some(arriving), Some(Box::pin(ours)));
        let given = async {
            for _ in 0..100 {
                giving.send(Bytes::from_static(&[7; 100])).await.unwrap();
            }
            drop(giving);
        };
        let read = async {
            let mut all = Vec::new();
            theirs.read_to_end(&mut all).await.unwrap();
            all.len()
        };
        tokio::select! {
            never = feeding.pass() => match never {},
            ((), read) = async { tokio::join!(given, read) } => assert_eq!(read, 10_000),
        }
    }

    #[tokio::test]
    async fn a_command_that_reads_no_more_ends_the_giving() {
        let (giving, arriving) = mpsc::channel(2);
        let (ours, theirs) = tokio::io::duplex(16);
        drop(theirs);
        let feeding = Feeding::new(Some(arriving), Some(Box::pin(ours)));
        let given = async { while giving.send(Bytes::from_static(b"y\n")).await.is_ok() {} };
        tokio::select! {
            never = feeding.pass() => match never {},
            () = given => {}
        }
    }
}
