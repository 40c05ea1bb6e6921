//! What a test does to the machine around its gateway: namespaces, links, files, a small disk, and waiting for something.

use std::io::Read;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns, unshare};

pub fn ip(args: &str) {
    let out = Command::new("ip").args(args.split(' ')).output().unwrap();
    assert!(
        out.status.success(),
        "ip {args}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
}

/// Waits for a condition, at most a minute: the machine may be busy with other tests.
pub fn eventually<T>(what: &str, check: impl FnMut() -> Option<T>) -> T {
    eventually_within(what, Duration::from_mins(1), check)
}

/// Waits for a condition.
pub fn eventually_within<T>(
    what: &str,
    limit: Duration,
    mut check: impl FnMut() -> Option<T>,
) -> T {
    let due = Instant::now() + limit;
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(Instant::now() < due, "waited in vain for {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// Runs on a thread inside a namespace.
pub fn inside<T: Send + 'static>(
    ns: &OwnedFd,
    act: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let ns = ns.try_clone().unwrap();
    std::thread::spawn(move || {
        setns(ns, CloneFlags::CLONE_NEWNET).unwrap();
        act()
    })
}

pub fn fresh_namespace() -> OwnedFd {
    let made = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        std::fs::File::open("/proc/thread-self/ns/net").unwrap()
    });
    made.join().unwrap().into()
}

/// Whether a stream is over: its next read ends or fails.
pub fn is_over(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let mut byte = [0; 1];
    match (&mut &*stream).read(&mut byte) {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}

pub fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
}

/// A disk of one megabyte.
pub struct Disk(pub PathBuf);

impl Disk {
    pub fn mount(at: &Path) -> Self {
        std::fs::create_dir(at).unwrap();
        let flags = nix::mount::MsFlags::empty();
        nix::mount::mount(Some("tmpfs"), at, Some("tmpfs"), flags, Some("size=1m")).unwrap();
        Self(at.to_owned())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        nix::mount::umount2(&self.0, nix::mount::MntFlags::MNT_DETACH).unwrap();
    }
}
