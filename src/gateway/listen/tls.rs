//! The listener's certificate.

use std::path::PathBuf;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

use crate::config::routes::ServerTls;

/// The reason why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or is not PEM.
    #[error("cannot read {}; a PEM file is expected", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: pem::Error,
    },
    /// There is no certificate in its file.
    #[error("{} holds no certificate; a section `BEGIN CERTIFICATE` is expected", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// There is no key in its file.
    #[error("{} holds no private key; a section `BEGIN PRIVATE KEY` is expected", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
    },
    /// The two do not go together, or rustls does not know their kind.
    #[error("{} and {} do not make a certificate that can be used", certificate.display(), key.display())]
    Unusable {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// The cause.
        #[source]
        source: rustls::Error,
    },
}

/// Loads the files of a listener that speaks TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1.
///
/// # Errors
/// If a file cannot be read, or the two do not go together.
pub(super) fn load(files: &ServerTls) -> Result<TlsAcceptor, TlsError> {
    let ServerTls { certificate, key } = files;
    let unreadable = |path: &PathBuf| {
        let path = path.clone();
        move |source| TlsError::Unreadable { path, source }
    };
    let chain: Vec<_> = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .map_err(unreadable(certificate))?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate { path: certificate.clone() });
    }
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|source| match source {
        pem::Error::NoItemsFound => TlsError::NoKey { path: key.clone() },
        source => unreadable(key)(source),
    })?;
    // The provider is named, because a second one in the program would make the choice a panic.
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, secret))
        .map_err(|source| TlsError::Unusable {
            certificate: certificate.clone(),
            key: key.clone(),
            source,
        })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
