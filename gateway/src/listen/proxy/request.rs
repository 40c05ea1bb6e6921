//! Absolute-form requests: each is decided by itself; one upstream connection at a time, kept while its host stays.

use std::sync::atomic::Ordering;

use netpolicy::decide::{Destination, Heard, Intent};
use netpolicy::reason::Reason;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::{Visit, asked_for, malformed, unreached};
use crate::context::now_ms;
use crate::detect::Head;
use crate::detect::http::{HeadError, Target};
use crate::limits::FlowSlot;
use crate::listen::flow::{self, Origin, Reach, Unreached, explain, unless_ended};
use crate::network::flows::FlowGuard;
use crate::relay::http::exchange::{Exchange, Next};
use crate::relay::http::onward::{origin_form, without_offers};
use crate::relay::http::{Reader, read_head};
use crate::relay::{Answer, End, Lane, Notes, Refusal, destination_text, plain_denial, reset};
use crate::uplink::dial::watch_over;

/// An open upstream connection and the flow it is.
#[derive(Debug)]
struct Upstream {
    stream: TcpStream,
    guard: FlowGuard,
    notes: Notes,
    destination: (netpolicy::name::Host, u16),
}

/// The place among the network's flows that this client holds.
#[derive(Debug)]
struct Place {
    slot: Option<FlowSlot>,
    used: bool,
}

/// What is said to the client, or nothing if the exchange said it all.
type Last = Option<Vec<u8>>;

/// Serves requests until the client or a decision ends it; the result is sent as last words.
pub(super) async fn run(visit: Visit, client: &mut Reader<'_>, first: Head) -> Last {
    let Visit { origin, slot } = visit;
    let mut place = Place {
        slot: Some(slot),
        used: false,
    };
    let mut upstream = None;
    let mut head = first;
    let last = loop {
        match one(&origin, client, &head, (&mut upstream, &mut place)).await {
            Ok(()) => {}
            Err(last) => break last,
        }
        match next(&origin, client, &mut upstream).await {
            Ok(following) => head = following,
            Err(last) => break last,
        }
    };
    if let Some(upstream) = upstream {
        let end = upstream
            .guard
            .flow
            .cause()
            .map_or(End::ClientClosed, End::Cause);
        close(&origin, upstream, &end);
    }
    last
}

/// Waits for the next request; meanwhile the upstream flow can be ended from outside.
async fn next(
    origin: &Origin,
    client: &mut Reader<'_>,
    upstream: &mut Option<Upstream>,
) -> Result<Head, Last> {
    if client.ahead.is_empty() {
        let ended = &origin.network.ended;
        let filled = match upstream.as_ref().map(|u| u.guard.flow.clone()) {
            None => unless_ended(ended, client.fill()).await.unwrap_or(Ok(0)),
            Some(flow) => tokio::select! {
                () = flow.cut.cancelled() => Ok(0),
                filled = client.fill() => filled,
            },
        };
        if !matches!(filled, Ok(1..)) {
            return Err(None);
        }
    }
    match read_head(client, Instant::now() + origin.waits.head).await {
        Ok(Some(head)) => Ok(head),
        Ok(None) => Err(None),
        Err(why) => Err(Some(malformed(why))),
    }
}

/// Decides and serves one request.
async fn one(
    origin: &Origin,
    client: &mut Reader<'_>,
    head: &Head,
    (upstream, place): (&mut Option<Upstream>, &mut Place),
) -> Result<(), Last> {
    let Target::Absolute { authority, .. } = &head.target else {
        return Err(Some(malformed(HeadError::Malformed("not a proxy request"))));
    };
    let destination = (authority.host.clone(), authority.port.unwrap_or(80));
    let kept = upstream
        .take()
        .and_then(|kept| keep(origin, kept, &destination));
    let mut current = match kept {
        Some(kept) => kept,
        None => connect(origin, destination, place).await?,
    };
    client.consume(head.length);
    let ended = exchange(origin, client, head, &mut current).await;
    match ended {
        None => *upstream = Some(current),
        Some(end) => {
            let intent = current.guard.flow.intent.clone();
            let last = if let End::Denied(refusal) = &end {
                Some(denied(origin, &intent, refusal))
            } else {
                None
            };
            close(origin, current, &end);
            return Err(last);
        }
    }
    Ok(())
}

fn denied(origin: &Origin, intent: &Intent, refusal: &Refusal) -> Vec<u8> {
    origin.record_denial(intent, &refusal.denial, refusal.heard.clone());
    let destination = destination_text(intent, refusal.heard.as_deref());
    let (status, denial) = (refusal.status, &refusal.denial);
    let answer = Answer {
        status,
        error: "egress_denied",
        denial,
        destination: &destination,
        explain: explain(origin),
    };
    answer.render()
}

