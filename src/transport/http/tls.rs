//! TLS connections to servers and collectors.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, CertificateError, ClientConfig, RootCertStore};

use super::io::Io;
use crate::config::routes::Authorities;

/// The reason why TLS towards a server cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum ClientTlsError {
    /// A file with certificates or a key cannot be used.
    #[error("{} cannot be used", file.display())]
    Pem {
        /// The file.
        file: PathBuf,
        /// The cause.
        #[source]
        source: pem::Error,
    },
    /// rustls refuses the certificates or the settings.
    #[error("TLS cannot be set up")]
    Setup(#[from] rustls::Error),
}

/// The setting with the certificate authorities of a route's server, for errors.
pub(crate) const ROUTE_AUTHORITIES: &str =
    "`upstream.ca_file` of the route, `--ca-file` of a command line";

/// The peer of a TLS connection.
#[derive(Clone)]
pub(crate) struct TlsPeer {
    /// The certificate authorities that are trusted, and Milepost's own certificate.
    pub(crate) connector: TlsConnector,
    /// The name that the peer's certificate must contain.
    pub(crate) name: ServerName<'static>,
    /// The setting with the certificate authorities, for errors.
    pub(crate) setting: &'static str,
}

impl TlsPeer {
    /// Begins TLS over a connection.
    ///
    /// # Errors
    /// If the connection fails, or the peer's certificate is not trusted. If no trusted authority has issued it, the
    /// error names the setting for authorities.
    pub(super) async fn connect(&self, io: Io) -> io::Result<TlsStream<Io>> {
        let connected = self.connector.connect(self.name.clone(), io).await;
        connected.map_err(|error| self.explained(error))
    }

    fn explained(&self, error: io::Error) -> io::Error {
        // A trusted authority may have the same name as the issuer but another key. Then the signature does not match.
        use CertificateError::{BadSignature, UnknownIssuer};
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
        let Some(rustls::Error::InvalidCertificate(UnknownIssuer | BadSignature)) = cause else {
            return error;
        };
        let what = format!(
            "{error} (the authority that issued the certificate is not trusted; name its PEM file with {})",
            self.setting
        );
        io::Error::new(error.kind(), what)
    }
}

/// The names of HTTP/2 and HTTP/1.1 (RFC 7301, 6).
pub(crate) const HTTP2_FIRST: &[&[u8]] = &[b"h2", b"http/1.1"];

/// Makes a connector that trusts these authorities and shows the certificate of `own` (its file, then
/// the file of its key). `protocols` are offered to the server (ALPN), the preferred one first.
///
/// # Errors
/// If a file cannot be read, or a certificate cannot be used.
pub(crate) fn connector(
    trusted: &Authorities,
    own: Option<(&Path, &Path)>,
    protocols: &[&[u8]],
) -> Result<TlsConnector, ClientTlsError> {
    let bad = |file: &Path| {
        let file = file.to_owned();
        move |source| ClientTlsError::Pem { file, source }
    };
    let mut roots = RootCertStore::empty();
    if trusted.system {
        // Ignore errors: if the system has no authorities, those in the configured files may be enough.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    for file in &trusted.files {
        for certificate in CertificateDer::pem_file_iter(file).map_err(bad(file))? {
            roots.add(certificate.map_err(bad(file))?)?;
        }
    }
    // The provider is named, because rustls panics if it has to choose between two providers in a program.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let mut config = match own {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = CertificateDer::pem_file_iter(certificate)
                .and_then(Iterator::collect)
                .map_err(bad(certificate))?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(bad(key))?;
            config.with_client_auth_cert(chain, key)?
        }
    };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(TlsConnector::from(Arc::new(config)))
}
