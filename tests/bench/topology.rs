//! Namespaces of the bench: client, proxy (or gateway's uplink) and origin, joined by veth pairs.

use std::fs::File;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::thread::JoinHandle;

use anyhow::{Context, Result, bail};
use nix::sched::{CloneFlags, setns};

/// A named network namespace, removed on drop.
#[derive(Debug)]
pub struct Ns {
    /// Name under /run/netns.
    pub name: String,
}

impl Ns {
    /// Makes it, with `lo` up.
    pub fn new(part: &str) -> Result<Self> {
        let name = format!("spb{}-{part}", std::process::id());
        ip(&["netns", "add", &name])?;
        let ns = Self { name };
        ns.ip(&["link", "set", "lo", "up"])?;
        Ok(ns)
    }

    /// Path of its handle.
    pub fn path(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(&self.name)
    }

    /// `ip -n NAME ...`
    pub fn ip(&self, args: &[&str]) -> Result<()> {
        let mut all = vec!["-n", &self.name];
        all.extend(args);
        ip(&all)
    }

    /// A thread inside.
    pub fn spawn<T: Send + 'static>(
        &self,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<Result<T>> {
        let handle = File::open(self.path());
        std::thread::spawn(move || {
            setns(handle?, CloneFlags::CLONE_NEWNET).context("entering a namespace")?;
            Ok(f())
        })
    }

    /// Runs a closure inside and waits for it.
    pub fn run<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        self.spawn(f)
            .join()
            .map_err(|_| anyhow::anyhow!("a thread panicked in {}", self.name))?
    }

    /// A command that will run inside.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net={}", self.path().display()))
            .arg("--")
            .arg(program);
        command
    }

    /// Writes a sysctl inside (`net.ipv4.ip_forward`).
    pub fn sysctl(&self, key: &str, value: &str) -> Result<()> {
        run(self
            .command("sysctl")
            .args(["-qw", &format!("{key}={value}")]))
    }
}

impl Drop for Ns {
    fn drop(&mut self) {
        let _ = ip(&["netns", "del", &self.name]);
    }
}

/// Joins two namespaces by a veth pair `a`-`b` with these /30 addresses.
pub fn join(a: (&Ns, &str, &str), b: (&Ns, &str, &str)) -> Result<()> {
    ip(&[
        "link", "add", a.1, "netns", &a.0.name, "type", "veth", "peer", "name", b.1, "netns",
        &b.0.name,
    ])?;
    for (ns, link, address) in [a, b] {
        ns.ip(&["addr", "add", address, "dev", link])?;
        ns.ip(&["link", "set", link, "up"])?;
    }
    Ok(())
}

/// The public-looking address that the origin of a [`Square`] owns.
pub const ORIGIN: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 34);
/// The same origin by its direct link from the client.
pub const DIRECT: Ipv4Addr = Ipv4Addr::new(10, 9, 3, 2);

/// Client and proxy, origin behind the proxy, and a direct link from client to origin; the sandbox stands alone.
#[derive(Debug)]
pub struct Square {
    /// Joined to proxy and origin.
    pub client: Ns,
    /// Between client and origin; the gateway's uplink too.
    pub proxy: Ns,
    /// For the gateway to attach.
    pub sandbox: Ns,
    /// Owns [`ORIGIN`].
    pub origin: Ns,
}

impl Square {
    /// Makes and joins them; their names begin with this.
    pub fn new(prefix: &str) -> Result<Self> {
        let ns = |part| Ns::new(&format!("{prefix}{part}"));
        let (client, proxy) = (ns("client")?, ns("proxy")?);
        let (sandbox, origin) = (ns("sandbox")?, ns("origin")?);
        join(
            (&client, "c0", "10.9.1.1/30"),
            (&proxy, "p0", "10.9.1.2/30"),
        )?;
        join(
            (&proxy, "p1", "10.9.2.1/30"),
            (&origin, "o0", "10.9.2.2/30"),
        )?;
        join(
            (&client, "c1", "10.9.3.1/30"),
            (&origin, "o1", "10.9.3.2/30"),
        )?;
        origin.ip(&["addr", "add", "93.184.216.34/32", "dev", "lo"])?;
        origin.ip(&["route", "add", "10.9.1.0/30", "via", "10.9.2.1"])?;
        proxy.ip(&["route", "add", "default", "via", "10.9.2.2"])?;
        client.ip(&["route", "add", "93.184.216.34/32", "via", "10.9.1.2"])?;
        proxy.sysctl("net.ipv4.ip_forward", "1")?;
        Ok(Self {
            client,
            proxy,
            sandbox,
            origin,
        })
    }
}

fn ip(args: &[&str]) -> Result<()> {
    run(Command::new("ip").args(args))
}

/// Runs a command to its end; its stderr becomes the error.
pub fn run(command: &mut Command) -> Result<()> {
    let output = command
        .output()
        .with_context(|| format!("starting {command:?}"))?;
    if !output.status.success() {
        bail!(
            "{command:?}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}
