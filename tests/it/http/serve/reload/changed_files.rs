//! Files that change: as editors, Kubernetes and those who renew certificates change them.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::*;
use crate::http::serve::http_client::Client;

/// A path of the route file that leads over two links, as in a volume of Kubernetes.
struct Volume(tempfile::TempDir);

impl Volume {
    /// Puts a new version there and turns the link to it, in one step.
    fn turn(&self, version: &str, text: &str) {
        let folder = self.0.path();
        std::fs::create_dir(folder.join(version)).unwrap();
        std::fs::write(folder.join(version).join("proxy.toml"), text).unwrap();
        symlink(version, folder.join("..data_tmp")).unwrap();
        std::fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    }
}

#[test]
fn a_link_that_is_turned_is_seen_and_a_file_that_is_gone_for_a_moment_too() {
    let proxy = Proxy::of_file(&Start::default(), &file("", &demo("/a")));
    let path = PathBuf::from(proxy.file());
    let volume = Volume(tempfile::tempdir().unwrap());
    volume.turn("..2026_01", &file("", &(demo("/a") + &demo("/one"))));
    std::fs::remove_file(&path).unwrap();
    symlink(volume.0.path().join("..data/proxy.toml"), &path).unwrap();
    until("the first is taken", || post_to(&proxy, "/one", &[], INITIALIZE).status() == 200);
    volume.turn("..2026_02", &file("", &(demo("/a") + &demo("/two"))));
    until("the second is taken", || post_to(&proxy, "/two", &[], INITIALIZE).status() == 200);
    assert_eq!(post_to(&proxy, "/one", &[], INITIALIZE).status(), 404);
    volume.turn("..2026_03", "nonsense");
    until("the third is refused", || reloads(&proxy, "refused") == 1.0);
    assert_eq!(post_to(&proxy, "/two", &[], INITIALIZE).status(), 200);
    // After three further checks, the fault is still logged only once.
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!(count(&proxy, "cannot be used"), 1, "{}", proxy.log());
    assert_eq!([reloads(&proxy, "taken"), reloads(&proxy, "refused")], [2.0, 1.0]);
}

#[test]
fn a_file_without_routes_is_refused_as_any_broken_one() {
    let proxy = Proxy::of_file(&Start::default(), &file("", &demo("/a")));
    for text in [String::new(), "# all to come\n".to_owned(), file("", "")] {
        let line = reload(&proxy, &text);
        assert!(
            line.contains("ERROR") && line.contains("proxy.toml: there is no route;"),
            "{line}"
        );
        assert_eq!(post(&proxy, INITIALIZE).status(), 200);
    }
    assert_eq!(reloads(&proxy, "refused"), 3.0);
}

#[test]
fn a_file_that_is_emptied_and_written_again_is_read_once_it_is_whole() {
    let proxy = Proxy::of_file(&Start::default(), &file("", &demo("/a")));
    let path = PathBuf::from(proxy.file());
    std::fs::write(&path, "").unwrap();
    // A check at this moment is followed by another check, which finds the complete file. A program that sends the
    // signal would take longer to start than the time between two checks.
    kill(Pid::from_raw(proxy.pid().cast_signed()), Signal::SIGHUP).unwrap();
    std::fs::write(&path, file("", &demo("/b"))).unwrap();
    until("the file is taken", || reloads(&proxy, "taken") == 1.0);
    assert_eq!(post_to(&proxy, "/b", &[], INITIALIZE).status(), 200);
    assert_eq!(reloads(&proxy, "refused"), 0.0);
}

/// A certificate for `localhost`, and its key.
fn certificate(folder: &Path) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("own.pem"), made.cert.pem()).unwrap();
    std::fs::write(folder.join("own.key"), made.signing_key.serialize_pem()).unwrap();
}

/// Whether a new connection shows the certificate of the folder.
fn shows(proxy: &Proxy, folder: &Path) -> bool {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(folder.join("own.pem")).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let address = proxy.address().to_owned();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::spawn(async move { drop(Client::tls(&address, config).await) }).await
        })
    })
    .join()
    .unwrap()
    .is_ok()
}

#[test]
fn a_certificate_that_is_renewed_is_shown_to_new_connections() {
    let folder = tempfile::tempdir().unwrap();
    certificate(folder.path());
    let tls = format!(
        "tls = {{ certificate = {0:?}, key = {1:?} }}",
        folder.path().join("own.pem"),
        folder.path().join("own.key")
    );
    let proxy = Proxy::of_file(&Start::default(), &file(&tls, &demo("/a")));
    assert!(shows(&proxy, folder.path()));
    // Only half of the pair was replaced: this key belongs to another certificate.
    let key = std::fs::read(folder.path().join("own.key")).unwrap();
    let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
    std::fs::write(folder.path().join("own.key"), other).unwrap();
    until("that is refused", || reloads(&proxy, "refused") == 1.0);
    proxy.logged(&["cannot be used", "is that of another certificate"]);
    assert!(shows(&proxy, folder.path()), "the old one is still shown");
    std::fs::write(folder.path().join("own.key"), key).unwrap();
    until("all is well again", || {
        number(&proxy, "milepost_config_last_reload_successful", &[]) == 1.0
    });
    certificate(folder.path());
    until("the new one is shown", || shows(&proxy, folder.path()));
    assert_eq!(reloads(&proxy, "taken"), 1.0);
}
