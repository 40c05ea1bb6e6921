//! The life of one TCP flow after a door accepted it: hear, route, dial, register, record, relay, end, record.

mod reach;

use std::net::SocketAddr;
use std::sync::Arc;

use netpolicy::decide::{Connect, Denial, Intent};
use netpolicy::ids::Generation;
use netpolicy::policy::Speaks;
use netpolicy::reason::Reason;
use tokio::net::TcpStream;

use super::deny;
use super::route::decide;
use crate::context::{Context, now_ms};
use crate::limits::FlowSlot;
use crate::network::Network;
use crate::network::flows::{Door, Flow, FlowFacts, FlowGuard};
use crate::relay::{
    self, Early, End, Explain, Lane, Notes, Refusal, Waits, destination_text, plain_denial, reset,
};
use crate::uplink::dial::Dialled;
use reach::hear;

pub(crate) use reach::{Decided, Failed, Unreached, reach, reach_on, unless_ended};

/// Where a flow comes from.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// Shared handles.
    pub ctx: Context,
    /// Whose it is.
    pub network: Arc<Network>,
    /// How it came.
    pub door: Door,
    /// Sandbox side.
    pub source: SocketAddr,
    /// What the sandbox addressed.
    pub destination: SocketAddr,
    /// Limits of time.
    pub waits: Waits,
}

impl Origin {
    /// What is decided on the way of one of its flows.
    pub(crate) fn lane<'s>(&'s self, flow: &'s Flow) -> Lane<'s> {
        Lane {
            ctx: &self.ctx,
            network: &self.network,
            flow,
            waits: self.waits,
        }
    }
}

/// What an accepted socket is paired with.
#[derive(Debug)]
pub(crate) enum Reach {
    /// An open upstream connection, permitted under this generation of the policy.
    Dialled(Box<Dialled>, Generation),
    /// Only what the client says can tell where it may go.
    Hear(Speaks),
}

/// An accepted flow with its place among the network's flows.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub origin: Origin,
    pub client: TcpStream,
    pub intent: Intent,
    pub slot: FlowSlot,
}

/// Runs an accepted flow to its end.
pub(crate) async fn run(mut accepted: Accepted, reach: Reach, mut early: Early) {
    match reach {
        Reach::Dialled(dialled, generation) => {
            relay_to(accepted, *dialled, generation, early).await;
        }
        Reach::Hear(speaks) => {
            let ended = accepted.origin.network.ended.clone();
            // boxed: most flows never wait here, and all would carry its room
            let hearing = Box::pin(hear(&mut accepted, speaks, &mut early));
            let heard = unless_ended(&ended, hearing).await;
            let heard = heard.unwrap_or(Err(Unreached::Cause(Reason::RunEnded)));
            match heard {
                Ok((dialled, generation)) => relay_to(accepted, dialled, generation, early).await,
                Err(why) => refuse(accepted, why).await,
            }
        }
    }
}

/// Registers, records, relays and ends a dialled flow.
async fn relay_to(accepted: Accepted, dialled: Dialled, generation: Generation, early: Early) {
    let Accepted {
        origin,
        client,
        intent,
        slot: _slot,
    } = accepted;
    let server = dialled.stream;
    let local = Some(dialled.local);
    let (guard, opened) = open(
        &origin,
        intent,
        (dialled.upstream, dialled.ground),
        generation,
        local,
    );
    let flow = guard.flow.clone();
    let mut notes = Notes::default();
    let end = if let Err(denial) = &opened {
        End::Cause(denial.reason)
    } else {
        let lane = origin.lane(&flow);
        tokio::select! {
            biased;
            () = flow.cut.cancelled() => End::Cause(flow.cause().unwrap_or(Reason::RunEnded)),
            end = converse(lane, &client, &server, early, &mut notes) => end,
        }
    };
    record_end(&origin, &flow, opened, notes, &end);
    drop(guard);
    conclude(&origin, &flow.intent, client, server, &end).await;
}

