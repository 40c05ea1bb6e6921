//! A TLS origin that has a leaf for every server name and logs the name of each ClientHello.

use std::sync::Arc;
use std::time::Duration;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, ServerConnection, Stream};

use super::{Origins, http, port};
use crate::log::Log;
use crate::namespace::Namespace;
use crate::tls::{Authority, provider};

#[derive(Debug)]
struct Leaves {
    authority: Authority,
    names: Log<Option<String>>,
}

impl ResolvesServerCert for Leaves {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().map(str::to_owned);
        self.names.push(name.clone());
        Some(
            self.authority
                .leaf(name.as_deref().unwrap_or("nameless.sallylab.net")),
        )
    }
}

/// A server that has a leaf for every name and logs what it was asked for.
pub(crate) fn config(
    authority: &Authority,
    names: &Log<Option<String>>,
    alpn: &[u8],
) -> ServerConfig {
    let leaves = Leaves {
        authority: authority.clone(),
        names: names.clone(),
    };
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("TLS versions")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(leaves));
    config.alpn_protocols = vec![alpn.to_vec()];
    config
}

pub(super) fn start(origins: &Origins, namespace: &Namespace, authority: &Authority) {
    let config = Arc::new(config(authority, &origins.server_names, b"http/1.1"));
    for port in [port::TLS, port::TLS_ALT] {
        let config = config.clone();
        origins.serve(namespace, port, move |origins, id, mut stream| {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(30)));
            let Ok(mut connection) = ServerConnection::new(config.clone()) else {
                return;
            };
            http::serve(
                origins,
                id,
                true,
                &mut Stream::new(&mut connection, &mut stream),
            );
        });
    }
}
