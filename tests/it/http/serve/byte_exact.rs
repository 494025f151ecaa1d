//! Messages that pass byte for byte, and their cost.

use std::thread;

use super::proxy::Start;
use super::*;
use crate::support::messages::initialize;

const LARGE: usize = 10 << 20;

/// Maximum growth of the memory, in KiB.
const GROWTH_KIB: u64 = 64 << 10;

/// Text in which a piece that is lost, doubled or moved is noticed.
fn text(bytes: usize) -> String {
    (0..).map(|number| format!("{number:08} ")).take(bytes / 9).collect()
}

/// An answer that is forwarded on a route without being kept in memory, and what its client gets.
#[track_caller]
fn passes_in_little_memory(kind: &str, body: &str) {
    let upstream = Upstream::start();
    let proxy = Proxy::before(&upstream.url());
    let mut before = post(&proxy, &call("1", "1"));
    upstream.asked().json(&result("1"));
    assert_eq!(before.rest(), result("1"));
    let memory = proxy.status("VmRSS");
    let mut asked = post(&proxy, &call("7", "1"));
    let (mut server, owned) = (upstream.asked(), body.to_owned());
    let head = format!("content-type: {kind}\r\n");
    let told = thread::spawn(move || server.answer("200 OK", &head, owned));
    let heard = asked.rest();
    told.join().unwrap();
    assert_eq!(heard.len(), body.len(), "{}", &heard[heard.len() - 200..]);
    assert!(heard == body);
    let growth = proxy.status("VmHWM") - memory;
    assert!(growth < GROWTH_KIB, "{growth} KiB");
}

#[test]
fn ten_megabytes_of_json_pass_in_little_memory() {
    let body = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"text":"{}"}}}}"#, text(LARGE));
    passes_in_little_memory("application/json", &body);
}

#[test]
fn an_event_of_ten_megabytes_passes_in_little_memory() {
    // The fields before the message in its event make no difference.
    for ahead in ["", "event: message\n", ": comment\r\nid: 9\r\n", "\u{feff}id:\ndata:\n"] {
        let body = format!(
            "{ahead}data: {{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{{\"text\":\"{}\"}}}}\n\n",
            text(LARGE)
        );
        passes_in_little_memory("text/event-stream", &body);
    }
}

#[test]
fn a_request_of_ten_megabytes_passes_in_little_memory() {
    let upstream = Upstream::start();
    let proxy = Proxy::before(&upstream.url());
    let memory = proxy.status("VmRSS");
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"x":"{}"}}}}"#,
        text(LARGE)
    );
    let mut asked = post(&proxy, &body);
    let mut server = upstream.asked();
    assert!(server.body == body);
    server.json(&result("7"));
    assert_eq!(asked.rest(), result("7"));
    let growth = proxy.status("VmHWM") - memory;
    assert!(growth < GROWTH_KIB, "{growth} KiB");
}

