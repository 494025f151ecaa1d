//! Two hundred clients at once before stdio servers, half of which vanish in the middle of a call: nothing of them is
//! left, and the others are not affected.

use std::process::Command;
use std::sync::Barrier;
use std::time::Duration;
use std::{fs, thread};

use tempfile::TempDir;

use super::proxy::Start;
use super::*;
use crate::support::{home, runs, until};

const CLIENTS: usize = 200;

/// Threads that they are spread over, each with some of every kind.
const THREADS: usize = 8;

/// Bytes of heap that the first crowd may leave in use, beyond those of the start: tables and rings that keep their
/// size, for any number of clients after it.
const KEPT_ONCE_MAX: u64 = 1 << 20;

/// Bytes of heap that each client after the first crowd may leave in use.
const KEPT_MAX: u64 = 1 << 10;

/// Threads that may be there beyond those of the start: a few stay for the next file.
const THREADS_MAX: u64 = 4;

/// Crowds that come one after the other.
const CROWDS: usize = 2;

/// A stdio server that is cheap to start. It has started two other processes, one of them in a session of its own, and
/// prints the pids of all three. The call of `hang` begins and never ends, `mute` never begins, and `work` ends once a
/// client calls `go`.
const SERVER: &str = r#"
sleep 600 & near=$!
setsid sleep 600 & far=$!
echo "pids $$ $near $far end" >&2
progress() {
    printf '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%s}}\n' "$1" "$2"
}
result() {
    printf '{"jsonrpc":"2.0","id":%s,"result":{%s}}\n' "$1" "$2"
}
while read -r line; do
    id=${line#*'"id":'} id=${id%%[,\}]*}
    token=${line#*'"progressToken":'} token=${token%%[,\}]*}
    case $line in
    *'"method":"initialize"'*)
        result "$id" '"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}' ;;
    *'"name":"hang"'*) progress "$token" 1 ;;
    *'"name":"mute"'*) ;;
    *'"name":"work"'*) progress "$token" 1; open="$open $id=$token" ;;
    *'"name":"go"'*)
        for one in $open; do
            progress "${one#*=}" 2
            result "${one%%=*}" '"content":[]'
        done
        open=
        result "$id" '"content":[]' ;;
    esac
done
"#;

/// The protocol that a client speaks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// 2025-11-25: a session.
    Session,
    /// HTTP+SSE.
    Wire,
    /// 2026-07-28: its server is others' too.
    Modern,
}

/// One client and its open call, if it has been answered so far.
struct Client<'a> {
    address: &'a str,
    number: usize,
    kind: Kind,
    /// Its session, or where it posts.
    session: String,
    /// The GET stream of a wire, or the answer to the call.
    stream: Option<Exchange>,
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;

impl<'a> Client<'a> {
    fn connect(address: &'a str, number: usize) -> Self {
        let kind = [Kind::Session, Kind::Session, Kind::Session, Kind::Wire, Kind::Modern];
        let mut client =
            Self { address, number, kind: kind[number % 5], session: String::new(), stream: None };
        match client.kind {
            Kind::Session => {
                let mut answer = client.post("", INITIALIZE);
                assert_eq!(answer.status(), 200, "{}", answer.rest());
                client.session = answer.header("mcp-session-id").unwrap();
            }
            Kind::Wire => {
                let accept = [("accept", "text/event-stream")];
                let mut stream = Exchange::send(address, "GET", "/a/sse", &accept, "");
                assert_eq!(stream.status(), 200, "{}", stream.rest());
                let endpoint = stream.event().unwrap();
                client.session = endpoint.split_once("data: ").unwrap().1.trim().to_owned();
                client.stream = Some(stream);
                assert_eq!(client.post("", INITIALIZE).status(), 202);
                assert_eq!(client.message()["id"], 7);
            }
            Kind::Modern => {}
        }
        client
    }

    /// Whether the client disconnects in the middle of its call.
    fn vanishes(&self) -> bool {
        (self.number / 5).is_multiple_of(2)
    }

