//! Servers of the lab's internet that hold many connections on one thread.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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
    seen: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Mute {
    /// On a port of a public address.
    pub fn start(lab: &Lab, port: u16) -> Self {
        Self::with(lab, port, |stream, kept| kept.push(stream))
    }

    /// One that resets each connection as soon as it stands.
    pub fn resetting(lab: &Lab, port: u16) -> Self {
        Self::with(lab, port, |stream, _| reset(&stream))
    }

    fn with(lab: &Lab, port: u16, act: fn(TcpStream, &mut Vec<TcpStream>)) -> Self {
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
        let kept = Arc::<Mutex<Vec<_>>>::default();
        let (seen, stop) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (streams, count, stopped) = (kept.clone(), seen.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => {
                        act(stream, &mut streams.lock().expect("no panic"));
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(_) => std::thread::park_timeout(std::time::Duration::from_millis(1)),
                }
            }
        });
        Self {
            at,
            kept,
            seen,
            stop,
            thread: Some(thread),
        }
    }

    /// How many connections it has had.
    pub fn count(&self) -> usize {
        self.seen.load(Ordering::Relaxed)
    }

    /// Resets all of them.
    pub fn reset_all(&self) {
        for stream in self.kept.lock().expect("no panic").drain(..) {
            reset(&stream);
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

/// What is dropped after this is reset.
fn reset(stream: &TcpStream) {
    let linger = SockRef::from(stream).set_linger(Some(std::time::Duration::ZERO));
    linger.expect("linger");
}

impl Drop for Mute {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// More descriptors than any crowd here needs, for this process and the gateway that it starts; how many that is. Root may
/// have more than it was given.
pub fn many_descriptors() -> usize {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    const ENOUGH: u64 = 200_000;
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    let most = [hard.max(ENOUGH), hard];
    let most = most
        .into_iter()
        .find(|most| setrlimit(Resource::RLIMIT_NOFILE, *most, *most).is_ok());
    usize::try_from(most.expect("as many as it may have")).unwrap_or(usize::MAX)
}
