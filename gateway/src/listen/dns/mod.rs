//! The DNS door: UDP and TCP to port 53 of any address is answered here, by policy, and nowhere else.
//!
//! The journey of a question: [`udp`] or [`tcp`] reads it, [`question`] parses it strictly, [`verdict`] asks netpolicy
//! (always before any cache), [`answer`] turns what the resolver found into leases or real addresses, [`reply`] writes
//! it. What passes: a permitted name, at the pace and within the budget of its network. What leaves the machine: for a
//! denied, local or malformed question nothing at all; for a permitted one a query that the resolver builds from the
//! name and the type alone. Failure stance: closed; sealed means NXDOMAIN, an answer that cannot be written down is
//! not given.

mod answer;
pub mod forward;
mod local;
pub mod question;
pub mod reply;
mod tcp;
mod udp;
mod verdict;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use netpolicy::reason::Reason;

use question::{Code, Question};
use reply::{Answer, Way};
pub use udp::{Batch, Datagrams, Outgoing, Slot};

use crate::context::{Context, Open};
use crate::network::{Network, Networks};
use crate::record::Journal;
use crate::resolve::Resolver;
use crate::resolve::leases::Paces;
use crate::tasks::Tasks;

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

/// What the door needs of the gateway.
#[derive(Clone)]
pub struct DnsHandles {
    /// Live networks by source address.
    pub networks: Arc<Networks>,
    /// Upstream look-ups.
    pub resolver: Arc<Resolver>,
    /// The flow record.
    pub journal: Arc<Journal>,
    /// Spawner.
    pub tasks: Tasks,
    /// False while sealed.
    pub open: Open,
    /// Connections that may be open over all networks.
    pub connections: usize,
}

impl From<&Context> for DnsHandles {
    fn from(ctx: &Context) -> Self {
        Self {
            networks: ctx.networks.clone(),
            resolver: ctx.resolver.clone(),
            journal: ctx.journal.clone(),
            tasks: ctx.tasks.clone(),
            open: ctx.open.clone(),
            connections: ctx.ceilings.descriptors().questions,
        }
    }
}

/// The door, shared by its sockets.
pub(crate) struct Door {
    ctx: DnsHandles,
    settings: DnsSettings,
    started: Instant,
}

impl Door {
    /// A clock that does not go back, for paces.
    fn clock(&self) -> Duration {
        self.started.elapsed()
    }

    /// Why a network may ask for nothing at all, if so.
    fn closed(&self, network: &Network) -> Result<(), Reason> {
        if network.ended.is_cancelled() {
            return Err(Reason::RunEnded);
        }
        if self.ctx.networks.may_pass(&self.ctx.open, network) {
            Ok(())
        } else {
            Err(Reason::GatewaySealed)
        }
    }

    /// Writes an answer and counts it.
    fn write(&self, out: &mut Vec<u8>, question: &Question<'_>, answer: &Answer, way: Way) {
        self.answered(answer.code);
        reply::write(out, question, answer, way);
    }

    fn answered(&self, code: Code) {
        self.ctx.journal.meters().answered(code as u16);
    }
}

/// Answers on these sockets until the gateway stops. The listeners live in the gateway namespace, bound transparently.
pub fn serve_dns<S: Datagrams>(
    ctx: impl Into<DnsHandles>,
    settings: DnsSettings,
    sockets: Vec<S>,
    listeners: Vec<std::net::TcpListener>,
) -> std::io::Result<()> {
    let ctx: DnsHandles = ctx.into();
    let tasks = ctx.tasks.clone();
    let door = Arc::new(Door {
        ctx,
        settings,
        started: Instant::now(),
    });
    let connections = tcp::Connections::new(door.ctx.connections);
    for listener in listeners {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        tasks.keep(
            "dns tcp",
            tcp::accept(door.clone(), listener, connections.clone()),
        );
    }
    for socket in sockets {
        tasks.keep("dns udp", udp::serve(door.clone(), Arc::new(socket)));
    }
    Ok(())
}
