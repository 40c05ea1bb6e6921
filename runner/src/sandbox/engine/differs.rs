//! What an engine made differently from what was asked, where it matters most: looked at before a workload is started.

use bollard::models::ContainerInspectResponse;

use super::connect::Runtime;
use crate::sandbox::WorkloadSpec;

/// What the engine made differently from what was asked, where it matters most.
pub(super) fn difference(
    made: &ContainerInspectResponse,
    spec: &WorkloadSpec,
    runtime: Option<&Runtime>,
) -> Option<String> {
    let host = made.host_config.clone().unwrap_or_default();
    let wanted = format!("container:{}", spec.holder.0);
    if host.network_mode.as_deref() != Some(wanted.as_str()) {
        return Some(format!(
            "network mode {:?} instead of the holder's namespace",
            host.network_mode.unwrap_or_default()
        ));
    }
    let networks = made
        .network_settings
        .clone()
        .and_then(|n| n.networks)
        .unwrap_or_default();
    if !networks.is_empty() {
        return Some(format!(
            "it is on the networks {:?}",
            networks.into_keys().collect::<Vec<_>>()
        ));
    }
    if let Some(Runtime(wanted)) = runtime
        && host.runtime.as_ref() != Some(wanted)
    {
        return Some(format!(
            "runtime {:?} instead of {wanted:?}",
            host.runtime.unwrap_or_default()
        ));
    }
    if host.privileged == Some(true) {
        return Some("it is privileged".to_owned());
    }
    None
}

/// Limits that were asked for (all are, always) and that the engine keeps none of: a rootless Podman without delegated
/// control groups ignores them without a word, and says so only here.
pub(super) fn unlimited(made: &ContainerInspectResponse) -> Vec<&'static str> {
    let host = made.host_config.clone().unwrap_or_default();
    let none = |value: Option<i64>| value.is_none_or(|value| value <= 0);
    [
        ("memory", none(host.memory)),
        ("processes", none(host.pids_limit)),
        ("CPU", none(host.nano_cpus) && none(host.cpu_quota)),
    ]
    .into_iter()
    .filter_map(|(what, lacks)| lacks.then_some(what))
    .collect()
}

#[cfg(test)]
mod tests {
    use bollard::models::{EndpointSettings, HostConfig, NetworkSettings};

    use super::*;
    use crate::sandbox::{Isolation, PodFiles, Resources, SandboxId, User};

    fn spec() -> WorkloadSpec {
        WorkloadSpec {
            run: "0123456789abcdef".parse().unwrap(),
            holder: SandboxId("h1".to_owned()),
            image_id: "sha256:00".to_owned(),
            command: vec!["true".to_owned()],
            env: Vec::new(),
            workdir: "/".to_owned(),
            user: User::Agent,
            isolation: Isolation::Hardened,
            resources: Resources {
                memory_mib: 64,
                cpu_millis: 100,
                pids: 16,
            },
            takes: crate::job::Takes::default(),
            deadline_seconds: 60,
            files: PodFiles {
                resolv_conf: "/r".into(),
                hosts: "/h".into(),
                hostname: "/n".into(),
                empty: "/e".into(),
            },
        }
    }

    fn made(mode: &str, networks: &[&str], runtime: &str) -> ContainerInspectResponse {
        let networks = networks
            .iter()
            .map(|&n| (n.to_owned(), EndpointSettings::default()))
            .collect();
        ContainerInspectResponse {
            host_config: Some(HostConfig {
                network_mode: Some(mode.to_owned()),
                runtime: Some(runtime.to_owned()),
                ..HostConfig::default()
            }),
            network_settings: Some(NetworkSettings {
                networks: Some(networks),
                ..NetworkSettings::default()
            }),
            ..ContainerInspectResponse::default()
        }
    }

    #[test]
    fn limits_that_the_engine_dropped_are_told() {
        let inspected = |memory, pids, cpus| ContainerInspectResponse {
            host_config: Some(HostConfig {
                memory: Some(memory),
                pids_limit: Some(pids),
                nano_cpus: Some(cpus),
                ..HostConfig::default()
            }),
            ..ContainerInspectResponse::default()
        };
        assert!(unlimited(&inspected(1 << 26, 16, 1_000_000)).is_empty());
        assert_eq!(
            unlimited(&inspected(0, 0, 0)),
            ["memory", "processes", "CPU"]
        );
        assert_eq!(unlimited(&inspected(1 << 26, -1, 1_000_000)), ["processes"]);
    }

    #[test]
    fn workload_on_another_network_or_runtime_is_not_what_was_asked_for() {
        let runsc = Runtime("runsc".to_owned());
        assert_eq!(
            difference(&made("container:h1", &[], "runc"), &spec(), None),
            None
        );
        assert_eq!(
            difference(&made("container:h1", &[], "runsc"), &spec(), Some(&runsc)),
            None
        );
        for (mode, networks, runtime, wanted) in [
            ("bridge", &[][..], "runc", None),
            ("host", &[], "runc", None),
            ("container:h2", &[], "runc", None),
            ("container:h1", &["bridge"], "runc", None),
            ("container:h1", &[], "runc", Some(&runsc)),
        ] {
            assert!(
                difference(&made(mode, networks, runtime), &spec(), wanted).is_some(),
                "{mode} {networks:?}"
            );
        }
    }
}
