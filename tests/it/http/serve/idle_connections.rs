//! Servers that close their idle connections early: no request is lost, and none is sent twice.

use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::proxy::Start;
use super::scripted_server::read;
use super::*;
use crate::support::messages::{agreement_to, answer, request};

/// When the server closes a connection. It never sends `Connection: close`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Closes {
    /// 0.5 to 2 ms after each response.
    EachTime,
    /// After a second without a request, as it says (`Keep-Alive: timeout=1`).
    OnceIdle,
    /// After three requests, as it says (`Keep-Alive: max=3`).
    OnceUsed,
}

/// A connection that is still open after half of the idle time from which on Milepost believes that its server keeps
/// connections open.
const HELD_UP: Duration = Duration::from_millis(25);

/// How often a test of [`Closes::EachTime`] is tried where the machine is too busy.
const ATTEMPTS: usize = 50;

/// A server that remembers the ids of all requests.
pub(crate) struct ClosingServer {
    address: String,
    ids: Arc<Mutex<Vec<u64>>>,
    connections: Arc<Mutex<usize>>,
    was_held_up: Arc<AtomicBool>,
}

impl ClosingServer {
    pub(crate) fn start(closes: Closes) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (ids, connections) = (Arc::<Mutex<Vec<u64>>>::default(), Arc::default());
        let (seen, count) = (Arc::clone(&ids), Arc::<Mutex<usize>>::clone(&connections));
        let was_held_up = Arc::<AtomicBool>::default();
        let held_up = Arc::clone(&was_held_up);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                *count.lock().unwrap() += 1;
                let (seen, held_up) = (Arc::clone(&seen), Arc::clone(&held_up));
                thread::spawn(move || serve(stream, closes, &seen, &held_up));
            }
        });
        Self { address, ids, connections, was_held_up }
    }

    /// Whether a connection that should have been closed at once stayed open longer: the machine was busy, so the run
    /// proves nothing.
    pub(crate) fn was_held_up(&self) -> bool {
        self.was_held_up.load(Ordering::SeqCst)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Each of the requests 0, 1, 2 ... has come once.
    #[track_caller]
    pub(crate) fn assert_each_once(&self, count: u64) {
        let mut ids = self.ids.lock().unwrap().clone();
        ids.sort_unstable();
        assert_eq!(ids, (0..count).collect::<Vec<_>>());
    }
}

