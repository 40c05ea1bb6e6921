//! The gateway under test: a real child process in the uplink namespace, with directories of its own.

use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cli;
use crate::namespace::Namespace;
use crate::topology::DNS;
use crate::user::User;
use crate::wait::eventually;

/// How it is started.
#[derive(Clone, Debug, Default)]
pub struct Launch {
    /// Whose it is; root's where nobody is named.
    pub user: Option<User>,
    /// Further arguments.
    pub options: Vec<String>,
    /// Whether its kernel has no nf_tables, as far as it can see.
    pub without_firewall: bool,
    /// Whether it begins in a user namespace in which no network namespace can be made.
    pub without_namespaces: bool,
    /// Whether there is no Podman that could make a user namespace for it.
    pub without_user_namespaces: bool,
}

/// Executes a command on a kernel that has no `nf_tables`, as far as the command can see.
const WITHOUT_FIREWALL: &str = "
import ctypes, os, platform, struct, sys
number = {'x86_64': 41, 'aarch64': 198}[platform.machine()]
AF_NETLINK, NETLINK_NETFILTER, EPROTONOSUPPORT = 16, 12, 93
op = lambda code, yes, no, k: struct.pack('HBBI', code, yes, no, k)
program = b''.join([
    op(0x20, 0, 0, 0), op(0x15, 0, 5, number),
    op(0x20, 0, 0, 16), op(0x15, 0, 3, AF_NETLINK),
    op(0x20, 0, 0, 32), op(0x15, 0, 1, NETLINK_NETFILTER),
    op(0x06, 0, 0, 0x00050000 | EPROTONOSUPPORT), op(0x06, 0, 0, 0x7fff0000)])
buffer = ctypes.create_string_buffer(program)
libc = ctypes.CDLL(None, use_errno=True)
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
filters = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', 8, ctypes.addressof(buffer)))
assert libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filters, 0, 0) == 0, ctypes.get_errno()
os.execv(sys.argv[1], sys.argv[1:])
";

/// By when a gateway that tests itself has said what came out, on a machine that is busy with other tests.
const SPEAKS: Duration = Duration::from_secs(45);

/// A gateway child and where its things are.
#[derive(Debug)]
pub struct Gateway {
    directory: PathBuf,
    name: String,
    uplink: Namespace,
    launch: Launch,
    child: Option<Child>,
}

impl Gateway {
    /// Writes the configuration and starts it; returns once its control socket answers.
    pub fn start(
        uplink: &Namespace,
        directory: &Path,
        name: &str,
        (extra, launch): (&str, Launch),
    ) -> Self {
        let config = config_text(directory, name, extra);
        std::fs::write(directory.join("config.yml"), config).expect("write config");
        for folder in ["", "run", "state"] {
            launch
                .user
                .iter()
                .for_each(|user| user.own(&directory.join(folder)));
        }
        let mut gateway = Self {
            directory: directory.to_owned(),
            name: name.to_owned(),
            uplink: uplink.clone(),
            launch,
            child: None,
        };
        gateway.launch();
        gateway
    }

    /// The configuration file.
    pub fn config(&self) -> PathBuf {
        self.directory.join("config.yml")
    }

    /// The control socket.
    pub fn control(&self) -> PathBuf {
        self.directory.join("control.sock")
    }

    /// Its state directory (journal, leases).
    pub fn state(&self) -> PathBuf {
        self.directory.join("state")
    }

