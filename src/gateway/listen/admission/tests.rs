//! Tests of admission, as tables of requests.

use super::*;
use crate::config::values::ip_net::IpNet;
use crate::transport::http::write_state::WriteState;

const HERE: &str = "127.0.0.1:7332";

fn via() -> Via {
    Via::named(0xbad_cafe)
}

fn request(head: &str) -> Parts {
    let mut lines = head.split('\n').map(str::trim);
    let mut words = lines.next().unwrap().split(' ');
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    let mut request = http::Request::builder().method(method).uri(target);
    request = request.version(match words.next() {
        Some("HTTP/1.0") => Version::HTTP_10,
        Some("HTTP/2") => Version::HTTP_2,
        _ => Version::HTTP_11,
    });
    for line in lines.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').unwrap();
        request = request.header(name, value.trim());
    }
    request.body(()).unwrap().into_parts().0
}

#[track_caller]
fn check(server: &Server, local: &str, head: &str, expected: Result<(), Refusal>) {
    let parts = request(head);
    assert_eq!(admit(server, &via(), local.parse().unwrap(), &parts), expected, "{head}");
}

#[track_caller]
fn host(server: &Server, local: &str, host: &str, expected: Result<(), Refusal>) {
    for method in ["POST", "GET", "DELETE", "OPTIONS", "HEAD"] {
        for path in ["/a", "/.well-known/oauth-protected-resource/a", "/nowhere"] {
            check(server, local, &format!("{method} {path}\nhost: {host}"), expected);
        }
    }
}

#[test]
fn on_loopback_every_spelling_of_loopback_is_answered_with_any_port() {
    let server = Server::default();
    for local in [HERE, "[::1]:7332", "[::ffff:127.0.0.1]:7332"] {
        for name in
            ["localhost", "LOCALHOST", "localhost.", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]"]
        {
            host(&server, local, name, Ok(()));
            host(&server, local, &format!("{name}:7332"), Ok(()));
            // A forwarded port counts as another port.
            host(&server, local, &format!("{name}:8080"), Ok(()));
            host(&server, local, &format!("{name}:80"), Ok(()));
        }
    }
}

#[test]
fn names_that_somebody_else_may_own_are_refused() {
    for name in [
        "evil.example",
        "evil.example:7332",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "localhost@evil.example",
        "evil.example@localhost",
        "app.localhost",
        "127.1",
        "0.0.0.0:7332",
        "[::]:7332",
        "192.168.1.5:7332",
        "localhost:7332, evil.example",
        "localhost evil.example",
        "localhost/evil.example",
        "null",
        "*",
    ] {
        host(&Server::default(), HERE, name, Err(Refusal::Host));
    }
}

#[test]
fn away_from_loopback_only_our_address_and_the_names_we_were_given_are_answered() {
    let names = ["tools.example", "[2001:DB8::1]", "only.example:8443"];
    let server = Server { allowed_hosts: names.map(str::to_owned).into(), ..Server::default() };
    let local = "192.168.1.5:7332";
    for (name, fine) in [
        ("192.168.1.5:7332", true),
        ("192.168.1.5", true),
        ("192.168.1.5:80", false),
        ("192.168.1.6:7332", false),
        ("localhost:7332", false),
        ("tools.example", true),
        ("Tools.Example.:443", true),
        ("evil.tools.example", false),
        ("[2001:db8:0::1]:443", true),
        ("only.example:8443", true),
        ("only.example", false),
        ("only.example:443", false),
    ] {
        host(&server, local, name, if fine { Ok(()) } else { Err(Refusal::Host) });
    }
    host(&server, HERE, "tools.example", Ok(()));
    host(&server, HERE, "localhost", Ok(()));
}

#[test]
fn a_listener_that_is_told_to_answers_every_name() {
    let server = Server { insecure: true, ..Server::default() };
    for name in ["evil.example", "192.168.1.5:7332", "tools.example:80"] {
        host(&server, HERE, name, Ok(()));
    }
    host(&server, HERE, "localhost evil.example", Err(Refusal::Host));
}

