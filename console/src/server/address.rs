//! Whose address a request has: the socket's peer, or what a trusted reverse proxy says.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
use ipnet::IpNet;

/// The socket's other end; every connection's requests carry it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer(pub SocketAddr);

/// The client, for limits, sessions and the audit log. Never a reason to let somebody in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Client(pub IpAddr);

/// The client behind proxies: from the right, the first hop that is no trusted proxy. What stands left of it anybody
/// could have written.
pub fn client(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> Client {
    let trusts = |ip: &IpAddr| trusted.iter().any(|net| net.contains(ip));
    let mut nearest = peer.to_canonical();
    if !trusts(&nearest) {
        return Client(nearest);
    }
    // what is no text is no address either, and ends the way back
    let lines: Vec<&str> = headers
        .get_all("x-forwarded-for")
        .iter()
        .map(|v| v.to_str().unwrap_or_default())
        .collect();
    for hop in lines.iter().rev().flat_map(|line| line.rsplit(',')) {
        let Some(ip) = address(hop.trim()) else { break };
        nearest = ip;
        if !trusts(&ip) {
            break;
        }
    }
    Client(nearest)
}

fn address(text: &str) -> Option<IpAddr> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let ip = bare.parse::<IpAddr>().ok();
    ip.or_else(|| text.parse::<SocketAddr>().ok().map(|a| a.ip()))
        .map(|ip| ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(peer: &str, forwarded: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for line in forwarded {
            headers.append("x-forwarded-for", line.parse().unwrap());
        }
        let trusted = [
            "127.0.0.0/8".parse().unwrap(),
            "10.0.0.0/8".parse().unwrap(),
        ];
        client(peer.parse().unwrap(), &headers, &trusted)
            .0
            .to_string()
    }

    #[test]
    fn a_stranger_cannot_name_its_own_address() {
        assert_eq!(of("203.0.113.9", &["192.0.2.1"]), "203.0.113.9");
        assert_eq!(of("127.0.0.1", &["192.0.2.66, 203.0.113.9"]), "203.0.113.9");
        assert_eq!(
            of("127.0.0.1", &["192.0.2.66", "203.0.113.9, 10.1.1.1"]),
            "203.0.113.9"
        );
    }

    #[test]
    fn what_cannot_be_read_hides_no_hop() {
        let mut headers = HeaderMap::new();
        for line in [&b"192.0.2.66"[..], b"\xff, 203.0.113.9", b"10.1.1.1"] {
            headers.append(
                "x-forwarded-for",
                http::HeaderValue::from_bytes(line).unwrap(),
            );
        }
        let trusted = ["10.0.0.0/8".parse().unwrap()];
        let found = client("10.2.2.2".parse().unwrap(), &headers, &trusted);
        assert_eq!(found.0.to_string(), "10.1.1.1");
    }

    #[test]
    fn a_trusted_proxy_names_the_client() {
        assert_eq!(of("127.0.0.1", &["203.0.113.9"]), "203.0.113.9");
        assert_eq!(of("127.0.0.1", &["[2001:db8::1]"]), "2001:db8::1");
        assert_eq!(of("127.0.0.1", &["203.0.113.9:4711"]), "203.0.113.9");
        assert_eq!(of("127.0.0.1", &["nonsense"]), "127.0.0.1");
        assert_eq!(of("127.0.0.1", &[]), "127.0.0.1");
    }
}
