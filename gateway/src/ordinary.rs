//! An ordinary user's gateway: where its things are, and the user namespace that it lives in.
//!
//! A rootless engine makes its containers' namespaces in a user namespace of its user. In there the gateway has every
//! power over those network namespaces and none over the machine, and that is all it needs: its own namespace is made
//! there too, and upstream connections are that user's ordinary sockets in the network namespace it was started in.
//!
//! Owns: the folders of a user without root, and [`enter`]. Refuses to own: what the gateway does inside.
//! Failure stance: who cannot enter is told why; nothing is opened instead.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sched::{CloneFlags, setns};
use nix::unistd::{geteuid, getuid};

/// Set in the process that has entered: uid 0 in there is the ordinary user outside.
const ENTERED: &str = "SALLYPORT_USER_NAMESPACE";
/// What `podman unshare` sets, for who starts the gateway through it.
const PODMAN_ENTERED: &str = "_CONTAINERS_ROOTLESS_UID";
/// The control socket of the machine's own gateway.
const MACHINE: &str = "/run/sallyport/control.sock";
/// `CAP_NET_ADMIN` of linux/capability.h.
const NET_ADMIN: u32 = 12;
/// The map of the machine's own user namespace: every number as it is.
const WHOLE: [&str; 3] = ["0", "0", "4294967295"];

/// Where an ordinary user's things are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Folders {
    /// What survives a reboot.
    pub state: PathBuf,
    /// What lives as long as the links.
    pub run: PathBuf,
    /// Where the configuration file is looked for.
    pub config: PathBuf,
}

/// Why the engine's user namespace could not be entered.
#[derive(Debug, thiserror::Error)]
pub enum EnterError {
    /// No engine that has one.
    #[error(
        "an ordinary user's gateway lives in the user namespace of rootless Podman, and there is no `podman`"
    )]
    NoPodman,
    /// Podman could not make or join it.
    #[error("podman cannot make a user namespace: {0}")]
    Podman(String),
    /// A system call.
    #[error("{act}")]
    Act {
        /// What was being done.
        act: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

impl EnterError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoPodman => "install podman and uidmap, or run the gateway as root",
            Self::Podman(_) | Self::Act { .. } => {
                "`podman unshare true` must work: it needs newuidmap (package uidmap), lines for this user in /etc/subuid and /etc/subgid, XDG_RUNTIME_DIR, and user.max_user_namespaces above 0"
            }
        }
    }
}

/// Whether this process is in a user namespace that is not the machine's.
pub fn in_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    !map.split_ascii_whitespace().eq(WHOLE)
}

/// Whether this is an ordinary user's process, inside of its user namespace or not.
pub fn is_ordinary() -> bool {
    let entered = || {
        [ENTERED, PODMAN_ENTERED]
            .iter()
            .any(|name| std::env::var_os(name).is_some())
    };
    !geteuid().is_root() || (in_user_namespace() && entered())
}

/// The folders of an ordinary user; `None` for root, and for a user whom the machine's own gateway lets in.
pub fn folders() -> Option<Folders> {
    if !is_ordinary() || UnixStream::connect(MACHINE).is_ok() {
        return None;
    }
    let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from);
    let of = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let under = |base: PathBuf| base.join("sallyport");
    let state = of("XDG_STATE_HOME").unwrap_or_else(|| home.join(".local/state"));
    let config = of("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
    // Without a session's folder the state's has to do: what lies there is checked against the kernel at each start.
    let run = of("XDG_RUNTIME_DIR").map_or_else(|| under(state.clone()).join("run"), under);
    Some(Folders {
        state: under(state),
        run,
        config: under(config).join("config.yml"),
    })
}

/// The socket of the user's own rootless Podman.
pub fn podman_socket() -> Option<PathBuf> {
    let run = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)?;
    is_ordinary().then(|| run.join("podman/podman.sock"))
}

/// Whether entering is what this process needs: an ordinary user without power over networks.
pub fn must_enter() -> bool {
    !geteuid().is_root() && !has_net_admin()
}

fn has_net_admin() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    bits.is_some_and(|bits| bits & (1 << NET_ADMIN) != 0)
}

/// Starts this program again, as the same process with the same arguments, inside the engine's user namespace. Returns
/// only if that failed, or at once where there is nothing to do.
///
/// Call it before any thread exists: the kernel moves only processes with a single thread (setns(2)).
pub fn enter() -> Result<(), EnterError> {
    if !must_enter() {
        return Ok(());
    }
    let act = |act| move |source| EnterError::Act { act, source };
    let program = std::env::current_exe().map_err(act("finding this program"))?;
    let here = std::env::current_dir().ok();
    let (user, mounts) = namespaces()?;
    let outside = getuid();
    setns(user, CloneFlags::CLONE_NEWUSER)
        .map_err(|e| act("entering Podman's user namespace")(e.into()))?;
    setns(mounts, CloneFlags::CLONE_NEWNS)
        .map_err(|e| act("entering Podman's mount namespace")(e.into()))?;
    let mut again = Command::new(program);
    again
        .args(std::env::args_os().skip(1))
        .env(ENTERED, outside.to_string());
    if let Some(here) = here {
        again.current_dir(here);
    }
    Err(act("starting again in Podman's user namespace")(
        again.exec(),
    ))
}

/// Podman's user and mount namespaces, as a process that it starts there shows them.
///
/// That way Podman makes them if need be, and says itself what is missing; where it keeps them is its own business.
fn namespaces() -> Result<(File, File), EnterError> {
    let act = |act| move |source| EnterError::Act { act, source };
    let mut child = Command::new("podman")
        .args(["unshare", "/bin/sh", "-c", "echo inside $$; read _"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => EnterError::NoPodman,
            _ => act("starting podman")(error),
        })?;
    let pid = match first_line(&mut child).strip_prefix("inside ") {
        Some(pid) => pid.trim().to_owned(),
        None => return Err(EnterError::Podman(last_words(child))),
    };
    let open = |name: &str| File::open(Path::new("/proc").join(&pid).join("ns").join(name));
    let opened = open("user").and_then(|user| Ok((user, open("mnt")?)));
    // its input ends, and so does it
    drop(child.stdin.take());
    let _ = child.wait();
    opened.map_err(act("opening Podman's namespaces"))
}

fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        // what could not be read is as good as nothing said
        let _ = BufReader::new(out).read_line(&mut line);
    }
    line
}

fn last_words(mut child: Child) -> String {
    drop(child.stdin.take());
    let mut said = String::new();
    if let Some(err) = child.stderr.take() {
        let _ = err.take(4096).read_to_string(&mut said);
    }
    let _ = child.wait();
    let last = said.lines().map(str::trim).rfind(|line| !line.is_empty());
    last.unwrap_or("it said nothing").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_of_the_machine_is_no_ordinary_user_and_has_nothing_to_enter() {
        assert!(geteuid().is_root(), "the tests of this crate need root");
        assert!(!in_user_namespace() && !is_ordinary() && !must_enter());
        assert_eq!(folders(), None);
        enter().unwrap();
    }

    #[test]
    fn what_podman_said_last_is_the_reason() {
        let mut command = Command::new("/bin/sh");
        command
            .args([
                "-c",
                "echo first >&2; echo 'no subuid ranges' >&2; echo >&2",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        assert_eq!(first_line(&mut child), "");
        assert_eq!(last_words(child), "no subuid ranges");
    }
}
