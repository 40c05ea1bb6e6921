//! The DNS door: UDP and TCP to port 53 of any address is answered here, by policy, and nowhere else.
//!
//! The journey of a question: [`udp`] or [`tcp`] reads it, [`question`] parses it strictly, [`verdict`] asks netpolicy
//! (always before any cache), [`answer`] turns what the resolver found into leases or real addresses, [`reply`] writes
//! it. What passes: a permitted name, at the pace and within the budget of its network. What leaves the machine: for a
//! denied, local or malformed question nothing at all; for a permitted one a query that the resolver builds from the
//! name and the type alone. Failure stance: closed; sealed means NXDOMAIN, an answer that cannot be written down is
//! not given.

mod answer;
mod forward;
mod local;
pub mod question;
pub mod reply;
mod tcp;
mod udp;
mod verdict;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use udp::{Batch, Datagrams, Outgoing};

use crate::context::Context;
use crate::resolve::leases::Paces;

/// Settings of the door.
#[derive(Clone, Copy, Debug)]
pub struct DnsSettings {
    /// The IPv4 service address: where the broker name leads.
    pub service_v4: Ipv4Addr,
    /// Its IPv6 twin.
    pub service_v6: Ipv6Addr,
    /// How fast one network may ask.
    pub paces: Paces,
}

/// The door, shared by its sockets.
#[derive(Clone)]
pub(crate) struct Door {
    ctx: Context,
    settings: DnsSettings,
    started: Instant,
}

impl Door {
    /// A clock that does not go back, for paces.
    fn clock(&self) -> Duration {
        self.started.elapsed()
    }
}

/// Answers on these sockets until the gateway stops. The listeners live in the gateway namespace, bound transparently.
pub fn serve_dns<S: Datagrams>(
    ctx: Context,
    settings: DnsSettings,
    sockets: Vec<S>,
    listeners: Vec<std::net::TcpListener>,
) -> std::io::Result<()> {
    let tasks = ctx.tasks.clone();
    let door = Arc::new(Door {
        ctx,
        settings,
        started: Instant::now(),
    });
    let connections = tcp::Connections::default();
    for listener in listeners {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        tasks.spawn(
            "dns tcp",
            tcp::accept(door.clone(), listener, connections.clone()),
        );
    }
    for socket in sockets {
        tasks.spawn("dns udp", udp::serve(door.clone(), Arc::new(socket)));
    }
    Ok(())
}
