//! HTTP/2 in the clear, of a client that begins with it (RFC 9113 3.3): each request is read, decided and carried, many
//! at a time.
//!
//! The gateway is the server of the sandbox's connection and a client of the far end: header compression, windows and
//! resets of one never reach the other. Nothing is sent upstream before the first request is permitted. A denied request
//! gets its answer on its own stream and ends the flow, as in HTTP/1. Windows bound what a flow holds in memory.

mod carry;
pub mod request;
mod side;

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use h2::client::SendRequest;
use h2::server::SendResponse;
use h2::{RecvStream, client, server};
use http::{Request, Response};
use netpolicy::decide::Evidence;
use netpolicy::reason::Reason;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::answer::{Answer, Explain, destination_text};
use super::lane::{End, Lane, Notes, Refusal, Way, plain_denial};
use super::stream::Early;
use crate::detect::Language;
use carry::{Unsent, carry};
use request::Odd;
use side::Side;

/// Requests at a time on one connection; the least that RFC 9113 6.5.2 recommends.
const MOST_STREAMS: u32 = 100;
/// What one side may have sent and the other not yet taken, per connection, in bytes.
const WINDOW: u32 = 256 * 1024;
/// Longest list of header fields, in bytes as RFC 9113 6.5.2 counts them.
const MOST_FIELDS: u32 = 64 * 1024;

/// Runs a flow whose first bytes are HTTP/2's preface to its end.
pub async fn run(
    lane: Lane<'_>,
    client: &TcpStream,
    server: &TcpStream,
    early: Early,
    notes: &mut Notes,
) -> End {
    lane.flow.reads_requests.store(true, Ordering::Relaxed);
    let over = OnceLock::new();
    let below = Side::new(client, early.bytes, Way::Up, (lane, &over));
    let above = Side::new(server, Vec::new(), Way::Down, (lane, &over));
    let end = serve(&lane, below, above, notes).await;
    over.into_inner().unwrap_or(end)
}

type Below<'a> = server::Connection<Side<'a>, Bytes>;
type Asked = (Request<RecvStream>, SendResponse<Bytes>);

async fn serve<'a>(lane: &Lane<'a>, below: Side<'a>, above: Side<'a>, notes: &mut Notes) -> End {
    let Ok(Ok(mut below)) = timeout(lane.waits.head, server_settings().handshake(below)).await
    else {
        return End::Reset;
    };
    let mut said = Said::default();
    let first = match below.accept().await {
        Some(Ok(first)) => first,
        Some(Err(_)) => return End::Reset,
        None => return End::ClientClosed,
    };
    let first = match said.permit(lane, first, notes) {
        Ok(first) => first,
        Err((refusal, respond)) => return refuse(lane, below, *refusal, respond).await,
    };
    let Ok((upstream, above)) = client_settings().handshake(above).await else {
        return End::Reset;
    };
    tokio::pin!(above);
    let mut streams = FuturesUnordered::new();
    streams.push(stream(&upstream, first));
    let mut ended = None;
    loop {
        if let Some(end) = &ended
            && streams.is_empty()
        {
            return closed(lane, below, End::clone(end)).await;
        }
        tokio::select! {
            asked = below.accept() => match asked {
                None => return End::ClientClosed,
                Some(Err(_)) => return End::Reset,
                Some(Ok((_, mut respond))) if ended.is_some() => respond.send_reset(h2::Reason::REFUSED_STREAM),
                Some(Ok(asked)) => match said.permit(lane, asked, notes) {
                    Ok(asked) => streams.push(stream(&upstream, asked)),
                    Err((refusal, respond)) => {
                        drop(streams);
                        return refuse(lane, below, *refusal, respond).await;
                    }
                },
            },
            // what had arrived is still delivered
            result = &mut above, if ended.is_none() => {
                ended = Some(if result.is_ok() { End::ServerClosed } else { End::Reset });
            }
            Some((id, carried)) = streams.next() => {
                said.forget(lane, id);
                if carried.is_err() {
                    below.graceful_shutdown();
                }
            }
        }
    }
}

async fn stream(
    upstream: &SendRequest<Bytes>,
    (request, respond): Asked,
) -> (u32, Result<(), Unsent>) {
    let id = respond.stream_id().as_u32();
    (id, carry(upstream.clone(), request, respond).await)
}

