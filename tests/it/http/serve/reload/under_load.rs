//! Two hundred reloads under load: each call goes on by the settings that it began with.

use std::collections::BTreeSet;
use std::net::{Shutdown, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use super::*;

const RELOADS: u32 = 200;

/// Calls that are open at any time, of each kind.
const TOGETHER: u32 = 3;

/// The number of reports of a call before its answer.
const REPORTS: u32 = 6;
const APART: Duration = Duration::from_millis(25);

/// A stdio server whose calls run side by side and report figures without totals.
const SERVER: &str = r#"
import json, sys, threading, time
lock = threading.Lock()
def say(message):
    with lock:
        print(json.dumps(message), flush=True)
def work(said, params):
    token = params["_meta"]["progressToken"]
    for step in range(1, 7):
        say({"jsonrpc": "2.0", "method": "notifications/progress",
             "params": {"progressToken": token, "progress": step}})
        time.sleep(0.025)
    say({"jsonrpc": "2.0", "id": said["id"], "result": {"content": []}})
for line in sys.stdin:
    said = json.loads(line)
    params = said.get("params", {})
    if said.get("method") == "tools/call":
        threading.Thread(target=work, args=(said, params)).start()
    elif "id" in said and "method" in said:
        result = {"protocolVersion": params.get("protocolVersion", ""), "capabilities": {},
                  "serverInfo": {"name": "s", "version": "1"}}
        say({"jsonrpc": "2.0", "id": said["id"], "result": result})
"#;

/// A server over HTTP that does the same.
fn serve(upstream: Upstream) {
    thread::scope(|scope| {
        while let Some(mut asked) = upstream.next() {
            scope.spawn(move || {
                let said: serde_json::Value = serde_json::from_str(&asked.body).unwrap();
                let id = &said["id"];
                asked.try_events();
                for step in 1..=REPORTS {
                    asked.try_say(format!(
                        "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":{id},\"progress\":{step}}}}}\n\n"
                    ));
                    thread::sleep(APART);
                }
                asked.try_say(format!(
                    "data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[]}}}}\n\n"
                ));
                asked.end();
            });
        }
    });
}

/// How a client comes.
#[derive(Clone, Copy)]
enum Kind {
    Http,
    /// In a session with a child of its own.
    Session,
    /// Of 2026-07-28: its child is others' too.
    Shared,
}

/// Totals that were seen: one for each call.
struct Seen {
    totals: BTreeSet<u64>,
    calls: u32,
    /// Calls during which a file was taken.
    across: u32,
}

/// Calls until it is told to stop. `taken` is the number of the file that was taken last.
fn calls(
    address: &str,
    kind: Kind,
    taken: &AtomicU32,
    asked: &AtomicU32,
    (done, stop): (&AtomicU32, &AtomicBool),
) -> Seen {
    let mut headers = Vec::new();
    let session;
    if matches!(kind, Kind::Session) {
        let mut answer = Exchange::send(address, "POST", "/stdio", &POST, INITIALIZE);
        session = answer.header("mcp-session-id").unwrap();
        headers.push(("mcp-session-id", session.as_str()));
    }
    let (mut meta, mut path) = (String::new(), "/stdio");
    match kind {
        Kind::Http => path = "/http",
        Kind::Session => {}
        Kind::Shared => {
            headers.push(("mcp-protocol-version", "2026-07-28"));
            headers.push(("mcp-method", "tools/call"));
            headers.push(("mcp-name", "work"));
            meta.push_str(r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"#);
        }
    }
    let mut seen = Seen { totals: BTreeSet::new(), calls: 0, across: 0 };
    while !stop.load(Ordering::SeqCst) {
        seen.calls += 1;
        let id = seen.calls;
        let before = taken.load(Ordering::SeqCst);
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"work","_meta":{{{meta}"progressToken":{id}}}}}}}"#
        );
        let all = [&POST[..], &headers].concat();
        let mut answer = Exchange::send(address, "POST", path, &all, &body);
        assert_eq!(answer.status(), 200);
        let events: Vec<serde_json::Value> = answer
            .events()
            .iter()
            .filter(|event| event.contains("jsonrpc"))
            .map(|event| json(event))
            .collect();
        let (last, reports) = events.split_last().unwrap();
        assert!(last["id"] == id && last["result"].is_object(), "{events:?}");
        let totals: BTreeSet<u64> =
            reports.iter().map(|said| said["params"]["total"].as_u64().unwrap()).collect();
        let figures: Vec<u64> =
            reports.iter().map(|said| said["params"]["progress"].as_u64().unwrap()).collect();
        assert!(figures.is_sorted() && figures.last() == Some(&u64::from(REPORTS)), "{events:?}");
        assert_eq!(totals.len(), 1, "the settings of one file: {events:?}");
        let total = totals.into_iter().next().unwrap();
        let (least, most) = (u64::from(before), u64::from(asked.load(Ordering::SeqCst)));
        assert!((least..=most).contains(&(total - 1000)), "{total}: {least} to {most}");
        seen.across += u32::from(taken.load(Ordering::SeqCst) > before);
        seen.totals.insert(total);
        done.fetch_add(1, Ordering::SeqCst);
    }
    seen
}