#[test]
fn a_request_names_one_host() {
    let server = Server::default();
    let row = |head: &str, expected| check(&server, HERE, head, expected);
    row("GET /a", Err(Refusal::NoHost));
    row("GET /a HTTP/2", Err(Refusal::NoHost));
    row("GET /a HTTP/1.0", Ok(()));
    row("GET /a HTTP/1.0\nhost: evil.example", Err(Refusal::Host));
    row("GET /a\nhost:", Err(Refusal::NoHost));
    row("GET /a\nhost: localhost\nhost: localhost", Err(Refusal::Twice("host")));
    row("GET /a\nhost: localhost\nhost: evil.example", Err(Refusal::Twice("host")));
    row("GET http://localhost:7332/a\nhost: localhost:7332", Ok(()));
    row("GET http://localhost:7332/a\nhost: evil.example", Err(Refusal::TwoHosts));
    row("GET http://evil.example/a\nhost: localhost:7332", Err(Refusal::TwoHosts));
    row("GET http://evil.example/a\nhost: evil.example", Err(Refusal::Host));
    row("GET ftp://localhost:7332/a\nhost: localhost:7332", Err(Refusal::Target));
    row("GET localhost:7332\nhost: localhost:7332", Err(Refusal::Target));
    row("GET https://localhost:7332/a HTTP/2", Ok(()));
    row("GET https://evil.example/a HTTP/2", Err(Refusal::Host));
    row("GET https://localhost/a HTTP/2\nhost: evil.example", Err(Refusal::TwoHosts));
    row("GET https://user@localhost/a HTTP/2", Err(Refusal::Host));
}

#[track_caller]
fn origin(server: &Server, origin: &str, expected: Result<(), Refusal>) {
    for method in ["POST", "GET", "DELETE", "OPTIONS"] {
        let head = format!("{method} /a\nhost: localhost:7332\norigin: {origin}");
        check(server, HERE, &head, expected);
    }
}

#[test]
fn pages_of_this_machine_may_speak_and_others_not() {
    let server = Server::default();
    for text in [
        "http://localhost",
        "http://localhost:6274",
        "https://localhost:1",
        "http://127.0.0.1:6274",
        "http://[::1]:3000",
        "http://[::ffff:127.0.0.1]",
    ] {
        origin(&server, text, Ok(()));
    }
    for text in [
        "null",
        "",
        "*",
        "localhost",
        "http://",
        "http://evil.example",
        "http://evil.example:7332",
        "http://localhost.evil.example",
        "http://localhost@evil.example",
        "http://localhost:80:80",
        "http://localhost/",
        "http://localhost, http://evil.example",
        "http://localhost http://evil.example",
        "http://192.168.1.5",
        "file://",
        "file://localhost",
        "chrome-extension://abc",
    ] {
        origin(&server, text, Err(Refusal::Origin));
    }
}

#[test]
fn pages_that_we_were_told_of_may_speak() {
    let allowed =
        ["https://app.example", "http://app.example:8080", "vscode-webview://abc", "null"];
    let server = Server { allowed_origins: allowed.map(str::to_owned).into(), ..Server::default() };
    for (text, fine) in [
        ("https://app.example", true),
        ("HTTPS://App.Example:443", true),
        ("http://app.example", false),
        ("https://app.example:8080", false),
        ("http://app.example:8080", true),
        ("http://app.example:80", false),
        ("https://x.app.example", false),
        ("vscode-webview://abc", true),
        ("vscode-webview://abd", false),
        ("null", false),
    ] {
        origin(&server, text, if fine { Ok(()) } else { Err(Refusal::Origin) });
    }
}

#[test]
fn headers_that_decide_are_there_once() {
    for name in ONCE {
        let head = format!("POST /a\nhost: localhost\n{name}: x\n{name}: x");
        check(&Server::default(), HERE, &head, Err(Refusal::Twice(name)));
    }
    let head = "POST /a\nhost: localhost\nmcp-param-a: x\nmcp-param-a: y\ncookie: a\ncookie: b";
    check(&Server::default(), HERE, head, Ok(()));
}

