//! TLS and HTTP/2, on the listener and towards servers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::Version;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::proxy::Start;
use super::*;
use crate::http::serve::http_client;
use crate::http::serve::http_client::{Client, rest};
use crate::http::serve::legacy_server::Legacy;
use crate::observe::metrics::page::Page;

/// An authority, a certificate of a server and one of a client, in files.
pub(crate) struct Pki {
    folder: TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Pki {
    pub(crate) fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let write = |name: &str, text: String| {
            std::fs::write(folder.path().join(name), text).unwrap();
        };
        write("ca.pem", authority.pem());
        let names = [name.to_owned(), "localhost".to_owned()];
        for (file, purpose) in [
            ("server", ExtendedKeyUsagePurpose::ServerAuth),
            ("client", ExtendedKeyUsagePurpose::ClientAuth),
        ] {
            let mut params = CertificateParams::new(names.to_vec()).unwrap();
            params.extended_key_usages = vec![purpose];
            let key = KeyPair::generate().unwrap();
            let certificate = params.signed_by(&key, &authority).unwrap();
            write(&format!("{file}.pem"), certificate.pem());
            write(&format!("{file}.key"), key.serialize_pem());
        }
        Self { folder, authority }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.path("ca.pem")).unwrap()).unwrap();
        roots
    }

    /// A server with its certificate that offers these versions.
    pub(crate) fn server(&self, offers: &[&str], asks_for_certificates: bool) -> ServerConfig {
        let provider = Arc::new(ring::default_provider());
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let config = if asks_for_certificates {
            let roots = Arc::new(self.roots());
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            config.with_client_cert_verifier(verifier.build().unwrap())
        } else {
            config.with_no_client_auth()
        };
        let chain = vec![CertificateDer::from_pem_file(self.path("server.pem")).unwrap()];
        let key = PrivateKeyDer::from_pem_file(self.path("server.key")).unwrap();
        let mut config = config.with_single_cert(chain, key).unwrap();
        config.alpn_protocols = offers.iter().map(|name| name.as_bytes().to_vec()).collect();
        config
    }

    /// A client that trusts its authority and offers these versions.
    pub(super) fn client(&self, offers: &[&str]) -> ClientConfig {
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.roots())
            .with_no_client_auth();
        config.alpn_protocols = offers.iter().map(|name| name.as_bytes().to_vec()).collect();
        config
    }

    /// A client that trusts this authority and presents a certificate of `by` with this name.
    pub(super) fn client_named(&self, name: &str, by: &Self) -> ClientConfig {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &by.authority).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.roots())
            .with_client_auth_cert(vec![certificate.der().clone()], key)
            .unwrap()
    }
}

