//! Removes what dead test processes left: their gateways, namespace mounts and directories.
//!
//! A process is ended only when its command line names the lab directory that it was started for.

use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Where labs keep their directories.
pub const ROOT: &str = "/tmp/sallyport-lab";

/// Every lab gateway's namespace begins with this.
pub const PREFIX: &str = "splab";

/// Notes a child, for a later sweep.
pub fn remember(directory: &Path, pid: u32) {
    let _ = std::fs::write(directory.join(format!("child.{pid}")), "");
}

/// Unmounts and removes a gateway namespace.
pub fn remove_namespace(name: &str) {
    let path = Path::new("/run/netns").join(name);
    let _ = umount2(&path, MntFlags::MNT_DETACH);
    let _ = std::fs::remove_file(&path);
}

/// A directory for a new lab, after removing what dead processes left.
pub fn fresh(number: u32) -> (PathBuf, String) {
    let own = std::process::id();
    let _ = std::fs::create_dir_all(ROOT);
    for entry in std::fs::read_dir(ROOT).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.split('-').next().and_then(|p| p.parse::<u32>().ok());
        if owner.is_some_and(|pid| pid != own && !Path::new("/proc").join(pid.to_string()).exists())
        {
            remove(&entry.path(), &name);
        }
    }
    let directory = Path::new(ROOT).join(format!("{own}-{number}"));
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(directory.join("run")).expect("lab directory");
    std::fs::create_dir_all(directory.join("state")).expect("lab directory");
    (directory, format!("{PREFIX}-{own}-{number}"))
}

fn remove(directory: &Path, name: &str) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let file = entry.file_name().to_string_lossy().into_owned();
        let Some(pid) = file
            .strip_prefix("child.")
            .and_then(|p| p.parse::<i32>().ok())
        else {
            continue;
        };
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&line).contains(&*directory.to_string_lossy()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
    remove_namespace(&format!("{PREFIX}-{name}"));
    let _ = std::fs::remove_dir_all(directory);
}
