//! The door as a task, when its socket fails for ever.

use std::io;
use std::time::{Duration, Instant};

use gateway::listen::dns::{Batch, Datagrams, Outgoing};
use tokio::sync::mpsc;

use crate::lab::{Lab, domains};
use crate::upstream::Upstream;

/// Tells of every read and fails it.
struct Broken(mpsc::UnboundedSender<()>);

impl Datagrams for Broken {
    async fn receive(&self, _: &mut Batch) -> io::Result<()> {
        let _ = self.0.send(());
        Err(io::ErrorKind::NotConnected.into())
    }

    fn send(&self, _: &[Outgoing]) {}
}

#[tokio::test]
async fn socket_that_goes_on_failing_takes_no_processor() {
    let upstream = Upstream::zone(Vec::new());
    let lab = Lab::new(&upstream, domains(&["ok.net"])).await;
    let (reads, mut read) = mpsc::unbounded_channel();
    lab.serve(Broken(reads));
    let started = Instant::now();
    for _ in 0..30 {
        read.recv().await.unwrap();
    }
    assert!(started.elapsed() >= Duration::from_millis(500));
    // it tries on, and the gateway is not sealed by it
    assert_eq!(*lab.tasks.fallen().borrow(), None);
}
