//! The heap that a request, an event and a silent stream take: counts that do not depend on the machine. The
//! listener with all behind it has a thread of its own, whose allocations are counted.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, mpsc};
use std::thread;

use allocation_counter::AllocationInfo;
use milepost::config::routes::{Environment, Route, Routes};
use milepost::gateway::dispatch::Proxy;
use milepost::gateway::listen::{Listeners, Routed};
use milepost::observe::durations::DurationStore;
use milepost::transport::http::via::Via;
use tokio::sync::oneshot;

use crate::support::STUCK;
use crate::support::messages::result;

/// Connections of each measurement.
const CONNECTIONS: usize = 4;

/// Requests on each connection that are counted, and as many before them that make room.
const REQUESTS: usize = 100;

/// Events of each flood, 32 a chunk.
const EVENTS: usize = 6400;

/// Silent streams.
const STREAMS: usize = 40;

/// Reads a head; its length of a body.
fn head(reader: &mut impl BufRead) -> Option<usize> {
    let (mut line, mut length) = (String::new(), 0);
    loop {
        line.clear();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            return Some(length);
        }
        let (name, value) = line.split_once(':').unwrap_or_default();
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().unwrap();
        }
    }
}

/// A server that answers `small` with JSON, `flood` with events, and `silent` not at all.
fn serve(stream: TcpStream) {
    let (mut reader, mut stream) = (BufReader::new(stream.try_clone().unwrap()), stream);
    stream.set_nodelay(true).unwrap();
    while let Some(length) = head(&mut reader) {
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let body = String::from_utf8(body).unwrap();
        let id = body.split("\"id\":").nth(1).unwrap().split(',').next().unwrap();
        if body.contains("small") {
            let answer = result(id);
            let length = answer.len();
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
            );
            stream.write_all((head + &answer).as_bytes()).unwrap();
            continue;
        }
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        if body.contains("flood") {
            flood(&mut stream, id);
        }
    }
}

fn flood(stream: &mut TcpStream, id: &str) {
    let mut chunk = String::new();
    for first in (0..EVENTS).step_by(32) {
        chunk.clear();
        for number in 1_000_000 + first..1_000_032 + first {
            let params = format!(
                r#""progressToken":"p{id}","progress":{number},"total":9999999,"message":"{number} of many""#
            );
            write!(chunk, "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{{params}}}}}\n\n").unwrap();
        }
        write!(stream, "{:x}\r\n{chunk}\r\n", chunk.len()).unwrap();
    }
    let last = format!("data: {}\n\n", result(id));
    write!(stream, "{:x}\r\n{last}\r\n0\r\n\r\n", last.len()).unwrap();
}

/// Milepost on a thread whose allocations are counted. Only measurements run on it.
struct Counted {
    address: SocketAddr,
    phases: mpsc::Sender<oneshot::Receiver<()>>,
    counts: mpsc::Receiver<AllocationInfo>,
}

impl Counted {
    fn start() -> Self {
        let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = upstream.local_addr().unwrap();
        thread::spawn(move || {
            for stream in upstream.incoming() {
                thread::spawn(move || serve(stream.unwrap()));
            }
        });
        let file = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\n\
             [[route]]\npath = \"/r\"\nupstream.url = \"http://{server}/mcp\"\n\
             [[route]]\npath = \"/piped\"\nopaque = true\nupstream.url = \"http://{server}/mcp\"\n"
        );
        let (phases, phase) = mpsc::channel();
        let (count, counts) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.unwrap();
            let listeners = runtime.block_on(listeners(&file));
            tell.send(listeners.address().unwrap()).unwrap();
            let (_stop, stopped) = tokio::sync::mpsc::channel(1);
            let _serving = runtime.spawn(listeners.serve(stopped));
            while let Ok(phase) = phase.recv() {
                let counted = allocation_counter::measure(|| {
                    let _ = runtime.block_on(phase);
                });
                count.send(counted).unwrap();
            }
        });
        Self { address: told.recv_timeout(STUCK).unwrap(), phases, counts }
    }

    /// The heap that `work` takes.
    fn measure(&self, work: impl FnOnce()) -> AllocationInfo {
        let (over, phase) = oneshot::channel();
        self.phases.send(phase).unwrap();
        work();
        over.send(()).unwrap();
        self.counts.recv_timeout(STUCK).unwrap()
    }

    fn client(&self, path: &'static str) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(STUCK)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { path, reader: BufReader::new(stream.try_clone().unwrap()), stream, id: 1_000_000 }
    }
}

