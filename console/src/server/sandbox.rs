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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;
    use crate::server::listen::{Door, serve};
    use crate::server::router;
    use crate::server::testing::Console;
    use crate::settings::ConsoleConfig;
    use crate::store::testing::each;

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
    /// What comes back for some bytes from an address of this machine.
    async fn said(from: &str, to: SocketAddr, bytes: &[u8]) -> String {
        let socket = TcpSocket::new_v4().unwrap();
        socket
            .bind(SocketAddr::new(from.parse().unwrap(), 0))
            .unwrap();
        let mut stream = socket.connect(to).await.unwrap();
        let mut back = Vec::new();
        // one that is closed takes nothing, and resets what was sent
        let _ = stream.write_all(bytes).await;
        let _ = stream.read_to_end(&mut back).await;
        String::from_utf8_lossy(&back).into_owned()
    }

    #[tokio::test]
    async fn what_a_sandbox_says_of_its_address_lets_it_in_nowhere() {
        each(async |store| {
            let pools = vec!["127.0.0.2/32".parse().unwrap()];
            let config = ConsoleConfig {
                // the worst case: who forwards others is believed, and the pool lies inside of it
                trusted_proxies: vec!["127.0.0.0/8".parse().unwrap()],
                gateway: GatewaySide { pools, ..side() },
                ..ConsoleConfig::default()
            };
            let console = Console::with(store, config);
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let to = listener.local_addr().unwrap();
            let (app, routes) = (console.app.clone(), router(&console.app));
            let serving = serve(listener, routes, app.clone(), Door::People(None));
            app.tasks.spawn("people", serving);
            for claim in [
                "X-Forwarded-For: 192.168.1.9",
                "X-Forwarded-For: 203.0.113.9, 127.0.0.1",
                "Forwarded: for=192.168.1.9",
                "X-Real-IP: 127.0.0.1",
                "X-Client-IP: 192.168.1.9\r\nTrue-Client-IP: 192.168.1.9",
                "Accept: */*",
            ] {
                let request = format!(
                    "GET /api/v1 HTTP/1.1\r\nHost: localhost:8420\r\nConnection: close\r\n{claim}\r\n\r\n"
                );
                for proxied in ["", "PROXY TCP4 192.168.1.9 127.0.0.1 5000 8420\r\n"] {
                    let bytes = format!("{proxied}{request}");
                    assert_eq!(said("127.0.0.2", to, bytes.as_bytes()).await, "", "{claim}");
                }
                let answer = said("127.0.0.1", to, request.as_bytes()).await;
                assert!(answer.starts_with("HTTP/1.1 200"), "{claim}: {answer}");
            }
            // nobody speaks of others in this way here, whoever they are
            let bytes = b"PROXY TCP4 192.168.1.9 127.0.0.1 5000 8420\r\n\r\n";
            let answer = said("127.0.0.1", to, bytes).await;
            assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
            app.stop.cancel();
        })
        .await;
    }
}
