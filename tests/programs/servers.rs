//! The servers that play the internet: nginx, sshd, redis, a small PostgreSQL, git-http-backend, a WebSocket and
//! chrony, from the built tree.
//!
//! They run in the internet namespace of a lab with process and mount namespaces of their own, and end when this
//! process lets go of a pipe, however it ends. Failure stance: a server that does not listen in time fails the test.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lab::namespace::Namespace;
use lab::wait::eventually;

/// Where each of them listens; the last is the WebSocket server, behind nginx.
const PORTS: [u16; 6] = [22, 80, 443, 5432, 6379, 8081];

/// Running servers.
#[derive(Debug)]
pub struct Servers(Child);

/// What `tests/images/programs/build` left: named by `LAB_PROGRAMS`, or in the target directory.
fn built() -> PathBuf {
    if let Some(path) = std::env::var_os("LAB_PROGRAMS") {
        return path.into();
    }
    let own = std::env::current_exe().expect("own path");
    let found = own
        .ancestors()
        .map(|d| d.join("programs-image"))
        .find(|p| p.join("stamp").is_file());
    found.expect(
        "the programs are not built: run `./dev programs`, or name the directory in LAB_PROGRAMS",
    )
}

impl Servers {
    /// Starts all of them; returns once each listens.
    pub fn start(internet: &Namespace) -> Self {
        let root = built().join("root");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("images/programs/servers/start");
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--pid", "--fork", "--kill-child"])
            .arg(script)
            .arg(&root);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let servers = Self(internet.start(&mut command).expect("start the servers"));
        for port in PORTS {
            eventually("a server of the lab", || {
                let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
                internet
                    .run(|| TcpStream::connect_timeout(&address, Duration::from_secs(1)))
                    .ok()
            });
        }
        servers
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        // the script reads the pipe and ends with it, and its process namespace with the script
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
