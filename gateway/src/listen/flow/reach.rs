//! From an intent to an open upstream connection, or to why there is none: route, dial, and hear first where only the
//! client's bytes can tell where it may go.
//!
//! Invariant: nothing is dialled without a permit, and malformed bytes are denied before anything is dialled.

use std::net::SocketAddr;

use netpolicy::decide::{Connect, Denial, Destination, Evidence, Heard, Intent};
use netpolicy::ids::Generation;
use netpolicy::name::Host;
use netpolicy::policy::Speaks;
use netpolicy::reason::Reason;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{Accepted, Origin, Reach};
use crate::detect::{Seen, Sight, Sniffer};
use crate::listen::route::{Route, decide, route_on};
use crate::relay::{self, Early, plain_denial};
use crate::uplink::dial::{DialError, Dialled};

/// Why nothing was dialled.
#[derive(Debug)]
pub(crate) enum Unreached {
    /// A decision; with what the client had said.
    Denied(Denial, Option<Box<Seen>>),
    /// The destination failed.
    Failed(Failed),
    /// The client is gone.
    Gone,
    /// The run or the gateway ended it.
    Cause(Reason),
}

/// A permitted destination that could not be reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed {
    /// How.
    pub reason: Reason,
    /// The kernel's word, if it was the kernel that said so.
    pub errno: Option<i32>,
    /// Whom was tried last; nobody where the name has no address.
    pub tried: Option<SocketAddr>,
}

impl Unreached {
    /// The name is permitted, and it has no address now.
    pub(crate) fn unresolvable() -> Self {
        Self::Failed(Failed {
            reason: Reason::NameUnresolvable,
            errno: None,
            tried: None,
        })
    }
}

impl From<DialError> for Unreached {
    fn from(error: DialError) -> Self {
        match error.reason() {
            reason @ (Reason::AddressHost | Reason::LimitFlows) => {
                Self::Denied(plain_denial(reason), None)
            }
            reason => Self::Failed(Failed {
                reason,
                errno: error.source.raw_os_error(),
                tried: error.tried,
            }),
        }
    }
}

/// What the intent alone led to, and under which policy.
#[derive(Debug)]
pub(crate) struct Decided {
    /// Of the policy that decided, or of one before it.
    pub generation: Generation,
    /// What it decided.
    pub connect: Connect,
}

impl Decided {
    /// Decides now.
    pub(crate) fn now(origin: &Origin, intent: &Intent) -> Self {
        Self {
            // before deciding: a policy that is replaced from here on is decided again
            generation: origin.network.live.load().generation,
            connect: decide(&origin.network, intent),
        }
    }
}

/// Decides, routes and dials, unless the run ends meanwhile.
pub(crate) async fn reach(origin: &Origin, intent: &mut Intent) -> Result<Reach, Unreached> {
    let decided = Decided::now(origin, intent);
    reach_on(origin, intent, decided).await
}

/// Routes on from a decision and dials, unless the run ends meanwhile.
pub(crate) async fn reach_on(
    origin: &Origin,
    intent: &mut Intent,
    decided: Decided,
) -> Result<Reach, Unreached> {
    let ended = &origin.network.ended;
    unless_ended(ended, route_and_dial(origin, intent, decided))
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

async fn route_and_dial(
    origin: &Origin,
    intent: &mut Intent,
    Decided {
        generation,
        connect,
    }: Decided,
) -> Result<Reach, Unreached> {
    match route_on(&origin.ctx, &origin.network, intent, connect).await {
        Route::Dial(permit) => Ok(Reach::Dialled(
            Box::new(origin.ctx.dialer.dial(permit).await?),
            generation,
        )),
        Route::Hear(speaks) => Ok(Reach::Hear(speaks)),
        Route::Deny(denial) => Err(Unreached::Denied(denial, None)),
        Route::Unresolvable => Err(Unreached::unresolvable()),
    }
}

/// Reads the client's first bytes, decides again with what they say, and dials.
pub(super) async fn hear(
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
