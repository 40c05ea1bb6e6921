//! The broker door: connections to the broker's port of the service address, handed over with who they belong to.
//!
//! Answers in every posture: reaching its broker is not reaching out. Owns nothing of what is said; the descriptor goes
//! to the socket that the network was attached with, and identity is the source address that the kernel checked.
//! Bounded per network by its place among handovers in progress. Failure stance: reset.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use super::tcp::{accept_all, canonical};
use crate::context::Context;
use crate::control::handover::{Handover, hand_over};
use crate::network::Network;
use crate::relay::reset;

/// Serves a broker listener until the gateway stops.
pub fn serve_broker(ctx: &Context, listener: TcpListener) {
    let most = ctx.ceilings.descriptors().handovers;
    let (serving, places) = (ctx.clone(), Arc::new(Semaphore::new(most)));
    ctx.tasks.keep("broker door", async move {
        accept_all(listener, move |client, source| {
            let source = canonical(source);
            let network = serving.networks.by_source(source.ip());
            let place = places.clone().try_acquire_owned();
            let (Some(network), Ok(place)) = (network, place) else {
                return reset(&client);
            };
            serving.tasks.spawn("broker handover", async move {
                let _place = place;
                hand_to(&network, source, client).await;
            });
        })
        .await;
    });
}

/// Hands one connection of a network to its broker, unless the network ends first; without a broker it is reset.
pub(super) async fn hand_to(network: &Network, source: SocketAddr, client: TcpStream) {
    let Some(broker) = network.broker.clone() else {
        return reset(&client);
    };
    let whose = Handover {
        network: network.id.clone(),
        run: network.run.clone(),
        source,
    };
    tokio::select! {
        () = network.ended.cancelled() => {}
        () = hand(broker, network.owner, whose, client) => {}
    }
}

async fn hand(broker: PathBuf, owner: u32, whose: Handover, client: TcpStream) {
    let descriptor = client.into_std().and_then(|client| {
        // If nobody takes it, closing it must not look like a clean end of an answer.
        socket2::SockRef::from(&client).set_linger(Some(std::time::Duration::ZERO))?;
        Ok(client)
    });
    let handed = match descriptor {
        Ok(client) => {
            let copy = client.try_clone();
            let handed = hand_over((&broker, owner), &whose, OwnedFd::from(client)).await;
            // Taken: the broker closes it as it likes.
            if let (Ok(()), Ok(copy)) = (&handed, &copy) {
                let _ = socket2::SockRef::from(copy).set_linger(None);
            }
            handed
        }
        Err(error) => Err(error),
    };
    if let Err(error) = handed {
        tracing::warn!(sandbox.id = %whose.network, %error, "the broker did not take a connection");
    }
}
