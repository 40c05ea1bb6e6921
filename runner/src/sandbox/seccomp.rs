//! Which system calls a sandbox may make, the same on every engine.
//!
//! Owns the reading of `images/seccomp.json` and its rendering in the OCI form. As strict as the default profile of a
//! current engine, and stricter where a sandbox needs less: no io_uring (a second door to the kernel that no filter
//! sees), no reading of other processes' memory, no new namespaces by `clone` or `unshare`, no keyrings, no BPF, no
//! `userfaultfd`; sockets only of the families that the network here has (never vsock, which reaches the
//! hypervisor, nor the kernel's crypto sockets), netlink only for routes and addresses, as libc needs it; and only the
//! machine's own architecture: the 32-bit entry has `socketcall`, whose arguments no filter can see.
//!
//! What is not listed fails with EPERM, `clone3` with ENOSYS (its flags lie in memory, so libc must fall back to
//! `clone`, whose flags can be judged; seccomp(2)).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::User;

const TABLE: &str = include_str!("../../../images/seccomp.json");

/// Flags of clone(2) that make namespaces: `CLONE_NEWNS` to `CLONE_NEWNET` and `CLONE_NEWCGROUP`.
const NAMESPACE_FLAGS: u32 = 0x7E02_0000;
const NETLINK: u32 = 16;
const NETLINK_ROUTE: u32 = 0;
const EPERM: u32 = 1;
const ENOSYS: u32 = 38;

#[derive(Deserialize)]
struct Table {
    allow: Vec<String>,
    allow_root: Vec<String>,
    socket_families: BTreeMap<String, u32>,
    socket_families_root: BTreeMap<String, u32>,
    personalities: Vec<u32>,
}

/// The profile for a workload of this user, as JSON in the OCI form.
pub fn profile(user: User) -> Result<String, serde_json::Error> {
    let table: Table = serde_json::from_str(TABLE)?;
    let mut names = table.allow;
    let mut families: Vec<u32> = table.socket_families.into_values().collect();
    if user == User::Root {
        names.extend(table.allow_root);
        families.extend(table.socket_families_root.into_values());
    }
    let mut rules = vec![
        json!({ "names": names, "action": "SCMP_ACT_ALLOW" }),
        json!({ "names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [
            // Allowed when none of the flags is set: (flags & mask) == 0.
            { "index": 0, "value": NAMESPACE_FLAGS, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ" } ] }),
        json!({ "names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS }),
        json!({ "names": ["socket"], "action": "SCMP_ACT_ALLOW", "args": [equal(0, NETLINK), equal(2, NETLINK_ROUTE)] }),
    ];
    rules.extend(
        families
            .into_iter()
            .map(|family| allow_when("socket", family)),
    );
    rules.extend(
        table
            .personalities
            .into_iter()
            .map(|persona| allow_when("personality", persona)),
    );
    let profile = json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": EPERM,
        "architectures": [if cfg!(target_arch = "aarch64") { "SCMP_ARCH_AARCH64" } else { "SCMP_ARCH_X86_64" }],
        "syscalls": rules,
    });
    serde_json::to_string(&profile)
}

fn allow_when(call: &str, first_argument: u32) -> Value {
    json!({ "names": [call], "action": "SCMP_ACT_ALLOW", "args": [equal(0, first_argument)] })
}

fn equal(index: u32, value: u32) -> Value {
    json!({ "index": index, "value": value, "valueTwo": 0, "op": "SCMP_CMP_EQ" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(user: User) -> Vec<String> {
        let profile: Value = serde_json::from_str(&profile(user).unwrap()).unwrap();
        assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
        let rules = profile["syscalls"].as_array().unwrap().clone();
        rules
            .iter()
            .filter(|r| r["action"] == "SCMP_ACT_ALLOW")
            .flat_map(|r| {
                r["names"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|n| n.as_str().unwrap().to_owned())
            })
            .collect()
    }

    #[test]
    fn dangerous_calls_are_never_allowed_and_ordinary_ones_are() {
        for user in [User::Agent, User::Root] {
            let allowed = allowed(user);
            for call in [
                "io_uring_setup",
                "io_uring_enter",
                "bpf",
                "perf_event_open",
                "userfaultfd",
                "keyctl",
                "add_key",
                "request_key",
                "process_vm_readv",
                "process_vm_writev",
                "pidfd_getfd",
                "mount",
                "umount2",
                "fsopen",
                "move_mount",
                "open_tree",
                "setns",
                "unshare",
                "kexec_load",
                "init_module",
                "finit_module",
                "reboot",
                "swapon",
                "open_by_handle_at",
                "socketcall",
                "syslog",
                "acct",
                "settimeofday",
                "iopl",
                "quotactl",
                "kcmp",
                "clone3",
                "pivot_root",
            ] {
                assert!(!allowed.iter().any(|a| a == call), "{call}");
            }
            for call in [
                "read",
                "execve",
                "openat",
                "futex",
                "epoll_wait",
                "clone",
                "socket",
                "connect",
                "mkdirat",
                "rseq",
            ] {
                assert!(allowed.iter().any(|a| a == call), "{call}");
            }
        }
    }

    #[test]
    fn only_root_may_chroot_and_open_packet_sockets() {
        assert!(!allowed(User::Agent).contains(&"chroot".to_owned()));
        assert!(allowed(User::Root).contains(&"chroot".to_owned()));
        let families = |user| {
            let profile: Value = serde_json::from_str(&profile(user).unwrap()).unwrap();
            let rules = profile["syscalls"].as_array().unwrap().clone();
            let sockets = rules.iter().filter(|r| r["names"] == json!(["socket"]));
            sockets
                .map(|r| r["args"][0]["value"].as_u64().unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(families(User::Agent), [16, 2, 10, 1]);
        assert_eq!(families(User::Root), [16, 2, 10, 1, 17]);
    }
}
