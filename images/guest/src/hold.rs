//! The holder: keeps a pod's namespaces alive and hands out its own network namespace, once.
//!
//! Where the gateway can own no namespaces it hands out a door instead: a listener on the loopback of its own namespace,
//! which keeps no copy here, so that the gateway alone accepts on it and its end closes it.
//!
//! It opens its own `/proc/self/ns/net`, so nobody has to name a namespace by process id, which could be reused, and
//! sends it over a socket that the runner mounted for this one use. Nothing else runs in its pid namespace. It ends
//! on SIGTERM, SIGINT or SIGQUIT from the engine.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use crate::{say, sys};

/// What is handed out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Hand {
    /// The network namespace.
    Namespace,
    /// A listener where programs inside find their proxy.
    Door,
}

/// Where programs inside find the proxy, in namespaces that have only `lo`.
const DOOR: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 3128);

/// Sends it, then waits to be told to end.
pub fn run(socket: &str, hand: Hand) -> ExitCode {
    if let Err(error) = sys::refuse_tracing() {
        say::note(format_args!("sally hold: cannot refuse tracing: {error}"));
        return ExitCode::FAILURE;
    }
    let signals = match sys::take_signals() {
        Ok(signals) => signals,
        Err(error) => {
            say::note(format_args!("sally hold: cannot take signals: {error}"));
            return ExitCode::FAILURE;
        }
    };
    if let Err(error) = hand_over(socket, hand) {
        say::note(format_args!(
            "sally hold: cannot hand over what was asked for: {error}"
        ));
        return ExitCode::FAILURE;
    }
    loop {
        sys::wait_a_second(signals.as_fd(), Some(signals.as_fd()));
        while let Some(received) = sys::next_signal(signals.as_fd()) {
            match received.signal {
                libc::SIGTERM | libc::SIGINT | libc::SIGQUIT => return ExitCode::SUCCESS,
                libc::SIGCHLD => while sys::reap().is_some() {},
                _ => {}
            }
        }
    }
}

fn hand_over(socket: &str, hand: Hand) -> std::io::Result<()> {
    let stream = UnixStream::connect(socket)?;
    match hand {
        Hand::Namespace => sys::send_descriptor(&stream, File::open("/proc/self/ns/net")?.as_fd()),
        Hand::Door => sys::send_descriptor(&stream, TcpListener::bind(DOOR)?.as_fd()),
    }
}
