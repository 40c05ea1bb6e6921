//! From a sandbox's specification to the engine's words: pure, so that every setting can be tested without an engine.
//!
//! Invariants: no engine network, ever; no privileges gained (no-new-privileges, our seccomp profile, capabilities
//! dropped); nothing of the host but single read-only files; no restart, no health check, no log on disk; the image's
//! own user, entry point, stop signal and labels never decide anything.

use std::collections::HashMap;
use std::path::Path;

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig,
    Mount, MountType, ResourcesUlimits, RestartPolicy, RestartPolicyNameEnum,
};

use gateway::control::api::Via;

use super::connect::{Flavour, Runtime};
use crate::run::RunId;
use crate::sandbox::{HolderSpec, Isolation, Role, User, WorkloadSpec};

/// Label that names this installation.
pub const INSTANCE_LABEL: &str = "sallyport.instance";
/// Label that names the part in a pod.
pub const ROLE_LABEL: &str = "sallyport.role";
/// Label that names the run.
pub const RUN_LABEL: &str = "sallyport.run";

/// How the helper's name in a workload begins, as its init: directly below the root, which nobody can rename.
const SALLY: &str = "/.sally-";
/// Where people find it: on the search path of engines and images. A mount is made where the image has no such folder.
pub const SALLY_ON_PATH: &str = "/usr/local/bin/sally";
/// Where the holder finds its one-use socket.
const SOCKET: &str = "/socket";
const HOST_NAME: &str = "sandbox";

/// uid and gid of `agent`, by number, because other images have no such name.
const AGENT: &str = "1000:1000";
const ROOT: &str = "0:0";
/// The holder needs nothing, so it is nobody.
const NOBODY: &str = "65534:65534";

/// What an engine gives root by default (Docker's list; Podman's is shorter), asked for by name so that it is the same
/// everywhere. `SYS_PTRACE` is in neither and never asked for.
const ROOT_CAPABILITIES: [&str; 14] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

const MIB: u64 = 1 << 20;
/// The helper needs 1 MiB; the rest is for the engine's runtime, which starts inside the limit.
const HOLDER_MEMORY_MIB: u64 = 64;
/// The same: a Go runtime starts several threads before it becomes the helper.
const HOLDER_PIDS: i64 = 32;
/// Open files: enough for servers and builds, low enough that a run cannot fill the host's table (256 x 16,384).
const OPEN_FILES: i64 = 16_384;
/// Of 1000 at most, which would be "always first": above every service of the host, below what asks to die.
const KILLED_FIRST: i64 = 900;
/// A holder that dies takes its run's network along, so it goes after the workload.
const HOLDER_KILLED: i64 = 500;
/// Half of what other programs get when CPUs are short.
const CPU_SHARES: i64 = 512;

/// Counted over all sandboxes together, because their users are one to the kernel: room for 64 runs of 256 processes.
/// The pids limit is what holds for one of them.
const USER_PROCESSES: i64 = 16_384;

/// What every container of this installation has in common.
#[derive(Clone, Debug)]
pub struct Common<'a> {
    /// Which installation.
    pub instance: &'a str,
    /// Which engine.
    pub flavour: Flavour,
    /// The profile, as the engine wants to be told.
    pub seccomp: &'a str,
    /// Runtime to ask for; `None` is the engine's default.
    pub runtime: Option<&'a Runtime>,
    /// How far limits may be raised here.
    pub ceilings: Ceilings,
}

/// Hard limits that this machine gives its own services; asking an engine for more fails where it lacks the power.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ceilings {
    /// Open files.
    pub files: i64,
    /// Processes of one user.
    pub processes: i64,
}

/// A container's name: what the reaper trusts, because no image can choose it.
pub fn name(instance: &str, run: &RunId, role: Role) -> String {
    format!("sallyport-{instance}-{run}-{}", role.word())
}

/// Where the helper lies in one workload, by a name that is never used again: an image that knew the name could make it
/// a link into a volume of its own, which engines mount over the helper, so that the image's program were process 1.
pub fn helper_path() -> String {
    format!("{SALLY}{}", uuid::Uuid::new_v4().simple())
}

