//! Both directions of a `tls` or `any` flow.
//!
//! `tls`: nothing moves until the ClientHello is read and permitted. `any`: the server is heard at once, so protocols in
//! which it speaks first are not delayed; the client's first bytes are held only as long as they may become a ClientHello
//! or a request head, whose name must agree. Where the far end speaks before the client, its permit is decided on opaque
//! bytes, and the client's bytes are still decided when they come.
//!
//! Where a name decides anything, an `any` flow whose client begins with a request turns into one that is read request by
//! request ([`super::http`]): a second request on the same connection would name whatever it likes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use netpolicy::decide::{Denial, Evidence};
use netpolicy::policy::Speaks;
use netpolicy::reason::Reason;
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout, timeout_at};

use super::lane::{End, Lane, Notes, Refusal, Way, plain_denial};
use super::pump::{Stop, finish, pump, read_onto, send, wait};
use crate::detect::{Language, Seen, Sight, Sniffer};
use crate::uplink::dial::watch_over;

/// From here on the far end's death must be noticed: its first sign would come after a minute. Five system calls that the
/// many flows of less than this do without.
const LASTING: Duration = Duration::from_secs(5);

/// Bytes that were read before the relay began, and what they are if that is known.
#[derive(Debug, Default)]
pub struct Early {
    /// Read from the client, not forwarded yet.
    pub bytes: Vec<u8>,
    /// What they are.
    pub seen: Option<Box<Seen>>,
    /// The client will send no more.
    pub ended: bool,
}

/// Runs a flow to its end.
pub async fn run(
    lane: Lane<'_>,
    client: &TcpStream,
    server: &TcpStream,
    early: Early,
    notes: &mut Notes,
) -> End {
    let (opened, open) = watch::channel(false);
    let (requests, turned) = oneshot::channel();
    let spoke = AtomicBool::new(false);
    let early = {
        let own = Upward {
            early,
            opened,
            requests,
            notes: &mut *notes,
        };
        let up = upward(&lane, client, server, own);
        let down = downward(&lane, client, server, (open, &spoke));
        tokio::select! {
            end = both((up, server), (down, client), &lane) => return end,
            end = silence(&lane, server) => return end,
            Ok(early) = turned => early,
        }
    };
    if spoke.load(Ordering::Relaxed) {
        // no HTTP server speaks first, and what of its words arrived is not known
        let refusal = Refusal::new(
            no_http_server(&lane),
            Language::Other,
            &Evidence::HttpMalformed,
        );
        return End::Denied(Box::new(refusal));
    }
    // boxed: few flows turn, and all would carry its room
    Box::pin(super::http::run(lane, client, server, early, notes)).await
}

/// A request to a server that spoke first: denied where the entry that permits the flow says what may be spoken.
fn no_http_server(lane: &Lane<'_>) -> Denial {
    let plain = plain_denial(Reason::HttpMalformed);
    match lane.flow.ground.rules().last() {
        Some((layer, policy, at)) => Denial {
            layer: Some(*layer),
            policy: Some(policy.clone()),
            rule: Some(at.clone()),
            ..plain
        },
        None => plain,
    }
}

/// Both directions of a flow whose bytes are decided already.
pub(super) async fn pass(lane: &Lane<'_>, client: &TcpStream, server: &TcpStream) -> End {
    both(
        (pump(client, server, Way::Up, lane), server),
        (pump(server, client, Way::Down, lane), client),
        lane,
    )
    .await
}

/// Waits for both directions, each with its receiver, and mirrors how they stopped.
async fn both(
    (up, server): (impl Future<Output = Stop>, &TcpStream),
    (down, client): (impl Future<Output = Stop>, &TcpStream),
    lane: &Lane<'_>,
) -> End {
    tokio::pin!(up, down);
    let (first, way) = tokio::select! {
        stop = &mut up => (stop, Way::Up),
        stop = &mut down => (stop, Way::Down),
    };
    // the first to finish is passed on here, the second by closing
    let first = match (first, way) {
        (Stop::Finished, Way::Up) => finish(server),
        (Stop::Finished, Way::Down) => finish(client),
        (other, _) => other,
    };
    let closed = match (first, way) {
        (Stop::End(end), _) => return end,
        (Stop::ReadFailed, _) => return End::Reset,
        (Stop::WriteFailed, Way::Up) => return drain((down, client), lane).await,
        (Stop::WriteFailed, Way::Down) => return drain((up, server), lane).await,
        (Stop::Finished, Way::Up) => End::ClientClosed,
        (Stop::Finished, Way::Down) => End::ServerClosed,
    };
    let second = match way {
        Way::Up => down.await,
        Way::Down => up.await,
    };
    match second {
        Stop::Finished => closed,
        Stop::End(end) => end,
        Stop::ReadFailed | Stop::WriteFailed => End::Reset,
    }
}

/// A dead receiver may have said something before it died (an HTTP server that answers early and closes): that is
/// still delivered, then both sides are reset.
async fn drain((other, to): (impl Future<Output = Stop>, &TcpStream), lane: &Lane<'_>) -> End {
    match timeout(lane.waits.drain, other).await {
        Ok(Stop::End(end)) => return end,
        // the end of what was said, before the reset
        Ok(Stop::Finished) => drop(finish(to)),
        Ok(Stop::ReadFailed | Stop::WriteFailed) | Err(_) => {}
    }
    End::Reset
}

