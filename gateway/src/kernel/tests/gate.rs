//! A minimal gate for tests: reads the queue and answers by destination port; accepts at the door and echoes.

use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use netpolicy::ruleset::FlowMark;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::lab::Lab;
use crate::kernel::backend::Backend;
use crate::kernel::icmp::Errors;
use crate::kernel::queue::{Queue, Room, Syn, Verdict};
use crate::kernel::sockets::Doors;

pub const OPEN: u16 = 8000;
pub const REFUSED: u16 = 8001;
pub const HOST_UNREACHABLE: u16 = 8002;
pub const NO_ROUTE: u16 = 8003;
pub const PROHIBITED: u16 = 8004;
pub const SILENT: u16 = 8005;

fn verdict(port: u16) -> Verdict {
    match port {
        OPEN => Verdict::Mark(FlowMark::Deliver),
        REFUSED => Verdict::Mark(FlowMark::Reset),
        HOST_UNREACHABLE => Verdict::Mark(FlowMark::HostUnreachable),
        NO_ROUTE => Verdict::Mark(FlowMark::NoRoute),
        PROHIBITED => Verdict::Mark(FlowMark::Prohibited),
        _ => Verdict::Drop,
    }
}

/// Runs until dropped.
pub struct Gate {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    pub seen: Arc<Mutex<Vec<Syn>>>,
    pub accepted: Arc<AtomicUsize>,
}

impl Gate {
    pub fn start(lab: &Lab, doors: &Doors) -> Self {
        let (ns, config) = (lab.enforcer.ns(), lab.enforcer.config());
        let queue = Queue::open(ns, config.queue, 4096).unwrap();
        let queue = match lab.enforcer.backend() {
            Backend::Nftables => queue,
            Backend::Iptables => {
                queue.answering(Errors::open(ns, (config.service4, config.service6)).unwrap())
            }
        };
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let accepted = Arc::new(AtomicUsize::new(0));
        let mut threads = Vec::new();
        let (halt, log) = (Arc::clone(&stop), Arc::clone(&seen));
        threads.push(std::thread::spawn(move || {
            let mut room = Room::default();
            until(&halt, &queue, || {
                let read = queue.receive(&mut room, |syn| {
                    log.lock().unwrap().push(syn);
                    queue.decide(syn.held, verdict(syn.to.port())).unwrap();
                });
                read.map(drop)
            });
        }));
        for listener in doors
            .tcp
            .iter()
            .chain(&doors.dns_tcp)
            .chain(&doors.broker)
            .chain(&doors.proxy)
        {
            let listener = listener.try_clone().unwrap();
            let (halt, count) = (Arc::clone(&stop), Arc::clone(&accepted));
            threads.push(std::thread::spawn(move || {
                until(&halt, &listener.try_clone().unwrap(), || {
                    echo(&listener, &count)
                });
            }));
        }
        Self {
            stop,
            threads,
            seen,
            accepted,
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

fn until(stop: &AtomicBool, fd: &impl AsFd, mut act: impl FnMut() -> io::Result<()>) {
    while !stop.load(Ordering::Relaxed) {
        let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut fds, PollTimeout::from(20_u8));
        match act() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            result => result.unwrap(),
        }
    }
}

fn echo(listener: &TcpListener, count: &AtomicUsize) -> io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    count.fetch_add(1, Ordering::Relaxed);
    stream.set_nonblocking(false)?;
    let asked = stream.local_addr()?;
    std::thread::spawn(move || {
        let _ = stream.write_all(format!("{asked}\n").as_bytes());
        let mut buffer = [0; 512];
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            if stream.write_all(&buffer[..n]).is_err() {
                break;
            }
        }
    });
    Ok(())
}
