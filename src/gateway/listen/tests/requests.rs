//! Tests of responses to valid HTTP requests.

use super::*;
use crate::config::routes::Secret;

/// Returns a request made of the lines of its head, and a body.
fn request(head: &str, body: &str) -> String {
    let head = head.trim().lines().map(str::trim).collect::<Vec<_>>().join("\r\n");
    let length =
        if body.is_empty() { String::new() } else { format!("content-length: {}\r\n", body.len()) };
    format!("{head}\r\nconnection: close\r\n{length}\r\n{body}")
}

#[track_caller]
fn has(spoken: &Spoken, parts: &[&str]) {
    for part in parts {
        assert!(spoken.answer.contains(part), "{part} is not in\n{}", spoken.answer);
    }
}

#[track_caller]
fn has_not(spoken: &Spoken, parts: &[&str]) {
    for part in parts {
        assert!(!spoken.answer.contains(part), "{part} is in\n{}", spoken.answer);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_is_handled_where_it_belongs() {
    for (head, handled) in [
        ("POST /a HTTP/1.1\nhost: localhost", "POST 0 Endpoint {}"),
        ("GET /a?x=1 HTTP/1.1\nhost: 127.0.0.1:7332", "GET 0 Endpoint {}"),
        ("GET /a/sse HTTP/1.1\nhost: [::1]", "GET 0 Sse {}"),
        ("POST /a/messages?s=1 HTTP/1.1\nhost: localhost", "POST 0 Messages(\"\") {}"),
        ("DELETE /web/ HTTP/1.1\nhost: localhost", "DELETE 1 Endpoint {}"),
        ("POST http://localhost:7332/a HTTP/1.1\nhost: localhost:7332", "POST 0 Endpoint {}"),
        (
            "GET /.well-known/oauth-protected-resource/a HTTP/1.1\nhost: localhost",
            "GET 0 WellKnown(\"/.well-known/oauth-protected-resource/mcp\") {}",
        ),
        ("OPTIONS /a HTTP/1.1\nhost: localhost", "OPTIONS 0 Endpoint {}"),
    ] {
        let spoken = speak(Server::default(), &request(head, "{}")).await;
        assert_eq!(spoken.handled, [handled]);
        assert_eq!(spoken.statuses(), [200]);
        assert_eq!(spoken.name(), "closed", "{head}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_is_refused_before_anybody_handles_it() {
    for (head, status, name) in [
        ("POST /a HTTP/1.1\nhost: evil.example", 403, "host"),
        ("POST /a HTTP/1.1\nhost: localhost\norigin: null", 403, "origin"),
        ("POST /nowhere HTTP/1.1\nhost: localhost\norigin: http://evil.example", 403, "origin"),
        ("POST /a HTTP/1.1", 400, "no-host"),
        ("POST /a HTTP/1.1\nhost: localhost\nhost: localhost", 400, "header-twice"),
        ("POST http://localhost/a HTTP/1.1\nhost: localhost:7332", 400, "two-hosts"),
        ("POST gopher://localhost/a HTTP/1.1\nhost: localhost", 400, "target"),
        ("POST a HTTP/1.1\nhost: localhost", 400, "target"),
        ("POST /b HTTP/1.1\nhost: localhost", 404, "no-route"),
        ("POST /%61 HTTP/1.1\nhost: localhost", 404, "no-route"),
        ("POST * HTTP/1.1\nhost: localhost", 404, "no-route"),
        ("POST /a HTTP/1.1\nhost: localhost\nvia: 1.1 milepost-0badcafe", 508, "loop"),
        ("POST /a/panic HTTP/1.1\nhost: localhost", 404, "no-route"),
        ("POST /a/messages/panic HTTP/1.1\nhost: localhost", 500, "fault"),
        (
            "POST /.well-known/oauth-protected-resource/a HTTP/1.1\nhost: localhost",
            405,
            "read-only",
        ),
        (
            "POST /a HTTP/1.1\nhost: localhost\nmcp-session-id: 1\nmcp-session-id: 2",
            400,
            "header-twice",
        ),
    ] {
        let spoken = speak(Server::default(), &request(head, "{}")).await;
        assert_eq!((spoken.statuses(), spoken.name()), (vec![status], name), "{head}");
        assert!(spoken.handled.is_empty());
        has(&spoken, &["content-type: application/json", r#""data":{"proxy":"milepost""#]);
    }
    let spoken = speak(Server::default(), &request("GET /b HTTP/1.1\nhost: localhost", "")).await;
    has(&spoken, &["HTTP/1.1 404", "text/plain", "milepost: no route is here"]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_body_is_read_so_that_the_refusal_is_read() {
    let large = "x".repeat(200 << 10);
    let first = request("POST /b HTTP/1.1\nhost: localhost", &large);
    let first = first.replace("connection: close\r\n", "");
    let second = request("POST /a HTTP/1.1\nhost: localhost", "{}");
    let spoken = speak(Server::default(), &(first + &second)).await;
    assert_eq!(spoken.statuses(), [404, 200]);
}

#[tokio::test(start_paused = true)]
async fn a_token_is_asked_for_before_anything_is_told() {
    let server = || Server { bearer: Some(Secret::new("s3cret".to_owned())), ..Server::default() };
    for path in ["/a", "/b"] {
        let head = format!("POST {path} HTTP/1.1\nhost: localhost");
        let spoken = speak(server(), &request(&head, "{}")).await;
        assert_eq!((spoken.statuses(), spoken.name()), (vec![401], "unauthorized"));
        has(&spoken, &["www-authenticate: Bearer\r\n"]);
    }
    let right = "POST /a HTTP/1.1\nhost: localhost\nauthorization: Bearer s3cret";
    let spoken = speak(server(), &request(right, "{}")).await;
    assert_eq!(spoken.handled, ["POST 0 Endpoint ours {}"]);
}

#[tokio::test(start_paused = true)]
async fn browsers_are_answered_where_the_route_says_so() {
    let origin = "origin: http://localhost:6274";
    let preflight = |path: &str| {
        let head = format!(
            "OPTIONS {path} HTTP/1.1\nhost: localhost\n{origin}\n\
             access-control-request-method: POST\naccess-control-request-headers: x-a"
        );
        request(&head, "")
    };
    let server = || Server { bearer: Some(Secret::new("s3cret".to_owned())), ..Server::default() };
    let spoken = speak(server(), &preflight("/web")).await;
    let allowed = "access-control-allow-origin: http://localhost:6274\r\n";
    has(&spoken, &["HTTP/1.1 204", allowed, "access-control-allow-headers: x-a\r\n"]);
    assert!(spoken.handled.is_empty());
    // The upstream answers this preflight, which without the token must not reach it.
    assert_eq!(speak(Server::default(), &preflight("/a")).await.handled, ["OPTIONS 0 Endpoint"]);
    assert_eq!(speak(server(), &preflight("/a")).await.name(), "closed");
    assert_eq!(speak(server(), &preflight("/a")).await.statuses(), [401]);

    let json = "content-type: application/json";
    let head = format!("POST /web HTTP/1.1\nhost: localhost\n{origin}\n{json}");
    let spoken = speak(Server::default(), &request(&head, "{}")).await;
    has(&spoken, &["HTTP/1.1 200", allowed, "vary: Origin\r\n", "Mcp-Session-Id"]);
    // The page may read why its request was refused.
    let spoken = speak(server(), &request(&head, "{}")).await;
    has(&spoken, &["HTTP/1.1 401", allowed]);
    let evil = head.replace("localhost:6274", "evil.example");
    has_not(&speak(Server::default(), &request(&evil, "{}")).await, &["access-control"]);
    let head = format!("POST /a HTTP/1.1\nhost: localhost\n{origin}\n{json}");
    has_not(&speak(Server::default(), &request(&head, "{}")).await, &["access-control"]);
}