/// Registers the flow and writes it down. Whoever replaces a policy or ends a network walks the registered flows, so
/// what changed between deciding and registering is looked at once more here.
pub(crate) fn open(
    origin: &Origin,
    intent: Intent,
    (upstream, ground): (SocketAddr, netpolicy::decide::Ground),
    generation: Generation,
    local: Option<SocketAddr>,
) -> (FlowGuard, Result<(), Denial>) {
    let guard = origin.network.flows.open(FlowFacts {
        door: origin.door,
        source: origin.source,
        destination: origin.destination,
        upstream,
        intent,
        ground,
        opened_ms: now_ms(),
    });
    let opened = still_permitted(origin, &guard.flow.intent, generation)
        .and_then(|()| origin.record_open(&guard.flow, local).map_err(plain_denial));
    (guard, opened)
}

/// Writes down how a registered flow ended, or that it was denied after all.
pub(crate) fn record_end(
    origin: &Origin,
    flow: &Flow,
    opened: Result<(), Denial>,
    notes: Notes,
    end: &End,
) {
    if let End::Denied(refusal) = end {
        origin.record_denial(&flow.intent, &refusal.denial, refusal.heard.clone());
    }
    match opened {
        Ok(()) => origin.record_close(flow, notes, end, now_ms()),
        Err(denial) => origin.record_denial(&flow.intent, &denial, None),
    }
}

fn still_permitted(origin: &Origin, intent: &Intent, generation: Generation) -> Result<(), Denial> {
    if origin.network.ended.is_cancelled() {
        return Err(plain_denial(Reason::RunEnded));
    }
    if !origin.ctx.may_pass(&origin.network) {
        return Err(plain_denial(Reason::GatewaySealed));
    }
    if origin.network.live.load().generation == generation {
        return Ok(());
    }
    match decide(&origin.network, intent) {
        Connect::Dial(_) => Ok(()),
        Connect::Deny(denial) => Err(denial),
        Connect::LookUp(_) | Connect::Hear(_) => Err(plain_denial(Reason::PolicySuperseded)),
    }
}

async fn converse(
    lane: Lane<'_>,
    client: &TcpStream,
    server: &TcpStream,
    early: Early,
    notes: &mut Notes,
) -> End {
    match lane.flow.ground.speaks() {
        Speaks::Http => Box::pin(relay::http::run(lane, client, server, early, notes)).await,
        Speaks::Tls | Speaks::Any => relay::stream::run(lane, client, server, early, notes).await,
    }
}

/// Mirrors the end on both sockets.
async fn conclude(
    origin: &Origin,
    intent: &Intent,
    client: TcpStream,
    server: TcpStream,
    end: &End,
) {
    match end {
        End::ClientClosed | End::ServerClosed => {
            drop(server);
            deny::last_words(client, &[]).await;
        }
        End::Reset | End::Idle | End::Cause(_) => {
            reset(&server);
            reset(&client);
        }
        End::Denied(refusal) => {
            reset(&server);
            drop(server);
            say(origin, intent, client, refusal).await;
        }
    }
}

async fn say(origin: &Origin, intent: &Intent, client: TcpStream, refusal: &Refusal) {
    let destination = destination_text(intent, refusal.heard.as_deref());
    deny::say(client, refusal, &destination, explain(origin)).await;
}

/// Whether this network's denials explain themselves.
pub(crate) fn explain(origin: &Origin) -> Explain {
    if origin.network.live.load().explain {
        Explain::Yes
    } else {
        Explain::No
    }
}

/// Writes down why nothing was dialled.
pub(crate) fn record_unreached(origin: &Origin, intent: &Intent, why: &Unreached) {
    match why {
        Unreached::Denied(denial, seen) => {
            let heard = seen.as_ref().and_then(|seen| relay::heard(&seen.evidence));
            origin.record_denial(intent, denial, heard);
        }
        Unreached::Cause(reason) => origin.record_denial(intent, &plain_denial(*reason), None),
        Unreached::Failed(failed) => origin.record_failure(intent, failed),
        Unreached::Gone => {}
    }
}

/// Records why nothing was dialled and tells the client.
pub(crate) async fn refuse(accepted: Accepted, why: Unreached) {
    let Accepted {
        origin,
        client,
        intent,
        slot: _slot,
    } = accepted;
    record_unreached(&origin, &intent, &why);
    match why {
        Unreached::Denied(denial, Some(seen)) => {
            let refusal = Refusal::new(denial, seen.language, &seen.evidence);
            say(&origin, &intent, client, &refusal).await;
        }
        Unreached::Denied(_, None)
        | Unreached::Failed(..)
        | Unreached::Cause(_)
        | Unreached::Gone => reset(&client),
    }
}
