//! Several replicas as processes: their logs, and what operators see of all of them.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use super::proxy::Start;
use super::*;
use crate::support::messages::{agreement, call_of, initialize};
use crate::support::{until, wait};

/// Answers every request.
const ECHO: &str = r#"
import json, sys
for line in sys.stdin:
    said = json.loads(line)
    if "id" in said and "method" in said:
        print(json.dumps({"jsonrpc": "2.0", "id": said["id"], "result": {"protocolVersion": "2025-06-18",
              "capabilities": {}, "serverInfo": {"name": "e", "version": "1"}, "content": []}}), flush=True)
"#;

/// A terminal of 40 lines and 160 columns around a program: its screen goes to standard output, standard input to
/// the program.
const TERMINAL: &str = r#"
import fcntl, os, pty, select, struct, sys, termios
child, screen = pty.fork()
if child == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
    os.environ["TERM"] = "xterm-256color"
    os.execv(sys.argv[1], sys.argv[1:])
while True:
    for end in select.select([screen, 0], [], [])[0]:
        try:
            data = os.read(end, 65536)
        except OSError:
            data = b""
        if not data:
            sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        os.write(1 if end == screen else screen, data)
"#;

/// The table `[fleet]` of a replica, and its address in the fleet.
pub(super) fn table() -> (String, String) {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let key = "5a".repeat(32);
    let table =
        format!("[fleet]\nkey = [\"{key}\"]\nlisten = \"{free}\"\nadvertise = \"{free}\"\n");
    (table, free)
}

/// A replica with a server over HTTP at `/a` and a child at `/b`, and its address in the fleet.
fn replica(upstream: &Upstream) -> (Proxy, String) {
    let (table, free) = table();
    let command = serde_json::to_string(&["python3", "-c", ECHO]).unwrap();
    let routes = format!(
        "{table}[[route]]\npath = \"/a\"\nupstream.url = \"{}\"\n\
         [[route]]\npath = \"/b\"\nupstream.command = {command}\n",
        upstream.url()
    );
    (Proxy::serving(&Start::default(), &routes), free)
}

/// Calls a tool in a session at a replica.
fn ask(proxy: &Proxy, path: &str, session: &str, tool: &str) -> Exchange {
    let headers = [POST[0], POST[1], ("mcp-session-id", session)];
    Exchange::send(proxy.address(), "POST", path, &headers, &call_of(tool, "1", "1"))
}

#[test]
fn the_line_of_a_call_names_the_owner_and_says_whether_the_call_was_forwarded() {
    let upstream = Upstream::start();
    let ((one, owner), (two, _)) = (replica(&upstream), replica(&upstream));
    let mut begun = post(&one, &initialize("2025-06-18"));
    let session = "mcp-session-id: s\r\ncontent-type: application/json\r\n";
    upstream.asked().answer("200 OK", session, agreement("2025-06-18"));
    let over_http = begun.header("mcp-session-id").unwrap();
    let first = initialize("2025-06-18");
    let mut begun = Exchange::send(one.address(), "POST", "/b", &POST, &first);
    let of_child = begun.header("mcp-session-id").unwrap();
    assert!(begun.rest().contains("\"result\""));
    for (path, session) in [("/a", &over_http), ("/b", &of_child)] {
        for (at, tool, forwarded) in [(&one, "near", false), (&two, "far", true)] {
            let mut answer = ask(at, path, session, tool);
            if path == "/a" {
                upstream.asked().json(&result("1"));
            }
            assert!(answer.rest().contains("\"result\""));
            one.logged(&[
                &format!("call tool=\"{tool}\""),
                &format!("owner=\"{owner}\" forwarded={forwarded} route=\"{path}\""),
            ]);
        }
    }
    two.logged(&["passed on", &format!("owner={owner}")]);
    assert!(!two.log().contains("call tool="), "{}", two.log());
    // A call without a session, and a proxy without a fleet, has no owner.
    let mut answer = Exchange::send(one.address(), "POST", "/a", &POST, &call_of("none", "1", "1"));
    upstream.asked().json(&result("1"));
    assert_eq!(answer.rest(), result("1"));
    let line = one.logged(&["call tool=\"none\""]);
    assert!(!line.contains("owner=") && !line.contains("forwarded="), "{line}");
}

#[test]
fn top_shows_the_calls_of_all_replicas_in_one_table() {
    let upstream = Upstream::start();
    let proxies = [(); 2].map(|()| Proxy::before(&upstream.url()));
    let [one, two] = proxies.each_ref().map(|proxy| proxy.admin().to_owned());
    // A third replica has not started, and a host name is used in the place of an address.
    let (_socket, dead) = scripted_server::dead();
    let fleet = format!("{one},{},{dead}", two.replace("127.0.0.1", "localhost"));
    let milepost = crate::support::milepost();
    let mut top = Command::new("python3");
    top.args(["-c", TERMINAL]).arg(milepost.get_program()).args(["top", "--fleet", &fleet]);
    let kept = milepost.get_envs().filter_map(|(name, value)| Some((name, value?)));
    let mut top = top.envs(kept).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let screen = Arc::new(Mutex::new(Vec::new()));
    let (mut out, shown) = (top.stdout.take().unwrap(), Arc::clone(&screen));
    let reader = thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = out.read(&mut buffer) {
            shown.lock().unwrap().extend_from_slice(&buffer[..read]);
        }
    });
    let shows = |words: &str| String::from_utf8_lossy(&screen.lock().unwrap()).contains(words);
    until("the table is there", || shows("milepost top"));
    let mut answers = Vec::new();
    for (proxy, tool) in proxies.iter().zip(["of-one", "of-two"]) {
        answers.push(post(proxy, &call_of(tool, "1", "1")));
        answers.push(post(proxy, &call_of(tool, "2", "2")));
    }
    let mut servers: Vec<_> = answers.iter().map(|_| upstream.asked()).collect();
    until("the calls of both are there", || shows("of-one") && shows("of-two"));
    servers.iter_mut().for_each(|server| server.json(&result("1")));
    top.stdin.as_mut().unwrap().write_all(b"q").unwrap();
    assert_eq!(wait(&mut top, STUCK).unwrap().code(), Some(0));
    reader.join().unwrap();
}
