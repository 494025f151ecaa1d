//! Clients that a listener asks for a certificate.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::http_client::{Client, rest};
use super::proxy::Start;
use super::tls_and_http2::Pki;
use super::*;

/// Answers each call with the number of its process.
const SERVER: &str = r#"
import json, os, sys
for line in sys.stdin:
    said = json.loads(line)
    if "id" in said and "method" in said:
        result = {"resultType": "complete", "content": [{"type": "text", "text": str(os.getpid())}],
                  "protocolVersion": said.get("params", {}).get("protocolVersion"),
                  "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
        print(json.dumps({"jsonrpc": "2.0", "id": said["id"], "result": result}), flush=True)
"#;

fn children() -> String {
    format!("upstream.command = {}", serde_json::to_string(&["python3", "-c", SERVER]).unwrap())
}

const MODERN: [(&str, &str); 3] =
    [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "work")];

/// Keys of `[server]` for a listener that asks for certificates of this authority.
pub(super) fn asking(pki: &Pki) -> String {
    format!(
        "tls = {{ certificate = {:?}, key = {:?} }}\nclient_ca_file = {:?}",
        pki.path("server.pem"),
        pki.path("server.key"),
        pki.path("ca.pem")
    )
}

/// Returns what a client gets for a request, if anything.
async fn heard(proxy: &Proxy, config: ClientConfig) -> Vec<u8> {
    let stream = tokio::net::TcpStream::connect(proxy.address()).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut heard = Vec::new();
    let speak = async {
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        let port = proxy.address().rsplit(':').next().unwrap();
        let request =
            format!("GET /nowhere HTTP/1.1\r\nhost: localhost:{port}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        stream.read_to_end(&mut heard).await
    };
    let _ = timeout(STUCK, speak).await.unwrap();
    heard
}

/// The process that answers a call of 2026-07-28 under this `Authorization`.
async fn process(proxy: &Proxy, config: &ClientConfig, token: &str) -> String {
    let mut client = Client::tls(proxy.address(), config.clone()).await;
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"m","version":"2"}}}}"#;
    let headers = [&MODERN[..], &[("authorization", token)]].concat();
    let answer = client.send("POST", proxy.address(), &headers, body.to_owned()).await;
    let text = rest(answer).await;
    json(&text)["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{text}")).into()
}

#[tokio::test]
async fn a_client_without_a_certificate_of_the_authority_is_not_served() {
    let (pki, other) = (Pki::new("localhost"), Pki::new("localhost"));
    let server = asking(&pki);
    let start = Start { server: &server, options: &["--log-level", "debug"], ..Start::default() };
    let mut proxy = Proxy::with(&start, "upstream.demo = true");
    assert!(heard(&proxy, pki.client(&[])).await.is_empty());
    assert!(heard(&proxy, pki.client_named("ada.example.com", &other)).await.is_empty());
    proxy.logged(&["connection over", "ended=\"no-tls\""]);
    let served = heard(&proxy, pki.client_named("ada.example.com", &pki)).await;
    assert!(served.starts_with(b"HTTP/1.1 404"), "{}", String::from_utf8_lossy(&served));
    proxy.terminate();
    assert_eq!(proxy.code(), Some(0));
}

#[tokio::test]
async fn a_session_belongs_to_the_name_of_the_certificate_that_began_it() {
    let pki = Pki::new("localhost");
    let server = asking(&pki);
    let start = Start { server: &server, ..Start::default() };
    let proxy = Proxy::with(&start, &children());
    let ask = async |name: &str, method: &str, session: &[(&str, &str)], body: &str| {
        let config = pki.client_named(name, &pki);
        let mut client = Client::tls(proxy.address(), config).await;
        client.send(method, proxy.address(), session, body.to_owned()).await
    };
    let begin = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
    let begun = ask("ada.example.com", "POST", &[], begin).await;
    let id = begun.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    let session = [("mcp-session-id", &*id)];
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    for (name, status) in [("bob.example.com", 404), ("ada.example.com", 200)] {
        assert_eq!(ask(name, "POST", &session, ping).await.status(), status, "{name}");
    }
    for (name, status) in [("bob.example.com", 404), ("ada.example.com", 200)] {
        assert_eq!(ask(name, "DELETE", &session, "").await.status(), status, "{name}");
    }
}

#[tokio::test]
async fn the_name_of_a_certificate_is_a_client_with_limits_of_its_own() {
    let pki = Pki::new("localhost");
    let server = format!("{}\nmax_client_sessions = 1", asking(&pki));
    let start = Start { server: &server, ..Start::default() };
    let proxy = Proxy::with(&start, &children());
    let begin = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
    for (name, status) in [("ada", 200), ("ada", 429), ("bob", 200), ("bob", 429)] {
        let config = pki.client_named(&format!("{name}.example.com"), &pki);
        let mut client = Client::tls(proxy.address(), config).await;
        let answer = client.send("POST", proxy.address(), &[], begin.to_owned()).await;
        assert_eq!(answer.status(), status, "{name}");
    }
    proxy.logged(&["WARN refused", "client=dns:ada.example.com"]);
}

#[tokio::test]
async fn clients_share_a_child_by_the_name_of_their_certificate() {
    let pki = Pki::new("localhost");
    let server = asking(&pki);
    let start = Start { server: &server, ..Start::default() };
    let proxy = Proxy::with(&start, &children());
    let ada = pki.client_named("ada.example.com", &pki);
    let first = process(&proxy, &ada, "Bearer one").await;
    // A renewed token, and a renewed certificate: the client is the same.
    assert_eq!(process(&proxy, &ada, "Bearer two").await, first);
    let renewed = pki.client_named("ada.example.com", &pki);
    assert_eq!(process(&proxy, &renewed, "Bearer two").await, first);
    let bob = pki.client_named("bob.example.com", &pki);
    assert_ne!(process(&proxy, &bob, "Bearer one").await, first);
}
