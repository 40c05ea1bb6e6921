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
