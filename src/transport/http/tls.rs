//! TLS towards servers and collectors.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

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
    /// The certificates do not make a set-up.
    #[error("TLS cannot be set up")]
    Setup(#[from] rustls::Error),
}

/// Makes a connector that trusts these authorities and shows the certificate of `own` (its file, then
/// the file of its key). With `http2`, HTTP/2 is offered.
///
/// # Errors
/// If a file cannot be read, or a certificate cannot be used.
pub(crate) fn connector(
    trusted: &Authorities,
    own: Option<(&Path, &Path)>,
    http2: bool,
) -> Result<TlsConnector, ClientTlsError> {
    let bad = |file: &Path| {
        let file = file.to_owned();
        move |source| ClientTlsError::Pem { file, source }
    };
    let mut roots = RootCertStore::empty();
    if trusted.system {
        // A system without authorities may still do with those of files.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    for file in &trusted.files {
        for certificate in CertificateDer::pem_file_iter(file).map_err(bad(file))? {
            roots.add(certificate.map_err(bad(file))?)?;
        }
    }
    // The provider is named, because a second one in the program would make the choice a panic.
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
    config.alpn_protocols =
        if http2 { vec![b"h2".to_vec(), b"http/1.1".to_vec()] } else { Vec::new() };
    Ok(TlsConnector::from(Arc::new(config)))
}
