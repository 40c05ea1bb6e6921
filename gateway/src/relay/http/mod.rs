//! HTTP/1 in user space: each request head is read, decided, forwarded as it came; then its body and the response.
//!
//! One exchange at a time: what a client sends ahead waits until the response is through, so a second request never rides
//! in the body of the first, and the connection turns into a plain pass only after the server said 101 to an offer that was
//! checked. A client that begins with HTTP/2 is read by [`super::http2`]. An offer of `h2c` is not sent onward (clients such as Java's make it with every first request, and take an
//! HTTP/1 answer) and CONNECT is not for origins: both would carry requests nobody reads.

mod body;
pub(crate) mod exchange;
pub(crate) mod onward;

use std::sync::atomic::Ordering;

use netpolicy::reason::Reason;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use super::lane::{End, Lane, Notes, Refusal, Way, plain_denial};
use super::stream::{Early, pass, read_more};
use crate::detect::http::{Framing, HeadError, Target};
use crate::detect::{Head, HeadReader, Language, Seen, Sight, Sniffer};
use crate::uplink::dial::watch_over;
use exchange::{Exchange, Next};
use netpolicy::decide::Evidence;
use netpolicy::policy::Speaks;

/// One direction's receiving end: the socket and what was read ahead.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    pub(crate) stream: &'a TcpStream,
    pub(crate) ahead: Vec<u8>,
    pub(crate) ended: bool,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(stream: &'a TcpStream) -> Self {
        Self {
            stream,
            ahead: Vec::new(),
            ended: false,
        }
    }

    /// Reads on; 0 at the end.
    pub(crate) async fn fill(&mut self) -> std::io::Result<usize> {
        if self.ended {
            return Ok(0);
        }
        let read = read_more(self.stream, &mut self.ahead).await?;
        self.ended = read == 0;
        Ok(read)
    }

    /// Takes bytes off the front; an empty buffer gives its memory back, for idle connections hold none.
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.ahead.drain(..bytes.min(self.ahead.len()));
        if self.ahead.is_empty() {
            self.ahead = Vec::new();
        }
    }
}

/// Runs a flow to its end.
pub async fn run(
    lane: Lane<'_>,
    client: &TcpStream,
    server: &TcpStream,
    early: Early,
    notes: &mut Notes,
) -> End {
    watch_over(server);
    lane.flow.reads_requests.store(true, Ordering::Relaxed);
    let mut from_client = Reader {
        stream: client,
        ahead: early.bytes,
        ended: early.ended,
    };
    let mut from_server = Reader::new(server);
    let mut first = early.seen;
    let mut is_first = true;
    loop {
        let seen = match first.take() {
            Some(seen) => *seen,
            None => match next_request(&lane, &mut from_client, &mut from_server, is_first).await {
                Ok(seen) => seen,
                Err(end) => return end,
            },
        };
        if is_first && matches!(seen.head, Some(Err(HeadError::Http2))) {
            let early = Early {
                bytes: from_client.ahead,
                seen: None,
                ended: from_client.ended,
            };
            // boxed: few flows speak it, and all would carry its room
            return Box::pin(super::http2::run(lane, client, server, early, notes)).await;
        }
        is_first = false;
        let head = match permit(&lane, &seen) {
            Ok(head) => head,
            Err(end) => return end,
        };
        notes.http = Some((head.method.clone(), head.path_without_query().to_owned()));
        let raw = from_client
            .ahead
            .get(..head.length)
            .unwrap_or_default()
            .to_vec();
        from_client.consume(head.length);
        let (plain, stripped);
        let (head, raw) = if offers_h2c(head) {
            (plain, stripped) = (onward::without_offers(head), onward::origin_form(head));
            (&plain, &stripped)
        } else {
            (head, &raw)
        };
        let exchange = Exchange {
            lane: &lane,
            head,
            raw,
        };
        match exchange.run(&mut from_client, &mut from_server).await {
            Next::Request => {}
            Next::Switched => return switch(&lane, from_client, from_server).await,
            Next::End(end) => return end,
        }
    }
}

/// Decides one request.
fn permit<'s>(lane: &Lane<'_>, seen: &'s Seen) -> Result<&'s Head, End> {
    let refuse = |denial| {
        End::Denied(Box::new(Refusal::new(
            denial,
            seen.language,
            &seen.evidence,
        )))
    };
    lane.decide(&seen.evidence)
        .map_err(|denial| match &seen.head {
            Some(Err(error)) => {
                refused_head(Refusal::new(denial, seen.language, &seen.evidence), *error)
            }
            Some(Ok(_)) | None => refuse(denial),
        })?;
    let Some(Ok(head)) = &seen.head else {
        return Err(refuse(plain_denial(Reason::HttpMalformed)));
    };
    if matches!(head.target, Target::Authority(_)) {
        return Err(refuse(plain_denial(Reason::ProtocolNotAllowed)));
    }
    Ok(head)
}