#[test]
fn what_is_not_http_as_mcp_uses_it_is_refused() {
    let row = |head: &str, expected| check(&Server::default(), HERE, head, expected);
    row("CONNECT localhost:7332\nhost: localhost:7332", Err(Refusal::Method));
    row("TRACE /a\nhost: localhost", Err(Refusal::Method));
    row("PUT /a\nhost: localhost", Ok(()));
    let upgrade = |to: &str, connection: &str| {
        format!("GET /a\nhost: localhost\nupgrade: {to}\nconnection: {connection}")
    };
    row(&upgrade("websocket", "Upgrade"), Err(Refusal::Upgrade));
    row(&upgrade("websocket", "keep-alive, upgrade"), Err(Refusal::Upgrade));
    row(&upgrade("h2c", "Upgrade, HTTP2-Settings"), Ok(()));
    row(&upgrade("websocket", "close"), Ok(()));
    row("GET /a\nhost: localhost\nvia: 1.1 milepost-0badcafe", Err(Refusal::Loop));
    row("GET /a\nhost: localhost\nvia: 1.1 milepost-0badbeef", Ok(()));
}

#[test]
fn a_head_has_a_largest_size() {
    let server = Server { max_header_bytes: 1000, ..Server::default() };
    let head = |length: usize| format!("GET /a\nhost: localhost\nx: {}", "y".repeat(length));
    check(&server, HERE, &head(900), Ok(()));
    check(&server, HERE, &head(1000), Err(Refusal::HeadTooLarge));
    let target = format!("GET /{}\nhost: localhost", "y".repeat(1000));
    check(&server, HERE, &target, Err(Refusal::HeadTooLarge));
}

#[test]
fn a_listener_that_asks_for_a_token_takes_only_that_one() {
    let server = |bearer: Option<&str>| Server {
        bearer: bearer.map(|text| Secret::new(text.to_owned())),
        ..Server::default()
    };
    let row = |server: &Server, header: Option<&str>, expected| {
        let mut headers = HeaderMap::new();
        if let Some(value) = header {
            headers.insert(AUTHORIZATION, value.parse().unwrap());
        }
        assert_eq!(authorize(server.bearer.as_ref(), &headers), expected, "{header:?}");
    };
    let open = server(None);
    row(&open, None, Ok(false));
    row(&open, Some("Bearer whatever"), Ok(false));
    let closed = server(Some("s3cret"));
    row(&closed, Some("Bearer s3cret"), Ok(true));
    row(&closed, Some("bearer s3cret"), Ok(true));
    row(&closed, Some("BEARER   s3cret"), Ok(true));
    for wrong in [
        "Bearer ",
        "Bearer",
        "Bearer s3cre",
        "Bearer s3crets3cret",
        "Bearer S3CRET",
        "Basic s3cret",
        "s3cret",
        "",
    ] {
        row(&closed, Some(wrong), Err(Refusal::Unauthorized));
    }
    row(&closed, None, Err(Refusal::Unauthorized));
    row(&server(Some("")), Some("Bearer "), Err(Refusal::Unauthorized));
}

#[track_caller]
fn page(head: &str, expected: Result<(), Refusal>) {
    let (server, parts) = (Server::default(), request(head));
    let judged = admit_page(&server, &parts).and_then(|()| admit_body(&server, &parts));
    assert_eq!(judged, expected, "{head}");
    let unchecked = Server { check_pages: false, ..server };
    let passes = admit_page(&unchecked, &parts).and_then(|()| admit_body(&unchecked, &parts));
    assert_eq!(passes, Ok(()), "{head}");
}

#[test]
fn requests_of_pages_of_other_sites_without_an_origin_are_refused() {
    for site in ["cross-site", "same-site"] {
        for method in ["GET", "POST", "DELETE", "HEAD"] {
            let head = format!("{method} /a\nhost: localhost\nsec-fetch-site: {site}");
            page(&head, Err(Refusal::CrossSite));
        }
        page(&format!("OPTIONS /a\nhost: localhost\nsec-fetch-site: {site}"), Ok(()));
        let inspector = "origin: http://localhost:6274\ncontent-type: application/json";
        page(&format!("POST /a\nhost: localhost\n{inspector}\nsec-fetch-site: {site}"), Ok(()));
    }
    for head in ["GET /a", "GET /a\nsec-fetch-site: none", "GET /a\nsec-fetch-site: same-origin"] {
        page(head, Ok(()));
    }
}

