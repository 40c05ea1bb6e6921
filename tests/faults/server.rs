//! Servers of the lab's internet that hold many connections on one thread.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use lab::Lab;
use lab::topology::{PUBLIC4, ip};
use socket2::{Domain, SockRef, Socket, Type};

/// Accepts, keeps and says nothing; reads nothing either.
#[derive(Debug)]
pub struct Mute {
    /// Where it listens.
    pub at: SocketAddr,
    kept: Arc<Mutex<Vec<TcpStream>>>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Mute {
    /// On a port of a public address.
    pub fn start(lab: &Lab, port: u16) -> Self {
        let at = SocketAddr::new(ip(PUBLIC4), port);
        let listener: TcpListener = lab.topology.internet.run(|| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
            socket.set_reuse_address(true).expect("reuse");
            // small: what nobody reads must wait in the gateway, or in who sends it
            socket.set_recv_buffer_size(16 << 10).expect("a buffer");
            socket.bind(&at.into()).expect("bind");
            socket.listen(4096).expect("listen");
            socket.into()
        });
        listener.set_nonblocking(true).expect("nonblocking");
        let (kept, stop) = (
            Arc::<Mutex<Vec<_>>>::default(),
            Arc::<AtomicBool>::default(),
        );
        let (streams, stopped) = (kept.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => streams.lock().expect("no panic").push(stream),
                    Err(_) => std::thread::park_timeout(std::time::Duration::from_millis(1)),
                }
            }
        });
        Self {
            at,
            kept,
            stop,
            thread: Some(thread),
        }
    }

    /// How many connections it keeps.
    pub fn count(&self) -> usize {
        self.kept.lock().expect("no panic").len()
    }

    /// Resets all of them.
    pub fn reset_all(&self) {
        for stream in self.kept.lock().expect("no panic").drain(..) {
            SockRef::from(&stream)
                .set_linger(Some(std::time::Duration::ZERO))
                .expect("linger");
        }
    }

    /// Sends on each as much as it takes now; how many bytes.
    pub fn pour(&self) -> usize {
        let chunk = [0x55; 16_384];
        let mut sent = 0;
        for stream in self.kept.lock().expect("no panic").iter() {
            stream.set_nonblocking(true).expect("nonblocking");
            while let Ok(length) = std::io::Write::write(&mut &*stream, &chunk) {
                sent += length;
            }
        }
        sent
    }
}

impl Drop for Mute {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// As many descriptors for this process as it may have; how many that is.
pub fn many_descriptors() -> usize {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("raise the limit");
    usize::try_from(hard).unwrap_or(usize::MAX)
}
