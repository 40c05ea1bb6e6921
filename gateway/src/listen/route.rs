//! From an intent to a permit: look-ups happen only when netpolicy asks for them, and never change what was decided.

use std::net::{IpAddr, SocketAddr};

use netpolicy::decide::{
    Answers, Connect, Denial, Destination, DialPermit, Direction, Heard, Intent, decide_aliases,
    decide_connect, decide_unleased,
};
use netpolicy::name::Name;
use netpolicy::policy::{Protocol, Speaks};

use crate::context::{Context, now};
use crate::network::Network;
use crate::resolve::LookupError;

/// A name and then a heard name: no intent needs more look-ups.
const MOST_LOOKUPS: usize = 3;

/// Where an intent leads.
#[derive(Debug)]
pub(crate) enum Route {
    /// To an open permit.
    Dial(DialPermit),
    /// First the client must be heard.
    Hear(Speaks),
    /// Nowhere: a decision.
    Deny(Denial),
    /// Nowhere: the name is permitted but has no address now.
    Unresolvable,
}

/// What the sandbox addressed, as an intent. `Err`: a pool address that nobody handed out.
pub(crate) fn intent_to(network: &Network, destination: SocketAddr) -> Intent {
    intent(destination.port(), destination_of(network, destination))
}

/// The same of a datagram.
pub(crate) fn datagram_intent_to(network: &Network, destination: SocketAddr) -> Intent {
    Intent {
        protocol: Protocol::Udp,
        ..intent_to(network, destination)
    }
}

fn destination_of(network: &Network, destination: SocketAddr) -> Destination {
    let address = destination.ip().to_canonical();
    match network.leases.find(address) {
        Some(name) => Destination::Name {
            name,
            answers: None,
        },
        None => to_address(network, address),
    }
}

/// An outgoing TCP intent.
pub(crate) fn intent(port: u16, to: Destination) -> Intent {
    Intent {
        direction: Direction::Egress,
        protocol: Protocol::Tcp,
        port,
        to,
    }
}

pub(crate) fn to_address(network: &Network, address: IpAddr) -> Destination {
    Destination::Address {
        address,
        bound: network.leases.bound(address),
        heard: Heard::NotYet,
    }
}

/// Decides without looking anything up.
pub(crate) fn decide(network: &Network, intent: &Intent) -> Connect {
    let live = network.live.load();
    if is_synthetic(network, intent) {
        decide_unleased(&live.snapshot, intent, now())
    } else {
        decide_connect(&live.snapshot, intent, now())
    }
}

fn is_synthetic(network: &Network, intent: &Intent) -> bool {
    match &intent.to {
        Destination::Address { address, .. } => network.leases.in_pool(*address),
        Destination::Name { .. } => false,
    }
}

/// Decides, looks up what may be looked up, and decides again; the answers stay in the intent.
pub(crate) async fn route(ctx: &Context, network: &Network, intent: &mut Intent) -> Route {
    let decided = decide(network, intent);
    route_on(ctx, network, intent, decided).await
}

/// The same from a first decision on.
pub(crate) async fn route_on(
    ctx: &Context,
    network: &Network,
    intent: &mut Intent,
    mut decided: Connect,
) -> Route {
    for _ in 0..MOST_LOOKUPS {
        let name = match decided {
            Connect::Dial(permit) => return Route::Dial(permit),
            Connect::Hear(speaks) => return Route::Hear(speaks),
            Connect::Deny(denial) => return Route::Deny(denial),
            Connect::LookUp(name) => name,
        };
        // boxed: a look-up holds packets, and a flow that waits for its client would carry them for ever
        let follow = |aliases: &[Name]| {
            let live = network.live.load();
            decide_aliases(&live.snapshot, &name, aliases, now()).is_ok()
        };
        match Box::pin(ctx.resolver.addresses(&network.scope, &name, &follow)).await {
            Ok(answers) => answer(intent, answers),
            // the next decision hears of the alias that stopped the chase
            Err(LookupError::Denied(aliases)) => answer(
                intent,
                Answers {
                    addresses: Vec::new(),
                    aliases: aliases.to_vec(),
                },
            ),
            Err(error) => {
                tracing::debug!(destination.name = %name, %error, "a permitted name has no address");
                return Route::Unresolvable;
            }
        }
        decided = decide(network, intent);
    }
    Route::Unresolvable
}

fn answer(intent: &mut Intent, said: Answers) {
    match &mut intent.to {
        Destination::Name { answers, .. }
        | Destination::Address {
            heard: Heard::Name { answers, .. },
            ..
        } => {
            *answers = Some(said);
        }
        Destination::Address { .. } => {}
    }
}
