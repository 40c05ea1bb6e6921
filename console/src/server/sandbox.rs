//! Whether a connection comes from a sandbox: by its address, and by asking the gateway whose socket it is.
//!
//! The gateway's floor refuses such connections first; this is the second look. A sandbox's bytes leave the gateway from
//! an address of this machine, so only those connections are asked about. Failure stance: where a gateway is there and
//! cannot be asked, a connection from an address of this machine other than loopback is refused; loopback the gateway
//! dials for nobody.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use gateway::control::Client;
use gateway::control::api::FourTuple;

use crate::settings::GatewaySide;

/// A gateway that lives answers at once; people wait for this.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the second look found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// Somebody else.
    Other,
    /// A sandbox, or perhaps one.
    Sandbox,
}

/// Looks at one accepted connection.
pub async fn look(gateway: &GatewaySide, local: SocketAddr, peer: SocketAddr) -> Seen {
    let ip = peer.ip().to_canonical();
    if gateway.pools.iter().any(|pool| pool.contains(&ip)) {
        return Seen::Sandbox;
    }
    if !is_of_this_machine(ip) {
        return Seen::Other;
    }
    let tuple = FourTuple {
        local: canonical(local),
        remote: canonical(peer),
    };
    let client = Client::new(&gateway.control);
    match tokio::time::timeout(PATIENCE, client.owner(&tuple)).await {
        Ok(Ok(owner)) if !owner.ours => Seen::Other,
        Ok(Ok(_)) => Seen::Sandbox,
        _ if ip.is_loopback() || nobody_there(gateway).await => Seen::Other,
        Ok(Err(error)) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the gateway does not say whose connection this is; it is refused"
            );
            Seen::Sandbox
        }
        Err(_) => {
            tracing::warn!("the gateway does not answer whose connection this is; it is refused");
            Seen::Sandbox
        }
    }
}

/// No gateway runs on this machine, so nothing of a sandbox leaves it.
async fn nobody_there(gateway: &GatewaySide) -> bool {
    // not waited for: a gateway that hangs accepts nobody, and is there
    let connected = tokio::net::UnixStream::connect(&gateway.control).await;
    connected.is_err_and(|e| matches!(e.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused))
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn is_of_this_machine(ip: IpAddr) -> bool {
    if ip.is_loopback() {
        return true;
    }
    let Ok(interfaces) = nix::ifaddrs::getifaddrs() else {
        return true;
    };
    interfaces
        .filter_map(|interface| interface.address)
        .any(|address| {
            let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
            let v6 = address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip()));
            v4.or(v6) == Some(ip)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side() -> GatewaySide {
        GatewaySide {
            control: "/nonexistent/control.sock".into(),
            pools: vec![
                "198.18.0.0/16".parse().unwrap(),
                "fd00:5a11::/48".parse().unwrap(),
            ],
        }
    }

    #[tokio::test]
    async fn an_address_of_the_pools_is_a_sandbox_whatever_the_gateway_says() {
        let local = "192.0.2.1:8420".parse().unwrap();
        for (peer, seen) in [
            ("198.18.4.4:1", Seen::Sandbox),
            ("[::ffff:198.18.4.4]:1", Seen::Sandbox),
            ("[fd00:5a11::7]:1", Seen::Sandbox),
            ("203.0.113.9:1", Seen::Other),
            ("127.0.0.1:1", Seen::Other),
        ] {
            assert_eq!(
                look(&side(), local, peer.parse().unwrap()).await,
                seen,
                "{peer}"
            );
        }
    }
}
