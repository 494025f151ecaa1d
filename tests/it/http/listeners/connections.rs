//! Connections as clients see them while `serve` runs.

use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use milepost::config::routes::ServerTls;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::*;

#[tokio::test]
async fn an_error_at_the_start_says_what_to_do() {
    let none = Admin::none();
    let check = async |server: Server, admin: &Admin, expected: &[&str]| {
        let Err(error) = bind(&server, admin).await else { panic!("{expected:?} was expected") };
        let error = said(&error);
        assert!(expected.iter().all(|part| error.contains(part)), "{error}");
    };
    let taken = std::net::TcpListener::bind(loopback()).unwrap();
    let address = taken.local_addr().unwrap();
    let name = address.to_string();
    let in_use = "end what listens there, or write another address in";
    let here = Server { listen: address, ..server() };
    check(here, &none, &[&name, in_use, "[server]", "in use"]).await;
    let operators = Admin { listen: Some(address), ..Admin::default() };
    check(server(), &operators, &[&name, in_use, "[admin]"]).await;
    let open = Server { listen: "0.0.0.0:0".parse().unwrap(), ..server() };
    check(open.clone(), &none, &["0.0.0.0:0", "allowed_hosts", "127.0.0.1"]).await;
    let named = Server { allowed_hosts: vec!["tools.example".to_owned()], ..open.clone() };
    assert!(bind(&named, &none).await.is_ok());
    assert!(bind(&Server { insecure: true, ..open }, &none).await.is_ok());

    let (folder, certificate, key) = certificate();
    let (_other, other, _) = super::certificate();
    let missing = folder.path().join("missing.pem");
    let tls = |certificate: &PathBuf, key: &PathBuf| Server {
        tls: Some(ServerTls { certificate: certificate.clone(), key: key.clone() }),
        ..server()
    };
    check(tls(&missing, &key), &none, &["cannot read", "missing.pem"]).await;
    check(tls(&certificate, &missing), &none, &["cannot read", "missing.pem"]).await;
    check(tls(&key, &key), &none, &["key.pem holds no certificate"]).await;
    check(tls(&certificate, &certificate), &none, &["cert.pem holds no private key"]).await;
    check(tls(&other, &key), &none, &["do not make a certificate", "cert.pem", "key.pem"]).await;
}

#[tokio::test]
async fn tls_offers_both_versions() {
    let (_folder, certificate, key) = certificate();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&certificate).unwrap()).unwrap();
    let site = start(Server { tls: Some(ServerTls { certificate, key }), ..server() }).await;
    for (offered, chosen) in
        [(&["h2", "http/1.1"][..], Some("h2")), (&["http/1.1"], Some("http/1.1")), (&[], None)]
    {
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots.clone())
            .with_no_client_auth();
        config.alpn_protocols = offered.iter().map(|name| name.as_bytes().to_vec()).collect();
        let socket = TcpStream::connect(site.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, socket).await.unwrap();
        let agreed = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
        assert_eq!(agreed.as_deref(), chosen.map(str::as_bytes));
        let io = TokioIo::new(stream);
        let uri = format!("https://localhost:{}/a", site.address.port());
        let request =
            Request::post(uri).header("host", format!("localhost:{}", site.address.port()));
        let request = request.body(Full::<Bytes>::from("0")).unwrap();
        let response = if chosen == Some("h2") {
            let (mut sender, connection) =
                http2::handshake(TokioExecutor::new(), io).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await.unwrap()
        } else {
            let (mut sender, connection) = http1::handshake(io).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await.unwrap()
        };
        assert_eq!(response.status(), 200);
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "done 0");
    }
    // Plain HTTP on a TLS listener is refused, and harms no other client.
    let mut plain = Talk::with(site.address).await;
    plain.say("GET /a", "").await;
    assert!(!plain.rest().await.0.contains("HTTP/1.1 200"));
}

#[tokio::test]
async fn http_2_is_held_to_the_same_rules() {
    let site = start(server()).await;
    let io = TokioIo::new(TcpStream::connect(site.address).await.unwrap());
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let own = format!("localhost:{}", site.address.port());
    let long = "x".repeat(100 << 10);
    for (authority, name, value, status) in [
        (&*own, "x", "y", 200),
        ("localhost", "x", "y", 200),
        ("evil.example", "x", "y", 403),
        ("localhost:1", "x", "y", 200),
        (&own, "host", "evil.example", 400),
        (&own, "origin", "http://evil.example", 403),
        (&own, "origin", "http://localhost:6274", 200),
        (&own, "via", "1.1 milepost-00000001", 508),
        (&own, "x", &long, 431),
    ] {
        let uri = format!("http://{authority}/a");
        let request = Request::post(uri).header("content-type", "application/json");
        let request = request.header(name, value).body(Full::<Bytes>::from("0"));
        let response = sender.send_request(request.unwrap()).await.unwrap();
        assert_eq!(response.status(), status, "{authority} {name}");
    }
}

#[tokio::test]
async fn more_connections_than_the_limit_are_turned_away() {
    let site = start(Server { max_connections: 2, ..server() }).await;
    let mut first = Talk::with(site.address).await;
    first.say("GET /a", "").await;
    first.hear(": hello").await;
    let mut second = Talk::with(site.address).await;
    second.say("POST /a", "0").await;
    second.hear("done 0").await;
    let mut third = Talk::with(site.address).await;
    // The client gets the answer before it has sent a request, and the connection is not reset.
    sleep(Duration::from_millis(100)).await;
    for _ in 0..2 {
        third.say("POST /a", &"0".repeat(10_000)).await;
        sleep(Duration::from_millis(50)).await;
    }
    let (answer, closed) = third.rest().await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && closed, "{answer}");
    assert!(answer.contains("connection: close\r\n") && answer.contains("max_connections"));
    drop(second);
    // A new connection is accepted once the proxy has noticed that the second client has disconnected.
    let deadline = Instant::now() + STUCK;
    while status(site.address, "POST /a").await != 200 {
        assert!(Instant::now() < deadline);
        sleep(Duration::from_millis(5)).await;
    }
    first.0.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_fault_in_one_connection_harms_no_other() {
    let site = start(server()).await;
    let mut other = Talk::with(site.address).await;
    other.say("GET /a", "").await;
    other.hear(": hello").await;
    let mut faulty = Talk::with(site.address).await;
    faulty.say("DELETE /a", "").await;
    let (answer, _) = faulty.rest().await;
    assert!(answer.contains("half") && !answer.ends_with("0\r\n\r\n"), "{answer}");
    assert_eq!(status(site.address, "POST /a").await, 200);
    site.stop().await;
    assert!(other.rest().await.0.contains("data: bye"));
    assert_eq!(site.code().await, 0);
}