/// A container's labels.
fn labels(instance: &str, run: &RunId, role: Role) -> HashMap<String, String> {
    let pairs = [
        (INSTANCE_LABEL, instance),
        (ROLE_LABEL, role.word()),
        (RUN_LABEL, run.as_str()),
    ];
    pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).into()
}

/// The holder's container.
pub fn holder(common: &Common<'_>, image: &str, spec: &HolderSpec) -> ContainerCreateBody {
    let host = HostConfig {
        network_mode: Some("none".to_owned()),
        readonly_rootfs: Some(true),
        memory: Some(bytes(HOLDER_MEMORY_MIB)),
        memory_swap: Some(bytes(HOLDER_MEMORY_MIB)),
        pids_limit: Some(HOLDER_PIDS),
        oom_score_adj: Some(HOLDER_KILLED),
        mounts: Some(vec![read_only(&spec.socket, SOCKET)]),
        ..host(common)
    };
    ContainerCreateBody {
        image: Some(image.to_owned()),
        user: Some(NOBODY.to_owned()),
        hostname: Some(HOST_NAME.to_owned()),
        entrypoint: Some(vec!["/sally".to_owned()]),
        cmd: Some(match spec.via {
            Via::Link => ["hold", "--socket", SOCKET].map(str::to_owned).to_vec(),
            Via::Socket => ["hold", "--door", "--socket", SOCKET]
                .map(str::to_owned)
                .to_vec(),
        }),
        working_dir: Some("/".to_owned()),
        attach_stdout: Some(false),
        attach_stderr: Some(false),
        ..body(labels(common.instance, &spec.run, Role::Holder), host)
    }
}

/// The workload's container, with the helper of the host at [`helper_path`].
pub fn workload(
    common: &Common<'_>,
    guest: &Path,
    helper: &str,
    spec: &WorkloadSpec,
) -> ContainerCreateBody {
    let capabilities = match spec.user {
        User::Agent => Vec::new(),
        User::Root => ROOT_CAPABILITIES.map(str::to_owned).to_vec(),
    };
    let mut mounts = vec![
        read_only(guest, helper),
        read_only(guest, SALLY_ON_PATH),
        read_only(&spec.files.resolv_conf, "/etc/resolv.conf"),
        read_only(&spec.files.hosts, "/etc/hosts"),
        read_only(&spec.files.hostname, "/etc/hostname"),
    ];
    if common.flavour == Flavour::Podman {
        // Podman shares this file of the host's /run writable: root in the sandbox could fill the host's memory.
        mounts.push(read_only(&spec.files.empty, "/run/.containerenv"));
    }
    let host = HostConfig {
        network_mode: Some(format!("container:{}", spec.holder.0)),
        cap_add: Some(capabilities),
        memory: Some(bytes(spec.resources.memory_mib)),
        memory_swap: Some(bytes(spec.resources.memory_mib)),
        nano_cpus: Some(
            i64::try_from(spec.resources.cpu_millis.saturating_mul(1_000_000)).unwrap_or(i64::MAX),
        ),
        cpu_shares: Some(CPU_SHARES),
        pids_limit: Some(pids_limit(spec)),
        oom_score_adj: Some(KILLED_FIRST),
        mounts: Some(mounts),
        ..host(common)
    };
    let reads = !spec.takes.is_nothing();
    let mut cmd = vec![
        "init".to_owned(),
        "--deadline-seconds".to_owned(),
        spec.deadline_seconds.to_string(),
    ];
    cmd.extend(spec.takes.files.then(|| "--files".to_owned()));
    cmd.extend(spec.takes.stdin.then(|| "--stdin".to_owned()));
    cmd.push("--".to_owned());
    cmd.extend(spec.command.iter().cloned());
    ContainerCreateBody {
        image: Some(spec.image_id.clone()),
        user: Some(if spec.user == User::Root { ROOT } else { AGENT }.to_owned()),
        // Docker gives a joined container its holder's host name and refuses another word on it.
        hostname: (common.flavour == Flavour::Podman).then(|| HOST_NAME.to_owned()),
        entrypoint: Some(vec![helper.to_owned()]),
        cmd: Some(cmd),
        env: Some(
            spec.env
                .iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect(),
        ),
        working_dir: Some(spec.workdir.clone()),
        attach_stdin: Some(reads),
        open_stdin: Some(reads),
        // its end is the end of what the command reads
        stdin_once: Some(reads),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        ..body(labels(common.instance, &spec.run, Role::Workload), host)
    }
}