/// Ends clients and server at the end of the test, even if it fails: they would otherwise wait for each other.
struct End<'a> {
    listener: &'a TcpListener,
    stop: &'a AtomicBool,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = socket2::SockRef::from(self.listener).shutdown(Shutdown::Both);
    }
}

#[test]
fn two_hundred_reloads_under_load_change_no_call_midway() {
    let upstream = Upstream::start();
    let url = upstream.url();
    let command = serde_json::to_string(&["python3", "-c", SERVER]).unwrap();
    let text = |number: u32| {
        let scale = 1000 + number;
        // No heartbeat, which would have no total before the first report.
        let keys = format!("scale = \"{scale}\"\nmin_interval = \"0\"\nheartbeat.enabled = false");
        file(
            "",
            &format!(
                "[[route]]\npath = \"/stdio\"\nupstream.command = {command}\n{keys}\n\
                 [[route]]\npath = \"/http\"\nupstream.url = \"{url}\"\n{keys}\n"
            ),
        )
    };
    let proxy = Proxy::of_file(&Start::default(), &text(0));
    let (address, listener) = (proxy.address().to_owned(), upstream.listener());
    let (taken, asked, stop) = (AtomicU32::new(0), AtomicU32::new(0), AtomicBool::new(false));
    let kinds = [Kind::Http, Kind::Session, Kind::Shared];
    let done: Vec<AtomicU32> =
        (0..TOGETHER).flat_map(|_| kinds).map(|_| AtomicU32::new(0)).collect();
    thread::scope(|scope| {
        let _end = End { listener: &listener, stop: &stop };
        scope.spawn(move || serve(upstream));
        let clients: Vec<_> = (0..TOGETHER)
            .flat_map(|_| kinds)
            .zip(&done)
            .map(|(kind, done)| {
                let (address, taken, asked, stop) = (&address, &taken, &asked, &stop);
                scope.spawn(move || calls(address, kind, taken, asked, (done, stop)))
            })
            .collect();
        for number in 1..=RELOADS {
            if number % 10 == 0 {
                let line = reload(&proxy, &format!("nonsense {number}"));
                assert!(line.contains("cannot be used"), "{line}");
            } else {
                asked.store(number, Ordering::SeqCst);
                let line = reload(&proxy, &text(number));
                assert!(line.contains("changed=2") && line.contains("moved=0"), "{line}");
                taken.store(number, Ordering::SeqCst);
            }
            // On a slow machine too, each client must make calls between the reloads.
            until("every client has called", || {
                done.iter().all(|calls| calls.load(Ordering::SeqCst) >= number / 10)
            });
        }
        stop.store(true, Ordering::SeqCst);
        for client in clients {
            let Seen { totals, calls, across } = client.join().unwrap();
            assert!(
                totals.len() > 5 && across > 5 && across <= calls,
                "{} {calls} {across}",
                totals.len()
            );
        }
        let counted = ["taken", "refused", "unchanged"].map(|outcome| reloads(&proxy, outcome));
        assert_eq!(counted, [180.0, 20.0, 0.0]);
        assert_eq!(number(&proxy, "milepost_config_last_reload_successful", &[]), 0.0);
        // The sessions' children, and the shared child: none was restarted.
        assert_eq!(number(&proxy, "milepost_child_starts_total", &[]), f64::from(TOGETHER + 1));
        assert_eq!(number(&proxy, "milepost_calls_total", &[("outcome", "error")]), 0.0);
    });
}
