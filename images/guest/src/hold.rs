//! The holder: keeps a pod's namespaces alive and hands out its own network namespace, once.
//!
//! It opens its own `/proc/self/ns/net`, so nobody has to name a namespace by process id, which could be reused, and
//! sends it over a socket that the runner mounted for this one use. Nothing else runs in its pid namespace. It ends
//! on SIGTERM, SIGINT or SIGQUIT from the engine.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use crate::sys;

/// Sends the namespace, then waits to be told to end.
pub fn run(socket: &str) -> ExitCode {
    if let Err(error) = sys::refuse_tracing() {
        eprintln!("sally hold: cannot refuse tracing: {error}");
        return ExitCode::FAILURE;
    }
    let signals = match sys::take_signals() {
        Ok(signals) => signals,
        Err(error) => {
            eprintln!("sally hold: cannot take signals: {error}");
            return ExitCode::FAILURE;
        }
    };
    if let Err(error) = hand_over(socket) {
        eprintln!("sally hold: cannot hand over the network namespace: {error}");
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

fn hand_over(socket: &str) -> std::io::Result<()> {
    let namespace = File::open("/proc/self/ns/net")?;
    let stream = UnixStream::connect(socket)?;
    sys::send_descriptor(&stream, namespace.as_fd())
}
