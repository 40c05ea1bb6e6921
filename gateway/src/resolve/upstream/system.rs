//! The system's resolvers: `nameserver` lines of resolv.conf(5), followed when the file changes.
//!
//! Search lists and options of the host are not read: they are the host's, and what a sandbox asks is completed by
//! nobody (DNS-36).

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::{Resolver, Upstreams};
use crate::tasks::Tasks;

/// resolv.conf(5): MAXNS.
const MOST_SERVERS: usize = 3;
/// Port of DNS.
const PORT: u16 = 53;
/// How often the file is looked at; resolvers change when a laptop moves.
const LOOK: Duration = Duration::from_secs(2);

/// The servers that a resolv.conf names. None at all means the local host (resolv.conf(5)).
pub fn parse(text: &str) -> Upstreams {
    let mut servers: Vec<SocketAddr> = text
        .lines()
        .filter_map(server_of)
        .take(MOST_SERVERS)
        .collect();
    if servers.is_empty() {
        servers.push(SocketAddr::from(([127, 0, 0, 1], PORT)));
    }
    Upstreams {
        default: servers,
        domains: Vec::new(),
    }
}

fn server_of(line: &str) -> Option<SocketAddr> {
    let mut words = line.split_ascii_whitespace();
    if words.next() != Some("nameserver") {
        return None;
    }
    let word = words.next()?;
    if let Ok(address) = word.parse::<IpAddr>() {
        return Some(SocketAddr::new(address, PORT));
    }
    // a link-local server is only reachable through its interface
    let (address, zone) = word.split_once('%')?;
    let scope = zone
        .parse()
        .ok()
        .or_else(|| nix::net::if_::if_nametoindex(zone).ok())?;
    Some(SocketAddrV6::new(address.parse().ok()?, PORT, 0, scope).into())
}

impl Resolver {
    /// Reads resolv.conf now.
    pub fn system(path: &Path) -> std::io::Result<Self> {
        Ok(Self::new(parse(&std::fs::read_to_string(path)?)))
    }

    /// Follows resolv.conf. An unreadable file changes nothing: it is usually about to be replaced.
    pub fn follow_system(self: &Arc<Self>, path: PathBuf, tasks: &Tasks) {
        let resolver = self.clone();
        tasks.keep("resolv.conf", async move {
            loop {
                tokio::time::sleep(LOOK).await;
                if let Ok(text) = tokio::fs::read_to_string(&path).await {
                    resolver.follow(&text).await;
                }
            }
        });
    }

    async fn follow(&self, text: &str) {
        let now = parse(text);
        if now == **self.upstreams.load() {
            return;
        }
        tracing::info!(servers = ?now.default, "the system's resolvers changed");
        self.set_upstreams(now);
        if let Err(error) = self.learn_nat64().await {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "learning NAT64 prefixes failed"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_nameserver_lines_are_read() {
        // DNS-36
        let text = "# nameserver 9.9.9.9\nsearch corp.local\noptions ndots:5 rotate\nnameserver 10.0.0.1\n nameserver\t::1 # x\nnameserver nonsense\nnameserver fe80::1%1\nnameserver 10.0.0.4\n";
        let servers: Vec<String> = parse(text)
            .default
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(servers, ["10.0.0.1:53", "[::1]:53", "[fe80::1%1]:53"]);
        assert_eq!(
            parse("search corp.local\n").default,
            ["127.0.0.1:53".parse().unwrap()]
        );
    }
}
