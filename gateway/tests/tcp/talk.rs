//! What clients and origins of a test say and hear, each wait with its limit.

use std::future::Future;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Longer than anything here should take.
pub const LIMIT: Duration = Duration::from_secs(20);

/// Waits until something is there.
pub async fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let began = std::time::Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < LIMIT, "it did not come");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// In time, or the test fails.
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, what).await.expect("in time")
}

/// Reads exactly so many bytes.
pub async fn read(stream: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    soon(stream.read_exact(&mut bytes)).await.unwrap();
    bytes
}

/// Reads to the end; `Err` for a reset.
pub async fn rest(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    soon(stream.read_to_end(&mut bytes)).await.map(|_| bytes)
}

pub async fn write(stream: &mut TcpStream, bytes: &[u8]) {
    soon(stream.write_all(bytes)).await.unwrap();
}

/// The next connection that reached an origin.
pub async fn accept(origin: &TcpListener) -> TcpStream {
    soon(origin.accept()).await.unwrap().0
}

/// Whether anything reached an origin by now.
pub async fn nothing_reached(origin: &TcpListener) {
    let reached = tokio::time::timeout(Duration::from_millis(100), origin.accept()).await;
    assert!(reached.is_err(), "a connection reached the origin");
}

/// Nothing more arrives here.
pub async fn hears_nothing(stream: &TcpStream) {
    let heard = tokio::time::timeout(Duration::from_millis(100), stream.peek(&mut [0])).await;
    assert!(!matches!(heard, Ok(Ok(1))), "bytes arrived that should not");
}

/// Whether a socket was reset.
pub fn is_reset(result: &std::io::Result<Vec<u8>>) -> bool {
    matches!(result, Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset)
}

/// A ClientHello for a name.
pub fn hello(name: &str) -> Vec<u8> {
    let v16 = |bytes: &[u8]| {
        [
            &u16::try_from(bytes.len()).unwrap().to_be_bytes()[..],
            bytes,
        ]
        .concat()
    };
    let entry = [&[0][..], &v16(name.as_bytes())].concat();
    let extension = [&[0, 0][..], &v16(&v16(&entry))].concat();
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.push(0);
    body.extend(v16(&[0x13, 1]));
    body.extend([1, 0]);
    body.extend(v16(&extension));
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    let message = [&[1][..], &length[1..], &body].concat();
    [&[22, 3, 1][..], &v16(&message)].concat()
}
