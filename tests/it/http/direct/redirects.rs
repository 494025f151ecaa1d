//! Servers whose endpoint has moved to another path of their origin: `serve` follows, and remembers the path.

use crate::http::rig::{Rig, check, settle};
use crate::support::messages::*;

const MOVED: &str = "307 Temporary Redirect";

#[tokio::test(start_paused = true)]
async fn a_redirect_within_the_origin_is_followed_and_remembered() {
    for (status, place) in [
        (MOVED, "/base/mcp/"),
        ("308 Permanent Redirect", "http://up.example/other"),
        ("301 Moved Permanently", "mcp/"),
        ("302 Found", "http://up.example:80/base/mcp/"),
    ] {
        let path = match place {
            "http://up.example/other" => "/other",
            _ => "/base/mcp/",
        };
        let mut rig = Rig::new("");
        let answer = rig.post(&["Authorization: Bearer t"], call("1", "7"));
        let location = format!("Location: {place}");
        rig.asked().await.answer(status, &[&location], "moved");
        let asked = rig.asked().await;
        assert_eq!(asked.what(), format!("POST {path}"), "{status}");
        assert_eq!(asked.text(), call("1", "7"));
        assert_eq!(asked.request.header("authorization"), Some("Bearer t"));
        assert_eq!(asked.request.header("host"), Some("up.example"));
        asked.json(&[], &result("1"));
        settle().await;
        assert_eq!((answer.status(), answer.text()), (200, result("1")));
        check([&answer]);

        let get = rig.get(&[]);
        let asked = rig.asked().await;
        assert_eq!(asked.what(), format!("GET {path}"));
        // The server has moved back, so the stored path is forgotten.
        asked.answer("404 Not Found", &[], "no");
        settle().await;
        assert_eq!(get.status(), 404);
        let _next = rig.get(&[]);
        assert_eq!(rig.asked().await.what(), "GET /base/mcp");
    }
}

#[tokio::test(start_paused = true)]
async fn a_redirect_that_comes_later_is_remembered_for_the_next_request() {
    let mut rig = Rig::new("");
    let first = rig.post(&[], call("1", "7"));
    rig.asked().await.json(&[], &result("1"));
    settle().await;
    assert_eq!(first.text(), result("1"));
    // Requests are no longer kept for repetition.
    let second = rig.post(&[], call("2", "8"));
    rig.asked().await.answer(MOVED, &["Location: /new"], "");
    settle().await;
    assert_eq!((second.status(), second.header("retry-after").as_deref()), (503, Some("1")));
    assert!(second.text().contains(r#""id":2,"error""#), "{}", second.text());
    let third = rig.post(&[], call("3", "9"));
    let asked = rig.asked().await;
    assert_eq!(asked.what(), "POST /new");
    asked.json(&[], &result("3"));
    settle().await;
    assert_eq!(third.text(), result("3"));
}

#[tokio::test(start_paused = true)]
async fn another_origin_or_a_second_redirect_is_502() {
    for (place, then, why) in [
        ("https://up.example/base/mcp/", None, "to another origin"),
        ("http://up.example:81/base/mcp/", None, "to another origin"),
        ("//other.example/base/mcp/?key=secret", None, "to another origin"),
        ("/base/mcp/", Some("/base/mcp"), "again"),
    ] {
        let mut rig = Rig::new("");
        let answer = rig.post(&[], call("1", "7"));
        rig.asked().await.answer(MOVED, &[&format!("Location: {place}")], "");
        if let Some(place) = then {
            rig.asked().await.answer(MOVED, &[&format!("Location: {place}")], "");
        }
        settle().await;
        let error = own_error("1", &format!("the server redirects {why}"), "");
        assert_eq!((answer.status(), answer.text()), (502, error), "{place}");
        assert!(rig.try_asked().await.is_none(), "nobody else is asked");
    }
}

#[tokio::test(start_paused = true)]
async fn other_redirects_are_for_the_client() {
    for (settings, status, place) in [
        ("", "301 Moved Permanently", "https://other.example/mcp"),
        ("", "302 Found", "/login"),
        ("", "303 See Other", "/base/mcp/"),
        ("", MOVED, "/base/mcp"),
        ("opaque = true", MOVED, "/base/mcp/"),
    ] {
        let mut rig = Rig::new(settings);
        let answer = rig.post(&["Authorization: Bearer t"], call("1", "7"));
        rig.asked().await.answer(status, &[&format!("Location: {place}")], "moved");
        settle().await;
        assert_eq!(answer.spoken().unwrap().start, format!("HTTP/1.1 {status}"));
        assert_eq!(answer.header("location").as_deref(), Some(place));
        assert_eq!(answer.text(), "moved");
        assert!(rig.try_asked().await.is_none(), "nobody else is asked");
    }
}

#[tokio::test(start_paused = true)]
async fn the_page_of_a_sign_in_is_not_remembered() {
    let mut rig = Rig::new("");
    let answer = rig.post(&[], call("1", "7"));
    rig.asked().await.answer(MOVED, &["Location: /login"], "");
    let asked = rig.asked().await;
    assert_eq!(asked.what(), "POST /login");
    asked.answer("200 OK", &["Content-Type: text/html"], "<p>");
    settle().await;
    assert_eq!(answer.text(), "<p>");
    let _next = rig.post(&[], call("2", "8"));
    assert_eq!(rig.asked().await.what(), "POST /base/mcp");
}
