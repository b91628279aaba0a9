//! The certificates for TLS.

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::Error;

/// Returns a configuration for TLS 1.2 and 1.3 with these certificates.
pub(super) fn config(certificates: &Path, key: &Path) -> Result<Arc<ServerConfig>, Error> {
    let bad = |path: &Path, error: &dyn std::fmt::Display| {
        Error::Tls(format!("{}: {error}", path.display()))
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(certificates)
        .map_err(|error| bad(certificates, &error))?
        .collect();
    let chain = chain.map_err(|error| bad(certificates, &error))?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| bad(key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Tls(error.to_string()))?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|error| bad(certificates, &error))?;
    Ok(Arc::new(config))
}