    /// What it logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("gateway.log")).unwrap_or_default()
    }

    /// Its namespace, as the path that it mounted.
    pub fn namespace(&self) -> Namespace {
        let path = match (&self.launch.user, self.pid()) {
            // mounted where the user's Podman has its mounts, and seen through a process there
            (Some(_), Some(pid)) => PathBuf::from(format!(
                "/proc/{pid}/root{}/run/netns/{}",
                self.directory.display(),
                self.name
            )),
            _ => Path::new("/run/netns").join(&self.name),
        };
        Namespace::open("gateway", &path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// The name of its namespace.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Process id while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Starts it (again) and waits until its control socket answers and it said whether it enforces.
    pub fn launch(&mut self) {
        self.launch_through(&[]);
    }

    /// The same, by a program that becomes the gateway.
    pub fn launch_through(&mut self, program: &[&str]) {
        let config = self.config();
        let mut arguments = vec!["gateway".into(), "--config".into(), config.into_os_string()];
        arguments.extend(self.launch.options.iter().map(Into::into));
        let mut command = match &self.launch.user {
            Some(user) => {
                let mut command = cli::command_of(user, &arguments);
                if self.launch.without_user_namespaces {
                    command.env("PATH", "/nonexistent");
                }
                command
            }
            None if self.launch.without_namespaces => {
                let script = "echo 0 > /proc/sys/user/max_net_namespaces && exec \"$0\" \"$@\"";
                let mut command = Command::new("unshare");
                command
                    .args([
                        "--user",
                        "--map-root-user",
                        "--mount",
                        "--",
                        "/bin/sh",
                        "-c",
                        script,
                    ])
                    .arg(cli::binary())
                    .args(&arguments)
                    .env("SALLYPORT_USER_NAMESPACE", "0")
                    .stdin(Stdio::null());
                command
            }
            None if self.launch.without_firewall => {
                let mut command = Command::new("python3");
                command
                    .args(["-c", WITHOUT_FIREWALL])
                    .arg(cli::binary())
                    .args(&arguments)
                    .stdin(Stdio::null());
                command
            }
            None => cli::command(&arguments),
        };
        if let [program, arguments @ ..] = program {
            let mut through = Command::new(program);
            through.args(arguments).arg(command.get_program());
            through.args(command.get_args()).stdin(Stdio::null());
            command = through;
        }
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.directory.join("gateway.log"))
            .expect("log");
        let before = self.log().len();
        command
            .stdout(Stdio::null())
            .stderr(log)
            .env("RUST_LOG", "info");
        let child = self.uplink.start(&mut command).expect("start the gateway");
        crate::sweep::remember(&self.directory, child.id());
        self.child = Some(child);
        let control = self.control();
        let (directory, child) = (
            self.directory.clone(),
            self.child.as_mut().expect("just started"),
        );
        eventually("the gateway's control socket", || {
            if let Ok(Some(status)) = child.try_wait() {
                let log =
                    std::fs::read_to_string(directory.join("gateway.log")).unwrap_or_default();
                panic!("the gateway ended with {status}:\n{log}");
            }
            UnixStream::connect(&control).ok()
        });
        // it tests itself first; what it says then (or keeps to itself, where a test keeps it sealed) is the test's matter
        crate::wait::within(SPEAKS, || {
            let log = self.log();
            let said = log.get(before..).unwrap_or_default();
            said.contains(" gateway::posture: ").then_some(())
        });
    }

    /// SIGKILL, waited for.
    pub fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
    }

    /// SIGTERM, waited for.
    pub fn stop(&mut self) {
        self.signal(Signal::SIGTERM);
    }

    fn signal(&mut self, signal: Signal) {
        if let Some(mut child) = self.child.take() {
            let pid = i32::try_from(child.id()).expect("pid");
            let _ = kill(Pid::from_raw(pid), signal);
            if eventually_ended(&mut child).is_none() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

fn eventually_ended(child: &mut Child) -> Option<()> {
    crate::wait::within(crate::wait::LIMIT, || {
        child.try_wait().ok().flatten().map(drop)
    })
}

/// The configuration of a lab gateway; `extra` lines go into the `gateway` section.
fn config_text(directory: &Path, name: &str, extra: &str) -> String {
    let at = directory.display();
    let mut text = String::new();
    let _ = write!(
        text,
        "gateway:\n  namespace: {name}\n  control: {at}/control.sock\n  state_dir: {at}/state\n  \
         run_dir: {at}/run\n  uplink: this\n  resolvers: [\"{DNS}\"]\n"
    );
    // what the whole lab may be run on, beside the tests that choose for themselves
    if let Ok(kind) = std::env::var("LAB_ENFORCEMENT")
        && !extra.contains("enforcement:")
    {
        let _ = writeln!(text, "  enforcement: {kind}");
    }
    for line in extra.lines() {
        let _ = writeln!(text, "  {line}");
    }
    text
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- gateway log ---\n{}", self.log());
        }
        self.kill();
        crate::sweep::remove_namespace(&self.name);
    }
}
