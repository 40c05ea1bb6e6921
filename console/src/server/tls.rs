//! TLS of the people port, with a certificate of the operator's own.
//!
//! The first byte of a connection tells: a TLS hello is answered; anything else only from this machine itself, where
//! nobody is in between (the runner of `sallyport up`, a reverse proxy). Refuses to own: getting certificates; another
//! one is read at the next start. Failure stance: a certificate or key that cannot be used ends the start.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::settings::TlsFiles;

/// A hello is due within this time, and the handshake within as long again.
const HELLO: Duration = Duration::from_secs(10);
/// The content type of a handshake record (RFC 8446, 5.1); no method of HTTP begins with it.
const HANDSHAKE: u8 = 22;

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("reading {path}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Whoever can read it can be the console.
    #[error("{0} can be read by everybody: chmod 600 it")]
    Open(PathBuf),
    /// They do not go together.
    #[error("the certificate and the key of `console.tls` do not make a server")]
    Pair(#[from] rustls::Error),
}

/// What answers hellos.
pub fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, TlsError> {
    let failed = |path: &Path, source: Box<dyn std::error::Error + Send + Sync>| TlsError::File {
        path: path.to_owned(),
        source,
    };
    let (chain, key) = (&files.certificate, &files.key);
    let about = std::fs::metadata(key).map_err(|error| failed(key, error.into()))?;
    if about.mode() & 0o007 != 0 {
        return Err(TlsError::Open(key.clone()));
    }
    let certificates: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(chain)
        .and_then(Iterator::collect)
        .map_err(|error| failed(chain, error.into()))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| failed(key, error.into()))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certificates, private)?;
    Ok(TlsAcceptor::from(Arc::new(server)))
}

/// A connection that was looked at.
pub enum Opened {
    /// Plain, as it is.
    Plain(TcpStream),
    /// Encrypted.
    Secure(Box<TlsStream<TcpStream>>),
}

/// Finds out what a connection speaks.
pub async fn open(
    acceptor: Option<&TlsAcceptor>,
    stream: TcpStream,
    peer: SocketAddr,
    local: SocketAddr,
) -> io::Result<Opened> {
    let Some(acceptor) = acceptor else {
        return Ok(Opened::Plain(stream));
    };
    let mut first = [0];
    let read = timeout(HELLO, stream.peek(&mut first)).await??;
    if read == 1 && first == [HANDSHAKE] {
        let secured = timeout(HELLO, acceptor.accept(stream)).await??;
        return Ok(Opened::Secure(Box::new(secured)));
    }
    let (from, to) = (peer.ip().to_canonical(), local.ip().to_canonical());
    if from.is_loopback() || from == to {
        return Ok(Opened::Plain(stream));
    }
    let told = "plain HTTP from another machine, though there is `console.tls`";
    Err(io::Error::new(io::ErrorKind::InvalidData, told))
}