async fn listeners(file: &str) -> Listeners<Routed> {
    let routes = Routes::parse("proxy.toml".as_ref(), file, &Environment::default()).unwrap();
    let memory = DurationStore::default();
    let proxy = Proxy::new(&routes, Via::named(1), None, &memory, &[]).unwrap();
    let handler = Arc::new(Routed { proxy, calls: None, fleet: None });
    let (server, admin) = (routes.server(), routes.admin());
    let listed: Vec<&Route> = routes.iter().collect();
    Listeners::bind(server, admin, None, listed, Via::named(1), handler).await.unwrap()
}

struct Client {
    path: &'static str,
    stream: TcpStream,
    reader: BufReader<TcpStream>,
    id: usize,
}

impl Client {
    /// Calls a tool and reads the head of the response; the length of its body.
    fn begin(&mut self, tool: &str) -> usize {
        self.id += 1;
        let (path, id) = (self.path, self.id);
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{}},"_meta":{{"progressToken":"p{id}"}}}}}}"#
        );
        let length = body.len();
        let text = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2025-06-18\r\n\
             Content-Length: {length}\r\n\r\n{body}",
            self.stream.peer_addr().unwrap()
        );
        // Written at once, because a head in pieces takes a larger buffer.
        self.stream.write_all(text.as_bytes()).unwrap();
        head(&mut self.reader).unwrap()
    }

    fn small(&mut self) {
        let mut body = vec![0; self.begin("small")];
        self.reader.read_exact(&mut body).unwrap();
        assert_eq!(String::from_utf8(body).unwrap(), result(self.id.to_string()));
    }

    /// Reads a flood; the number of events.
    fn flood(&mut self) -> usize {
        self.begin("flood");
        let (mut line, mut events) = (String::new(), 0);
        loop {
            line.clear();
            self.reader.read_line(&mut line).unwrap();
            if line == "0\r\n" {
                self.reader.read_line(&mut line).unwrap();
                return events;
            }
            events += usize::from(line.contains("notifications/progress"));
        }
    }
}

#[test]
fn a_small_request_takes_few_allocations() {
    let product = Counted::start();
    let mut clients: Vec<Client> = (0..CONNECTIONS).map(|_| product.client("/r")).collect();
    let mut all = || (0..REQUESTS).for_each(|_| clients.iter_mut().for_each(Client::small));
    product.measure(&mut all);
    let each = product.measure(&mut all).count_total as f64 / (CONNECTIONS * REQUESTS) as f64;
    eprintln!("{each} allocations");
    assert!(each <= 29.5, "{each}");
}

#[test]
fn an_event_of_a_flood_takes_hardly_an_allocation() {
    let product = Counted::start();
    let mut client = product.client("/r");
    product.measure(|| assert_eq!(client.flood(), EVENTS));
    let mut events = 0;
    let counted = product.measure(|| events = client.flood());
    assert_eq!(events, EVENTS);
    let each = counted.count_total as f64 / EVENTS as f64;
    eprintln!("{each} allocations");
    assert!(each <= 0.05, "{each}");
}

/// The bytes that a silent stream holds.
fn held(path: &'static str) -> f64 {
    let product = Counted::start();
    let mut warm = product.client(path);
    product.measure(|| warm.small());
    let mut open: Vec<Client> = (0..STREAMS).map(|_| product.client(path)).collect();
    let all = || open.iter_mut().for_each(|client| assert_eq!(client.begin("silent"), 0));
    product.measure(all).bytes_current as f64 / STREAMS as f64
}

#[test]
fn a_silent_stream_holds_little_and_hardly_more_than_one_that_is_only_piped() {
    let (piped, own) = (held("/piped"), held("/r"));
    eprintln!("{own} bytes, {piped} without a filter");
    // Of this, hyper uses 8 KB to read from the client, and as many to write.
    assert!(own <= 28_000.0 && own - piped <= 5300.0, "{own}, {piped}");
}