    fn post(&self, tool: &str, body: &str) -> Exchange {
        let caller = format!("Bearer {}", self.number / 10 % 4);
        let (path, own) = match self.kind {
            Kind::Session if self.session.is_empty() => ("/a", vec![]),
            Kind::Session => ("/a", vec![("mcp-session-id", &self.session[..])]),
            Kind::Wire => (&self.session[..], vec![]),
            Kind::Modern => {
                let repeated = [
                    ("mcp-protocol-version", "2026-07-28"),
                    ("mcp-method", "tools/call"),
                    ("mcp-name", tool),
                ];
                ("/a", [&repeated[..], &[("authorization", &caller[..])]].concat())
            }
        };
        let headers = [&POST[..], &own].concat();
        Exchange::send(self.address, "POST", path, &headers, body)
    }

    /// Calls a tool. Every client has the same ids, and a token of its own.
    fn call(&self, tool: &str, id: u32) -> Exchange {
        let revision = match self.kind {
            Kind::Modern => {
                r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"#
            }
            _ => "",
        };
        let number = self.number;
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{}},"_meta":{{{revision}"progressToken":"{tool}-{number}"}}}}}}"#
        );
        self.post(tool, &call)
    }

    /// Begins its call, and waits until the call has begun.
    fn begin(&mut self) {
        let is_mute = self.vanishes() && self.number.is_multiple_of(4);
        let tool = match self.vanishes() {
            true if is_mute => "mute",
            true => "hang",
            false => "work",
        };
        let mut answer = self.call(tool, 1);
        if self.kind == Kind::Wire {
            assert_eq!(answer.status(), 202);
        } else {
            self.stream = Some(answer);
        }
        if !is_mute {
            self.progress(tool, 1);
        }
    }

    #[track_caller]
    fn message(&mut self) -> serde_json::Value {
        let stream = self.stream.as_mut().unwrap();
        loop {
            let event = stream.event().unwrap();
            // The first event of a stream only contains an id to resume.
            if event.contains("data: {") {
                return json(&event);
            }
        }
    }

    #[track_caller]
    fn progress(&mut self, tool: &str, figure: u32) {
        let message = self.message();
        assert_eq!(message["method"], "notifications/progress", "{:?} {message}", self.kind);
        assert_eq!(message["params"]["progressToken"], format!("{tool}-{}", self.number));
        assert_eq!(message["params"]["progress"], figure);
    }

    /// Goes on with its call, to the end.
    fn finish(mut self) {
        let mut go = self.call("go", 2);
        if self.kind == Kind::Wire {
            // Progress shortly before the answer may be dropped on a busy machine.
            let mut message = self.message();
            if message["method"] == "notifications/progress" {
                let token = format!("work-{}", self.number);
                assert_eq!(message["params"]["progressToken"], token, "{message}");
                assert_eq!(message["params"]["progress"], 2, "{message}");
                message = self.message();
            }
            assert_eq!(message["id"], 1);
            assert_eq!(self.message()["id"], 2);
        } else {
            self.progress("work", 2);
            assert_eq!(self.message()["id"], 1);
            assert_eq!(json(&go.rest())["id"], 2);
        }
        // Some clients end their sessions properly.
        if self.kind == Kind::Session && self.number.is_multiple_of(3) {
            let headers = [("mcp-session-id", &self.session[..])];
            let mut end = Exchange::send(self.address, "DELETE", "/a", &headers, "");
            assert_eq!(end.status(), 200);
        }
    }
}

