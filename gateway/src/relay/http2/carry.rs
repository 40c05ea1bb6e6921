//! Carries one permitted request and its response, both at once, with whatever trailers they end in.
//!
//! A piece is read only when the other side's window had room for the one before, so a slow reader slows its writer and
//! nothing gathers here. A reset of one side resets the other for the same reason.

use std::future::poll_fn;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{Request, Response};

/// Runs one stream to its end. `Err`: the server takes no more streams on this connection.
pub(super) async fn carry(
    upstream: SendRequest<Bytes>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> Result<(), Unsent> {
    let (head, body) = request.into_parts();
    let is_whole = body.is_end_stream();
    let sent = match upstream.ready().await {
        Ok(mut upstream) => upstream.send_request(Request::from_parts(head, ()), is_whole),
        Err(error) => Err(error),
    };
    let Ok((response, mut up)) = sent else {
        respond.send_reset(Reason::REFUSED_STREAM);
        return Err(Unsent);
    };
    let mut down = None;
    let both = async {
        let upward = async {
            if is_whole {
                return Ok(());
            }
            match copy(body, &mut up).await {
                // a server that has answered in full may want no more of the request
                Err(Reason::NO_ERROR) => Ok(()),
                copied => copied,
            }
        };
        let downward = async {
            let Some((body, to)) = answer(response, &mut respond).await? else {
                return Ok(());
            };
            copy(body, down.insert(to)).await
        };
        tokio::try_join!(upward, downward)
    };
    if let Err(reason) = both.await {
        up.send_reset(reason);
        match &mut down {
            Some(down) => down.send_reset(reason),
            None => respond.send_reset(reason),
        }
    }
    Ok(())
}

/// A request that the server never saw; the client may send it again.
#[derive(Debug)]
pub(super) struct Unsent;

/// Passes the response's head on, interim ones first. `None`: it has no body.
async fn answer(
    mut response: ResponseFuture,
    respond: &mut SendResponse<Bytes>,
) -> Result<Option<(RecvStream, SendStream<Bytes>)>, Reason> {
    while let Some(interim) = tokio::select! {
        interim = poll_fn(|cx| response.poll_informational(cx)) => interim,
        reset = poll_fn(|cx| respond.poll_reset(cx)) => return Err(reset.unwrap_or(Reason::CANCEL)),
    } {
        let interim = interim.map_err(|error| reason(&error))?;
        respond
            .send_informational(interim)
            .map_err(|error| reason(&error))?;
    }
    let response = tokio::select! {
        response = response => response.map_err(|error| reason(&error))?,
        reset = poll_fn(|cx| respond.poll_reset(cx)) => return Err(reset.unwrap_or(Reason::CANCEL)),
    };
    let (head, body) = response.into_parts();
    let is_whole = body.is_end_stream();
    let to = respond
        .send_response(Response::from_parts(head, ()), is_whole)
        .map_err(|error| reason(&error))?;
    Ok((!is_whole).then_some((body, to)))
}

/// Moves a body and its trailers.
async fn copy(mut from: RecvStream, to: &mut SendStream<Bytes>) -> Result<(), Reason> {
    loop {
        let piece = tokio::select! {
            biased;
            reset = poll_fn(|cx| to.poll_reset(cx)) => return Err(reset.unwrap_or(Reason::CANCEL)),
            piece = from.data() => piece,
        };
        let Some(piece) = piece else {
            let trailers = from.trailers().await.map_err(|error| reason(&error))?;
            let ended = match trailers {
                Some(trailers) => to.send_trailers(trailers),
                None => to.send_data(Bytes::new(), true),
            };
            return ended.map_err(|error| reason(&error));
        };
        let piece = piece.map_err(|error| reason(&error))?;
        let length = piece.len();
        send(piece, to).await?;
        from.flow_control()
            .release_capacity(length)
            .map_err(|error| reason(&error))?;
    }
}

/// Sends a piece as the receiver's window opens.
async fn send(mut piece: Bytes, to: &mut SendStream<Bytes>) -> Result<(), Reason> {
    while !piece.is_empty() {
        to.reserve_capacity(piece.len());
        let room = match poll_fn(|cx| to.poll_capacity(cx)).await {
            Some(Ok(room)) => room,
            Some(Err(error)) => return Err(reason(&error)),
            None => return Err(Reason::CANCEL),
        };
        let part = piece.split_to(room.min(piece.len()));
        if !part.is_empty() {
            to.send_data(part, false).map_err(|error| reason(&error))?;
        }
    }
    Ok(())
}

fn reason(error: &h2::Error) -> Reason {
    error.reason().unwrap_or(Reason::CANCEL)
}
