//! Receiving a holder's network namespace: one socket, one connection, one descriptor.
//!
//! No process is named by number and no path is opened: the holder opens its own `/proc/self/ns/net` and sends it before
//! any workload exists. Whatever is not exactly one descriptor is refused.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use gateway::control::descriptor::{Carrier, Received};
use tokio::io::AsyncReadExt;
use tokio::net::UnixListener;

/// A holder sends its namespace as its first act; a busy host may take seconds to start it.
const HANDOVER_PATIENCE: Duration = Duration::from_secs(30);

/// Makes a pod's folder.
pub(super) fn make_folder(folder: &Path) -> io::Result<()> {
    // Only the engine, which is root, may look inside: the one-use socket is open to every user.
    std::fs::DirBuilder::new()
        .mode(0o700)
        .recursive(true)
        .create(folder)?;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))
}

/// Binds the one-use socket on which a holder sends its namespace.
pub(super) fn listen_once(path: &Path) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(path)?;
    // The holder is nobody, also where the engine maps users.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

/// Takes the one descriptor of the first connection; the listener is gone afterwards.
pub(super) async fn receive_namespace(listener: UnixListener) -> io::Result<OwnedFd> {
    let receive = async {
        let (stream, _) = listener.accept().await?;
        let (mut carrier, descriptor) = Carrier::receiving(stream);
        let mut byte = [0];
        carrier.read_exact(&mut byte).await?;
        match descriptor.take() {
            Received::One(namespace) => namespace.keep(),
            Received::Nothing | Received::TooMany => None,
        }
        .ok_or_else(|| io::Error::other("the holder did not send exactly one descriptor"))
    };
    let late = || io::Error::new(io::ErrorKind::TimedOut, "the holder sent nothing");
    tokio::time::timeout(HANDOVER_PATIENCE, receive)
        .await
        .unwrap_or_else(|_| Err(late()))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use gateway::control::descriptor::send;
    use tokio::net::UnixStream;

    use super::*;

    #[tokio::test]
    async fn connection_without_a_descriptor_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ns.sock");
        let listener = listen_once(&path).unwrap();
        let mut stream = UnixStream::connect(&path).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, b"n")
            .await
            .unwrap();
        assert!(receive_namespace(listener).await.is_err());
    }

    #[tokio::test]
    async fn one_descriptor_is_taken_and_the_socket_serves_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ns.sock");
        let listener = listen_once(&path).unwrap();
        let stream = UnixStream::connect(&path).await.unwrap();
        let namespace: OwnedFd = std::fs::File::open("/proc/self/ns/net").unwrap().into();
        stream.writable().await.unwrap();
        assert_eq!(send(&stream, b"n", &namespace).unwrap(), 1);
        let received = receive_namespace(listener).await.unwrap();
        assert_ne!(received.as_raw_fd(), namespace.as_raw_fd());
        assert!(UnixStream::connect(&path).await.is_err());
    }
}
