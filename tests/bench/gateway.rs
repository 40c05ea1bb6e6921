//! The gateway under measurement: the built `sallyport` binary as a child in the uplink namespace.

use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::topology::Ns;

/// The running gateway with its directories; ended and uninstalled on drop.
#[derive(Debug)]
pub struct Gateway {
    child: Child,
    binary: PathBuf,
    files: tempfile::TempDir,
}

impl Gateway {
    /// Starts it in `uplink` with the origin as resolver and waits until its control socket answers.
    pub fn start(binary: &Path, uplink: &Ns, resolver: Ipv4Addr) -> Result<Self> {
        let files = tempfile::tempdir()?;
        let dir = files.path().display();
        let text = format!(
            "gateway:\n  namespace: {name}-gw\n  control: {dir}/control.sock\n  state_dir: {dir}/state\n  run_dir: {dir}/run\n  uplink: this\n  resolvers: [\"{resolver}\"]\n  floods: {{ connects: 1000000, questions: 10000000 }}\n  journal: {{ size: 40GiB }}\n",
            name = uplink.name
        );
        std::fs::write(files.path().join("config.yml"), text)?;
        let mut command = uplink.command(&binary.display().to_string());
        command
            .args(["gateway", "--config"])
            .arg(files.path().join("config.yml"));
        command
            .env("RUST_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let child = command.spawn().context("starting the gateway")?;
        let mut gateway = Self {
            child,
            binary: binary.to_owned(),
            files,
        };
        let start = Instant::now();
        while UnixStream::connect(gateway.control()).is_err()
            || gateway.sallyport(&["net", "ls"]).is_err()
        {
            if let Some(status) = gateway.child.try_wait()? {
                bail!("the gateway ended at once: {status}");
            }
            if start.elapsed() > Duration::from_secs(30) {
                bail!("the gateway is not ready after 30 s");
            }
            std::thread::yield_now();
        }
        Ok(gateway)
    }

    /// Path of its control socket.
    pub fn control(&self) -> PathBuf {
        self.files.path().join("control.sock")
    }

    /// Directory for policies and such.
    pub fn dir(&self) -> &Path {
        self.files.path()
    }

    /// Runs the command line against it; returns standard output.
    pub fn sallyport(&self, args: &[&str]) -> Result<String> {
        let output = std::process::Command::new(&self.binary)
            .arg("--config")
            .arg(self.files.path().join("config.yml"))
            .args(args)
            .stdin(Stdio::null())
            .output()?;
        if !output.status.success() {
            bail!(
                "sallyport {args:?}: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Puts a bare namespace behind it.
    pub fn attach(&self, sandbox: &Ns, policy: &Path) -> Result<()> {
        let (netns, policy) = (
            sandbox.path().display().to_string(),
            policy.display().to_string(),
        );
        self.sallyport(&[
            "net",
            "attach",
            "--netns",
            &netns,
            "--policy",
            &policy,
            "--name",
            &sandbox.name,
        ])
        .map(drop)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory, KiB.
    pub fn resident_kib(&self) -> Result<u64> {
        let status = std::fs::File::open(format!("/proc/{}/status", self.child.id()))?;
        let line = BufReader::new(status)
            .lines()
            .map_while(Result::ok)
            .find(|l| l.starts_with("VmRSS:"));
        line.and_then(|l| l.split_whitespace().nth(1)?.parse().ok())
            .context("no VmRSS of the gateway")
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            let _ = nix::sys::signal::kill(
                nix::unistd::Pid::from_raw(pid),
                nix::sys::signal::Signal::SIGTERM,
            );
        }
        let _ = self.child.wait();
        let _ = self.sallyport(&["uninstall"]);
    }
}
