//! How long a process has been on a CPU so far.
//!
//! Wall-clock figures of a shared machine vary with its neighbours; the time that a proxy itself was on a CPU varies
//! much less. Work that the kernel does for it in interrupts on another process's time is not in it.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// Of a process and its children, all live threads together, user and system.
pub fn cpu_time(pid: u32) -> Result<Duration> {
    let mut total = Duration::ZERO;
    for process in children(pid)?.into_iter().chain([pid]) {
        for task in fs::read_dir(format!("/proc/{process}/task"))? {
            // on-CPU nanoseconds, nanoseconds of waiting, time slices (Documentation/scheduler/sched-stats.rst)
            let Ok(line) = fs::read_to_string(task?.path().join("schedstat")) else {
                // ended meanwhile
                continue;
            };
            let mut words = line.split_whitespace();
            let on_cpu = words.next().context("an empty schedstat")?;
            total += Duration::from_nanos(on_cpu.parse()?);
        }
    }
    Ok(total)
}

/// Of this process since its start, ended threads included: the load at both ends, and what the kernel does meanwhile.
pub fn own_cpu_time() -> Result<Duration> {
    use nix::sys::resource::{UsageWho, getrusage};
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let parts = [usage.user_time(), usage.system_time()];
    let micros: i64 = parts
        .iter()
        .map(nix::sys::time::TimeValLike::num_microseconds)
        .sum();
    Ok(Duration::from_micros(u64::try_from(micros)?))
}

fn children(parent: u32) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // a process that ended meanwhile is nobody's child
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // the name in parentheses may hold anything; state and parent follow its end
        let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
        if after.split_whitespace().nth(1) == Some(&parent.to_string()) {
            found.push(pid);
        }
    }
    Ok(found)
}