/// The kept connection, if it leads to the same place and its far end is silent and there.
fn keep(
    origin: &Origin,
    kept: Upstream,
    destination: &(netpolicy::name::Host, u16),
) -> Option<Upstream> {
    let silent = || matches!(kept.stream.try_read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock);
    if kept.destination == *destination && silent() && !kept.guard.flow.cut.is_cancelled() {
        return Some(kept);
    }
    close(origin, kept, &End::ClientClosed);
    None
}

async fn connect(
    origin: &Origin,
    destination: (netpolicy::name::Host, u16),
    place: &mut Place,
) -> Result<Upstream, Last> {
    let (mut intent, counted) = asked_for(origin, &destination.0, destination.1);
    let budget = counted.and_then(|()| admit(origin, place));
    let fail = |intent: &Intent, why: &Unreached| {
        flow::record_unreached(origin, intent, why);
        unreached(origin, why, &destination_text(intent, None))
    };
    if let Err(reason) = budget {
        return Err(fail(
            &intent,
            &Unreached::Denied(plain_denial(reason), None),
        ));
    }
    let mut reached = flow::reach(origin, &mut intent).await;
    if let (Ok(Reach::Hear(_)), Destination::Address { heard, .. }) = (&reached, &mut intent.to) {
        // the request names the bare address: there is no name to hear
        *heard = Heard::Nothing;
        reached = flow::reach(origin, &mut intent).await;
    }
    let (dialled, generation) = match reached {
        Ok(Reach::Dialled(dialled, generation)) => (dialled, generation),
        Ok(Reach::Hear(_)) => {
            let why = Unreached::Denied(plain_denial(Reason::AddressNotAllowed), None);
            return Err(fail(&intent, &why));
        }
        Err(why) => return Err(fail(&intent, &why)),
    };
    watch_over(&dialled.stream);
    let local = Some(dialled.local);
    let (guard, opened) = flow::open(
        origin,
        intent,
        (dialled.upstream, dialled.ground),
        generation,
        local,
    );
    if let Err(denial) = opened {
        return Err(fail(&guard.flow.intent, &Unreached::Denied(denial, None)));
    }
    guard.flow.reads_requests.store(true, Ordering::Relaxed);
    Ok(Upstream {
        stream: dialled.stream,
        guard,
        notes: Notes::default(),
        destination,
    })
}

/// The first connection uses the place that the client's own connection has; every further one is a new flow.
fn admit(origin: &Origin, place: &mut Place) -> Result<(), Reason> {
    if !origin.ctx.may_pass(&origin.network) {
        return Err(Reason::GatewaySealed);
    }
    if std::mem::replace(&mut place.used, true) {
        place.slot = None;
        place.slot = Some(origin.network.ledger.admit(&origin.ctx.ceilings)?);
    }
    Ok(())
}

/// Decides on the request's own words and, if they are permitted, has it answered. `None`: another request may follow.
async fn exchange(
    origin: &Origin,
    client: &mut Reader<'_>,
    head: &Head,
    upstream: &mut Upstream,
) -> Option<End> {
    let flow = upstream.guard.flow.clone();
    let lane = Lane {
        ctx: &origin.ctx,
        network: &origin.network,
        flow: &flow,
        waits: origin.waits,
    };
    let evidence = head.evidence();
    if let Err(denial) = lane.decide(&evidence) {
        return Some(End::Denied(Box::new(Refusal::new(
            denial,
            crate::detect::Language::Http,
            &evidence,
        ))));
    }
    upstream.notes.http = Some((head.method.clone(), head.path_without_query().to_owned()));
    let raw = origin_form(head);
    let plain = without_offers(head);
    let exchange = Exchange {
        lane: &lane,
        head: &plain,
        raw: &raw,
    };
    let mut server = Reader::new(&upstream.stream);
    let next = tokio::select! {
        biased;
        () = flow.cut.cancelled() => Next::End(End::Cause(flow.cause().unwrap_or(Reason::RunEnded))),
        next = exchange.run(client, &mut server) => next,
    };
    match next {
        Next::Request if server.ahead.is_empty() && !server.ended => None,
        Next::Request => Some(End::ServerClosed),
        Next::Switched => Some(End::Reset),
        Next::End(end) => {
            if matches!(end, End::Reset | End::Cause(_)) {
                reset(client.stream);
            }
            Some(end)
        }
    }
}

fn close(origin: &Origin, upstream: Upstream, end: &End) {
    origin.record_close(&upstream.guard.flow, upstream.notes, end, now_ms());
    if matches!(end, End::Reset | End::Cause(_) | End::Denied(_)) {
        reset(&upstream.stream);
    }
}
