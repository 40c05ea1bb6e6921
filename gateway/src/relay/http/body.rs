//! Moves one message body, exactly as long as its framing says.

use tokio::net::TcpStream;

use super::Reader;
use crate::detect::chunked::Chunks;
use crate::detect::http::Framing;
use crate::relay::lane::{End, Lane, Way};
use crate::relay::pump::{send, wait};

/// Why a body stopped.
#[derive(Debug)]
pub(super) enum Break {
    /// The sender closed in the middle.
    Short,
    /// The chunked coding is not what it should be. What was read so far stays unsent.
    Malformed,
    /// Reading failed.
    ReadFailed,
    /// Writing failed.
    WriteFailed,
    /// A budget ended the flow.
    End(End),
}

/// Forwards bytes after counting them.
pub(super) async fn forward(
    to: &TcpStream,
    bytes: &[u8],
    way: Way,
    lane: &Lane<'_>,
) -> Result<(), Break> {
    let pause = lane.count(way, bytes.len()).map_err(Break::End)?;
    send(to, bytes).await.map_err(|_| Break::WriteFailed)?;
    wait(pause).await;
    Ok(())
}

/// Moves a body of known framing.
pub(super) async fn body(
    from: &mut Reader<'_>,
    to: &TcpStream,
    framing: Framing,
    way: Way,
    lane: &Lane<'_>,
) -> Result<(), Break> {
    match framing {
        Framing::Empty => Ok(()),
        Framing::Length(length) => sized(from, to, length, way, lane).await,
        Framing::Chunked => chunked(from, to, way, lane).await,
        Framing::UntilClose => until_close(from, to, way, lane).await,
    }
}

async fn sized(
    from: &mut Reader<'_>,
    to: &TcpStream,
    mut left: u64,
    way: Way,
    lane: &Lane<'_>,
) -> Result<(), Break> {
    while left > 0 {
        more(from).await?;
        let here = from
            .ahead
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        forward(to, from.ahead.get(..here).unwrap_or_default(), way, lane).await?;
        from.consume(here);
        left -= here as u64;
    }
    Ok(())
}

async fn chunked(
    from: &mut Reader<'_>,
    to: &TcpStream,
    way: Way,
    lane: &Lane<'_>,
) -> Result<(), Break> {
    let mut chunks = Chunks::default();
    while !chunks.is_done() {
        more(from).await?;
        let here = chunks.advance(&from.ahead).map_err(|_| Break::Malformed)?;
        forward(to, from.ahead.get(..here).unwrap_or_default(), way, lane).await?;
        from.consume(here);
    }
    Ok(())
}

async fn until_close(
    from: &mut Reader<'_>,
    to: &TcpStream,
    way: Way,
    lane: &Lane<'_>,
) -> Result<(), Break> {
    loop {
        match more(from).await {
            Err(Break::Short) => return Ok(()),
            more => more?,
        }
        let here = from.ahead.len();
        forward(to, &from.ahead, way, lane).await?;
        from.consume(here);
    }
}

/// Makes sure that something is there.
async fn more(from: &mut Reader<'_>) -> Result<(), Break> {
    if !from.ahead.is_empty() {
        return Ok(());
    }
    match from.fill().await {
        Ok(0) => Err(Break::Short),
        Ok(_) => Ok(()),
        Err(_) => Err(Break::ReadFailed),
    }
}
