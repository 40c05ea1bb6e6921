//! Name resolution as a workload sees it: three files that are read-only mounts over its own.
//!
//! A joined container would otherwise share its holder's files, which root in the workload can write.

use std::io;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use gateway::control::api::{NetworkView, Via};

use crate::sandbox::PodFiles;

/// Writes a network's files below a pod's folder.
pub(super) fn write_files(folder: &Path, network: &NetworkView) -> io::Result<PodFiles> {
    let files = PodFiles {
        resolv_conf: folder.join("resolv.conf"),
        hosts: folder.join("hosts"),
        hostname: folder.join("hostname"),
        empty: folder.join("empty"),
    };
    write_readable(&files.resolv_conf, &resolv_conf(network))?;
    write_readable(&files.hosts, &hosts(network))?;
    write_readable(&files.hostname, "sandbox\n")?;
    write_readable(&files.empty, "")?;
    Ok(files)
}

fn write_readable(path: &Path, text: &str) -> io::Result<()> {
    std::fs::write(path, text)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o444))
}

/// Variables by which programs find the proxy, where the sandbox has no network; in both cases, as programs differ.
pub fn proxy_variables(via: Via) -> Vec<(String, String)> {
    const PROXY: &str = "http://127.0.0.1:3128";
    let of = |name: &str, value: &str| {
        [name.to_owned(), name.to_lowercase()].map(|name| (name, value.to_owned()))
    };
    match via {
        Via::Link => Vec::new(),
        Via::Socket => [
            of("HTTP_PROXY", PROXY),
            of("HTTPS_PROXY", PROXY),
            of("ALL_PROXY", PROXY),
            of("NO_PROXY", "localhost,127.0.0.1,::1"),
        ]
        .concat(),
    }
}

/// `ndots:1`: a name with a dot is asked for as it is; there is no search list for anything else.
fn resolv_conf(network: &NetworkView) -> String {
    if network.via == Via::Socket {
        return "# no network here: names are looked up by the proxy at 127.0.0.1:3128\noptions ndots:1 timeout:1 attempts:1\n"
            .to_owned();
    }
    format!(
        "nameserver {}\nnameserver {}\noptions ndots:1\n",
        network.service_v4, network.service_v6
    )
}

/// The broker has a fixed entry, so that no answer of anyone can move it.
fn hosts(network: &NetworkView) -> String {
    let line = |address: IpAddr, names: &str| format!("{address}\t{names}\n");
    if network.via == Via::Socket {
        let own = "localhost sandbox broker.sallyport.internal";
        return line([127, 0, 0, 1].into(), own);
    }
    [
        line([127, 0, 0, 1].into(), "localhost"),
        line(
            std::net::Ipv6Addr::LOCALHOST.into(),
            "localhost ip6-localhost ip6-loopback",
        ),
        line(network.v4.into(), "sandbox"),
        line(network.v6.into(), "sandbox"),
        line(network.service_v4.into(), "broker.sallyport.internal"),
        line(network.service_v6.into(), "broker.sallyport.internal"),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_name_the_gateway_and_only_it() {
        let network: NetworkView = serde_json::from_value(serde_json::json!({
            "id": "run-1", "run": null, "workspace": "default", "v4": "198.18.0.2", "v6": "fd00::2",
            "service_v4": "198.18.0.1", "service_v6": "fd00::1", "policy": "0".repeat(64), "job_policy": "0".repeat(64),
            "policy_name": "none", "generation": 1, "names": "leased", "attached_ms": 0, "flows": 0,
            "used": { "upload": 0, "download": 0, "names": 0, "records": 0 }
        }))
        .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let files = write_files(folder.path(), &network).unwrap();
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        assert_eq!(
            read(&files.resolv_conf),
            "nameserver 198.18.0.1\nnameserver fd00::1\noptions ndots:1\n"
        );
        assert!(read(&files.hosts).contains("198.18.0.1\tbroker.sallyport.internal\n"));
        assert_eq!(read(&files.hostname), "sandbox\n");
        let none = NetworkView {
            via: Via::Socket,
            ..network
        };
        assert!(!resolv_conf(&none).contains("nameserver"));
        assert_eq!(
            super::hosts(&none),
            "127.0.0.1\tlocalhost sandbox broker.sallyport.internal\n"
        );
        let mode = std::fs::metadata(&files.hosts)
            .unwrap()
            .permissions()
            .mode()
            & 0o777;
        assert_eq!(mode, 0o444);
    }
}
