//! One request and its response, both at once: a server may answer before the body is through, or wait for it.

use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Reader;
use super::body::{Break, body, forward};
use crate::detect::Head;
use crate::detect::http::{Framing, ResponseHead, ResponseReader};
use crate::relay::lane::{End, Lane, Way};
use crate::relay::pump::finish;

/// Interim responses to one request; more are a flood.
const MOST_INTERIM: usize = 64;

/// A permitted request.
#[derive(Debug)]
pub(crate) struct Exchange<'a> {
    pub(crate) lane: &'a Lane<'a>,
    /// As it was read.
    pub(crate) head: &'a Head,
    /// As it is sent.
    pub(crate) raw: &'a [u8],
}

/// What follows.
#[derive(Debug)]
pub(crate) enum Next {
    /// Another request may come.
    Request,
    /// The server switched to another protocol.
    Switched,
    /// The flow is over.
    End(End),
}

enum Answered {
    /// In full, and the server keeps the connection.
    Kept,
    /// In full or until the server closed.
    Last,
    Switched,
}

impl Exchange<'_> {
    /// Sends the request, brings the response.
    pub(crate) async fn run(&self, client: &mut Reader<'_>, server: &mut Reader<'_>) -> Next {
        let (client_stream, server_stream) = (client.stream, server.stream);
        let up = self.request(client, server_stream);
        let down = self.response(server, client_stream);
        tokio::pin!(up, down);
        let mut sent = None;
        let answered = loop {
            tokio::select! {
                result = &mut up, if sent.is_none() => match result {
                    Err(Break::WriteFailed) => return self.last_words(down).await,
                    Err(other) if !matches!(other, Break::Short) => return Next::End(broken(other)),
                    result => sent = Some(result),
                },
                result = &mut down => break result,
                () = died(client_stream), if sent.is_some() => return Next::End(End::Reset),
            }
        };
        match answered {
            Ok(Answered::Switched) if sent.is_some() => Next::Switched,
            // a switch in the middle of a body is nobody's protocol
            Ok(Answered::Switched) => Next::End(End::Reset),
            Ok(Answered::Last) => Next::End(End::ServerClosed),
            Ok(Answered::Kept) => {
                // an early answer: the rest of the body still belongs to this request
                let sent = match sent {
                    Some(sent) => sent,
                    None => up.await,
                };
                match sent {
                    Ok(()) if self.head.persistent => Next::Request,
                    Ok(()) | Err(Break::Short) => Next::End(End::ClientClosed),
                    Err(other) => Next::End(broken(other)),
                }
            }
            Err(other) => Next::End(broken(other)),
        }
    }

    /// The server died while it was written to; what it said before is still delivered.
    async fn last_words(&self, down: impl Future<Output = Result<Answered, Break>>) -> Next {
        match timeout(self.lane.waits.drain, down).await {
            Ok(Ok(Answered::Kept | Answered::Last)) => Next::End(End::ServerClosed),
            Ok(Err(Break::End(end))) => Next::End(end),
            Ok(Ok(Answered::Switched) | Err(_)) | Err(_) => Next::End(End::Reset),
        }
    }

    async fn request(&self, client: &mut Reader<'_>, server: &TcpStream) -> Result<(), Break> {
        forward(server, self.raw, Way::Up, self.lane).await?;
        let moved = body(client, server, self.head.framing, Way::Up, self.lane).await;
        if matches!(moved, Err(Break::Short)) {
            drop(finish(server));
        }
        moved
    }

    async fn response(
        &self,
        server: &mut Reader<'_>,
        client: &TcpStream,
    ) -> Result<Answered, Break> {
        for _ in 0..MOST_INTERIM {
            let Some(head) = self.response_head(server).await? else {
                break;
            };
            if head.status == 101 && self.head.upgrade.is_empty() {
                break;
            }
            let raw = server.ahead.get(..head.length).unwrap_or_default();
            forward(client, raw, Way::Down, self.lane).await?;
            server.consume(head.length);
            match head.status {
                101 => return Ok(Answered::Switched),
                100..200 => continue,
                _ => {}
            }
            return match body(server, client, head.framing, Way::Down, self.lane).await {
                Ok(()) if head.persistent => Ok(Answered::Kept),
                Ok(()) | Err(Break::Short) => Ok(Answered::Last),
                Err(Break::Malformed) => self.until_close(server, client).await,
                Err(other) => Err(other),
            };
        }
        self.until_close(server, client).await
    }

    /// The head of a response; `None` when it cannot be read for certain.
    async fn response_head(&self, server: &mut Reader<'_>) -> Result<Option<ResponseHead>, Break> {
        let mut reader = ResponseReader::default();
        loop {
            match reader.advance(&server.ahead, &self.head.method) {
                Ok(Some(head)) => return Ok(Some(head)),
                Ok(None) => {}
                Err(why) => {
                    tracing::debug!(why, "a response is relayed until it ends");
                    return Ok(None);
                }
            }
            match server.fill().await {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(_) => return Err(Break::ReadFailed),
            }
        }
    }

    async fn until_close(
        &self,
        server: &mut Reader<'_>,
        client: &TcpStream,
    ) -> Result<Answered, Break> {
        body(server, client, Framing::UntilClose, Way::Down, self.lane)
            .await
            .map(|()| Answered::Last)
    }
}

fn broken(why: Break) -> End {
    match why {
        Break::End(end) => end,
        Break::Short => End::ClientClosed,
        Break::Malformed => End::Denied(Box::new(super::malformed_body())),
        Break::ReadFailed | Break::WriteFailed => End::Reset,
    }
}

/// A client that is gone while its answer is awaited; a client that only finished sending is not.
async fn died(client: &TcpStream) {
    match client.ready(Interest::ERROR).await {
        Ok(_) | Err(_) => {}
    }
}