pub(super) fn own_call() -> String {
    call("1", "\"t\"").replace("{}", r#"{"client":"x"}"#)
}

fn hanging_call() -> String {
    call("1", "\"t\"").replace("work", "hang")
}

/// Waits until so many calls hang.
async fn hang(server: &Legacy, calls: usize) {
    let some = async {
        while server.hanging() != calls {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(STUCK, some).await.unwrap();
}

/// Progress was repaired, and the answer came.
#[track_caller]
pub(super) fn check(heard: &str) {
    let events: Vec<_> = heard.split_terminator("\n\n").map(json).collect();
    assert!(events.len() > 1, "{heard}");
    for event in &events[..events.len() - 1] {
        assert_eq!(event["method"], "notifications/progress", "{heard}");
        assert_eq!(event["params"]["progressToken"], "t", "{heard}");
    }
    let answer = &events[events.len() - 1];
    assert_eq!(answer["result"]["content"][0]["text"], "done for x.", "{heard}");
}

#[tokio::test]
async fn a_listener_with_a_certificate_speaks_the_version_that_is_agreed_on() {
    let (pki, server) = (Pki::new("localhost"), Legacy::start(1, None));
    let tls = format!(
        "tls = {{ certificate = {:?}, key = {:?} }}",
        pki.path("server.pem"),
        pki.path("server.key")
    );
    let start = Start { server: &tls, options: &["--log-level", "debug"], ..Start::default() };
    let mut proxy = Proxy::with(&start, &format!("upstream.url = \"{}\"", server.url("http")));
    proxy.logged(&["listening address=", "tls=true"]);
    for (offers, http2) in [(&["h2", "http/1.1"][..], true), (&["http/1.1"], false), (&[], false)] {
        let mut client = Client::tls(proxy.address(), pki.client(offers)).await;
        assert_eq!(client.is_http2(), http2, "{offers:?}");
        let answer = client.send("POST", proxy.address(), &[], own_call()).await;
        check(&rest(answer).await);
    }
    // Plain HTTP is refused.
    let address = proxy.address().to_owned();
    let heard = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /a HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut heard = Vec::new();
        let _ = stream.read_to_end(&mut heard);
        heard
    });
    assert!(!heard.await.unwrap().starts_with(b"HTTP"));
    proxy.logged(&["connection over", "ended=\"no-tls\""]);
    proxy.terminate();
    assert_eq!(proxy.code(), Some(0));
}

#[tokio::test]
async fn progress_is_repaired_over_http_2_on_both_sides() {
    let server = Legacy::start(1, None);
    for upstream_http2 in [false, true] {
        let route =
            format!("upstream.url = \"{}\"\nupstream.http2 = {upstream_http2}", server.url("http"));
        let proxy = Proxy::with(&Start::default(), &route);
        for client_http2 in [false, true] {
            let mut client = Client::plain(proxy.address(), client_http2).await;
            let answer = client.send("POST", proxy.address(), &[], own_call()).await;
            check(&rest(answer).await);
            let (version, uri) = server.seen().pop().unwrap();
            assert_eq!(version == Version::HTTP_2, upstream_http2);
            assert!(uri.ends_with("/mcp"), "{uri}");
        }
    }
}

#[tokio::test]
async fn a_server_with_a_certificate_is_spoken_to_in_the_version_that_is_agreed_on() {
    let pki = Pki::new("127.0.0.1");
    let both = &["h2", "http/1.1"][..];
    for (offers, http2, spoken) in [
        (both, true, Version::HTTP_2),
        (both, false, Version::HTTP_11),
        (&["http/1.1"], true, Version::HTTP_11),
        (&[], true, Version::HTTP_11),
    ] {
        let server = Legacy::start(1, Some(pki.server(offers, false)));
        let route = format!(
            "upstream.url = \"{}\"\nupstream.ca_file = {:?}\nupstream.http2 = {http2}",
            server.url("https"),
            pki.path("ca.pem")
        );
        let proxy = Proxy::with(&Start::default(), &route);
        let mut client = Client::plain(proxy.address(), false).await;
        for _ in 0..2 {
            let answer = client.send("POST", proxy.address(), &[], own_call()).await;
            check(&rest(answer).await);
            let (version, uri) = server.seen().pop().unwrap();
            assert_eq!(version, spoken, "{offers:?} {http2}");
            // HTTP/1.1 servers expect only a path.
            assert!(version == Version::HTTP_2 || uri == "/mcp", "{uri}");
        }
    }
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate_gets_it() {
    let pki = Pki::new("127.0.0.1");
    let server = Legacy::start(1, Some(pki.server(&[], true)));
    let without = format!(
        "upstream.url = \"{}\"\nupstream.ca_file = {:?}",
        server.url("https"),
        pki.path("ca.pem")
    );
    let with = format!(
        "{without}\nupstream.client_certificate = {{ certificate = {:?}, key = {:?} }}",
        pki.path("client.pem"),
        pki.path("client.key")
    );
    let proxy = Proxy::with(&Start::default(), &with);
    let mut client = Client::plain(proxy.address(), false).await;
    let answer = client.send("POST", proxy.address(), &[], own_call()).await;
    check(&rest(answer).await);

    let proxy = Proxy::with(&Start::default(), &without);
    let mut client = Client::plain(proxy.address(), false).await;
    let answer = client.send("POST", proxy.address(), &[], own_call()).await;
    assert_eq!(answer.status(), 502);
    assert_eq!(json(&rest(answer).await)["id"], 1);
    proxy.logged(&["WARN", "the request to the server failed", "route=\"/a\"", "ertificate"]);
}

#[tokio::test]
async fn a_server_that_nobody_vouches_for_is_502_and_the_log_says_why() {
    let (pki, other) = (Pki::new("127.0.0.1"), Pki::new("127.0.0.1"));
    let misnamed = Pki::new("tools.example");
    for (pki, trusted, why) in
        [(&pki, &other, "invalid peer certificate"), (&misnamed, &misnamed, "not valid for name")]
    {
        let server = Legacy::start(1, Some(pki.server(&[], false)));
        let route = format!(
            "upstream.url = \"{}\"\nupstream.ca_file = {:?}",
            server.url("https"),
            trusted.path("ca.pem")
        );
        let proxy = Proxy::with(&Start::default(), &route);
        let mut client = Client::plain(proxy.address(), false).await;
        let answer = client.send("POST", proxy.address(), &[], own_call()).await;
        assert_eq!(answer.status(), 502);
        let error = json(&rest(answer).await);
        assert_eq!(error["id"], 1);
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains(why), "{message}");
        let told = proxy.logged(&["WARN", "the request to the server failed", "route=\"/a\"", why]);
        let is_unknown = why == "invalid peer certificate";
        assert_eq!(told.contains("`upstream.ca_file` of the route"), is_unknown, "{told}");
        assert!(server.seen().is_empty());
    }
}

#[tokio::test]
async fn authorities_of_files_replace_those_of_the_system_unless_the_list_names_both() {
    let (known, other) = (Pki::new("127.0.0.1"), Pki::new("127.0.0.1"));
    let server = Legacy::start(1, Some(known.server(&[], false)));
    let system = [("SSL_CERT_FILE", known.path("ca.pem").display().to_string())];
    let start = Start { variables: &system, ..Start::default() };
    let url = format!("upstream.url = \"{}\"", server.url("https"));
    let (known, other) = (known.path("ca.pem"), other.path("ca.pem"));
    let is_told = |proxy: &Proxy| proxy.log().contains("`ca_file` replaces the system's");
    for (key, status) in [
        (String::new(), 200),
        (format!("upstream.ca_file = {other:?}"), 502),
        (format!("upstream.ca_file = [{other:?}]"), 502),
        (format!("upstream.ca_file = [{other:?}, {known:?}]"), 200),
        (format!("upstream.ca_file = [\"system\", {other:?}]"), 200),
    ] {
        let proxy = Proxy::with(&start, &format!("{url}\n{key}"));
        let mut client = Client::plain(proxy.address(), false).await;
        let answer = client.send("POST", proxy.address(), &[], own_call()).await;
        assert_eq!(answer.status(), status, "{key}");
        assert_eq!(is_told(&proxy), key == format!("upstream.ca_file = {other:?}"), "{key}");
    }
}

#[tokio::test]
async fn a_client_that_gives_up_a_stream_of_http_2_ends_only_that_call() {
    let server = Legacy::start(1, None);
    for http2 in [false, true] {
        let route = format!("upstream.url = \"{}\"\nupstream.http2 = {http2}", server.url("http"));
        let mut proxy = Proxy::with(&Start::default(), &route);
        let mut client = Client::plain(proxy.address(), true).await;
        let mut left = client.send("POST", proxy.address(), &[], hanging_call()).await;
        let mut stays = client.send("POST", proxy.address(), &[], hanging_call()).await;
        http_client::until(&mut left, "hanging").await;
        http_client::until(&mut stays, "hanging").await;
        assert_eq!(server.hanging(), 2);
        drop(left);
        hang(&server, 1).await;
        let answer = client.send("POST", proxy.address(), &[], own_call()).await;
        check(&rest(answer).await);
        drop((stays, client));
        hang(&server, 0).await;
        proxy.terminate();
        assert_eq!(proxy.code(), Some(0));
    }
}

#[tokio::test]
async fn a_server_of_http_2_that_dies_leaves_an_error_on_each_stream() {
    let server = Legacy::start(1, None);
    let route = format!("upstream.url = \"{}\"\nupstream.http2 = true", server.url("http"));
    let proxy = Proxy::with(&Start::default(), &route);
    let mut client = Client::plain(proxy.address(), true).await;
    let mut open = Vec::new();
    for _ in 0..3 {
        let mut answer = client.send("POST", proxy.address(), &[], hanging_call()).await;
        http_client::until(&mut answer, "hanging").await;
        open.push(answer);
    }
    drop(server);
    for answer in open {
        let error = json(&rest(answer).await);
        assert_eq!(error["id"], 1);
        assert!(error["error"]["code"].is_i64(), "{error}");
    }
    let answer = client.send("POST", proxy.address(), &[], own_call()).await;
    assert_eq!(answer.status(), 502);
    proxy.logged(&["WARN the stream of a server broke off", "route=\"/a\""]);
    proxy.logged(&["the request to the server failed", "Connection refused"]);
}

#[tokio::test]
async fn no_secret_is_logged_of_http_2_or_tls() {
    let pki = Pki::new("127.0.0.1");
    let server = Legacy::start(1, Some(pki.server(&["h2"], false)));
    let tls = format!(
        "tls = {{ certificate = {:?}, key = {:?} }}",
        pki.path("server.pem"),
        pki.path("server.key")
    );
    let route = format!(
        "upstream.url = \"{}?key=c4n4ry\"\nupstream.ca_file = {:?}\nupstream.http2 = true",
        server.url("https"),
        pki.path("ca.pem")
    );
    for (options, log) in [(&["--log-level", "trace"][..], None), (&[], Some("trace"))] {
        let start = Start { server: &tls, options, log, ..Start::default() };
        let mut proxy = Proxy::with(&start, &route);
        let mut client = Client::tls(proxy.address(), pki.client(&["h2"])).await;
        let secrets = [
            ("authorization", "Bearer c4n4ry"),
            ("cookie", "c4n4ry=c4n4ry"),
            ("mcp-session-id", "c4n4ry"),
            ("x-c4n4ry", "c4n4ry"),
        ];
        let answer = client.send("POST", proxy.address(), &secrets, own_call()).await;
        check(&rest(answer).await);
        proxy.terminate();
        assert_eq!(proxy.code(), Some(0));
        let log = proxy.log();
        let told: Vec<&str> = log.lines().filter(|line| line.contains("c4n4ry")).collect();
        assert!(told.is_empty(), "{told:#?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_http_2_connection_without_a_stream_is_closed_and_one_with_a_stream_is_not() {
    let upstream = Upstream::start();
    let start = Start {
        server: "http2_idle_timeout = \"4s\"",
        options: &["--log-level", "debug"],
        ..Start::default()
    };
    let proxy = Proxy::with(&start, &format!("upstream.url = \"{}\"", upstream.url()));
    let mut client = Client::plain(proxy.address(), true).await;
    let address = proxy.address().to_owned();
    let asked = tokio::spawn(async move {
        let answer = client.send("POST", &address, &[], call("1", "")).await;
        (rest(answer).await, client)
    });
    let mut server = tokio::task::spawn_blocking(move || upstream.asked()).await.unwrap();
    // Longer than an unused connection stays open.
    sleep(Duration::from_secs(7)).await;
    server.json(&result("1"));
    let (answer, client) = asked.await.unwrap();
    assert_eq!(answer, result("1"));
    let Client::Two(sender) = client else { panic!("HTTP/1.1") };
    let closed = async {
        while !sender.is_closed() {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(STUCK, closed).await.unwrap();
    proxy.logged(&["connection over", "ended=\"idle\""]);
    let page = Page::read(&proxy.probe("/metrics").1);
    assert_eq!(page.sum("milepost_idle_connections_closed_total", &[]), 1.0);
}

#[test]
fn an_idle_http_2_connection_is_closed_although_its_client_says_nothing() {
    let start = Start {
        server: "http2_idle_timeout = \"200ms\"",
        options: &["--log-level", "debug"],
        ..Start::default()
    };
    let proxy = Proxy::with(&start, "upstream.demo = true");
    let mut silent = TcpStream::connect(proxy.address()).unwrap();
    silent.set_read_timeout(Some(STUCK)).unwrap();
    // An empty SETTINGS frame; the server answers neither the proxy's SETTINGS nor its pings.
    silent.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    let mut heard = Vec::new();
    let _ = silent.read_to_end(&mut heard);
    assert!(!heard.is_empty());
    // The reason is not a missing answer to a ping.
    proxy.logged(&["connection over", "ended=\"idle\""]);
}
