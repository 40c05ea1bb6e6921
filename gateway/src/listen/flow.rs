//! The life of one TCP flow after a door accepted it: hear, route, dial, register, record, relay, end, record.

use std::net::SocketAddr;
use std::sync::Arc;

use netpolicy::decide::{Connect, Denial, Destination, Evidence, Heard, Intent};
use netpolicy::ids::Generation;
use netpolicy::name::Host;
use netpolicy::policy::Speaks;
use netpolicy::reason::Reason;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::deny::{self, Explain};
use super::record::destination_text;
use super::route::{Route, decide, route};
use crate::context::{Context, now_ms};
use crate::detect::{Seen, Sight, Sniffer};
use crate::limits::FlowSlot;
use crate::network::Network;
use crate::network::flows::{Door, FlowFacts, FlowGuard};
use crate::relay::{self, Early, End, Lane, Notes, Refusal, Waits, plain_denial, reset};
use crate::uplink::dial::{DialError, Dialled};

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

/// Why nothing was dialled.
#[derive(Debug)]
pub(crate) enum Unreached {
    /// A decision; with what the client had said.
    Denied(Denial, Option<Box<Seen>>),
    /// The destination failed; with the kernel's word, if it was the kernel that said so.
    Failed(Reason, Option<i32>),
    /// The client is gone.
    Gone,
    /// The run or the gateway ended it.
    Cause(Reason),
}

impl From<DialError> for Unreached {
    fn from(error: DialError) -> Self {
        match error.reason() {
            reason @ (Reason::AddressHost | Reason::LimitFlows) => {
                Self::Denied(plain_denial(reason), None)
            }
            reason => Self::Failed(reason, error.source.raw_os_error()),
        }
    }
}

/// Routes and dials, unless the run ends meanwhile.
pub(crate) async fn reach(origin: &Origin, intent: &mut Intent) -> Result<Reach, Unreached> {
    let ended = &origin.network.ended;
    unless_ended(ended, route_and_dial(origin, intent))
        .await
        .unwrap_or(Err(Unreached::Cause(Reason::RunEnded)))
}

/// `None` when the run ended first. Only for what has no record to close.
pub(crate) async fn unless_ended<T>(
    ended: &CancellationToken,
    act: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        () = ended.cancelled() => None,
        done = act => Some(done),
    }
}

async fn route_and_dial(origin: &Origin, intent: &mut Intent) -> Result<Reach, Unreached> {
    // before deciding: a policy that is replaced from here on is decided again
    let generation = origin.network.live.load().generation;
    match route(&origin.ctx, &origin.network, intent).await {
        Route::Dial(permit) => Ok(Reach::Dialled(
            Box::new(origin.ctx.dialer.dial(permit).await?),
            generation,
        )),
        Route::Hear(speaks) => Ok(Reach::Hear(speaks)),
        Route::Deny(denial) => Err(Unreached::Denied(denial, None)),
        Route::Unresolvable => Err(Unreached::Failed(Reason::NameUnresolvable, None)),
    }
}

/// Reads the client's first bytes, decides again with what they say, and dials.
async fn hear(
    accepted: &mut Accepted,
    speaks: Speaks,
    early: &mut Early,
) -> Result<(Dialled, Generation), Unreached> {
    let waits = accepted.origin.waits;
    let mut sniffer = Sniffer::new(speaks);
    let began = Instant::now();
    if speaks == Speaks::Any {
        let seen = first_bytes(&accepted.client, &mut sniffer, early, began + waits.hear).await?;
        // silence: a protocol in which the server speaks first, if no name is needed
        if seen.is_none() && early.bytes.is_empty() && !early.ended {
            set_heard(&mut accepted.intent, Heard::Nothing);
            if let Ok(dialled) = dial_heard(accepted).await {
                return Ok(dialled);
            }
        }
        early.seen = seen;
    }
    if early.seen.is_none() {
        let seen = first_bytes(&accepted.client, &mut sniffer, early, began + waits.head).await?;
        early.seen = Some(seen.unwrap_or_else(|| Box::new(sniffer.give_up(&early.bytes))));
    }
    let Some(seen) = early.seen.clone() else {
        return Err(Unreached::Gone);
    };
    let heard = heard_in(&seen.evidence)
        .map_err(|reason| Unreached::Denied(plain_denial(reason), Some(seen.clone())))?;
    set_heard(&mut accepted.intent, heard);
    dial_heard(accepted).await.map_err(|why| match why {
        Unreached::Denied(denial, None) => Unreached::Denied(denial, Some(seen)),
        why => why,
    })
}

async fn dial_heard(accepted: &mut Accepted) -> Result<(Dialled, Generation), Unreached> {
    match reach(&accepted.origin, &mut accepted.intent).await? {
        Reach::Dialled(dialled, generation) => Ok((*dialled, generation)),
        // everything that could be heard was
        Reach::Hear(_) => Err(Unreached::Denied(
            plain_denial(Reason::AddressNotAllowed),
            None,
        )),
    }
}

/// Reads until the bytes are known for what they are; `None` when the time is up.
async fn first_bytes(
    client: &TcpStream,
    sniffer: &mut Sniffer,
    early: &mut Early,
    due: Instant,
) -> Result<Option<Box<Seen>>, Unreached> {
    loop {
        if !early.bytes.is_empty()
            && let Sight::Seen(seen) = sniffer.advance(&early.bytes)
        {
            return Ok(Some(seen));
        }
        if early.ended {
            return Ok(None);
        }
        match timeout_at(due, relay::read_more(client, &mut early.bytes)).await {
            Ok(Ok(0)) => early.ended = true,
            Ok(Ok(_)) => {}
            Ok(Err(_)) => return Err(Unreached::Gone),
            Err(_) => return Ok(None),
        }
    }
}

/// The name that bytes carry, for the decision on a bare address. Malformed bytes are denied before anything is dialled.
fn heard_in(evidence: &Evidence) -> Result<Heard, Reason> {
    let name = match evidence {
        Evidence::Tls { name } => name.clone(),
        Evidence::Http {
            host: Some(Host::Name(name)),
            ..
        } => Some(name.clone()),
        Evidence::Http { .. } | Evidence::Opaque => None,
        Evidence::TlsMalformed => return Err(Reason::TlsMalformed),
        Evidence::HttpMalformed => return Err(Reason::HttpMalformed),
    };
    Ok(name.map_or(Heard::Nothing, |name| Heard::Name {
        name,
        answers: None,
    }))
}

fn set_heard(intent: &mut Intent, said: Heard) {
    if let Destination::Address { heard, .. } = &mut intent.to {
        *heard = said;
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
        let lane = Lane {
            ctx: &origin.ctx,
            network: &origin.network,
            flow: &flow,
            waits: origin.waits,
        };
        tokio::select! {
            biased;
            () = flow.cut.cancelled() => End::Cause(flow.cause().unwrap_or(Reason::RunEnded)),
            end = converse(lane, &client, &server, early, &mut notes) => end,
        }
    };
    if let End::Denied(refusal) = &end {
        origin.record_denial(&flow.intent, &refusal.denial, refusal.heard.clone());
    }
    match opened {
        Ok(()) => origin.record_close(&flow, notes, &end, now_ms()),
        Err(denial) => origin.record_denial(&flow.intent, &denial, None),
    }
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

fn still_permitted(origin: &Origin, intent: &Intent, generation: Generation) -> Result<(), Denial> {
    if origin.network.ended.is_cancelled() {
        return Err(plain_denial(Reason::RunEnded));
    }
    if !*origin.ctx.open.borrow() {
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
        Unreached::Failed(reason, _) => origin.record_failure(intent, *reason),
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
