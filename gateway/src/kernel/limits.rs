//! Limits of a program that is about to be started, in force before its first instruction.
//!
//! JUSTIFICATION: limits that are set from outside after the start come late on a busy machine, and what the program has
//! started by then has none. The standard library offers no safe way between fork(2) and execve(2).

use rustix::process::{Resource, Rlimit, setrlimit};
use tokio::process::Command;

/// Sets limits that the program, and whatever it starts, cannot raise again without being root over other processes.
pub fn limit(command: &mut Command, limits: [(Resource, u64); 4]) {
    let apply = move || {
        for (resource, most) in limits {
            let limit = Rlimit {
                current: Some(most),
                maximum: Some(most),
            };
            setrlimit(resource, limit)?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure calls setrlimit(2) alone, which is async-signal-safe; it allocates
    // nothing, takes no lock and touches no memory but its own copy of the numbers.
    unsafe {
        command.pre_exec(apply);
    }
}
