//! Tests with bytes that are not HTTP, and with HTTP that can be read in two ways.

use super::*;

/// Sends bytes, and checks the statuses, how the connection ended, and which requests were handled.
async fn check(what: &str, bytes: &str, statuses: &[u16], name: &str, handled: &[&str]) {
    let spoken = speak(Server::default(), bytes).await;
    assert_eq!(spoken.statuses(), statuses, "{what}\n{}", spoken.answer);
    assert_eq!(spoken.name(), name, "{what}\n{}", spoken.answer);
    assert_eq!(spoken.handled, handled, "{what}");
}

const HOST: &str = "host: localhost\r\n";

#[tokio::test(start_paused = true)]
async fn what_is_no_http_is_refused() {
    for (what, bytes) in [
        ("no method", "\r\n /a HTTP/1.1\r\n\r\n"),
        ("a word", "hello\r\n\r\n"),
        ("JSON", "{\"jsonrpc\":\"2.0\"}\r\n\r\n"),
        ("TLS", "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\r\n\r\n"),
        ("SSH", "SSH-2.0-OpenSSH_9.2\r\n\r\n"),
        ("another version", "GET /a HTTP/3.0\r\nhost: localhost\r\n\r\n"),
        ("no version", "GET /a\r\n\r\n"),
        ("a method with a bracket", "GE(T /a HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        ("a target with a space", "GET /a b HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        ("a target with NUL", "GET /a\0 HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        ("NUL in a name", "GET /a HTTP/1.1\r\nho\0st: localhost\r\n\r\n"),
        ("NUL in a value", "GET /a HTTP/1.1\r\nhost: local\0host\r\n\r\n"),
        ("CR in a value", "GET /a HTTP/1.1\r\nhost: localhost\r\nx: a\rb\r\n\r\n"),
        ("a space before the colon", "GET /a HTTP/1.1\r\nhost : localhost\r\n\r\n"),
        ("a folded line", "GET /a HTTP/1.1\r\nhost: localhost\r\nx: a\r\n b\r\n\r\n"),
        ("a line without a colon", "GET /a HTTP/1.1\r\nhost localhost\r\n\r\n"),
        ("an empty name", "GET /a HTTP/1.1\r\n: localhost\r\n\r\n"),
    ] {
        check(what, bytes, &[400], "malformed", &[]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_length_that_means_two_things_is_refused() {
    for (what, lines) in [
        ("two lengths", "content-length: 2\r\ncontent-length: 3"),
        ("a list of lengths", "content-length: 2, 3"),
        ("a sign", "content-length: +2"),
        ("a negative length", "content-length: -2"),
        ("a hexadecimal length", "content-length: 0x2"),
        ("no number", "content-length: two"),
        ("a length beyond all", "content-length: 99999999999999999999999"),
        ("another coding", "transfer-encoding: gzip"),
        ("chunked is not last", "transfer-encoding: chunked, gzip"),
        ("chunked, misspelt", "transfer-encoding: xchunked"),
        ("a coding and a length", "content-length: 2\r\ntransfer-encoding: identity"),
    ] {
        let bytes = format!("POST /a HTTP/1.1\r\n{HOST}{lines}\r\n\r\n{{}}");
        check(what, &bytes, &[400], "malformed", &[]).await;
    }
    let bytes = format!("POST /a HTTP/1.0\r\n{HOST}transfer-encoding: chunked\r\n\r\n0\r\n\r\n");
    check("chunks in HTTP/1.0", &bytes, &[400], "malformed", &[]).await;
}

/// Bytes after a request with both a length and chunks are not read: the chunks decide, as RFC 9112 says, and the
/// connection ends.
#[tokio::test(start_paused = true)]
async fn nothing_is_smuggled_behind_a_request() {
    let smuggled = format!("POST /web HTTP/1.1\r\n{HOST}content-length: 2\r\n\r\n{{}}");
    for lines in [
        "content-length: 5\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: 5",
        "transfer-encoding: chunked\r\ncontent-length: 5\r\ncontent-length: 6",
    ] {
        let head = format!("POST /a HTTP/1.1\r\n{HOST}{lines}\r\n\r\n");
        let bytes = format!("{head}0\r\n\r\n{smuggled}");
        check(lines, &bytes, &[200], "closed", &["POST 0 Endpoint"]).await;
        let bytes = format!("{head}2\r\n{{}}\r\n0\r\n\r\n{smuggled}");
        check(lines, &bytes, &[200], "closed", &["POST 0 Endpoint {}"]).await;
    }
    // Two equal lengths are accepted as one.
    let head = format!("POST /a HTTP/1.1\r\n{HOST}content-length: 2\r\ncontent-length: 2\r\n");
    let bytes = format!("{head}connection: close\r\n\r\n{{}}{smuggled}");
    check("one length twice", &bytes, &[200], "closed", &["POST 0 Endpoint {}"]).await;
}

#[tokio::test(start_paused = true)]
async fn chunks_that_are_none_break_their_request_off() {
    for (what, chunks) in [
        ("no number", "x\r\n{}\r\n0\r\n\r\n"),
        ("a sign", "+2\r\n{}\r\n0\r\n\r\n"),
        ("a number beyond all", "fffffffffffffffff\r\n{}\r\n0\r\n\r\n"),
        ("no line after the chunk", "2\r\n{}0\r\n\r\n"),
        ("more than it says", "1\r\n{}\r\n0\r\n\r\n"),
    ] {
        let head = format!("POST /a HTTP/1.1\r\n{HOST}transfer-encoding: chunked\r\n\r\n");
        let spoken = speak(Server::default(), &(head + chunks)).await;
        assert_eq!(spoken.handled, ["POST 0 Endpoint (broken off)"], "{what}");
        assert_eq!(spoken.statuses().len(), 1, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_changes_nothing_about_what_follows() {
    let upgrade =
        |to: &str| format!("GET /a HTTP/1.1\r\n{HOST}connection: upgrade\r\nupgrade: {to}\r\n\r\n");
    let next =
        format!("POST /web HTTP/1.1\r\n{HOST}connection: close\r\ncontent-length: 2\r\n\r\n{{}}");
    let bytes = upgrade("websocket") + &next;
    check("a WebSocket", &bytes, &[501, 200], "closed", &["POST 1 Endpoint {}"]).await;
    let bytes = upgrade("h2c") + &next;
    check("HTTP/2", &bytes, &[200, 200], "closed", &["GET 0 Endpoint", "POST 1 Endpoint {}"]).await;
    let connect = "CONNECT localhost:7332 HTTP/1.1\r\nhost: localhost:7332\r\n\r\n";
    let spoken = speak(Server::default(), connect).await;
    assert_eq!(spoken.statuses(), [405]);
}

#[tokio::test(start_paused = true)]
async fn heads_have_a_largest_size() {
    let limit = Server::default().max_header_bytes;
    let head =
        |line: String| format!("GET /a HTTP/1.1\r\n{HOST}{line}\r\nconnection: close\r\n\r\n");
    let long = |bytes: usize| head(format!("x: {}", "y".repeat(bytes)));
    check("just small enough", &long(limit - 200), &[200], "closed", &["GET 0 Endpoint"]).await;
    // A head that is read completely is refused for its length, a longer one is refused before its end.
    check("a line that is a little too long", &long(limit), &[431], "closed", &[]).await;
    check("a long line", &long(2 * limit), &[431], "head-too-large", &[]).await;
    check("a line without end", &long(4 * limit), &[431], "head-too-large", &[]).await;
    let lines = (0..200).map(|number| format!("x-{number}: y")).collect::<Vec<_>>();
    check("many lines", &head(lines.join("\r\n")), &[431], "head-too-large", &[]).await;
    let target = format!("GET /{} HTTP/1.1\r\n{HOST}\r\n", "y".repeat(2 * limit));
    check("a long target", &target, &[431], "head-too-large", &[]).await;
}

#[tokio::test(start_paused = true)]
async fn a_small_limit_of_the_operator_holds_too() {
    let server = Server { max_header_bytes: 1000, ..Server::default() };
    let head = format!("POST /a HTTP/1.1\r\n{HOST}x: {}\r\n\r\n", "y".repeat(1000));
    let spoken = speak(server, &head).await;
    assert_eq!((spoken.statuses(), spoken.name()), (vec![431], "head-too-large"));
}

#[tokio::test(start_paused = true)]
async fn whoever_is_slow_is_not_waited_for() {
    for (what, bytes) in [
        ("nothing", ""),
        ("a letter", "P"),
        ("a head without end", "POST /a HTTP/1.1\r\nhost: localhost\r\n"),
        ("half of the preface of HTTP/2", "PRI * HTTP/2.0"),
    ] {
        let begun = tokio::time::Instant::now();
        check(what, bytes, &[], "too-slow", &[]).await;
        assert!((10..=20).contains(&begun.elapsed().as_secs()), "{what}: {:?}", begun.elapsed());
    }
    let first = format!("GET /a HTTP/1.1\r\n{HOST}\r\n");
    let spoken = speak_in_pieces(Server::default(), &[first.as_bytes(), b"GET /a"]).await;
    assert_eq!((spoken.name(), spoken.statuses()), ("too-slow", vec![200]));
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_another_request_stays_for_longer_than_balancers_keep_theirs() {
    let begun = tokio::time::Instant::now();
    let idle = format!("GET /a HTTP/1.1\r\n{HOST}\r\n");
    check("idle", &idle, &[200], "idle", &["GET 0 Endpoint"]).await;
    assert!((300..310).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_is_no_http_2_ends_its_connection() {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    for (what, bytes) in [
        ("HTTP/1.1", &b"POST /a HTTP/1.1\r\nhost: localhost\r\n\r\n"[..]),
        ("a frame beyond all", &[0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]),
        ("data of no stream", &[0, 0, 1, 0, 1, 0, 0, 0, 1, b'x']),
        ("settings of a stream", &[0, 0, 0, 4, 0, 0, 0, 0, 1]),
        ("a head that is no HPACK", &[0, 0, 2, 1, 5, 0, 0, 0, 1, 0xff, 0xff]),
        ("a stream of the server's", &[0, 0, 1, 1, 5, 0, 0, 0, 2, 0x82]),
        ("a window that never was", &[0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    ] {
        let spoken = speak_in_pieces(Server::default(), &[PREFACE, SETTINGS, bytes]).await;
        assert_eq!((spoken.name(), &spoken.handled[..]), ("broken", &[][..]), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_may_come_in_any_pieces() {
    let bytes =
        format!("POST /a HTTP/1.1\r\n{HOST}connection: close\r\ncontent-length: 2\r\n\r\n{{}}");
    for cut in 0..bytes.len() {
        let pieces = [&bytes.as_bytes()[..cut], &bytes.as_bytes()[cut..]];
        let spoken = speak_in_pieces(Server::default(), &pieces).await;
        assert_eq!(spoken.handled, ["POST 0 Endpoint {}"], "cut at {cut}");
    }
}
