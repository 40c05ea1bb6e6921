//! Where the runs of a test happen: which engine, which isolation class.
//!
//! A test is written once and takes a [`Place`]; [`at!`] makes a test of it for each place that it names. Docker is the
//! machine's own. Podman's service is this test's, on a socket of its own, over the store that `./dev` prepared; it ends
//! with the test, and by itself when nobody asks it anything. A place that is missing fails the test, unless
//! `LAB_WITHOUT` names it, and then the test says so.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use lab::User;
use lab::cli::Said;
use lab::wait::eventually;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Seconds after which a service that nobody asks ends: for a test that was killed.
const IDLE: &str = "120";

/// Makes one test for each place of a function that takes a [`Place`].
macro_rules! at {
    ($test:ident: $($place:ident)+) => {
        mod $test {
            $(
                #[test]
                fn $place() {
                    if let Some(place) = $crate::place::$place() {
                        super::$test(place);
                    }
                }
            )+
        }
    };
}
pub(crate) use at;

/// An engine and an isolation class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Whether it is Podman and not Docker.
    pub podman: bool,
    /// Whether engine, gateway and runner are an ordinary user's.
    pub rootless: bool,
    /// `hardened` or `gvisor`.
    pub class: &'static str,
}

impl Place {
    /// Whether sandboxes have a kernel of their own.
    pub fn has_own_kernel(self) -> bool {
        self.class == "gvisor"
    }
}

/// Docker with its ordinary runtime.
#[expect(
    clippy::unnecessary_wraps,
    reason = "as the places that may be missing"
)]
pub fn docker() -> Option<Place> {
    Some(Place {
        podman: false,
        rootless: false,
        class: "hardened",
    })
}

/// Rootful Podman.
pub fn podman() -> Option<Place> {
    is_wanted("podman").then_some(Place {
        podman: true,
        rootless: false,
        class: "hardened",
    })
}

/// Podman of an ordinary user.
pub fn rootless() -> Option<Place> {
    is_wanted("rootless").then_some(Place {
        podman: true,
        rootless: true,
        class: "hardened",
    })
}

/// gVisor, as a runtime of Docker.
pub fn gvisor() -> Option<Place> {
    is_wanted("gvisor").then_some(Place {
        podman: false,
        rootless: false,
        class: "gvisor",
    })
}

fn is_wanted(name: &str) -> bool {
    let without = std::env::var("LAB_WITHOUT").unwrap_or_default();
    let missing = without.split(',').any(|word| word == name);
    if missing {
        eprintln!("NOT TESTED: LAB_WITHOUT says that this machine has no {name}");
    }
    !missing
}

/// A running engine.
#[derive(Debug)]
pub struct Engine(Option<Podman>);

impl Engine {
    /// The engine of a place; Podman's socket is made in this folder.
    pub fn of(place: Place, folder: &Path) -> Self {
        Self(place.podman.then(|| Podman::start(folder, place)))
    }

    /// Its socket, where it is not at the usual place.
    pub fn socket(&self) -> Option<&Path> {
        self.0.as_ref().map(|podman| podman.socket.as_path())
    }

    /// Its own command line.
    pub fn tool(&self, arguments: &[&str]) -> Said {
        match &self.0 {
            None => docker_tool(arguments),
            Some(podman) => podman
                .command(arguments)
                .output()
                .expect("start podman")
                .into(),
        }
    }

    /// The words that a configuration's runner needs to find it.
    pub fn setting(&self) -> String {
        self.socket().map_or_else(String::new, |socket| {
            format!("  engine: {}\n", socket.display())
        })
    }
}

/// Docker's command line.
pub fn docker_tool(arguments: &[&str]) -> Said {
    Command::new("docker")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("start docker")
        .into()
}

#[derive(Debug)]
struct Podman {
    owner: Owner,
    socket: PathBuf,
    service: Option<Child>,
}

/// Whose Podman it is.
#[derive(Debug)]
enum Owner {
    /// Root's, with settings in this folder.
    Root(PathBuf),
    /// An ordinary user's.
    User(User),
}

impl Podman {
    fn start(folder: &Path, place: Place) -> Self {
        let socket = folder.join("podman.sock");
        let owner = if place.rootless {
            Owner::User(User::prepared())
        } else {
            Owner::Root(prepared())
        };
        let mut podman = Self {
            owner,
            socket: socket.clone(),
            service: None,
        };
        let address = format!("unix://{}", socket.display());
        let mut command = podman.command(&["system", "service", "--time", IDLE, &address]);
        let log = std::fs::File::create(folder.join("podman.log")).expect("a log");
        command.stdout(Stdio::null()).stderr(log);
        podman.service = Some(command.spawn().expect("start podman"));
        eventually("Podman's socket", || {
            std::os::unix::net::UnixStream::connect(&socket).ok()
        });
        podman
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("podman");
        command.args(arguments).stdin(Stdio::null());
        match &self.owner {
            Owner::User(user) => {
                user.dress(&mut command);
            }
            Owner::Root(home) => {
                command
                    .env("CONTAINERS_CONF", home.join("containers.conf"))
                    .env("CONTAINERS_STORAGE_CONF", home.join("storage.conf"));
            }
        }
        command
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        if let Some(mut service) = self.service.take() {
            let pid = Pid::from_raw(i32::try_from(service.id()).expect("pid"));
            let _ = kill(pid, Signal::SIGTERM);
            let _ = service.wait();
        }
    }
}

/// Settings and store that `./dev` prepared: named by `LAB_PODMAN`, or in the target directory.
fn prepared() -> PathBuf {
    if let Some(path) = std::env::var_os("LAB_PODMAN") {
        return path.into();
    }
    let own = std::env::current_exe().expect("own path");
    let found = own
        .ancestors()
        .map(|d| d.join("podman"))
        .find(|p| p.join("storage.conf").is_file());
    found.expect("Podman is not prepared: run `./dev podman`, or name its folder in LAB_PODMAN")
}
