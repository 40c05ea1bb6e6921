//! The peers that are measured in the same run: nginx stream, HAProxy in TCP mode, dnsmasq. Debian's packages.

use std::fmt::Write as _;
use std::io::Write;
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::load::{Origins, question};
use crate::topology::Ns;

/// A peer's process; ended on drop.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    _files: tempfile::TempDir,
}

impl Peer {
    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Peer {
    /// Asked to end, so that it ends its workers too: those would go on and answer in the next peer's place.
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            let _ = nix::sys::signal::kill(
                nix::unistd::Pid::from_raw(pid),
                nix::sys::signal::Signal::SIGTERM,
            );
        }
        let _ = self.child.wait();
    }
}

/// nginx with the stream module, two workers, passing both origin ports.
pub fn nginx(ns: &Ns, origin: Ipv4Addr) -> Result<Peer> {
    let files = tempfile::tempdir()?;
    let mut servers = String::new();
    for port in [Origins::BULK, Origins::SHORT] {
        writeln!(
            servers,
            "server {{ listen {port} backlog=4096; proxy_pass {origin}:{port}; tcp_nodelay on; }}"
        )?;
    }
    let text = format!(
        "load_module /usr/lib/nginx/modules/ngx_stream_module.so;\ndaemon off; worker_processes 2; pid {dir}/pid; \
         error_log {dir}/error crit;\nevents {{ worker_connections 8192; }}\nstream {{ proxy_buffer_size 256k;\n{servers} }}\n",
        dir = files.path().display()
    );
    let config = files.path().join("nginx.conf");
    std::fs::write(&config, text)?;
    let mut command = ns.command("nginx");
    command.arg("-c").arg(&config);
    start(ns, command, files)
}

/// HAProxy in TCP mode, two threads, with splicing. It does not start where its connections need more descriptors than it
/// may have: two each, and a pipe.
pub fn haproxy(ns: &Ns, origin: Ipv4Addr) -> Result<Peer> {
    let files = tempfile::tempdir()?;
    let mut text = String::from(
        "global\n  nbthread 2\n  maxconn 4000\ndefaults\n  mode tcp\n  option splice-auto\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n",
    );
    for port in [Origins::BULK, Origins::SHORT] {
        writeln!(
            text,
            "listen p{port}\n  bind :{port} backlog 4096\n  server origin {origin}:{port}"
        )?;
    }
    let config = files.path().join("haproxy.cfg");
    std::fs::write(&config, text)?;
    let mut command = ns.command("haproxy");
    command.arg("-db").arg("-f").arg(&config);
    start(ns, command, files)
}

/// dnsmasq with its cache, asking the origin.
pub fn dnsmasq(ns: &Ns, origin: Ipv4Addr) -> Result<Peer> {
    let files = tempfile::tempdir()?;
    let mut command = ns.command("dnsmasq");
    command
        .args([
            "--no-daemon",
            "--conf-file=/dev/null",
            "--no-resolv",
            "--no-hosts",
            "--cache-size=10000",
            "--dns-forward-max=1000",
        ])
        .arg(format!("--server={origin}"));
    let child = quiet(&mut command)?;
    let mut peer = Peer {
        child,
        _files: files,
    };
    wait(&mut peer, || {
        ns.run(|| -> std::io::Result<()> {
            let socket = UdpSocket::bind(("127.0.0.1", 0))?;
            socket.set_read_timeout(Some(Duration::from_millis(100)))?;
            socket.connect(("127.0.0.1", 53))?;
            socket.send(&question(1, "ready.test"))?;
            socket.recv(&mut [0; 512]).map(drop)
        })
        .is_ok_and(|r| r.is_ok())
    })?;
    Ok(peer)
}

fn quiet(command: &mut Command) -> Result<Child> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("starting {command:?}"))
}

fn start(ns: &Ns, mut command: Command, files: tempfile::TempDir) -> Result<Peer> {
    let mut peer = Peer {
        child: quiet(&mut command)?,
        _files: files,
    };
    wait(&mut peer, || {
        ns.run(|| {
            TcpStream::connect(("127.0.0.1", Origins::SHORT)).and_then(|mut s| s.write_all(b"x"))
        })
        .is_ok_and(|r| r.is_ok())
    })?;
    Ok(peer)
}

fn wait(peer: &mut Peer, ready: impl Fn() -> bool) -> Result<()> {
    let start = Instant::now();
    while !ready() {
        if let Some(status) = peer.child.try_wait()? {
            bail!("a peer ended at once: {status}");
        }
        if start.elapsed() > Duration::from_secs(20) {
            bail!("a peer is not ready after 20 s");
        }
        std::thread::yield_now();
    }
    // somebody else may have answered
    if let Some(status) = peer.child.try_wait()? {
        bail!("a peer ended at once: {status}");
    }
    Ok(())
}
