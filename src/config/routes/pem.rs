//! Reads PEM files while the route file is checked, so that a bad file is an error of the route file.

use std::path::Path;

use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{Error, InconsistentKeys};

fn content(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// Reads the certificates of a file, at least one.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let content = content(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(format!("{} holds no certificate in PEM form", path.display())),
    }
}

/// Checks that a file holds the private key of the first certificate of `chain`.
pub(super) fn key(path: &Path, chain: Vec<CertificateDer<'static>>) -> Result<(), String> {
    let key = PrivateKeyDer::from_pem_slice(&content(path)?)
        .map_err(|_| format!("{} holds no private key in PEM form", path.display()))?;
    // Compares the key with the certificate now, because a handshake would find a mismatch only when a client connects.
    match CertifiedKey::from_der(chain, key, &default_provider()) {
        Ok(_) => Ok(()),
        Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            Err(format!("the key of {} is that of another certificate", path.display()))
        }
        Err(error) => Err(format!("the key of {} cannot be used: {error}", path.display())),
    }
}
