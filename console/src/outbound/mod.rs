//! The one way by which the console calls anybody: webhooks, sign-in providers, mail.
//!
//! A call's way: [`target`] reads its URL, the name is resolved here and once, every address is judged, one that was
//! judged is dialled and no other, TLS is checked for the name, the answer is bounded in size and time. Each call has a
//! connection of its own, so nothing outlives a change of the settings, and no proxy of the environment is asked.
//! Redirects are followed by reads alone and go the whole way again. Failure stance: what may not be called is told in
//! words that its author understands; nothing of a URL but its origin is logged.

pub mod target;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use ipnet::IpNet;
use netpolicy::name::Host;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::settings::{OutboundSettings, Scheme};
pub use target::{Purpose, Refusal, Target};

/// A resolver that takes longer does not answer.
const RESOLVING: Duration = Duration::from_secs(5);
/// The same for one address that is dialled.
const DIALLING: Duration = Duration::from_secs(5);
/// A whole call, from the name to the last byte.
const WHOLE: Duration = Duration::from_secs(20);
/// More addresses of one name are not tried.
const MOST_ADDRESSES: usize = 4;
/// Reads follow so many redirects.
const MOST_REDIRECTS: usize = 3;
/// A head that is longer is no answer.
const HEAD: usize = 32 << 10;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// It may not be called.
    #[error("the address {0}")]
    Refused(#[from] Refusal),
    /// Its name has no address.
    #[error("{0} has no address")]
    NoAddress(String),
    /// Nobody takes the connection.
    #[error("connecting to {origin}")]
    Connect {
        /// Whom.
        origin: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// It speaks no HTTP, or broke off.
    #[error("asking {origin}")]
    Broken {
        /// Whom.
        origin: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It took too long.
    #[error("{0} did not answer in time")]
    Slow(String),
    /// It redirects on and on.
    #[error("{0} redirects too often")]
    Redirects(String),
}

/// A resolver: addresses of a name.
type Resolve = dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync;

/// The client. One for a process.
#[derive(Clone)]
pub struct Outbound {
    settings: Arc<OutboundSettings>,
    /// Addresses that only sandboxes have.
    pools: Arc<[IpNet]>,
    tls: Arc<ClientConfig>,
    resolve: Arc<Resolve>,
}

impl fmt::Debug for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outbound({:?})", self.settings)
    }
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The file of further authorities cannot be read.
    #[error("reading the certificate authorities in `network.ca_file`")]
    File(#[from] rustls::pki_types::pem::Error),
    /// What is in it is no authority.
    #[error("taking the certificate authorities in `network.ca_file`")]
    Certificate(#[from] rustls::Error),
}

impl Outbound {
    /// With these settings; the pools are never called.
    pub fn new(settings: OutboundSettings, pools: &[IpNet]) -> Result<Self, AuthorityError> {
        let mut roots = RootCertStore {
            roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
        };
        if let Some(file) = &settings.ca_file {
            for certificate in CertificateDer::pem_file_iter(file)? {
                roots.add(certificate?)?;
            }
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            settings: Arc::new(settings),
            pools: pools.into(),
            tls: Arc::new(tls),
            resolve: Arc::new(|name| Box::pin(system(name))),
        })
    }

    /// Whether an address may be called as far as can be said now: for who is about to keep it.
    pub async fn check(&self, purpose: Purpose, url: &str) -> Result<Target, CallError> {
        let target = Target::parse(url)?;
        // a name that is not there yet is no mistake; what it will point to is judged at each call
        match self.addresses(purpose, &target.host, target.port).await {
            Ok(_) | Err(CallError::NoAddress(_) | CallError::Slow(_)) => Ok(target),
            Err(error) => Err(error),
        }
    }

    /// Makes a call. `most`: bytes of an answer. Redirects are followed where the method is GET.
    pub async fn call(
        &self,
        purpose: Purpose,
        request: Request<Bytes>,
        most: usize,
    ) -> Result<Response<Bytes>, CallError> {
        let target = Target::parse(&request.uri().to_string())?;
        let origin = target.origin();
        let whole = self.follow(purpose, target, request, most);
        let answered = tokio::time::timeout(WHOLE, whole).await;
        answered.unwrap_or(Err(CallError::Slow(origin)))
    }

    async fn follow(
        &self,
        mut purpose: Purpose,
        mut target: Target,
        request: Request<Bytes>,
        most: usize,
    ) -> Result<Response<Bytes>, CallError> {
        let (mut parts, body) = request.into_parts();
        for _ in 0..=MOST_REDIRECTS {
            let head = (parts.method.clone(), parts.headers.clone());
            let answer = self
                .once(purpose, &target, head, (body.clone(), most))
                .await?;
            let location = answer.headers().get(header::LOCATION);
            if parts.method != Method::GET || !answer.status().is_redirection() {
                return Ok(answer);
            }
            let Some(location) = location.and_then(|value| value.to_str().ok()) else {
                return Ok(answer);
            };
            let next = target.redirected(location)?;
            if next.origin() != target.origin() {
                let accept = parts.headers.remove(header::ACCEPT);
                parts.headers.clear();
                parts
                    .headers
                    .extend(accept.map(|accept| (header::ACCEPT, accept)));
            }
            if next.host != target.host {
                purpose = Purpose::Member;
            }
            target = next;
        }
        Err(CallError::Redirects(target.origin()))
    }

    async fn once(
        &self,
        purpose: Purpose,
        target: &Target,
        (method, headers): (Method, http::HeaderMap),
        (body, most): (Bytes, usize),
    ) -> Result<Response<Bytes>, CallError> {
        let stream = self.connect(purpose, &target.host, target.port).await?;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.headers_mut() = headers;
        let broken = |source| CallError::Broken {
            origin: target.origin(),
            source,
        };
        *request.uri_mut() = target.path.parse().map_err(|_| Refusal::Malformed)?;
        let host = HeaderValue::from_str(&target.authority()).map_err(|_| Refusal::Malformed)?;
        request.headers_mut().insert(header::HOST, host);
        let agent = HeaderValue::from_static(concat!("Sallyport/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().insert(header::USER_AGENT, agent);
        match target.scheme {
            Scheme::Http => exchange(stream, request, most).await.map_err(broken),
            Scheme::Https => {
                let name = match &target.host {
                    Host::Name(name) => ServerName::try_from(name.as_str().to_owned())
                        .map_err(|_| Refusal::Malformed)?,
                    Host::Address(address) => ServerName::from(*address),
                };
                let tls = TlsConnector::from(self.tls.clone());
                let stream = tls.connect(name, stream).await;
                let stream = stream.map_err(|source| CallError::Connect {
                    origin: target.origin(),
                    source,
                })?;
                exchange(stream, request, most).await.map_err(broken)
            }
        }
    }

    /// A connection to a host, by whatever protocol.
    pub async fn connect(
        &self,
        purpose: Purpose,
        host: &Host,
        port: u16,
    ) -> Result<TcpStream, CallError> {
        let addresses = self.addresses(purpose, host, port).await?;
        let mut failed = io::Error::from(io::ErrorKind::NotFound);
        for address in addresses.into_iter().take(MOST_ADDRESSES) {
            let dialled = TcpStream::connect(SocketAddr::new(address, port));
            match tokio::time::timeout(DIALLING, dialled).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => failed = error,
                Err(_) => failed = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(CallError::Connect {
            origin: format!("{host}:{port}"),
            source: failed,
        })
    }

    /// The addresses behind a host, all of them judged.
    pub async fn addresses(
        &self,
        purpose: Purpose,
        host: &Host,
        port: u16,
    ) -> Result<Vec<IpAddr>, CallError> {
        let book = target::book(&self.pools);
        let judged = |addresses: &[IpAddr]| {
            target::judge(host, port, addresses, purpose, (&self.settings, &book))
        };
        let addresses = match host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => {
                // before anybody is asked for the name
                judged(&[])?;
                let asked = (self.resolve)(name.as_str().to_owned());
                let answer = tokio::time::timeout(RESOLVING, asked).await;
                let answer = answer.map_err(|_| CallError::Slow(host.to_string()))?;
                answer.map_err(|_| CallError::NoAddress(host.to_string()))?
            }
        };
        if addresses.is_empty() {
            return Err(CallError::NoAddress(host.to_string()));
        }
        judged(&addresses)?;
        Ok(addresses)
    }
}

/// The machine's own resolver. With its dot at the end a name is whole: no search list makes another one of it.
async fn system(name: String) -> io::Result<Vec<IpAddr>> {
    // what is one label alone is a name of this machine's own files or network
    let whole = if name.contains('.') {
        format!("{name}.")
    } else {
        name
    };
    let found = tokio::net::lookup_host((whole, 0)).await?;
    Ok(found.map(|address| address.ip()).collect())
}

/// One request and its answer on a connection that ends with it.
async fn exchange<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    stream: S,
    request: Request<Full<Bytes>>,
    most: usize,
) -> Result<Response<Bytes>, Box<dyn std::error::Error + Send + Sync>> {
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(HEAD)
        .handshake(TokioIo::new(stream))
        .await?;
    let answering = async {
        let (parts, body) = sender.send_request(request).await?.into_parts();
        let body = Limited::new(body, most).collect().await?.to_bytes();
        Ok(Response::from_parts(parts, body))
    };
    tokio::pin!(connection, answering);
    tokio::select! {
        biased;
        answer = &mut answering => answer,
        // what came before the end is still there to be read
        _ = &mut connection => answering.await,
    }
}
