//! A network namespace without a name: it lives as long as its descriptor or a process inside it.
//!
//! Made by a thread that unshares itself; no bind mount, no `ip netns`, nothing to clean up after a crash.

use std::ffi::OsStr;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

use nix::sched::{CloneFlags, setns, unshare};

/// A handle to one namespace.
#[derive(Clone, Debug)]
pub struct Namespace {
    fd: Arc<OwnedFd>,
    name: Arc<str>,
}

impl Namespace {
    /// A new namespace with its loopback up and nothing else.
    pub fn new(name: &str) -> Self {
        let made = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("making namespaces needs root");
            OwnedFd::from(std::fs::File::open("/proc/thread-self/ns/net").expect("own namespace"))
        });
        let fd = made.join().expect("namespace thread");
        let namespace = Self {
            fd: Arc::new(fd),
            name: name.into(),
        };
        // beside a container engine a namespace is born forwarding; the lab says itself who forwards
        namespace.sysctl("net/ipv4/ip_forward", "0");
        namespace.sysctl("net/ipv6/conf/all/forwarding", "0");
        namespace.ip(&["link set lo up"]);
        namespace
    }

    /// An existing namespace by path (the gateway's own).
    pub fn open(name: &str, path: &std::path::Path) -> std::io::Result<Self> {
        let fd = OwnedFd::from(std::fs::File::open(path)?);
        Ok(Self {
            fd: Arc::new(fd),
            name: name.into(),
        })
    }

    /// What messages call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A path by which other processes open it.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            self.fd.as_raw_fd()
        ))
    }

    /// Its descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Runs a closure inside; a panic in it is a panic here.
    pub fn run<T: Send>(&self, inside: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                setns(&self.fd, CloneFlags::CLONE_NEWNET).expect("enter namespace");
                inside()
            });
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Starts a thread that stays inside.
    pub fn spawn(&self, inside: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
        let fd = self.fd.clone();
        std::thread::spawn(move || {
            setns(&fd, CloneFlags::CLONE_NEWNET).expect("enter namespace");
            inside();
        })
    }

    /// Runs a program inside to its end.
    pub fn exec<S: AsRef<OsStr> + Sync>(&self, argv: &[S]) -> Output {
        let (program, arguments) = argv.split_first().expect("a program");
        self.run(|| {
            Command::new(program)
                .args(arguments)
                .stdin(Stdio::null())
                .output()
                .unwrap_or_else(|e| {
                    panic!(
                        "running {} in {}: {e}",
                        program.as_ref().display(),
                        self.name
                    )
                })
        })
    }

    /// Starts a program inside.
    pub fn start(&self, command: &mut Command) -> std::io::Result<Child> {
        self.run(|| command.spawn())
    }

    /// Runs `ip` lines as one batch; the first failing line fails the test.
    pub fn ip<S: AsRef<str>>(&self, lines: &[S]) {
        let mut text = String::new();
        for line in lines {
            text.push_str(line.as_ref());
            text.push('\n');
        }
        let output = self.feed(&["ip", "-batch", "-"], &text);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success(),
            "ip in {}: {error}\nbatch:\n{text}",
            self.name
        );
    }

    /// Runs a program inside with text on its standard input.
    pub fn feed(&self, argv: &[&str], text: &str) -> Output {
        let (program, arguments) = argv.split_first().expect("a program");
        self.run(|| {
            let mut child = Command::new(program)
                .args(arguments)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap_or_else(|e| panic!("starting {program}: {e}"));
            // a program that ends early closes the pipe; its status tells why
            let _ = child
                .stdin
                .take()
                .expect("piped")
                .write_all(text.as_bytes());
            child.wait_with_output().expect("output")
        })
    }

    /// Writes a setting; `/proc/sys/net` is the writing thread's namespace.
    pub fn sysctl(&self, key: &str, value: &str) {
        self.run(|| std::fs::write(format!("/proc/sys/{key}"), value))
            .unwrap_or_else(|e| panic!("sysctl {key}={value} in {}: {e}", self.name));
    }

    /// Reads a setting.
    pub fn read_sysctl(&self, key: &str) -> String {
        self.run(|| std::fs::read_to_string(format!("/proc/sys/{key}")))
            .unwrap_or_else(|e| panic!("sysctl {key} in {}: {e}", self.name))
            .trim()
            .to_owned()
    }
}
