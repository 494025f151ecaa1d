//! Clients that close their connection right after the last byte of a one-way message.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::proxy::Start;
use super::*;
use crate::support::example;
use crate::support::exchange::reset;
use crate::support::messages::INITIALIZED;
use crate::support::server::Server;

/// Messages that each kind of client sends.
const MESSAGES: usize = 50;

const NOTE: &str = r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#;

/// How a client leaves.
#[derive(Debug, Clone, Copy)]
enum Leave {
    Close,
    HalfClose,
    Reset,
    /// The head first, the body a moment later.
    InTwoPieces,
    /// As a client of HTTP/2.
    Http2,
}

const ALL: [Leave; 5] =
    [Leave::Close, Leave::HalfClose, Leave::Reset, Leave::InTwoPieces, Leave::Http2];

/// The answer to a call of `heard`, which counts the messages.
const HEARD: &str = r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"heard"}}"#;

fn initialize() -> String {
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"leaves","version":"1"}}}"#.to_owned()
}

/// The number in the text of an answer.
#[track_caller]
fn count(answer: &str) -> usize {
    let (_, rest) = answer.split_once("heard ").unwrap_or_else(|| panic!("{answer}"));
    rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A POST over HTTP/2 as one piece: the preface, empty settings, the head, the body with the end of the stream.
fn http2_post(address: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let own = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", address)];
    let mut head = Vec::new();
    for (name, value) in own.iter().chain(headers) {
        // A literal without indexing; both strings are shorter than 127 bytes.
        head.push(0);
        for text in [name, value] {
            head.push(u8::try_from(text.len()).unwrap());
            head.extend_from_slice(text.as_bytes());
        }
    }
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let frames =
        [preface, frame(4, 0, 0, &[]), frame(1, 4, 1, &head), frame(0, 1, 1, body.as_bytes())];
    frames.concat()
}

/// Sends a message and leaves. A connection that is only half closed is returned.
fn send_and_leave(
    how: Leave,
    address: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    if matches!(how, Leave::Http2) {
        stream.write_all(&http2_post(address, path, headers, body)).unwrap();
        return None;
    }
    let mut head = format!("POST {path} HTTP/1.1\r\nhost: {address}\r\n");
    headers.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
    head += &format!("content-length: {}\r\n\r\n", body.len());
    match how {
        Leave::InTwoPieces => {
            stream.write_all(head.as_bytes()).unwrap();
            // Milepost reads only the head.
            thread::sleep(Duration::from_millis(2));
            stream.write_all(body.as_bytes()).unwrap();
        }
        _ => stream.write_all((head + body).as_bytes()).unwrap(),
    }
    match how {
        Leave::HalfClose => {
            stream.shutdown(Shutdown::Write).unwrap();
            Some(stream)
        }
        Leave::Reset => {
            reset(&stream);
            None
        }
        _ => None,
    }
}

/// Each message of a session of Streamable HTTP arrives, however its client leaves.
#[track_caller]
fn check_streamable(keys: &str) {
    let proxy = Proxy::with(&Start::default(), keys);
    for how in ALL {
        let mut begun = Exchange::send(proxy.address(), "POST", "/a", &POST, &initialize());
        let session = begun.header("mcp-session-id").unwrap();
        begun.rest();
        let headers = [
            POST[0],
            POST[1],
            ("mcp-session-id", &*session),
            ("mcp-protocol-version", "2025-06-18"),
        ];
        let ask = |body: &str| Exchange::send(proxy.address(), "POST", "/a", &headers, body).rest();
        ask(INITIALIZED);
        let before = count(&ask(HEARD));
        let _half_closed: Vec<_> = (0..MESSAGES)
            .filter_map(|_| send_and_leave(how, proxy.address(), "/a", &headers, NOTE))
            .collect();
        let until = Instant::now() + STUCK;
        let mut heard = 0;
        while heard < MESSAGES && Instant::now() < until {
            heard = count(&ask(HEARD)) - before;
        }
        assert_eq!(heard, MESSAGES, "{how:?} {keys}");
    }
}

#[test]
fn a_notification_arrives_although_its_client_closes_before_an_http_server() {
    let server = Server::start("odd", &[]);
    check_streamable(&format!("upstream.url = \"{}\"", server.url()));
}

#[test]
fn a_notification_arrives_although_its_client_closes_before_a_stdio_server() {
    check_streamable(&format!("upstream.command = [{:?}]", example("odd")));
}

#[test]
fn a_notification_of_a_client_of_http_sse_arrives_although_it_closes() {
    let keys = format!("upstream.command = [{:?}]", example("odd"));
    let proxy = Proxy::with(&Start::default(), &keys);
    for how in ALL {
        let accept = [("accept", "text/event-stream")];
        let mut stream = Exchange::send(proxy.address(), "GET", "/a/sse", &accept, "");
        let endpoint = stream.event().unwrap();
        let (_, endpoint) = endpoint.split_once("data: ").unwrap();
        let endpoint = endpoint.trim();
        let post = |body: &str| {
            Exchange::send(proxy.address(), "POST", endpoint, &POST, body).rest();
        };
        post(&initialize());
        stream.event().unwrap();
        post(INITIALIZED);
        let _half_closed: Vec<_> = (0..MESSAGES)
            .filter_map(|_| send_and_leave(how, proxy.address(), endpoint, &POST, NOTE))
            .collect();
        let until = Instant::now() + STUCK;
        let mut heard = 0;
        while heard < MESSAGES && Instant::now() < until {
            post(HEARD);
            heard = count(&stream.event().unwrap());
        }
        assert_eq!(heard, MESSAGES, "{how:?}");
    }
}

/// Before 2026-07-28 a disconnect is not a cancellation: the server gets the call, and then sees its client disconnect.
#[test]
fn a_call_reaches_the_server_although_its_client_closes() {
    let upstream = Upstream::start();
    // Turns off everything that a timer would write and that would notice the disconnect.
    let defaults = "heartbeat.enabled = false\nkeep_alive = \"off\"\nupgrade_after = \"off\"";
    let start = Start { defaults, ..Start::default() };
    let proxy = Proxy::with(&start, &format!("upstream.url = \"{}\"", upstream.url()));
    for how in [Leave::Close, Leave::Reset, Leave::InTwoPieces, Leave::Http2] {
        send_and_leave(how, proxy.address(), "/a", &POST, &call("7", "1"));
        upstream.asked().closing();
    }
}
