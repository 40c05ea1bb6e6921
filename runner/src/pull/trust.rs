//! By which authorities a runner knows its console: those of `runner.ca_file`, or those of this system.
//!
//! Refuses to own names: a certificate must be for the name in `runner.console`, whoever signed it. Failure stance: no
//! authorities, no connection; nothing is ever taken on trust.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::config::RunnerConfig;

/// Where distributions keep the authorities that their administrators trust (Debian, Fedora, SUSE, Alpine).
const SYSTEM: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The file of a configuration.
pub fn file(config: &RunnerConfig) -> PathBuf {
    let system = || SYSTEM.iter().map(Path::new).find(|file| file.is_file());
    let system = || system().unwrap_or(Path::new("/etc/ssl/certs/ca-certificates.crt"));
    config.ca_file.clone().unwrap_or_else(|| system().into())
}

/// A client that believes the authorities in a file.
pub fn client(file: &Path) -> io::Result<Arc<ClientConfig>> {
    let bad = |error: &dyn std::fmt::Display| {
        io::Error::new(io::ErrorKind::InvalidData, error.to_string())
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| bad(&error))? {
        let certificate = certificate.map_err(|error| bad(&error))?;
        // a system has hundreds, and perhaps one that nobody can read
        if let Err(error) = roots.add(certificate) {
            tracing::debug!(%error, file = %file.display(), "a certificate authority");
        }
    }
    if roots.is_empty() {
        return Err(bad(&"there is no certificate authority in it"));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| bad(&error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(client))
}