/// Prefixes count, too: some servers take `h2c-14` for what it was once a draft of.
fn offers_h2c(head: &Head) -> bool {
    head.upgrade
        .iter()
        .any(|protocol| protocol.starts_with("h2"))
}

/// The status that says what is wrong with a head.
pub(crate) fn status_of(error: HeadError) -> u16 {
    match error {
        HeadError::Malformed(_) | HeadError::Http2 => 400,
        HeadError::TooLong => 431,
        HeadError::Expectation => 417,
    }
}

/// A body whose end cannot be found for certain: nothing after it is read as a request.
fn malformed_body() -> Refusal {
    let denial = plain_denial(Reason::HttpMalformed);
    Refusal {
        status: 400,
        ..Refusal::new(denial, Language::Http, &Evidence::HttpMalformed)
    }
}

fn refused_head(refusal: Refusal, error: HeadError) -> End {
    End::Denied(Box::new(Refusal {
        status: status_of(error),
        ..refusal
    }))
}

/// Waits for a request. Between requests there is no limit; once a head has begun it is due.
async fn next_request(
    lane: &Lane<'_>,
    client: &mut Reader<'_>,
    server: &mut Reader<'_>,
    is_first: bool,
) -> Result<Seen, End> {
    if !is_first && !server.ahead.is_empty() {
        return Err(unasked(lane, client, server).await);
    }
    if client.ahead.is_empty() && !is_first {
        tokio::select! {
            biased;
            read = client.fill() => match read {
                Ok(0) => return Err(End::ClientClosed),
                Ok(_) => {}
                Err(_) => return Err(End::Reset),
            },
            // the server closes an idle connection, or says so with a 408: either way no request follows
            () = speaks(server) => return Err(unasked(lane, client, server).await),
        }
    }
    let due = Instant::now() + lane.waits.head;
    let mut sniffer = Sniffer::new(Speaks::Http);
    loop {
        if !client.ahead.is_empty()
            && let Sight::Seen(seen) = sniffer.advance(&client.ahead)
        {
            return Ok(*seen);
        }
        match timeout_at(due, client.fill()).await {
            Ok(Ok(0)) if client.ahead.is_empty() => return Err(End::ClientClosed),
            Ok(Ok(0)) | Err(_) => return Ok(cut_short(sniffer, &client.ahead)),
            Ok(Ok(_)) => {}
            Ok(Err(_)) => return Err(End::Reset),
        }
    }
}

async fn speaks(server: &Reader<'_>) {
    if server.ahead.is_empty() && !server.ended {
        // an error is met by the read that follows
        // (a readiness may be stale, a peek is not)
        drop(server.stream.peek(&mut [0]).await);
    }
}

fn cut_short(mut sniffer: Sniffer, bytes: &[u8]) -> Seen {
    match sniffer.give_up(bytes) {
        // silence where a head is due is not an opaque protocol
        seen if seen.evidence == Evidence::Opaque => Seen {
            evidence: Evidence::HttpMalformed,
            language: Language::Http,
            ..seen
        },
        seen => seen,
    }
}

/// Bytes or the end from a server that was not asked (a 408, a stray line end): passed on, then the connection is closed,
/// for the next response could not be told from them.
async fn unasked(lane: &Lane<'_>, client: &Reader<'_>, server: &mut Reader<'_>) -> End {
    let rest = body::body(server, client.stream, Framing::UntilClose, Way::Down, lane);
    match timeout(lane.waits.unasked, rest).await {
        Ok(Err(body::Break::End(end))) => end,
        Ok(Err(_)) => End::Reset,
        Ok(Ok(())) | Err(_) => End::ServerClosed,
    }
}

/// After 101 both sides speak what they agreed on.
pub(crate) async fn switch(lane: &Lane<'_>, client: Reader<'_>, server: Reader<'_>) -> End {
    let ahead = [
        (Way::Up, server.stream, client.ahead, client.ended),
        (Way::Down, client.stream, server.ahead, server.ended),
    ];
    for (way, to, bytes, ended) in ahead {
        match lane.count(way, bytes.len()) {
            Ok(pause) => super::pump::wait(pause).await,
            Err(end) => return end,
        }
        if super::send(to, &bytes).await.is_err() {
            return End::Reset;
        }
        if ended {
            drop(super::pump::finish(to));
        }
    }
    pass(lane, client.stream, server.stream).await
}

/// Reads one request head for the explicit proxy, which decides it itself.
pub(crate) async fn read_head(
    client: &mut Reader<'_>,
    due: Instant,
) -> Result<Option<Head>, HeadError> {
    let mut reader = HeadReader::default();
    loop {
        if !client.ahead.is_empty()
            && let Some(head) = reader.advance(&client.ahead)?
        {
            return Ok(Some(head));
        }
        match timeout_at(due, client.fill()).await {
            Ok(Ok(0) | Err(_)) if client.ahead.is_empty() => return Ok(None),
            Ok(Ok(0) | Err(_)) | Err(_) => return Err(HeadError::Malformed("it ended early")),
            Ok(Ok(_)) => {}
        }
    }
}