/// Watches over a flow that lasts, and ends one on which nothing ever moves.
async fn silence(lane: &Lane<'_>, server: &TcpStream) -> End {
    use std::sync::atomic::Ordering::Relaxed;
    let lasting = LASTING.min(lane.waits.silent);
    tokio::time::sleep(lasting).await;
    watch_over(server);
    tokio::time::sleep(lane.waits.silent.saturating_sub(lasting)).await;
    if lane.flow.up.load(Relaxed) == 0 && lane.flow.down.load(Relaxed) == 0 {
        return End::Idle;
    }
    std::future::pending().await
}

struct Upward<'n> {
    early: Early,
    opened: watch::Sender<bool>,
    /// Takes the flow away from here, to be read request by request.
    requests: oneshot::Sender<Early>,
    notes: &'n mut Notes,
}

async fn upward(
    lane: &Lane<'_>,
    client: &TcpStream,
    server: &TcpStream,
    mut own: Upward<'_>,
) -> Stop {
    let speaks = lane.flow.ground.speaks();
    let seen = match own.early.seen.take() {
        Some(seen) => *seen,
        None => match first_bytes(client, speaks, lane, &mut own.early).await {
            Ok(seen) => seen,
            Err(stop) => return stop,
        },
    };
    own.notes.hello(seen.hello.as_ref());
    if let Some(Ok(head)) = &seen.head {
        own.notes.http = Some((head.method.clone(), head.path_without_query().to_owned()));
    }
    if let Err(denial) = lane.decide(&seen.evidence) {
        return Stop::End(End::Denied(Box::new(Refusal::new(
            denial,
            seen.language,
            &seen.evidence,
        ))));
    }
    if matches!(seen.evidence, Evidence::Http { .. }) && lane.judges_each_request() {
        own.early.seen = Some(Box::new(seen));
        // nobody listens only if the flow is over, and then this is dropped with it
        let _ = own.requests.send(own.early);
        return std::future::pending().await;
    }
    let pause = match lane.count(Way::Up, own.early.bytes.len()) {
        Ok(pause) => pause,
        Err(end) => return Stop::End(end),
    };
    if send(server, &own.early.bytes).await.is_err() {
        own.opened.send_replace(true);
        return Stop::WriteFailed;
    }
    own.opened.send_replace(true);
    let ended = own.early.ended;
    drop(own);
    wait(pause).await;
    if ended {
        Stop::Finished
    } else {
        pump(client, server, Way::Up, lane).await
    }
}

/// Reads until the first bytes are known for what they are.
async fn first_bytes(
    client: &TcpStream,
    speaks: Speaks,
    lane: &Lane<'_>,
    early: &mut Early,
) -> Result<Seen, Stop> {
    let mut sniffer = Sniffer::new(speaks);
    let mut deadline = (speaks != Speaks::Any || !early.bytes.is_empty())
        .then(|| Instant::now() + lane.waits.head);
    loop {
        if !early.bytes.is_empty()
            && let Sight::Seen(seen) = sniffer.advance(&early.bytes)
        {
            return Ok(*seen);
        }
        if early.ended {
            return Ok(sniffer.give_up(&early.bytes));
        }
        let read = read_more(client, &mut early.bytes);
        let read = match deadline {
            None => read.await,
            Some(deadline) => match timeout_at(deadline, read).await {
                Ok(read) => read,
                Err(_) => return Ok(late(speaks, sniffer, &early.bytes)),
            },
        };
        match read {
            Ok(0) => early.ended = true,
            Ok(_) => deadline = deadline.or_else(|| Some(Instant::now() + lane.waits.head)),
            Err(_) => return Err(Stop::ReadFailed),
        }
    }
}

/// A `tls` flow without a whole hello in time is malformed also when nothing came.
fn late(speaks: Speaks, mut sniffer: Sniffer, bytes: &[u8]) -> Seen {
    let seen = sniffer.give_up(bytes);
    match (speaks, &seen.evidence) {
        (Speaks::Tls, Evidence::Opaque) => Seen {
            evidence: Evidence::TlsMalformed,
            language: Language::Other,
            ..seen
        },
        _ => seen,
    }
}

/// Appends what one read gives.
pub(crate) async fn read_more(stream: &TcpStream, bytes: &mut Vec<u8>) -> std::io::Result<usize> {
    loop {
        stream.readable().await?;
        match read_onto(stream, bytes, 4096) {
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted
                ) => {}
            read => return read,
        }
    }
}

async fn downward(
    lane: &Lane<'_>,
    client: &TcpStream,
    server: &TcpStream,
    (mut open, spoke): (watch::Receiver<bool>, &AtomicBool),
) -> Stop {
    let speaks_first = async {
        match lane.flow.ground.speaks() {
            Speaks::Tls | Speaks::Http => std::future::pending().await,
            Speaks::Any => server.peek(&mut [0]).await.map(drop),
        }
    };
    let permitted = async {
        // the sender lives in `upward`: when it is gone the flow is over
        open.wait_for(|open| *open).await.is_ok()
    };
    tokio::pin!(permitted);
    let first = tokio::select! {
        biased;
        open = &mut permitted => if open { None } else { return std::future::pending().await },
        readable = speaks_first => Some(readable),
    };
    match first {
        None => {}
        Some(Err(_)) => return Stop::ReadFailed,
        // nothing of the client is known yet; if that does not suffice, its bytes must come first
        Some(Ok(())) if lane.decide_opaque().is_ok() || permitted.await => {}
        Some(Ok(())) => return std::future::pending().await,
    }
    spoke.store(true, Ordering::Relaxed);
    pump(server, client, Way::Down, lane).await
}
