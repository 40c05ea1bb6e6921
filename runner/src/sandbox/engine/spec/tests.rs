//! Every setting of a holder and a workload, as the engine is told.

use super::*;
use crate::sandbox::{PodFiles, Resources, SandboxId};

const HELPER: &str = "/.sally-0123";

fn common(flavour: Flavour) -> Common<'static> {
    let ceilings = Ceilings {
        files: 20_000,
        processes: 90_000,
    };
    Common {
        instance: "i1",
        flavour,
        seccomp: "{}",
        runtime: None,
        ceilings,
    }
}

fn spec(user: User) -> WorkloadSpec {
    WorkloadSpec {
        run: "0123456789abcdef".parse().unwrap(),
        holder: SandboxId("h1".to_owned()),
        image_id: "sha256:00".to_owned(),
        command: vec!["sh".to_owned(), "-c".to_owned(), "id".to_owned()],
        env: vec![("A".to_owned(), "b=c".to_owned())],
        workdir: "/work".to_owned(),
        user,
        isolation: Isolation::Hardened,
        resources: Resources {
            memory_mib: 1024,
            cpu_millis: 1500,
            pids: 256,
        },
        takes: crate::job::Takes::default(),
        deadline_seconds: 1200,
        files: PodFiles {
            resolv_conf: "/r/resolv".into(),
            hosts: "/r/hosts".into(),
            hostname: "/r/name".into(),
            empty: "/r/empty".into(),
        },
    }
}

fn made(user: User) -> (ContainerCreateBody, HostConfig) {
    let mut body = workload(
        &common(Flavour::Docker),
        Path::new("/s/sally"),
        HELPER,
        &spec(user),
    );
    let host = body.host_config.take().unwrap();
    (body, host)
}

#[test]
fn workload_has_no_network_of_the_engine_and_no_power() {
    let (body, host) = made(User::Agent);
    assert_eq!(host.network_mode.as_deref(), Some("container:h1"));
    assert_eq!(
        (host.cap_drop, host.cap_add),
        (Some(vec!["ALL".to_owned()]), Some(vec![]))
    );
    assert_eq!(
        host.security_opt.unwrap(),
        ["no-new-privileges", "seccomp={}"]
    );
    assert_eq!(
        (host.privileged, host.devices, host.binds, host.pid_mode),
        (Some(false), None, None, None)
    );
    assert_eq!(body.user.as_deref(), Some("1000:1000"));
    assert_eq!(body.networking_config, None);
    assert_eq!(body.exposed_ports, None);
}

#[test]
fn root_has_a_known_list_without_ptrace() {
    let (body, host) = made(User::Root);
    assert_eq!(body.user.as_deref(), Some("0:0"));
    let added = host.cap_add.unwrap();
    assert_eq!(added.len(), 14);
    assert!(
        !added
            .iter()
            .any(|c| c == "SYS_PTRACE" || c == "SYS_ADMIN" || c == "NET_ADMIN")
    );
    assert_eq!(host.cap_drop.unwrap(), ["ALL"]);
}

#[test]
fn every_mount_is_one_read_only_file() {
    let (_, host) = made(User::Root);
    let mounts = host.mounts.unwrap();
    let targets: Vec<_> = mounts.iter().map(|m| m.target.clone().unwrap()).collect();
    assert_eq!(
        targets,
        [
            HELPER,
            "/usr/local/bin/sally",
            "/etc/resolv.conf",
            "/etc/hosts",
            "/etc/hostname"
        ]
    );
    assert!(
        mounts
            .iter()
            .all(|m| m.read_only == Some(true) && m.typ == Some(MountType::BIND))
    );
}

#[test]
fn file_that_podman_shares_writable_is_covered() {
    let body = workload(
        &common(Flavour::Podman),
        Path::new("/s/sally"),
        HELPER,
        &spec(User::Root),
    );
    let mounts = body.host_config.unwrap().mounts.unwrap();
    let last = mounts.last().unwrap();
    assert_eq!(
        (last.target.as_deref(), last.read_only),
        (Some("/run/.containerenv"), Some(true))
    );
}

