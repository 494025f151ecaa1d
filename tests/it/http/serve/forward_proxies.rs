//! Servers that are reached through a forward proxy.

use std::sync::Arc;

use http::Version;
use tokio_rustls::TlsAcceptor;

use super::http_client::{Client, rest};
use super::legacy_server::Legacy;
use super::proxy::Start;
use super::tls_and_http2::{Pki, check, own_call};
use super::*;
use crate::support::forward_proxy::{Asks, ForwardProxy};

const ALICE: &str = "Basic YWxAaWNlOmM0bjRyeTow"; // al@ice:c4n4ry:0
const USER: &str = "al%40ice:c4n4ry%3A0@";

/// Calls the route once: the status and the body.
async fn call_once(proxy: &Proxy) -> (u16, String) {
    let mut client = Client::plain(proxy.address(), false).await;
    let answer = client.send("POST", proxy.address(), &[], own_call()).await;
    (answer.status().as_u16(), rest(answer).await)
}

/// Whether the log has a word about a proxy on the way to a server.
fn is_told_of(proxy: &Proxy) -> bool {
    let log = proxy.log();
    log.contains("go through a proxy") || log.contains("the proxy of the environment")
}

fn variables(all: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    all.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
}

fn serving(all: &[(&'static str, &str)], route: &str) -> Proxy {
    Proxy::with(&Start { variables: &variables(all), ..Start::default() }, route)
}

#[tokio::test]
async fn an_http_server_is_asked_for_by_its_whole_url() {
    let server = Legacy::start(1, None);
    let forward = ForwardProxy::before(&server.url("http"), Asks::Nothing);
    let route = "upstream.url = \"http://mcp.test/mcp?a=b\"";
    for variable in ["HTTP_PROXY", "http_proxy", "ALL_PROXY"] {
        let proxy = serving(&[(variable, &forward.url(""))], route);
        let named = format!("named_by=\"{variable}\"");
        let shown = format!("proxy=\"{}\"", forward.url(""));
        proxy.logged(&[
            "WARN",
            "go through a proxy",
            "route=\"/a\"",
            "server=\"http://mcp.test\"",
            &named,
            &shown,
        ]);
        // The second call may reuse the connection of the first.
        for _ in 0..2 {
            let (_, body) = call_once(&proxy).await;
            check(&body);
            let (version, uri) = server.seen().pop().unwrap();
            assert_eq!((version, &*uri), (Version::HTTP_11, "http://mcp.test/mcp?a=b"));
        }
        let heads = forward.heads();
        let is_whole = |head: &String| {
            head.starts_with("POST http://mcp.test/mcp?a=b HTTP/1.1\r\nhost: mcp.test\r\n")
        };
        assert!(!heads.is_empty() && heads.iter().all(is_whole), "{heads:?}");
    }
}

#[tokio::test]
async fn an_https_server_is_reached_through_a_tunnel_in_the_version_that_is_agreed_on() {
    let pki = Pki::new("mcp.test");
    for (http2, port, spoken, uri) in [
        (false, "", Version::HTTP_11, "/mcp"),
        (true, ":8443", Version::HTTP_2, "https://mcp.test:8443/mcp"),
    ] {
        let server = Legacy::start(1, Some(pki.server(&["h2", "http/1.1"], false)));
        let forward = ForwardProxy::before(&server.url("https"), Asks::Nothing);
        let route = format!(
            "upstream.url = \"https://mcp.test{port}/mcp\"\nupstream.ca_file = [{:?}]\nupstream.http2 = {http2}",
            pki.path("ca.pem")
        );
        // The proxy for the other scheme is not used.
        let unused = [("HTTP_PROXY", "http://127.0.0.1:1"), ("HTTPS_PROXY", &forward.url(""))];
        let proxy = serving(&unused, &route);
        let (_, body) = call_once(&proxy).await;
        check(&body);
        assert_eq!(server.seen().pop().unwrap(), (spoken, uri.to_owned()));
        let host = format!("mcp.test{}", if port.is_empty() { ":443" } else { port });
        assert_eq!(forward.heads(), [format!("CONNECT {host} HTTP/1.1\r\nhost: {host}\r\n\r\n")]);
    }
}

#[tokio::test]
async fn http_2_without_tls_is_spoken_through_a_tunnel() {
    let server = Legacy::start(1, None);
    let forward = ForwardProxy::before(&server.url("http"), Asks::Nothing);
    let route = "upstream.url = \"http://mcp.test/mcp\"\nupstream.http2 = true";
    let proxy = serving(&[("HTTP_PROXY", &forward.url(""))], route);
    let (_, body) = call_once(&proxy).await;
    check(&body);
    assert_eq!(server.seen().pop().unwrap().0, Version::HTTP_2);
    assert!(forward.heads()[0].starts_with("CONNECT mcp.test:80 "));
}

#[tokio::test]
async fn credentials_of_the_proxys_url_are_sent_to_the_proxy_and_shown_to_nobody() {
    let pki = Pki::new("mcp.test");
    for scheme in ["http", "https"] {
        let tls = (scheme == "https").then(|| pki.server(&[], false));
        let server = Legacy::start(1, tls);
        let forward = ForwardProxy::before(&server.url(scheme), Asks::For(ALICE));
        let ca = format!("upstream.ca_file = [{:?}]", pki.path("ca.pem"));
        let ca = if scheme == "https" { &*ca } else { "" };
        let route = format!("upstream.url = \"{scheme}://mcp.test/mcp\"\n{ca}");
        let setting = format!("{route}\nupstream.proxy = \"{}\"", forward.url(USER));
        let url = forward.url(USER);
        for (set, route) in [(vec![("ALL_PROXY", &*url)], &route), (Vec::new(), &setting)] {
            let set = variables(&set);
            let start =
                Start { options: &["--log-level", "trace"], variables: &set, ..Start::default() };
            let mut proxy = Proxy::with(&start, route);
            proxy.logged(&[
                "WARN",
                "go through a proxy",
                &format!("proxy=\"{}\"", forward.url("")),
            ]);
            let (_, body) = call_once(&proxy).await;
            check(&body);
            proxy.terminate();
            assert_eq!(proxy.code(), Some(0));
            let log = proxy.log();
            assert!(!log.contains("c4n4ry") && !log.contains("YWxAaWNl"), "{log}");
        }
    }
}

#[tokio::test]
async fn a_proxy_that_refuses_is_told_of_with_its_status() {
    let pki = Pki::new("mcp.test");
    let server = Legacy::start(1, None);
    for (scheme, asks, user, words) in [
        ("https", Asks::Refuses("403 Forbidden"), "", "403 Forbidden"),
        ("https", Asks::Refuses("502 Bad Gateway"), "", "502 Bad Gateway"),
        ("https", Asks::For(ALICE), "", "write its credentials into its URL"),
        ("https", Asks::For(ALICE), "bob:wr0ng@", "does not accept the credentials in its URL"),
        ("http", Asks::For(ALICE), "", "write its credentials into its URL"),
        ("http", Asks::For(ALICE), "bob:wr0ng@", "does not accept the credentials in its URL"),
    ] {
        let forward = ForwardProxy::before(&server.url("http"), asks);
        let ca = format!("upstream.ca_file = [{:?}]", pki.path("ca.pem"));
        let ca = if scheme == "https" { &*ca } else { "" };
        let route = format!(
            "upstream.url = \"{scheme}://mcp.test/mcp\"\n\
             upstream.proxy = \"{}\"\n{ca}",
            forward.url(user)
        );
        let proxy = Proxy::with(&Start::default(), &route);
        let (status, body) = call_once(&proxy).await;
        assert_eq!(status, 502, "{body}");
        let error = json(&body);
        assert_eq!(error["id"], 1);
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("the proxy on the way to the server answers "), "{message}");
        // Clients do not learn the address of the proxy.
        assert!(!message.contains(&forward.address()), "{message}");
        proxy.logged(&["WARN", "the request to the server failed", &forward.url(""), words]);
        assert!(!proxy.log().contains("wr0ng"));
    }
}

#[tokio::test]
async fn a_proxy_that_is_not_there_is_named() {
    let (_held, address) = scripted_server::dead();
    let route = "upstream.url = \"https://mcp.test/mcp\"";
    let proxy = serving(&[("HTTPS_PROXY", &address)], route);
    let (status, body) = call_once(&proxy).await;
    assert_eq!(status, 502, "{body}");
    let words = format!(
        "cannot connect to mcp.test:443 through the proxy http://{address}: Connection refused"
    );
    proxy.logged(&["WARN", &words]);
}

#[tokio::test]
async fn a_server_on_this_machine_is_reached_directly_and_without_a_word() {
    let server = Legacy::start(1, None);
    let forward = ForwardProxy::before(&server.url("http"), Asks::Nothing);
    let url = server.url("http");
    for url in [url.clone(), url.replace("127.0.0.1", "localhost")] {
        let proxy =
            serving(&[("ALL_PROXY", &forward.url(""))], &format!("upstream.url = \"{url}\""));
        let (_, body) = call_once(&proxy).await;
        check(&body);
        assert!(forward.heads().is_empty());
        assert!(!is_told_of(&proxy), "{}", proxy.log());
        // The proxy that a route names is used.
        let route = format!("upstream.url = \"{url}\"\nupstream.proxy = \"{}\"", forward.url(""));
        let proxy = Proxy::with(&Start::default(), &route);
        let (_, body) = call_once(&proxy).await;
        check(&body);
        assert_eq!(forward.heads().len(), 1);
    }
}

#[test]
fn a_proxy_of_the_environment_that_is_not_used_is_told_of() {
    let all = ("ALL_PROXY", "http://c4n4ry:c4n4ry@proxy.test:3128");
    let server = "upstream.url = \"http://mcp.test/mcp\"";
    for (set, why) in [
        (vec![all, ("NO_PROXY", "a.test, .test")], "why=\"NO_PROXY has \\\".test\\\"\""),
        (vec![all, ("no_proxy", "mcp.test:80")], "no_proxy has"),
        (vec![("ALL_PROXY", "socks5://c4n4ry:c4n4ry@proxy.test:1080")], "socks5: is not supported"),
    ] {
        let proxy = serving(&set, server);
        let unused = "the proxy of the environment is not used";
        proxy.logged(&["WARN", unused, "route=\"/a\"", "variable=\"ALL_PROXY\"", why]);
        assert!(!proxy.log().contains("c4n4ry"), "{}", proxy.log());
    }
    for (set, route) in [
        (vec![all, ("NO_PROXY", "mcp.test:8080")], server.to_owned()),
        (
            vec![all, ("NO_PROXY", "*")],
            format!("{server}\nupstream.proxy = \"http://other.test:1\""),
        ),
    ] {
        serving(&set, &route).logged(&["WARN", "go through a proxy"]);
    }
    for (set, route) in [
        (vec![all], format!("{server}\nupstream.proxy = \"none\"")),
        (vec![("REQUEST_METHOD", "GET"), ("HTTP_PROXY", "http://evil.test:1")], server.to_owned()),
        (vec![("HTTPS_PROXY", "http://proxy.test:1")], server.to_owned()),
    ] {
        let proxy = serving(&set, &route);
        assert!(!is_told_of(&proxy), "{}", proxy.log());
    }
}

#[test]
fn check_print_shows_no_credentials_of_a_proxy() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("proxy.toml");
    let url = "http://alice:c4n4ry@proxy.test:3128";
    for (value, shown) in
        [(url, "\"http://***@proxy.test:3128\""), ("none", "\"none\""), ("${CORP}", "http://***@")]
    {
        let text = format!(
            "[[route]]\npath = \"/a\"\nupstream.url = \"http://mcp.test/\"\nupstream.proxy = \"{value}\"\n"
        );
        std::fs::write(&file, text).unwrap();
        let mut check = crate::support::milepost();
        let output = check.args(["check", "--print"]).arg(&file).env("CORP", url).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("upstream.proxy = ") && text.contains(shown), "{text}");
        assert!(!text.contains("c4n4ry"), "{text}");
    }
}

