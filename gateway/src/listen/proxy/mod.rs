//! The explicit proxy: CONNECT and absolute-form requests on the service address, for tools that insist.
//!
//! It asks the same two questions as the transparent door. CONNECT becomes an ordinary flow whose bytes are judged like
//! any other after the 200; a plain request is decided, rewritten to origin form without hop-by-hop fields, and sent over a
//! connection of its own host that lives as long as the client keeps asking for that host. Who asks is known by the
//! source address, so it never asks for credentials.

mod request;
mod socket;
mod tunnel;

pub use crate::relay::http::onward::origin_form;
pub use socket::serve_socket;

use std::net::{SocketAddr, TcpListener};

use netpolicy::decide::{Connect, Denial, Destination, Intent};
use netpolicy::name::{Host, Name};
use netpolicy::reason::Reason;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::deny;
use super::flow::{Origin, Unreached, explain, unless_ended};
use super::route::{decide, intent, intent_to, to_address};
use super::tcp::{accept_all, canonical};
use crate::context::Context;
use crate::detect::http::{HeadError, Target};
use crate::limits::FlowSlot;
use crate::network::flows::Door;
use crate::relay::http::{Reader, read_head, status_of};
use crate::relay::{Answer, Early, Explain, Waits, plain_denial, reset};
use crate::resolve::Asked;

/// Its port, on the service address and on the loopback of sandboxes without a network.
pub const PORT: u16 = 3128;

/// A client of the proxy: its connection holds one place among the network's flows from the start.
#[derive(Debug)]
struct Visit {
    origin: Origin,
    slot: FlowSlot,
}

/// Serves the explicit proxy until the gateway stops.
pub fn serve_proxy(ctx: &Context, listener: TcpListener) {
    let serving = ctx.clone();
    ctx.tasks.keep("explicit proxy", async move {
        accept_all(listener, move |client, source| {
            let source = canonical(source);
            let Some(network) = serving.networks.by_source(source.ip()) else {
                return reset(&client);
            };
            let Ok(destination) = client.local_addr().map(canonical) else {
                return reset(&client);
            };
            let origin = Origin {
                ctx: serving.clone(),
                network,
                door: Door::Proxy,
                source,
                destination,
                waits: Waits::default(),
            };
            welcome(origin, client);
        })
        .await;
    });
}

fn welcome(origin: Origin, client: TcpStream) {
    let slot = match origin.network.ledger.admit(&origin.ctx.ceilings) {
        Ok(slot) => slot,
        Err(reason) => {
            // what it wants is not known yet, so the record names the proxy itself
            let asked = intent(
                origin.destination.port(),
                to_address(&origin.network, origin.destination.ip()),
            );
            origin.record_denial(&asked, &plain_denial(reason), None);
            return reset(&client);
        }
    };
    let tasks = origin.ctx.tasks.clone();
    tasks.spawn("proxy client", serve(Visit { origin, slot }, client));
}

async fn serve(visit: Visit, client: TcpStream) {
    let mut reader = Reader::new(&client);
    let due = Instant::now() + visit.origin.waits.head;
    let head = unless_ended(&visit.origin.network.ended, read_head(&mut reader, due))
        .await
        .unwrap_or(Ok(None));
    let said = match head {
        Ok(Some(head)) => match head.target.clone() {
            Target::Authority(authority) => {
                reader.consume(head.length);
                let early = Early {
                    bytes: std::mem::take(&mut reader.ahead),
                    seen: None,
                    ended: reader.ended,
                };
                drop(reader);
                return tunnel::run(visit, client, &authority, early).await;
            }
            _ => request::run(visit, &mut reader, head).await,
        },
        Ok(None) => None,
        Err(why) => Some(malformed(why)),
    };
    drop(reader);
    deny::last_words(client, &said.unwrap_or_default()).await;
}

/// What a host and port of the proxy protocol mean. A name costs its place in the budget of names, as a look-up would.
fn asked_for(origin: &Origin, host: &Host, port: u16) -> (Intent, Result<(), Reason>) {
    match host {
        Host::Address(address) => {
            let to = SocketAddr::new(*address, port);
            (intent_to(&origin.network, to), Ok(()))
        }
        Host::Name(name) => {
            let asked = intent(
                port,
                Destination::Name {
                    name: name.clone(),
                    answers: None,
                },
            );
            // only a permitted name is asked for, so only a permitted name is counted
            if matches!(decide(&origin.network, &asked), Connect::Deny(_)) {
                return (asked, Ok(()));
            }
            let counted = count_name(origin, name);
            (asked, counted)
        }
    }
}

/// A request that is no proxy request, or none at all.
fn malformed(why: HeadError) -> Vec<u8> {
    let denial = plain_denial(Reason::HttpMalformed);
    Answer {
        status: status_of(why),
        error: "bad_request",
        denial: &denial,
        destination: "",
        explain: Explain::No,
    }
    .render()
}

/// The answer to a request that nothing was dialled for; `None` when nobody is there to read it.
fn unreached(origin: &Origin, why: &Unreached, destination: &str) -> Option<Vec<u8>> {
    let plain;
    let (status, error, denial): (u16, &'static str, &Denial) = match why {
        Unreached::Denied(denial, _) => (403, "egress_denied", denial),
        Unreached::Cause(reason) => {
            plain = plain_denial(*reason);
            (403, "egress_denied", &plain)
        }
        Unreached::Failed(failed) => {
            plain = plain_denial(failed.reason);
            (
                if failed.reason == Reason::UpstreamTimeout {
                    504
                } else {
                    502
                },
                "upstream_failed",
                &plain,
            )
        }
        Unreached::Gone => return None,
    };
    Some(
        Answer {
            status,
            error,
            denial,
            destination,
            explain: explain(origin),
        }
        .render(),
    )
}

/// Counts a name against the budget of names.
fn count_name(origin: &Origin, name: &Name) -> Result<(), Reason> {
    let live = origin.network.live.load();
    let names = live.snapshot.limits().names.unwrap_or(crate::limits::NAMES);
    match origin
        .network
        .leases
        .ask(name, &origin.network.ledger, names)
    {
        Ok(()) => Ok(()),
        Err(Asked::Denied(reason)) => Err(reason),
        Err(Asked::Failed(error)) => {
            tracing::warn!(%error, "a name cannot be written down, so it is not asked for");
            Err(Reason::GatewaySealed)
        }
    }
}
