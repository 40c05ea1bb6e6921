//! The transparent TCP door: sockets that the kernel delivered, each paired with the SYN that the gate answered.
//!
//! With a gate, an accepted socket without a dialled upstream waiting for its 4-tuple is reset: safety rests on the
//! pairing, not on the queue. Without one (a kernel without any queue) the door accepts first and resets on failure.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;

use super::Gate;
use super::flow::{self, Accepted, Origin};
use super::route::intent_to;
use crate::context::Context;
use crate::network::flows::Door;
use crate::relay::{Early, Waits, plain_denial, reset};
use netpolicy::reason::Reason;

/// After a failed accept (descriptors gone): long enough for one to come back, short enough that nobody notices.
const BACK_OFF: Duration = Duration::from_millis(10);

/// Serves a transparent listener until the gateway stops.
pub fn serve_tcp(ctx: &Context, listener: TcpListener, gate: Option<Arc<Gate>>) {
    let serving = ctx.clone();
    ctx.tasks.keep("transparent tcp", async move {
        accept_all(listener, move |client, source| {
            let Ok(destination) = client.local_addr() else {
                return reset(&client);
            };
            let (source, destination) = (canonical(source), canonical(destination));
            match &gate {
                Some(gate) => gate.accepted(client, (source, destination)),
                None => accept_first(&serving, client, source, destination),
            }
        })
        .await;
    });
}

/// Accepts for ever; a failure to accept is never the end of a door.
pub(crate) async fn accept_all(listener: TcpListener, serve: impl Fn(TcpStream, SocketAddr)) {
    let listener = listener
        .set_nonblocking(true)
        .and_then(|()| tokio::net::TcpListener::from_std(listener));
    let listener = match listener {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "a listener cannot be served"),
    };
    loop {
        match listener.accept().await {
            Ok((client, source)) => serve(client, source),
            Err(error) => {
                tracing::warn!(%error, "accepting a connection");
                tokio::time::sleep(BACK_OFF).await;
            }
        }
    }
}

pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn accept_first(ctx: &Context, client: TcpStream, source: SocketAddr, destination: SocketAddr) {
    let Some(network) = ctx.networks.by_source(source.ip()) else {
        return reset(&client);
    };
    let origin = Origin {
        ctx: ctx.clone(),
        network,
        door: Door::Tcp,
        source,
        destination,
        waits: Waits::default(),
    };
    let mut intent = intent_to(&origin.network, destination);
    let deny = |reason: Reason| {
        origin.record_denial(&intent, &plain_denial(reason), None);
        reset(&client);
    };
    if !ctx.may_pass(&origin.network) {
        return deny(Reason::GatewaySealed);
    }
    let slot = match origin.network.ledger.admit(&ctx.ceilings) {
        Ok(slot) => slot,
        Err(reason) => return deny(reason),
    };
    ctx.tasks.spawn("tcp flow", async move {
        let reached = flow::reach(&origin, &mut intent).await;
        let accepted = Accepted {
            origin,
            client,
            intent,
            slot,
        };
        match reached {
            Ok(reach) => flow::run(accepted, reach, Early::default()).await,
            Err(why) => flow::refuse(accepted, why).await,
        }
    });
}
