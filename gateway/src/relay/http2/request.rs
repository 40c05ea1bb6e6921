//! What one request of a connection says, as evidence for the decision on it.

use http::request::Parts;
use http::uri::Scheme;
use http::{Method, Uri, header};
use netpolicy::decide::Evidence;
use netpolicy::name::Authority;

/// The port that an authority without one means.
const DEFAULT_PORT: u16 = 80;

/// Why a request is refused whatever the policy says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Odd {
    /// CONNECT is for proxies.
    #[error("CONNECT to an origin")]
    Connect,
    /// Wrong or ambiguous.
    #[error("{0}")]
    Malformed(&'static str),
}

/// Reads `:authority`, `:path`, `:method` and whatever Host fields there are. All names must be one (RFC 9113 8.3.1:
/// a Host that differs is malformed); what servers read differently is refused.
pub fn evidence(request: &Parts) -> Result<Evidence, Odd> {
    if request.method == Method::CONNECT {
        return Err(Odd::Connect);
    }
    // h2 drops the scheme where no authority goes with it
    if request.uri.authority().is_some() && request.uri.scheme_str() != Some("http") {
        return Err(Odd::Malformed("another scheme than http"));
    }
    let path = request
        .uri
        .path_and_query()
        .map_or("/", http::uri::PathAndQuery::as_str);
    if path
        .bytes()
        .any(|b| !(b'!'..=b'~').contains(&b) || b"\\#".contains(&b))
    {
        return Err(Odd::Malformed("a byte that no target holds"));
    }
    let mut named: Option<Authority> = None;
    let pseudo = request.uri.authority().map(|a| a.as_str().as_bytes());
    let fields = request.headers.get_all(header::HOST);
    for text in pseudo
        .into_iter()
        .chain(fields.iter().map(http::HeaderValue::as_bytes))
    {
        let next = Authority::parse(text).map_err(|_| Odd::Malformed("a host that is no host"))?;
        match &named {
            Some(first) if !is_same(first, &next) => return Err(Odd::Malformed("two hosts")),
            Some(_) => {}
            None => named = Some(next),
        }
    }
    let authority = named.ok_or(Odd::Malformed("no host"))?;
    Ok(Evidence::Http {
        host: Some(authority.host),
        port: authority.port,
        method: request.method.as_str().to_owned(),
        path: path.to_owned(),
    })
}

/// Gives a request that names its host by a field only its `:authority`, which many servers insist on.
pub fn name_authority(request: &mut Parts) -> Result<(), Odd> {
    if request.uri.authority().is_some() {
        return Ok(());
    }
    let host = request
        .headers
        .get(header::HOST)
        .map(http::HeaderValue::as_bytes);
    let mut parts = request.uri.clone().into_parts();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = host.and_then(|host| host.try_into().ok());
    request.uri = Uri::from_parts(parts).map_err(|_| Odd::Malformed("a host that is no host"))?;
    Ok(())
}

fn is_same(a: &Authority, b: &Authority) -> bool {
    a.host == b.host && a.port.unwrap_or(DEFAULT_PORT) == b.port.unwrap_or(DEFAULT_PORT)
}
