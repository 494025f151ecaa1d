//! Loads the listener's certificate, and the certificate authorities of its clients.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};

use crate::config::routes::{Server, ServerTls};

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
    /// The file contains no certificate.
    #[error("{} holds no certificate; a section `BEGIN CERTIFICATE` is expected", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// The file contains no key.
    #[error("{} holds no private key; a section `BEGIN PRIVATE KEY` is expected", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
    },
    /// The certificate authorities of clients cannot be used.
    #[error("{} holds no authority that can be used", path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The certificate and the key do not match, or rustls does not support their kind.
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

/// Loads the files of a listener that speaks TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1; `None` if the listener speaks plain
/// HTTP.
///
/// # Errors
/// If a file cannot be read, the certificate and its key do not go together, or the clients' certificate authorities
/// cannot be used.
pub(super) fn load(server: &Server) -> Result<Option<TlsAcceptor>, TlsError> {
    let Some(ServerTls { certificate, key }) = &server.tls else { return Ok(None) };
    let chain = certificates(certificate)?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|source| match source {
        pem::Error::NoItemsFound => TlsError::NoKey { path: key.clone() },
        source => TlsError::Unreadable { path: key.clone(), source },
    })?;
    // The provider is named, because rustls panics if it has to choose between two providers in a program.
    let provider = Arc::new(ring::default_provider());
    let clients = match &server.client_ca_file {
        None => WebPkiClientVerifier::no_client_auth(),
        Some(file) => verifier(file, &provider)?,
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| {
            builder.with_client_cert_verifier(clients).with_single_cert(chain, secret)
        })
        .map_err(|source| TlsError::Unusable {
            certificate: certificate.clone(),
            key: key.clone(),
            source,
        })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Some(TlsAcceptor::from(Arc::new(config))))
}

/// Reads the certificates of a file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let path = || path.to_owned();
    let found: Vec<_> = CertificateDer::pem_file_iter(path())
        .and_then(Iterator::collect)
        .map_err(|source| TlsError::Unreadable { path: path(), source })?;
    if found.is_empty() { Err(TlsError::NoCertificate { path: path() }) } else { Ok(found) }
}

/// Returns a verifier that requires client certificates of an authority in this file.
fn verifier(
    file: &Path,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let unusable = |source| TlsError::Authorities { path: file.to_owned(), source };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        let added = roots.add(certificate);
        added.map_err(|error| unusable(Box::new(error) as Box<dyn Error + Send + Sync>))?;
    }
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    verifier.build().map_err(|error| unusable(Box::new(error)))
}
