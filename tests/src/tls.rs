//! The lab's certificate authority, and ClientHellos as bytes.

use std::fmt;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::kx_group::X25519;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// The one crypto provider.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// Leaves by name.
type Leaves = Vec<(String, Arc<CertifiedKey>)>;

/// A root that signs a leaf for any name.
#[derive(Clone)]
pub struct Authority {
    certificate: CertificateDer<'static>,
    pem: Arc<str>,
    issuer: Arc<Issuer<'static, KeyPair>>,
    leaves: Arc<Mutex<Leaves>>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authority")
    }
}

impl Authority {
    /// A fresh root.
    pub fn new() -> Self {
        let key = KeyPair::generate().expect("CA key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).expect("CA certificate");
        Self {
            certificate: certificate.der().clone(),
            pem: certificate.pem().into(),
            issuer: Arc::new(Issuer::new(params, key)),
            leaves: Arc::default(),
        }
    }

    /// The root as PEM, for programs.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A leaf for a name, made once.
    pub fn leaf(&self, name: &str) -> Arc<CertifiedKey> {
        let mut leaves = self.leaves.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, leaf)) = leaves.iter().find(|(known, _)| known == name) {
            return leaf.clone();
        }
        let key = KeyPair::generate().expect("leaf key");
        let params = CertificateParams::new(vec![name.to_owned()])
            .or_else(|_| CertificateParams::new(Vec::new()))
            .expect("leaf parameters");
        let certificate = params.signed_by(&key, &*self.issuer).expect("leaf");
        let private = PrivateKeyDer::try_from(key.serialize_der()).expect("leaf key form");
        let leaf = CertifiedKey::from_der(vec![certificate.der().clone()], private, &provider())
            .expect("leaf pair");
        let leaf = Arc::new(leaf);
        leaves.push((name.to_owned(), leaf.clone()));
        leaf
    }

    /// A client configuration that trusts this root only.
    pub fn client(&self) -> Arc<ClientConfig> {
        Arc::new(self.client_by(provider()))
    }

    /// The same without the post-quantum key share: its hello fits one packet.
    pub fn small_client(&self) -> ClientConfig {
        let mut provider = CryptoProvider::clone(&provider());
        provider.kx_groups = vec![X25519];
        self.client_by(Arc::new(provider))
    }

    fn client_by(&self, provider: Arc<CryptoProvider>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).expect("root");
        ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("TLS versions")
            .with_root_certificates(roots)
            .with_no_client_auth()
    }

    /// One HTTP request through TLS; the whole answer, or how it failed.
    pub fn get(&self, mut stream: TcpStream, name: &str) -> std::io::Result<String> {
        let host = ServerName::try_from(name.to_owned()).map_err(std::io::Error::other)?;
        let connection =
            ClientConnection::new(self.client(), host).map_err(std::io::Error::other)?;
        stream.flush()?;
        let mut secure = StreamOwned::new(connection, stream);
        write!(
            secure,
            "GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = Vec::new();
        match secure.read_to_end(&mut answer) {
            // the origin closes without close_notify after `Connection: close`
            Err(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => Err(error),
            _ => Ok(String::from_utf8_lossy(&answer).into_owned()),
        }
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

/// A real ClientHello for a name, as the bytes of its record (large, post-quantum key share included).
pub fn client_hello(name: &str) -> Vec<u8> {
    let config = Authority::new().client();
    let host = ServerName::try_from(name.to_owned()).expect("server name");
    let mut connection = ClientConnection::new(config, host).expect("client");
    let mut bytes = Vec::new();
    while connection.wants_write() {
        connection.write_tls(&mut bytes).expect("write to memory");
    }
    bytes
}

/// A small hand-made ClientHello: `names` become the server_name list as they are (none: no extension).
pub fn crafted_hello(names: &[&[u8]]) -> Vec<u8> {
    let mut extensions = Vec::new();
    for name in names {
        let entry_length = u16::try_from(name.len() + 3).unwrap_or(u16::MAX);
        let mut body = entry_length.to_be_bytes().to_vec();
        body.push(0);
        body.extend_from_slice(&u16::try_from(name.len()).unwrap_or(u16::MAX).to_be_bytes());
        body.extend_from_slice(name);
        extensions.extend_from_slice(&[0, 0]);
        extensions.extend_from_slice(&u16::try_from(body.len()).unwrap_or(u16::MAX).to_be_bytes());
        extensions.extend_from_slice(&body);
    }
    // supported_versions: TLS 1.3 and 1.2
    extensions.extend_from_slice(&[0, 43, 0, 5, 4, 3, 4, 3, 3]);
    let mut hello = vec![3, 3];
    hello.extend_from_slice(&[7; 32]);
    hello.extend_from_slice(&[0, 0, 4, 0x13, 0x01, 0xc0, 0x2f, 1, 0]);
    hello.extend_from_slice(
        &u16::try_from(extensions.len())
            .unwrap_or(u16::MAX)
            .to_be_bytes(),
    );
    hello.extend_from_slice(&extensions);
    let mut handshake = vec![1, 0];
    handshake.extend_from_slice(&u16::try_from(hello.len()).unwrap_or(u16::MAX).to_be_bytes());
    handshake.extend_from_slice(&hello);
    let mut record = vec![22, 3, 1];
    record.extend_from_slice(
        &u16::try_from(handshake.len())
            .unwrap_or(u16::MAX)
            .to_be_bytes(),
    );
    record.extend_from_slice(&handshake);
    record
}