/// Everyone comes, everyone calls; then every second one is gone, and the others finish. Waits until
/// nothing is left; how many servers that were.
fn crowd(proxy: &Proxy, servers_before: usize) -> usize {
    let (address, together) = (proxy.address(), Barrier::new(THREADS));
    let per_thread = CLIENTS / THREADS;
    let sessions: Vec<String> = thread::scope(|scope| {
        let run = |first: usize| {
            let calling = (first..first + per_thread).map(|number| {
                let mut client = Client::connect(address, number);
                client.begin();
                client
            });
            let mut clients: Vec<Client<'_>> = calling.collect();
            let of_one = clients.iter().filter(|client| client.kind == Kind::Session);
            let sessions: Vec<_> = of_one.map(|client| client.session.clone()).collect();
            together.wait();
            clients.retain(|client| !client.vanishes());
            together.wait();
            clients.into_iter().for_each(Client::finish);
            sessions
        };
        let threads: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || run(thread * per_thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    // 120 sessions and 40 stdio clients with a server each, and four callers that share one each.
    let servers = servers_before + 164;
    until("every server has said its numbers", || proxy.pids().len() >= servers);
    let pids = proxy.pids();
    assert_eq!(pids.len(), servers);
    until("no process of a server is left", || !pids.iter().flatten().any(|pid| runs(*pid)));
    until("no server is left, be it dead", || proxy.servers() == 0);
    for session in sessions {
        let headers = [&POST[..], &[("mcp-session-id", &session[..])]].concat();
        let ask = r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#;
        let mut late = Exchange::send(proxy.address(), "POST", "/a", &headers, ask);
        assert_eq!(late.status(), 404);
    }
    pids.len()
}

/// The memory that the proxy has in use, according to its allocator. The system's figure does not fall after all
/// clients have disconnected: the allocator keeps memory for the next crowd.
pub(crate) struct Heap(TempDir);

impl Heap {
    #[track_caller]
    pub(crate) fn build() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let source = home().join("tests/support/heap.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-pthread", "-o"]);
        let status = compiler.arg(folder.path().join("heap.so")).arg(source).status().unwrap();
        assert!(status.success(), "cc: {status}");
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// A thread's cache of freed memory would count as in use.
    pub(crate) fn variables(&self) -> [(&'static str, String); 3] {
        [
            ("LD_PRELOAD", self.path("heap.so")),
            ("HEAP_FILE", self.path("in-use")),
            ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0".to_owned()),
        ]
    }

    /// In bytes, a moment from now.
    pub(crate) fn in_use(&self) -> u64 {
        thread::sleep(Duration::from_millis(250));
        let read = || fs::read_to_string(self.path("in-use")).ok()?.trim().parse().ok();
        until("the heap has been measured", || read().is_some());
        read().unwrap()
    }
}

#[test]
fn a_crowd_half_of_which_vanishes_leaves_nothing_behind() {
    // In a route file `${` begins a variable, so it is escaped.
    let script = SERVER.replace("${", "$${");
    let command = serde_json::to_string(&["sh", "-c", &script]).unwrap();
    // A server that is left would exceed the limit in the second crowd.
    let limits = format!("upstream.max_children = 164\nmax_streams = {}", CLIENTS * 2);
    // Each client counts its messages, so a busy machine must not add heartbeats.
    let limits = limits + "\nheartbeat.enabled = false";
    let keys = format!(
        "upstream.command = {command}\nupstream.idle_timeout = \"10s\"\nkeep_alive = \"500ms\"\n{limits}"
    );
    let heap = Heap::build();
    let variables = heap.variables();
    // At the end no client is waited for: waiting would take longer than the test allows.
    let start = Start { variables: &variables, server: r#"drain = "10m""#, ..Start::default() };
    let mut proxy = Proxy::with(&start, &keys);
    let (in_use, threads) = (heap.in_use(), proxy.status("Threads"));
    // One more descriptor for the pipe to the watchdog, which starts with the first server.
    let descriptors = proxy.descriptors() + 1;
    let mut servers = 0;
    for number in 1..=CROWDS {
        servers = crowd(&proxy, servers);
        until("no socket and no pipe is left", || proxy.descriptors() == descriptors);
        let kept_max = KEPT_ONCE_MAX + KEPT_MAX * ((number - 1) * CLIENTS) as u64;
        until("no memory is left", || heap.in_use() <= in_use + kept_max);
        until("no thread is left", || proxy.status("Threads") <= threads + THREADS_MAX);
    }
    let line = proxy.stop();
    assert!(line.contains("open=0 "), "{line}");
    assert_eq!(proxy.code(), Some(0));
}
