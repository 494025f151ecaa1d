//! Answers that sessions keep for clients that may come back, in the budget of all (`max_kept_bytes`).

use super::proxy::Start;
use super::*;
use crate::observe::metrics::page::Page;
use crate::support::messages::{call, initialize, notification};
use crate::support::until;

/// Answers each call with 300 kB, the first after half a second.
const SERVER: &str = r#"
import json, sys, time
waits = 0.5
for line in sys.stdin:
    said = json.loads(line)
    if "id" not in said:
        continue
    result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
    if said["method"] == "tools/call":
        time.sleep(waits)
        waits = 0
        result = {"content": [{"type": "text", "text": "x" * 300000}]}
    print(json.dumps({"jsonrpc": "2.0", "id": said["id"], "result": result}), flush=True)
    sys.stderr.write("answered " + said["method"] + "\n")
    sys.stderr.flush()
"#;

const SESSIONS: usize = 4;
const CALLS: usize = 6;

/// Begins sessions, each with calls; whether their clients wait for the answers, or leave before.
fn kept_bytes(waits: bool) -> f64 {
    let command = serde_json::to_string(&["python3", "-c", SERVER]).unwrap();
    let start = Start { server: "max_kept_bytes = 1_048_576", ..Start::default() };
    let proxy = Proxy::with(&start, &format!("upstream.command = {command}"));
    let events = [POST[0], ("accept", "text/event-stream, application/json;q=0.1")];
    for _ in 0..SESSIONS {
        let mut begun = post(&proxy, &initialize("2025-06-18"));
        let id = begun.header("mcp-session-id").unwrap();
        let headers = [&events[..], &[("mcp-session-id", &*id)]].concat();
        let say = |body: &str| Exchange::send(proxy.address(), "POST", "/a", &headers, body);
        assert_eq!(say(&notification("notifications/initialized", "{}")).status(), 202);
        for number in 0..CALLS {
            let mut asked = say(&call(number, format!("{number}")));
            if waits {
                assert!(asked.rest().contains("xxx"), "the answer reaches a client that is there");
            } else {
                // The request has arrived completely: now its client disconnects.
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
    }
    until("all calls are answered", || {
        proxy.log().matches("answered tools/call").count() == SESSIONS * CALLS
    });
    let kept = || Page::read(&proxy.probe("/metrics").1).sum("milepost_kept_bytes", &[]);
    // The last answer may still be on its way.
    std::thread::sleep(std::time::Duration::from_millis(200));
    kept()
}

#[test]
fn sessions_keep_no_more_answers_than_there_is_room_for() {
    for waits in [true, false] {
        let kept = kept_bytes(waits);
        assert!(kept <= 1_100_000.0, "{kept} bytes, taken: {waits}");
    }
}