/// TLS in front of a plain server: the port.
async fn tls_in_front_of(address: String, pki: &Pki) -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(Arc::new(pki.server(&[], false)));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, address) = (acceptor.clone(), address.clone());
            tokio::spawn(async move {
                let Ok(mut client) = acceptor.accept(stream).await else { return };
                let mut server = tokio::net::TcpStream::connect(address).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    port
}

#[tokio::test]
async fn a_proxy_that_itself_speaks_tls_leads_to_both_kinds_of_servers() {
    let pki = Pki::new("mcp.test");
    for scheme in ["http", "https"] {
        let server = Legacy::start(1, (scheme == "https").then(|| pki.server(&[], false)));
        let forward = ForwardProxy::before(&server.url(scheme), Asks::For(ALICE));
        let port = tls_in_front_of(forward.address(), &pki).await;
        let route = |ca: &str| {
            format!(
                "upstream.url = \"{scheme}://mcp.test/mcp\"\nupstream.ca_file = [{ca}]\n\
                 upstream.proxy = \"https://{USER}localhost:{port}\""
            )
        };
        let trusting = route(&format!("{:?}", pki.path("ca.pem")));
        let proxy = Proxy::with(&Start::default(), &trusting);
        let (_, body) = call_once(&proxy).await;
        check(&body);
        let word =
            if scheme == "https" { "CONNECT mcp.test:443 " } else { "POST http://mcp.test/mcp " };
        assert!(forward.heads()[0].starts_with(word));
        // The certificate of the proxy is checked.
        let proxy = Proxy::with(&Start::default(), &route("\"system\""));
        let (status, body) = call_once(&proxy).await;
        assert_eq!(status, 502, "{body}");
        proxy.logged(&["WARN", "UnknownIssuer", "`upstream.ca_file` of the route"]);
        assert!(forward.heads().is_empty());
    }
}