fn body(labels: HashMap<String, String>, host: HostConfig) -> ContainerCreateBody {
    ContainerCreateBody {
        labels: Some(labels),
        tty: Some(false),
        attach_stdin: Some(false),
        open_stdin: Some(false),
        // An image's health check would run beside the job, as whoever it likes.
        healthcheck: Some(HealthConfig {
            test: Some(vec!["NONE".to_owned()]),
            ..HealthConfig::default()
        }),
        stop_signal: Some("SIGTERM".to_owned()),
        stop_timeout: Some(5),
        host_config: Some(host),
        ..ContainerCreateBody::default()
    }
}

fn host(common: &Common<'_>) -> HostConfig {
    HostConfig {
        cap_drop: Some(vec!["ALL".to_owned()]),
        security_opt: Some(vec![
            "no-new-privileges".to_owned(),
            format!("seccomp={}", common.seccomp),
        ]),
        privileged: Some(false),
        publish_all_ports: Some(false),
        restart_policy: Some(RestartPolicy {
            name: Some(RestartPolicyNameEnum::NO),
            maximum_retry_count: None,
        }),
        // Output goes to whoever asked for the run; a log on disk would be a second copy and a way to fill the disk.
        log_config: Some(HostConfigLogConfig {
            typ: Some("none".to_owned()),
            config: None,
        }),
        ipc_mode: Some("private".to_owned()),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        auto_remove: Some(false),
        ulimits: Some(ulimits(common)),
        runtime: common.runtime.map(|runtime| runtime.0.clone()),
        // The engine's init would stand before ours.
        init: Some(false),
        ..HostConfig::default()
    }
}

fn ulimits(common: &Common<'_>) -> Vec<ResourcesUlimits> {
    let mut limits = vec![
        limit("core", 0),
        limit("nofile", OPEN_FILES.min(common.ceilings.files)),
    ];
    if common.flavour == Flavour::Podman {
        // Podman asks for the kernel's maximum where nothing is said, which a service may not be able to give.
        limits.push(limit(
            "nproc",
            USER_PROCESSES.min(common.ceilings.processes),
        ));
    }
    limits
}

/// A kernel in user space spends threads of the machine. Where they run out it dies without a word, and the run with it.
///
/// Measured with gVisor's systrap on two CPUs, as the most that the run's cgroup ever held, with four busy loops beside
/// it: 28 of its own; for each process inside two that stand for its memory and its task, and a third that its kernel
/// keeps once the process has run while all others did (60 asleep 152, 60 busy 206, 200 asleep 434); for a further
/// thread of a process about one (one process with 60 busy threads 88). So four for each and a margin for machines
/// with more CPUs, on which Go keeps more of its own: still a bound, and what is inside never gets past it.
fn pids_limit(spec: &WorkloadSpec) -> i64 {
    let asked = i64::try_from(spec.resources.pids).unwrap_or(i64::MAX);
    match spec.isolation {
        Isolation::Hardened => asked,
        Isolation::Gvisor => asked.saturating_mul(4).saturating_add(128),
    }
}

fn bytes(mib: u64) -> i64 {
    i64::try_from(mib.saturating_mul(MIB)).unwrap_or(i64::MAX)
}

fn limit(name: &str, value: i64) -> ResourcesUlimits {
    ResourcesUlimits {
        name: Some(name.to_owned()),
        soft: Some(value),
        hard: Some(value),
    }
}

/// A mount fails if the source is missing, where a bind in the old form would make a folder.
fn read_only(source: &Path, target: &str) -> Mount {
    Mount {
        typ: Some(MountType::BIND),
        source: Some(source.to_string_lossy().into_owned()),
        target: Some(target.to_owned()),
        read_only: Some(true),
        ..Mount::default()
    }
}

#[cfg(test)]
mod tests;