/// Writes a call of 100 MB whose length is not announced, from a thread of its own.
fn post_large(proxy: &Proxy, path: &str, headers: &str) -> (TcpStream, thread::JoinHandle<()>) {
    let mut stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_read_timeout(Some(STUCK)).unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\n{headers}\
         transfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let write = thread::spawn(move || {
        let mut write = |piece: &[u8]| {
            writer.write_all(format!("{:x}\r\n", piece.len()).as_bytes()).unwrap();
            writer.write_all(piece).unwrap();
            writer.write_all(b"\r\n").unwrap();
        };
        write(br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a","x":""#);
        for _ in 0..PIECES {
            write(&[b'x'; 1 << 20]);
        }
        write(b"\"}}");
        writer.write_all(b"0\r\n\r\n").unwrap();
    });
    (stream, write)
}

/// Pieces of a MiB in a request of 100 MB.
const PIECES: usize = 96;

#[test]
fn a_chunked_request_of_100_megabytes_passes_in_little_memory() {
    let upstream = Upstream::start();
    let route = format!("upstream.url = \"{}\"\nmax_request_bytes = 200_000_000", upstream.url());
    let proxy = Proxy::with(&Start::default(), &route);
    let memory = proxy.status("VmRSS");
    let (mut stream, write) = post_large(&proxy, "/a", "");
    let mut server = upstream.asked();
    write.join().unwrap();
    assert!(server.body.len() > PIECES << 20);
    server.json(&result("7"));
    let mut heard = String::new();
    stream.read_to_string(&mut heard).unwrap();
    assert!(heard.ends_with(&result("7")), "{heard}");
    let growth = proxy.status("VmHWM") - memory;
    assert!(growth < GROWTH_KIB, "{growth} KiB");
}

#[test]
fn a_chunked_message_of_100_megabytes_reaches_a_stdio_server_in_little_memory() {
    let script = r#"
import json, sys
for line in sys.stdin.buffer:
    if len(line) > 1000000:
        result = '"bytes":%d' % len(line)
        print('{"jsonrpc":"2.0","id":7,"result":{%s}}' % result, flush=True)
    else:
        said = json.loads(line)
        if "id" in said:
            print(json.dumps({"jsonrpc": "2.0", "id": said["id"], "result": {
                "protocolVersion": "2025-06-18", "capabilities": {},
                "serverInfo": {"name": "s", "version": "1"}}}), flush=True)
"#;
    let command = serde_json::to_string(&["python3", "-c", script]).unwrap();
    let route = format!("upstream.command = {command}\nmax_request_bytes = 200_000_000");
    let proxy = Proxy::with(&Start::default(), &route);
    let mut answer = post(&proxy, &initialize("2025-06-18"));
    let session = answer.header("mcp-session-id").unwrap();
    let memory = proxy.status("VmRSS");
    let (mut stream, write) = post_large(&proxy, "/a", &format!("mcp-session-id: {session}\r\n"));
    let mut heard = String::new();
    stream.read_to_string(&mut heard).unwrap();
    write.join().unwrap();
    assert!(heard.contains(r#""result":{"bytes":1006"#), "{heard}");
    let growth = proxy.status("VmHWM") - memory;
    assert!(growth < GROWTH_KIB, "{growth} KiB");
}

#[test]
fn a_client_that_writes_too_much_before_it_reads_gets_413() {
    let upstream = Upstream::start();
    let route = format!("upstream.url = \"{}\"", upstream.url());
    for route in [route, "upstream.command = [\"cat\"]".to_owned()] {
        let proxy = Proxy::with(&Start::default(), &route);
        let (mut stream, write) = post_large(&proxy, "/a", "");
        // A client that first writes the whole request must not be disconnected.
        write.join().unwrap();
        let mut heard = String::new();
        stream.read_to_string(&mut heard).unwrap();
        assert!(heard.starts_with("HTTP/1.1 413 "), "{heard}");
        assert!(heard.contains("may have 67108864 bytes on this route"), "{heard}");
    }
    assert!(upstream.is_idle());
}

#[test]
fn a_client_that_writes_all_before_it_reads_is_told_that_its_stream_is_gone() {
    let upstream = Upstream::start();
    let route = format!("upstream.sse = \"{}\"", upstream.url());
    for route in [route, "upstream.command = [\"cat\"]".to_owned()] {
        let proxy = Proxy::with(&Start::default(), &route);
        let (mut stream, write) = post_large(&proxy, "/a/messages?sessionId=ended", "");
        write.join().unwrap();
        let mut heard = String::new();
        stream.read_to_string(&mut heard).unwrap();
        assert!(heard.starts_with("HTTP/1.1 404 "), "{heard}");
        assert!(heard.contains("there is no such stream; open one with a GET"), "{heard}");
    }
    assert!(upstream.is_idle());
}

#[test]
fn an_opaque_route_changes_nothing_not_even_wrong_progress() {
    let upstream = Upstream::start();
    let route = format!("upstream.url = \"{}\"\nopaque = true", upstream.url());
    let defaults = r#"heartbeat = { after = "50ms", every = "50ms" }
        upgrade_after = "50ms"
        keep_alive = "1s""#;
    let proxy = Proxy::with(&Start { defaults, ..Start::default() }, &route);
    let said = [
        "\u{feff}: hello\r\n\r\n".to_owned(),
        legacy_progress("7", "in words of its own"),
        "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":\"?\",\"progress\":null}}\n\n".to_owned(),
        "event: progress\nid: 4\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":1,\"progress\":\"5\"}}\n\n".to_owned(),
        "data: {\"jsonrpc\":\"2.0\",\"id\":\"7\",\"result\":{}}\r\r".to_owned(),
        result_event("7"),
        legacy_progress("7", "after the answer"),
        "data: half an event".to_owned(),
    ];
    let body = format!(" {} \n", call("7", "1"));
    let headers = [POST[0], POST[1], ("accept-encoding", "gzip"), ("x-own", "1")];
    let mut asked = Exchange::send(proxy.address(), "POST", "/a?x=%20y", &headers, &body);
    let mut server = upstream.asked();
    assert_eq!(server.body, body);
    assert!(server.head.starts_with("POST /mcp?x=%20y HTTP/1.1\r\n"), "{}", server.head);
    for line in ["accept-encoding: gzip\r\n", "x-own: 1\r\n"] {
        assert!(server.head.contains(line), "{}", server.head);
    }
    server.events();
    assert_eq!(asked.status(), 200);
    // Longer than any silence after which another route would write a heartbeat or comment.
    assert!(asked.is_quiet(std::time::Duration::from_millis(1200)));
    for piece in &said {
        server.say(piece);
    }
    server.end();
    assert_eq!(asked.rest(), said.concat());

    // Answers that another route would repair.
    let wrong = r#"{"jsonrpc":"2.0","id":"7","result":{}}"#;
    let mut asked = post(&proxy, &call("7", "1"));
    upstream.asked().json(wrong);
    assert_eq!(asked.rest(), wrong);
    // No message at all, in either direction.
    let mut asked = post(&proxy, "no JSON");
    let mut server = upstream.asked();
    assert_eq!(server.body, "no JSON");
    server.answer("418 I'm a teapot", "content-type: image/png\r\nx-own: 2\r\n", "\u{1}\u{2}");
    assert_eq!((asked.status(), asked.header("x-own").as_deref()), (418, Some("2")));
    assert_eq!(asked.rest(), "\u{1}\u{2}");
}
