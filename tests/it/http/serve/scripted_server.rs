//! A server whose actions a test determines, byte for byte.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use crate::support::STUCK;

/// A server on a port of its own. Each of its connections serves one request, which the test takes.
pub(crate) struct Upstream {
    address: String,
    listener: TcpListener,
    requests: Receiver<Asked>,
}

/// A request, and the connection on which it is answered.
pub(crate) struct Asked {
    pub(crate) head: String,
    pub(crate) body: String,
    pub(super) stream: TcpStream,
}

impl Upstream {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (asked, requests) = mpsc::channel();
        let accepting = listener.try_clone().unwrap();
        thread::spawn(move || {
            for stream in accepting.incoming().map_while(Result::ok) {
                let asked = asked.clone();
                thread::spawn(move || read(stream).map(|request| asked.send(request)));
            }
        });
        Self { address, listener, requests }
    }

    /// Returns the listener, so that the server refuses connections from then on.
    pub(crate) fn listener(&self) -> TcpListener {
        self.listener.try_clone().unwrap()
    }

    /// The next request, or nothing once connections are refused.
    pub(crate) fn next(&self) -> Option<Asked> {
        self.requests.recv().ok()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// The next request.
    #[track_caller]
    pub(crate) fn asked(&self) -> Asked {
        self.requests.recv_timeout(STUCK).unwrap()
    }

    /// The next request, if it has come.
    pub(crate) fn try_asked(&self) -> Option<Asked> {
        self.requests.try_recv().ok()
    }

    /// Whether no request has arrived.
    pub(crate) fn is_idle(&self) -> bool {
        self.requests.try_recv().is_err()
    }
}

const EVENTS: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                      transfer-encoding: chunked\r\nconnection: close\r\n\r\n";

fn chunk(text: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat()
}

pub(super) fn read(stream: TcpStream) -> Option<Asked> {
    stream.set_read_timeout(Some(STUCK)).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(&stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let lower = head.to_ascii_lowercase();
    let mut body = Vec::new();
    if lower.contains("transfer-encoding: chunked") {
        read_chunks(&mut reader, &mut body)?;
    } else {
        let length = lower.split("content-length: ").nth(1);
        let length = length.map_or(0, |rest| rest.lines().next().unwrap().parse().unwrap());
        body.resize(length, 0);
        reader.read_exact(&mut body).ok()?;
    }
    Some(Asked { head, body: String::from_utf8(body).unwrap(), stream })
}

fn read_chunks(reader: &mut impl BufRead, body: &mut Vec<u8>) -> Option<()> {
    loop {
        let mut size = String::new();
        reader.read_line(&mut size).ok()?;
        let size = u64::from_str_radix(size.trim(), 16).ok()?;
        if reader.take(size).read_to_end(body).ok()? as u64 != size {
            return None;
        }
        reader.read_line(&mut String::new()).ok()?;
        if size == 0 {
            return Some(());
        }
    }
}

impl Asked {
    /// Sends bytes unchanged.
    #[track_caller]
    pub(crate) fn raw(&mut self, text: impl AsRef<[u8]>) -> &mut Self {
        self.stream.write_all(text.as_ref()).unwrap();
        self
    }

    /// The head of an answer of events.
    #[track_caller]
    pub(crate) fn events(&mut self) -> &mut Self {
        self.raw(EVENTS)
    }

    /// A piece of an answer.
    #[track_caller]
    pub(crate) fn say(&mut self, text: impl AsRef<[u8]>) -> &mut Self {
        self.raw(chunk(text.as_ref()))
    }

    /// As [`Asked::events`], for a client that may have disconnected.
    pub(crate) fn try_events(&mut self) {
        let _ = self.stream.write_all(EVENTS.as_bytes());
    }

    pub(crate) fn try_say(&mut self, text: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(&chunk(text.as_ref()));
    }

    pub(crate) fn try_raw(&mut self, text: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(text.as_ref());
    }

    /// The end of an answer.
    #[track_caller]
    pub(crate) fn end(&mut self) {
        self.raw("0\r\n\r\n");
    }

    /// All of an answer.
    #[track_caller]
    pub(crate) fn answer(&mut self, status: &str, headers: &str, body: impl AsRef<[u8]>) {
        let body = body.as_ref();
        self.raw(format!(
            "HTTP/1.1 {status}\r\n{headers}connection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        ));
        self.raw(body);
    }

    /// All of an answer of JSON.
    #[track_caller]
    pub(crate) fn json(&mut self, body: &str) {
        self.answer("200 OK", "content-type: application/json\r\n", body);
    }

    /// Dies so that the other side notices at once.
    pub(crate) fn reset(self) {
        SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).unwrap();
    }

    /// A handle of its connection.
    pub(crate) fn connection(&self) -> TcpStream {
        self.stream.try_clone().unwrap()
    }

    /// Waits until the other side has closed the connection.
    #[track_caller]
    pub(crate) fn closing(&mut self) {
        match self.stream.read(&mut [0]) {
            Ok(1) => panic!("it says something"),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                panic!("it is not closed")
            }
            _ => {}
        }
    }
}

/// An address at which connections are refused, as long as this is held.
pub(crate) fn dead() -> (Socket, String) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let any: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
    socket.bind(&SockAddr::from(any)).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap().to_string();
    (socket, address)
}
