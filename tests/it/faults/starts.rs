//! Servers with which no session can begin: each client is told so.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::thread;

use serde_json::{Value, json};
use socket2::{Domain, SockAddr, Socket, Type};

use super::scene::check_error;
use crate::http::serve::proxy::{Proxy, Start, file};
use crate::pairs::Transport::{self, Http, Sse, Stdio};
use crate::pairs::server::Server;
use crate::support::exchange::Exchange;
use crate::support::milepost;
use crate::support::session::Session;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;

/// A server that takes no connection.
const IMPATIENT: &str = "connect_timeout = \"200ms\"";

const EVENTS: (&str, &str) = ("accept", "application/json, text/event-stream");
const JSON: (&str, &str) = ("content-type", "application/json");

/// Returns what a client gets that tries to begin a session.
fn begin(client: Transport, server: &Server, keys: &str) -> String {
    let route = format!("{}\n{keys}", server.route());
    if client == Stdio {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("proxy.toml");
        let route = format!("[[route]]\npath = \"/a\"\n{route}\n");
        std::fs::write(&path, file(&Start::default(), &route)).unwrap();
        let mut command = milepost();
        command.args(["wrap", "--route", "/a", "--config"]).arg(&path);
        let mut wrap = Session::start(&mut command);
        wrap.tell(INITIALIZE);
        return wrap.line();
    }
    let proxy = Proxy::with(&Start::default(), &route);
    if client == Http {
        let mut asked = Exchange::send(proxy.address(), "POST", "/a", &[EVENTS, JSON], INITIALIZE);
        return asked.rest();
    }
    let mut stream = Exchange::send(proxy.address(), "GET", "/a/sse", &[EVENTS], "");
    if stream.status() != 200 {
        assert!(stream.status() >= 500, "{}", stream.status());
        return stream.rest();
    }
    if stream.header("content-type").as_deref() != Some("text/event-stream") {
        return stream.rest();
    }
    let endpoint = stream.event().unwrap();
    let endpoint = endpoint.strip_prefix("event: endpoint\ndata: ").unwrap().trim_end();
    let mut asked = Exchange::send(proxy.address(), "POST", endpoint, &[JSON], INITIALIZE);
    assert_eq!(asked.status(), 202, "{}", asked.rest());
    let event = stream.event().unwrap();
    event.split_once("data: ").unwrap().1.trim_end().to_owned()
}

/// The client gets an error, on every transport.
#[track_caller]
fn check(client: Transport, server: &Server) {
    check_with(client, server, "");
}

/// The same with keys for the route.
#[track_caller]
fn check_with(client: Transport, server: &Server, keys: &str) {
    let told = begin(client, server, keys);
    match serde_json::from_str::<Value>(&told) {
        // The answer to a GET has no id.
        Ok(message) if client == Sse && message.get("id").is_none() => {
            check_error(&message, &Value::Null);
        }
        Ok(message) => check_error(&message, &json!("i")),
        // No stream has begun that could carry a message.
        Err(_) => assert!(client == Sse && !told.is_empty(), "{told}"),
    }
}

/// The server does not answer: not even a connection is made.
pub(super) fn is_a_black_hole(client: Transport, server: Transport) {
    let hole = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let any: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
    hole.bind(&SockAddr::from(any)).unwrap();
    hole.listen(0).unwrap();
    let address = hole.local_addr().unwrap();
    // Fills the queue of connections that the server does not accept.
    let fill: Vec<_> = (0..4)
        .map(|_| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_nonblocking(true).unwrap();
            let _ = socket.connect(&address);
            socket
        })
        .collect();
    let address = address.as_socket().unwrap();
    check_with(client, &Server::elsewhere(server, format!("http://{address}")), IMPATIENT);
    drop(fill);
}

/// The server's name cannot be resolved.
pub(super) fn has_no_address(client: Transport, server: Transport) {
    check(client, &Server::elsewhere(server, "http://server.invalid:1".to_owned()));
}

/// The server speaks no TLS with us.
pub(super) fn refuses_tls(client: Transport, server: Transport) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 4096]);
            // handshake_failure
            let _ = stream.write_all(&[21, 3, 3, 0, 2, 2, 40]);
        }
    });
    check(client, &Server::elsewhere(server, format!("https://{address}")));
}

/// A page at the address of the server: clients of the same transport are given the page.
pub(super) fn speaks_another_type(client: Transport, server: Transport) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 15\r\nconnection: close\r\n\r\n\
                  <html>Hi</html>",
            );
            // Unread data would reset the connection before the page is read.
            let _ = stream.shutdown(Shutdown::Write);
            thread::spawn(move || stream.read_to_end(&mut Vec::new()));
        }
    });
    let server_of = Server::elsewhere(server, format!("http://{address}"));
    if client == server {
        assert_eq!(begin(client, &server_of, ""), "<html>Hi</html>");
    } else {
        check(client, &server_of);
    }
}

/// No such command.
pub(super) fn is_no_program(client: Transport, server: Transport) {
    check(client, &Server::elsewhere(server, "/no/such/server".to_owned()));
}

/// A command that ends without a word.
pub(super) fn exits_at_once(client: Transport, _: Transport) {
    check(client, &Server::child("os._exit(1)"));
}