/// What the live requests said, so that another policy can judge them all.
#[derive(Debug, Default)]
struct Said(Vec<(u32, Evidence)>);

impl Said {
    /// Decides one request.
    fn permit(
        &mut self,
        lane: &Lane<'_>,
        (request, respond): Asked,
        notes: &mut Notes,
    ) -> Result<Asked, (Box<Refusal>, SendResponse<Bytes>)> {
        let (mut head, body) = request.into_parts();
        let read = request::evidence(&head)
            .and_then(|evidence| request::name_authority(&mut head).map(|()| evidence));
        let decided = match read {
            Ok(evidence) => match lane.permits(&evidence) {
                Ok(_) => Ok(evidence),
                Err(denial) => Err(Refusal::new(denial, Language::Http2, &evidence)),
            },
            Err(odd) => {
                tracing::debug!(%odd, "a request was refused");
                let (reason, status) = match odd {
                    Odd::Connect => (Reason::ProtocolNotAllowed, 403),
                    Odd::Malformed(_) => (Reason::HttpMalformed, 400),
                };
                let none = Evidence::HttpMalformed;
                Err(Refusal {
                    status,
                    ..Refusal::new(plain_denial(reason), Language::Http2, &none)
                })
            }
        };
        match decided {
            Ok(evidence) => {
                let path = head.uri.path().to_owned();
                notes.http = Some((head.method.as_str().to_owned(), path));
                self.0.push((respond.stream_id().as_u32(), evidence));
                self.tell(lane);
                Ok((Request::from_parts(head, body), respond))
            }
            Err(refusal) => Err((Box::new(refusal), respond)),
        }
    }

    /// A request is over. The last one stays: it says what the connection is for.
    fn forget(&mut self, lane: &Lane<'_>, id: u32) {
        if self.0.len() > 1 {
            self.0.retain(|(stream, _)| *stream != id);
            self.tell(lane);
        }
    }

    fn tell(&self, lane: &Lane<'_>) {
        lane.keep(
            self.0
                .iter()
                .map(|(_, evidence)| evidence.clone())
                .collect(),
        );
    }
}

/// Answers a denied request on its stream; with it the flow ends.
async fn refuse(
    lane: &Lane<'_>,
    below: Below<'_>,
    refusal: Refusal,
    mut respond: SendResponse<Bytes>,
) -> End {
    let explain = if lane.network.live.load().explain {
        Explain::Yes
    } else {
        Explain::No
    };
    let body = Answer {
        status: refusal.status,
        error: "egress_denied",
        denial: &refusal.denial,
        destination: &destination_text(&lane.flow.intent, refusal.heard.as_deref()),
        explain,
    }
    .body();
    let head = Response::builder()
        .status(refusal.status)
        .header("content-type", "application/json")
        .header("sallyport-reason", refusal.denial.reason.code())
        .header("cache-control", "no-store")
        .body(());
    let end = End::Denied(Box::new(refusal));
    let answered = head.is_ok_and(|head| {
        let said = respond.send_response(head, false);
        said.is_ok_and(|mut stream| stream.send_data(body.into(), true).is_ok())
    });
    if answered {
        closed(lane, below, end).await
    } else {
        end
    }
}

/// Tells the client that this connection is over, and lets what was said arrive.
async fn closed(lane: &Lane<'_>, mut below: Below<'_>, end: End) -> End {
    below.graceful_shutdown();
    let rest = async {
        while let Some(Ok((_, mut respond))) = below.accept().await {
            respond.send_reset(h2::Reason::REFUSED_STREAM);
        }
    };
    if timeout(lane.waits.unasked, rest).await.is_err() {
        tracing::trace!("a client did not close its connection in time");
    }
    end
}

/// What the sandbox's side is told.
pub fn server_settings() -> server::Builder {
    let mut settings = server::Builder::new();
    settings
        .max_concurrent_streams(MOST_STREAMS)
        .max_header_list_size(MOST_FIELDS)
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_send_buffer_size(WINDOW as usize);
    settings
}

fn client_settings() -> client::Builder {
    let mut settings = client::Builder::new();
    settings
        .enable_push(false)
        .max_header_list_size(MOST_FIELDS)
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_send_buffer_size(WINDOW as usize);
    settings
}