#[test]
fn bodies_that_a_page_can_send_unasked_are_refused_from_browsers_only() {
    let browser = "POST /a\nhost: localhost\norigin: http://localhost:6274";
    for kind in [
        "text/plain;charset=UTF-8",
        "TEXT/PLAIN",
        "multipart/form-data; boundary=a",
        "application/x-www-form-urlencoded",
        "",
    ] {
        page(&format!("{browser}\ncontent-type: {kind}"), Err(Refusal::BodyType));
        page(&format!("POST /a\nhost: localhost\ncontent-type: {kind}"), Ok(()));
    }
    page(browser, Err(Refusal::BodyType));
    page("POST /a\nsec-fetch-site: same-origin", Err(Refusal::BodyType));
    page(&format!("{browser}\ncontent-type: application/json"), Ok(()));
    page("GET /a\norigin: http://localhost:6274", Ok(()));
    page("POST /a\nsec-fetch-mode: cors\ncontent-type: text/plain;charset=UTF-8", Ok(()));
}

#[test]
fn a_front_names_the_user_once_and_nobody_else_does() {
    let found = |remote: &str, lines: &str, signed: Option<Option<&str>>| {
        let server = Server {
            trusted_proxies: vec![IpNet::read("10.0.0.0/8").unwrap()],
            principal: Some(HeaderName::from_static("x-user")),
            ..Server::default()
        };
        let remote = format!("{remote}:1").parse().unwrap();
        let client = Peer {
            remote,
            local: HERE.parse().unwrap(),
            secure: false,
            name: signed.flatten().map(ClientName::passed_on),
            write_state: WriteState::default(),
            last_use: None,
        };
        let mut parts = request(&format!("POST /a\nhost: {HERE}\n{lines}"));
        if signed.is_some() {
            parts.extensions.insert(PassedOn);
        }
        principal(&server, &client, &parts)
            .map(|found| (found.name.map(|name| name.as_str().to_owned()), found.foreign.is_some()))
    };
    let principal_of = |remote: &str, lines: &str| found(remote, lines, None);
    let named = |name: &str| Ok((Some(name.to_owned()), false));
    assert_eq!(principal_of("10.0.0.1", "x-user: ada"), named("header:ada"));
    assert_eq!(principal_of("10.0.0.1", "x-user:"), Ok((None, false)));
    assert_eq!(principal_of("10.0.0.1", ""), Ok((None, false)));
    assert_eq!(principal_of("10.0.0.1", "x-user: ada\nx-user: bob"), Err(Refusal::Principal));
    let long = format!("x-user: {}", "a".repeat(2000));
    assert_eq!(principal_of("10.0.0.1", &long), Err(Refusal::Principal));
    assert_eq!(principal_of("203.0.113.7", "x-user: ada\nx-user: bob"), Ok((None, true)));
    assert_eq!(principal_of("203.0.113.7", "x-other: ada"), Ok((None, false)));

    // The principal that another replica has signed is used, whatever the headers say.
    let passed_on = |lines: &str, signed: Option<&str>| {
        let (name, is_foreign) = found("10.0.0.1", lines, Some(signed)).unwrap();
        assert_eq!(name.as_deref(), signed, "{lines}");
        is_foreign
    };
    assert!(!passed_on("x-user: ada", Some("header:ada")));
    assert!(!passed_on("", Some("header:ada")));
    assert!(!passed_on("x-user:", Some("cn:front")));
    assert!(!passed_on("x-user:", None));
    assert!(passed_on("x-user: bob", Some("header:ada")));
    assert!(passed_on("x-user: ada\nx-user: bob", Some("header:ada")));
    assert!(passed_on("x-user: ada", Some("cn:ada")));
    assert!(passed_on("x-user: ada", None));
    assert!(passed_on("x-user:", Some("header:ada")));
    assert_eq!(
        found("203.0.113.7", "x-user: ada", Some(Some("header:ada"))),
        Ok((Some("header:ada".to_owned()), true)),
        "a replica that trusts other fronts"
    );
}