/// Serves a connection until it is to be closed.
fn serve(
    mut stream: TcpStream,
    closes: Closes,
    seen: &Mutex<Vec<u64>>,
    held_up: &AtomicBool,
) -> Option<()> {
    let header = match closes {
        Closes::EachTime => "",
        Closes::OnceIdle => "keep-alive: timeout=1\r\n",
        Closes::OnceUsed => "keep-alive: timeout=60, max=3\r\n",
    };
    for served in 1.. {
        if matches!(closes, Closes::OnceIdle) {
            stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
            stream.peek(&mut [0]).ok().filter(|bytes| *bytes > 0)?;
        }
        let mut asked = read(stream)?;
        let message: Value = serde_json::from_str(&asked.body).unwrap_or_default();
        let (status, body) = match message["id"].as_u64() {
            None if asked.head.starts_with("POST") => ("202 Accepted", String::new()),
            None => ("405 Method Not Allowed", String::new()),
            Some(id) => {
                seen.lock().unwrap().push(id);
                let is_first = message["method"] == "initialize";
                let tools = || answer(id, r#"{"tools":[]}"#);
                ("200 OK", if is_first { agreement_to(id, "2025-06-18") } else { tools() })
            }
        };
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\n");
        let answered = Instant::now();
        asked.raw(format!("{head}{header}content-length: {length}\r\n\r\n{body}"));
        match closes {
            Closes::EachTime => {
                let id = message["id"].as_u64().unwrap_or_default();
                thread::sleep(Duration::from_micros(500 + id * 377 % 1500));
                if answered.elapsed() > HELD_UP {
                    held_up.store(true, Ordering::SeqCst);
                }
                return None;
            }
            Closes::OnceUsed if served == 3 => return None,
            _ => stream = asked.stream,
        }
    }
    None
}

/// Posts the request with this id. Returns whether it is answered, and the text.
fn try_ask(proxy: &Proxy, path: &str, id: u64) -> (bool, String) {
    let body = request(id, "tools/list", "{}");
    let mut told = Exchange::send(proxy.address(), "POST", path, &POST, &body);
    (told.status() == 200, told.rest())
}

/// Posts the request of this id, which is answered.
#[track_caller]
fn ask(proxy: &Proxy, path: &str, id: u64) {
    let (is_answered, told) = try_ask(proxy, path, id);
    assert!(is_answered, "request {id}: {told}{}", proxy.log());
    assert_eq!(json(&told)["id"], id);
}

/// Posts so many requests to a server that closes after each response, again where the machine has held the
/// server up; `pause` is the time between two. Each of them is answered.
pub(crate) fn asked_of_a_closing_server(requests: u64, pause: Duration) -> (Proxy, ClosingServer) {
    for _ in 0..ATTEMPTS {
        let server = ClosingServer::start(Closes::EachTime);
        let proxy = Proxy::before(&server.url());
        let all: Vec<_> = (0..requests)
            .map(|id| {
                let told = try_ask(&proxy, "/a", id);
                thread::sleep(pause);
                told
            })
            .collect();
        if server.was_held_up() {
            continue;
        }
        for (id, (is_answered, told)) in (0_u64..).zip(all) {
            assert!(is_answered, "request {id}: {told}{}", proxy.log());
            assert_eq!(json(&told)["id"], id);
        }
        return (proxy, server);
    }
    panic!("this machine is too busy for a server that closes its connections at once");
}

#[test]
fn each_request_to_a_server_that_closes_after_each_response_is_answered() {
    let (proxy, server) = asked_of_a_closing_server(200, Duration::ZERO);
    server.assert_each_once(200);
    // The warning is logged once, with advice.
    let warning = "the server closes idle connections early";
    proxy.logged(&[warning]);
    assert_eq!(proxy.log().matches(warning).count(), 1, "{}", proxy.log());
}

/// Ten routes: each asks again when its connection has been idle for about a second.
#[test]
fn each_request_to_a_server_that_closes_after_its_promised_time_is_answered() {
    const ROUTES: u64 = 10;
    const ROUNDS: u64 = 6;
    let server = ClosingServer::start(Closes::OnceIdle);
    let url = server.url();
    let route = |path| format!("[[route]]\npath = \"/{path}\"\nupstream.url = \"{url}\"\n");
    let proxy = Proxy::serving(&Start::default(), &(0..ROUTES).map(route).collect::<String>());
    thread::scope(|scope| {
        for path in 0..ROUTES {
            let proxy = &proxy;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    ask(proxy, &format!("/{path}"), path * ROUNDS + round);
                    thread::sleep(Duration::from_millis(994 + path));
                }
            });
        }
    });
    server.assert_each_once(ROUTES * ROUNDS);
    assert!(!proxy.log().contains("closes idle connections early"), "{}", proxy.log());
}

#[test]
fn each_request_to_a_server_that_closes_after_its_promised_number_is_answered() {
    let server = ClosingServer::start(Closes::OnceUsed);
    let proxy = Proxy::before(&server.url());
    ask(&proxy, "/a", 0);
    // From now on the server is known to keep connections open.
    thread::sleep(Duration::from_millis(100));
    (1..100).for_each(|id| ask(&proxy, "/a", id));
    server.assert_each_once(100);
    let connections = *server.connections.lock().unwrap();
    // A request may come before the last connection is free again: then it gets a new connection.
    assert!((33..80).contains(&connections), "{connections}");
}