#[test]
fn limits_are_as_asked_and_without_swap() {
    let (_, host) = made(User::Agent);
    assert_eq!(
        (host.memory, host.memory_swap),
        (Some(1 << 30), Some(1 << 30))
    );
    assert_eq!(
        (host.nano_cpus, host.pids_limit, host.oom_score_adj),
        (Some(1_500_000_000), Some(256), Some(900))
    );
    let ulimits = host.ulimits.unwrap();
    assert!(
        ulimits
            .iter()
            .any(|u| u.name.as_deref() == Some("core") && u.hard == Some(0))
    );
    assert_eq!(host.log_config.unwrap().typ.as_deref(), Some("none"));
    assert_eq!(
        host.restart_policy.unwrap().name,
        Some(RestartPolicyNameEnum::NO)
    );
}

#[test]
fn kernel_in_user_space_gets_threads_for_the_processes_that_were_asked_for() {
    let mut asked = spec(User::Agent);
    asked.isolation = Isolation::Gvisor;
    let body = workload(
        &common(Flavour::Docker),
        Path::new("/s/sally"),
        HELPER,
        &asked,
    );
    assert_eq!(body.host_config.unwrap().pids_limit, Some(4 * 256 + 128));
}

#[test]
fn no_image_knows_where_the_helper_will_lie() {
    let paths = [helper_path(), helper_path()];
    assert_ne!(paths[0], paths[1]);
    for path in paths {
        let unknown = path.strip_prefix("/.sally-").unwrap();
        assert!(unknown.len() == 32 && unknown.chars().all(|c| c.is_ascii_hexdigit()));
    }
}

#[test]
fn image_decides_neither_entry_point_nor_health_nor_labels() {
    let (body, _) = made(User::Agent);
    assert_eq!(body.entrypoint.unwrap(), [HELPER]);
    assert_eq!(
        body.cmd.unwrap(),
        ["init", "--deadline-seconds", "1200", "--", "sh", "-c", "id"]
    );
    assert_eq!(body.healthcheck.unwrap().test.unwrap(), ["NONE"]);
    assert_eq!(body.stop_signal.as_deref(), Some("SIGTERM"));
    assert_eq!(body.env.unwrap(), ["A=b=c"]);
    let labels = body.labels.unwrap();
    assert_eq!(labels["sallyport.run"], "0123456789abcdef");
    assert_eq!(labels["sallyport.role"], "workload");
    assert_eq!(labels["sallyport.instance"], "i1");
}

#[test]
fn holder_is_nobody_with_one_socket() {
    let spec = HolderSpec {
        run: "0123456789abcdef".parse().unwrap(),
        socket: "/p/ns.sock".into(),
        via: Via::Link,
    };
    let mut body = holder(&common(Flavour::Docker), "sallyport/holder:x", &spec);
    let host = body.host_config.take().unwrap();
    assert_eq!(host.network_mode.as_deref(), Some("none"));
    assert_eq!((host.readonly_rootfs, host.cap_add), (Some(true), None));
    assert_eq!(host.mounts.unwrap().len(), 1);
    assert_eq!(body.user.as_deref(), Some("65534:65534"));
    assert_eq!(body.labels.unwrap()["sallyport.role"], "holder");
    assert_eq!(body.cmd.unwrap(), ["hold", "--socket", "/socket"]);
    let spec = HolderSpec {
        via: Via::Socket,
        ..spec
    };
    let body = super::holder(&common(Flavour::Docker), "sallyport/holder:x", &spec);
    let host = body.host_config.unwrap();
    assert_eq!(host.network_mode.as_deref(), Some("none"));
    assert_eq!(body.cmd.unwrap(), ["hold", "--door", "--socket", "/socket"]);
}
