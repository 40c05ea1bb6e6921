//! Started roles as processes: known by number and start time, so that a reused number is never signalled; and what a
//! stopped gateway leaves.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use gateway::config::GatewayConfig;
use gateway::ordinary;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::show;

/// A started role, as noted for whoever stops it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Noted {
    /// `gateway` or `runner`.
    pub role: String,
    /// Its number.
    pub pid: i32,
    /// Start time in clock ticks since boot, from `/proc/PID/stat`.
    pub started: u64,
}

impl Noted {
    /// Whether it is still there.
    pub fn lives(&self) -> bool {
        start_time(self.pid) == Some(self.started)
    }

    /// Signals it, if it is still there.
    pub fn signal(&self, signal: Signal) {
        if self.lives() && self.pid > 1 {
            let _ = kill(Pid::from_raw(self.pid), signal);
        }
    }
}

/// What a gateway leaves when it stops, so that its networks outlive it: nothing to keep when there are none.
#[derive(Clone, Debug)]
pub struct Traces {
    /// The gateway's settings.
    pub gateway: GatewayConfig,
    /// The file that they were read from.
    pub file: Option<PathBuf>,
}

impl Traces {
    /// Takes them away, if there is nothing to keep.
    pub fn remove(&self) {
        // somebody may have attached a network of their own meanwhile: it stays, closed, until a gateway is back
        let networks = self.gateway.run_dir.join("networks");
        let empty = std::fs::read_dir(networks).map_or(true, |mut e| e.next().is_none());
        let there = self.gateway.namespace_path().exists();
        if empty
            && there
            && let Err(error) = self.uninstall()
        {
            show::note(format_args!(
                "sallyport: removing what the gateway left: {error}"
            ));
        }
    }

    fn uninstall(&self) -> Result<(), String> {
        if !ordinary::must_enter() {
            return gateway::appliance::uninstall(&self.gateway).map_err(|e| e.to_string());
        }
        // only a process of its own can enter the user namespace that the gateway was in: this one has threads
        let program = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut command = Command::new(program);
        command.args(["gateway", "clear"]).stdin(Stdio::null());
        if let Some(file) = &self.file {
            command.arg("--config").arg(file);
        }
        let done = command.output().map_err(|e| e.to_string())?;
        if done.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&done.stderr).trim().to_owned())
    }
}

/// When a process was started, in ticks since boot; `None` if it is no more (or only waits to be waited for).
pub fn start_time(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // proc(5): the name in parentheses may hold anything; state is the first field after it, start time the 20th
    let rest = stat.rsplit_once(')')?.1;
    let mut fields = rest.split_whitespace();
    match fields.next()? {
        "Z" | "X" => None,
        _ => fields.nth(18)?.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_number_and_start_time() {
        let own = i32::try_from(std::process::id()).unwrap();
        let started = start_time(own).unwrap();
        let noted = |started| Noted {
            role: "gateway".to_owned(),
            pid: own,
            started,
        };
        assert!(noted(started).lives());
        assert!(
            !noted(started + 1).lives(),
            "a reused number is somebody else"
        );
        assert_eq!(start_time(i32::MAX), None);
    }
}
