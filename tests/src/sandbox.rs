//! A bare namespace behind the gateway: what any runtime's network namespace is to Sallyport.

use std::ffi::OsStr;
use std::net::IpAddr;
use std::process::Output;

use crate::namespace::Namespace;
use crate::wait::eventually;

/// One attached sandbox.
#[derive(Debug)]
pub struct Sandbox {
    pub(crate) namespace: Namespace,
    pub(crate) name: String,
    pub(crate) v4: IpAddr,
    pub(crate) v6: IpAddr,
}

impl Sandbox {
    /// Its network's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its namespace.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Its IPv4 address.
    pub fn v4(&self) -> IpAddr {
        self.v4
    }

    /// Its IPv6 address.
    pub fn v6(&self) -> IpAddr {
        self.v6
    }

    /// Waits until the link's neighbours are resolved: a packet that waits for ARP or ND would leave after the
    /// capture was read, and a leak would go unseen.
    pub(crate) fn warm(&self) {
        let nexthop = |family: &str| {
            let route = self.exec(&["ip", family, "route", "show", "default"]);
            let text = String::from_utf8_lossy(&route.stdout).into_owned();
            text.split_whitespace()
                .nth(2)
                .unwrap_or_else(|| panic!("no default route in {}", self.name))
                .to_owned()
        };
        for family in ["-4", "-6"] {
            let hop = nexthop(family);
            eventually("the sandbox's neighbours", || {
                let table = self.exec(&["ip", family, "neigh", "show", &hop, "dev", "eth0"]);
                let text = String::from_utf8_lossy(&table.stdout).into_owned();
                if text.trim().is_empty() || text.contains("FAILED") {
                    // `use` makes the kernel resolve without any packet of ours; a link that is not quite up yet fails
                    self.exec(&["ip", family, "neigh", "replace", &hop, "dev", "eth0", "use"]);
                }
                text.contains("lladdr").then_some(())
            });
        }
    }

    /// Runs a closure inside.
    pub fn run<T: Send>(&self, inside: impl FnOnce() -> T + Send) -> T {
        self.namespace.run(inside)
    }

    /// Runs a program inside.
    pub fn exec<S: AsRef<OsStr> + Sync>(&self, argv: &[S]) -> Output {
        self.namespace.exec(argv)
    }
}
