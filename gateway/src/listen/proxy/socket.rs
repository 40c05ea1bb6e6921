//! The explicit proxy of one sandbox that has no network at all: a listener on that sandbox's own loopback.
//!
//! The sandbox's keeper made the listener before any workload existed and handed it over; whose it is is known by the
//! listener, not by an address. Connections are the gateway's from their first moment, sockets of TCP in the sandbox's
//! namespace, so refusals, half-closes and resets are as everywhere, and everything behind the first byte is the one
//! path of the explicit proxy. Requests to the broker's name are handed over unread. Owns nothing of what is decided.
//! Failure stance: reset; when the network ends, or the gateway, the listener closes.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use super::welcome;
use crate::context::Context;
use crate::listen::broker;
use crate::listen::flow::{Origin, unless_ended};
use crate::listen::tcp::accept_all;
use crate::network::Network;
use crate::network::flows::Door;
use crate::relay::{Waits, reset};

/// How a request to the broker begins: the helper writes it at once, and programs that know the proxy do as well.
const BROKER: &[u8] = b"GET http://broker.sallyport.internal/";
/// Clients that have not said anything yet; more than one sandbox needs and fewer than hurt.
const SILENT: usize = 64;
/// A client that says nothing for this long is served as any client of the proxy, which has limits of its own.
const FIRST_WORD: Duration = Duration::from_secs(2);

/// Serves it until the network ends. `service` stands for the proxy in records.
pub fn serve_socket(ctx: &Context, network: Arc<Network>, service: IpAddr, listener: TcpListener) {
    let serving = ctx.clone();
    ctx.tasks.spawn("socket door", async move {
        let (ended, silent) = (network.ended.clone(), Arc::new(Semaphore::new(SILENT)));
        let accepting = accept_all(listener, |client, source| {
            let Ok(place) = silent.clone().try_acquire_owned() else {
                return reset(&client);
            };
            let origin = Origin {
                ctx: serving.clone(),
                network: network.clone(),
                door: Door::Proxy,
                source: SocketAddr::new(network.v4.into(), source.port()),
                destination: SocketAddr::new(service, super::PORT),
                waits: Waits::default(),
            };
            serving.tasks.spawn("socket client", async move {
                let ended = origin.network.ended.clone();
                match unless_ended(&ended, is_for_broker(&client)).await {
                    Some(true) => broker::hand_to(&origin.network, origin.source, client).await,
                    Some(false) => welcome(origin, client),
                    None => reset(&client),
                }
                drop(place);
            });
        });
        unless_ended(&ended, accepting).await;
    });
}

/// Whether the first bytes ask for the broker; they stay unread.
async fn is_for_broker(client: &TcpStream) -> bool {
    let mut seen = [0; BROKER.len()];
    let peeked = tokio::time::timeout(FIRST_WORD, client.peek(&mut seen)).await;
    matches!(peeked, Ok(Ok(length)) if length == BROKER.len() && seen == BROKER)
}
