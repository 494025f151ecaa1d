//! The content of logs, and text that never stands there.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::exchange::Exchange;
use crate::support::session::Session;
use crate::support::{fake, milepost, secrets, until};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const OTHER: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

#[test]
fn no_secret_is_told_at_trace() {
    secrets::visit(&[], &["--log-level", "trace"]).expect_no_secrets();
}

/// Packages that we use have lines of their own.
#[test]
fn no_secret_is_told_at_trace_of_everything() {
    secrets::visit(&[("MILEPOST_LOG", "trace")], &[]).expect_no_secrets();
}

#[test]
fn no_secret_is_told_in_json() {
    let options = ["--log-level", "trace", "--log-format", "json"];
    // The address is read from text log lines.
    let told = secrets::wrapped(&[], &options);
    told.expect_no_secrets();
}

#[test]
fn an_address_that_is_none_is_not_repeated() {
    let mut command = milepost();
    let output = command.args(["wrap", "http://user:secret@/mcp?secret"]).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("not a valid URL") && !told.contains("secret"), "{told}");
}

#[test]
fn a_filter_of_the_environment_that_nobody_understands_is_refused() {
    for args in [&["wrap", "--", "cat"][..], &["serve", "no-such-file.toml"], &["stats"]] {
        let filter = "milepost=debug,sever=info";
        let output = milepost().args(args).env("MILEPOST_LOG", filter).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let told = String::from_utf8(output.stderr).unwrap();
        let expected = "milepost: MILEPOST_LOG: column 16: \"sever\" is no target; did you mean \
                        \"server\"?; levels: off, error, warn, info, debug, trace; targets: \
                        milepost, server, h2; for example \"debug\" or \
                        \"milepost=debug,server=info\"\n";
        assert_eq!(told, expected, "{args:?}");
    }
}

/// Reports under another method, reports for no call, and answers.
const REPORTS: &str = r#"
read -r _
echo '{"jsonrpc":"2.0","method":"tools/progress","params":{"id":7,"content":[{"type":"text","text":"{\"message\":\"begun\"}"}]}}'
echo '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"x","progress":"?"}}'
echo '{"jsonrpc":"2.0","method":"acme/said","params":{}}'
sleep 1
# The last report and the answer are one write.
printf '%s\n' '{"jsonrpc":"2.0","method":"tools/progress","params":{"id":7,"content":[{"type":"text","text":"{\"message\":\"over\"}"}]}}' '{"jsonrpc":"2.0","id":7,"result":{}}'
read -r _
"#;

#[test]
fn each_message_has_a_line_at_debug() {
    crate::support::within_tries(|| {
        let lines = |options: &[&str]| -> Vec<String> {
            let mut session = Session::wrap(options, &["sh", "-c", REPORTS]);
            session.tell(&called(7, "work"));
            session.lines_until(r#""id":7"#);
            let log = session.finish().2;
            let lines = log.lines().filter_map(|line| line.split_once("DEBUG message "));
            lines.map(|(_, rest)| rest.to_owned()).collect()
        };
        let mut told = lines(&["--log-level", "debug"]);
        told.sort();
        let mut expected = vec![
            r#"sender="server" receiver="client" kind="notification" method="tools/progress" tool="work" verdict="repaired" reason="dialect, token, number""#,
            r#"sender="client" receiver="server" kind="request" method="tools/call" id="7" verdict="forwarded""#,
            r#"sender="server" receiver="client" kind="notification" method="acme/said" verdict="forwarded""#,
            r#"sender="server" receiver="client" kind="notification" method="notifications/progress" tool="work" verdict="repaired" reason="token, number, message""#,
            r#"sender="server" receiver="client" kind="notification" method="tools/progress" tool="work" verdict="withheld" reason="overtaken""#,
            r#"sender="server" receiver="client" kind="response" method="tools/call" tool="work" id="7" verdict="repaired" reason="bare-result""#,
        ];
        expected.sort_unstable();
        assert_eq!(told, expected);
        assert!(lines(&[]).is_empty());
    });
}

/// Answers each request with its own id.
const ECHO: &str = r#"
while read -r line; do
    id=$(printf '%s\n' "$line" | sed -n 's/^{"jsonrpc":"2.0","id":\([0-9]*\),.*/\1/p')
    [ -z "$id" ] || echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"e","version":"1"},"content":[]}}'
done
"#;

/// A line that a client or server must not be able to forge in the log.
const FORGED: &str = "2026-01-01T00:00:00.000000Z  INFO call tool=\"forged\"";

/// Names that would like to be more than that.
fn names() -> Vec<String> {
    vec![
        "plain".to_owned(),
        format!("a\n{FORGED}"),
        format!("a\r{FORGED}\r\n"),
        "a\u{1b}[2J\u{1b}]0;title\u{7}".to_owned(),
        "a\u{9b}2J".to_owned(),
        "a\u{2028}b\u{2029}c\u{85}d".to_owned(),
        "a\u{202e}b\u{200b}\u{feff}".to_owned(),
        "a\0b".to_owned(),
        "a\" outcome=\"forged\" b='c' \\".to_owned(),
        "a outcome=forged".to_owned(),
        "{\"fields\":{}}".to_owned(),
        String::new(),
        "x".repeat(1 << 20),
        "\u{1b}".repeat(100_000),
    ]
}

/// The log has one line for each event, and no line contains a control sequence.
#[track_caller]
fn check(log: &str, json: bool) -> Vec<Value> {
    let mut events = Vec::new();
    for line in log.lines() {
        let start: String = line.chars().take(300).collect();
        assert!(line.len() < 64 << 10, "{} bytes: {start}", line.len());
        let steers = |sign: char| {
            sign.is_control() || matches!(sign, '\u{2028}'..='\u{202e}' | '\u{200b}' | '\u{feff}')
        };
        assert!(!line.chars().any(steers), "{line:?}");
        if json {
            let event: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{start}"));
            assert!(event["timestamp"].is_string() && event["level"].is_string(), "{start}");
            assert!(event["span"].is_null() || event["spans"][0]["route"] == "/echo", "{start}");
            events.push(event["fields"].clone());
        } else {
            let (time, rest) = line.split_once(' ').unwrap_or_default();
            assert!(time.starts_with("20") && time.ends_with('Z'), "{start}");
            let level = rest.trim_start().split(' ').next().unwrap();
            assert!(["TRACE", "DEBUG", "INFO", "WARN", "ERROR"].contains(&level), "{start}");
            assert!(!line[time.len()..].contains(&format!(" {FORGED}")), "{start}");
        }
    }
    events
}

fn called(id: usize, name: &str) -> String {
    let name = serde_json::to_string(name).unwrap();
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":{name},"_meta":{{"progressToken":{name}}}}}}}"#
    )
}

fn initialize(name: &str) -> String {
    let name = serde_json::to_string(name).unwrap();
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"2025-06-18","capabilities":{{}},"clientInfo":{{"name":{name},"version":{name}}}}}}}"#
    )
}

fn expect_calls(log: &str, json: bool) {
    let events = check(log, json);
    let names = names();
    if json {
        let calls: Vec<&Value> =
            events.iter().filter(|fields| fields["message"] == "call").collect();
        assert_eq!(calls.len(), names.len(), "{log:.3000}");
        for (call, name) in calls.iter().zip(&names) {
            let tool = call["tool"].as_str().unwrap();
            assert!(*tool == **name || (name.len() > 4096 && tool.ends_with('…')), "{tool}");
            assert_eq!(call["outcome"], "result");
        }
    } else {
        let is_call = |line: &&str| {
            let rest = line.split_once(" INFO ").unwrap_or_default().1;
            rest.starts_with("call tool=\"")
        };
        let calls = log.lines().filter(is_call);
        assert_eq!(calls.count(), names.len(), "{log:.3000}");
        assert!(log.contains(r#"tool="a\" outcome=\"forged\" b='c' \\" token="#), "{log:.3000}");
        assert!(log.contains(r#"tool="a\n2026-01-01T"#), "{log:.3000}");
        assert!(log.contains(r#"tool="a\u{2028}b\u{2029}c\u{85}d""#), "{log:.3000}");
    }
}

fn through_wrap(format: &str) -> String {
    let mut session = Session::wrap(&["--log-format", format], &["sh", "-c", ECHO]);
    session.tell(&initialize(&format!("c\n{FORGED}")));
    session.line();
    for (number, name) in names().iter().enumerate() {
        session.tell(&called(number + 2, name));
        session.lines_until(&format!(r#""id":{},"result""#, number + 2));
    }
    session.finish().2
}

#[test]
fn names_are_no_part_of_a_line_of_wrap() {
    expect_calls(&through_wrap("text"), false);
    expect_calls(&through_wrap("json"), true);
}

/// `milepost serve` with these routes, and where it listens.
fn serve(folder: &TempDir, routes: &str, options: &[&str]) -> (Session, String) {
    let file = folder.path().join("proxy.toml");
    let server = "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1s\"\n\n";
    fs::write(&file, format!("{server}{routes}")).unwrap();
    let mut command = milepost();
    let session = Session::start(command.arg("serve").args(options).arg(&file));
    let mut found = String::new();
    until("it listens", || {
        let log = session.stderr();
        let port = log.split("127.0.0.1:").nth(1).filter(|rest| rest.contains('\n'));
        let port = port.and_then(|rest| rest.split(|sign: char| !sign.is_ascii_digit()).next());
        found = format!("127.0.0.1:{}", port.unwrap_or_default());
        port.is_some()
    });
    (session, found)
}

fn stop(mut session: Session) -> String {
    session.signal("TERM");
    session.ended().2
}

const HEADERS: [(&str, &str); 2] =
    [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];

fn through_serve(format: &str) -> String {
    let folder = TempDir::new().unwrap();
    let said = names()
        .iter()
        .filter(|name| name.len() < 1000)
        .fold(String::new(), |all, name| all + name + "\n");
    fs::write(folder.path().join("said"), said).unwrap();
    fs::write(folder.path().join("echo.sh"), format!("cat said >&2\n{ECHO}")).unwrap();
    let routes = format!(
        "[[route]]\npath = \"/echo\"\nupstream.command = [\"sh\", \"echo.sh\"]\nupstream.cwd = {:?}\n",
        folder.path()
    );
    let (session, address) = serve(&folder, &routes, &["--log-format", format]);
    let body = initialize(&format!("c\n{FORGED}"));
    let mut begun = Exchange::send(&address, "POST", "/echo", &HEADERS, &body);
    let id = begun.header("mcp-session-id").unwrap();
    let in_session = [HEADERS[0], HEADERS[1], ("mcp-session-id", &*id)];
    for (number, name) in names().iter().enumerate() {
        let body = called(number + 2, name);
        let mut answer = Exchange::send(&address, "POST", "/echo", &in_session, &body);
        assert_eq!(answer.status(), 200);
        answer.rest();
    }
    let odd = format!("http://evil.example\u{9b}2J\u{2028}\t\" reason=\"{FORGED}");
    for (name, path) in [("origin", "/echo"), ("host", "/echo"), ("x", "/a%0a%1b\u{2028}\"")] {
        let mut refused = Exchange::send(&address, "POST", path, &[(name, &odd)], "{}");
        assert!(refused.status() >= 400);
    }
    stop(session)
}

#[test]
fn names_and_lines_of_servers_are_no_part_of_a_line_of_serve() {
    let log = through_serve("text");
    expect_calls(&log, false);
    let line = r#" INFO server line="2026-01-01T00:00:00.000000Z  INFO call tool=\"forged\"""#;
    assert!(log.contains(line), "{log:.3000}");
    expect_calls(&through_serve("json"), true);
}

fn traced(id: u8, parent: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"tool-{id}","_meta":{{"traceparent":"{parent}","tracestate":"a=1"}}}}}}"#
    )
}

fn parent(trace: &str) -> String {
    format!("00-{trace}-b7ad6b7169203331-01")
}

#[track_caller]
fn expect_trace(log: &str, tool: &str, expected: Option<&str>) {
    let line = log.lines().find(|line| line.contains(&format!("call tool=\"{tool}\"")));
    let line = line.unwrap_or_else(|| panic!("no {tool}: {log}"));
    let found = line.split_once("trace_id=\"").map(|(_, rest)| rest.split('"').next().unwrap());
    assert_eq!(found, expected, "{line}");
}

#[test]
fn wrap_logs_the_trace_that_a_call_says_it_belongs_to() {
    let mut session = Session::sh(ECHO);
    for (id, parent) in [(1, parent(TRACE)), (2, parent(TRACE).to_uppercase()), (3, "7".into())] {
        session.tell(&traced(id, &parent));
        session.line();
    }
    let log = session.finish().2;
    expect_trace(&log, "tool-1", Some(TRACE));
    expect_trace(&log, "tool-2", None);
    expect_trace(&log, "tool-3", None);
}

/// Bytes and headers are forwarded unchanged, although the trace is read from them.
#[test]
fn serve_logs_the_trace_of_a_call_and_passes_it_on() {
    let (tell, heard) = std::sync::mpsc::channel();
    let server = fake::listen(move |asked, stream| {
        let id = serde_json::from_slice::<Value>(&asked.body).unwrap_or_default()["id"].clone();
        let result = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[]}}}}"#);
        fake::say(stream, "200 OK", "content-type: application/json\r\n", &result);
        let traceparent = asked.header("traceparent").map(str::to_owned);
        let _ = tell.send((asked.body.clone(), traceparent));
    });
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("echo.sh"), ECHO).unwrap();
    let routes = format!(
        "[[route]]\npath = \"/http\"\nupstream.url = \"http://{server}/mcp\"\n\
         [[route]]\npath = \"/echo\"\nupstream.command = [\"sh\", \"echo.sh\"]\nupstream.cwd = {:?}\n",
        folder.path()
    );
    let (session, address) = serve(&folder, &routes, &[]);
    let mut begun = Exchange::send(&address, "POST", "/echo", &HEADERS, &initialize("c"));
    let id = begun.header("mcp-session-id").unwrap();
    let bare = |id| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"tool-{id}"}}}}"#
        )
    };
    let (header, bad) = (parent(TRACE), parent(&"0".repeat(32)));
    let calls = [
        ("/http", 11, bare(11), Some(&header), Some(TRACE)),
        ("/http", 12, traced(12, &parent(OTHER)), Some(&header), Some(OTHER)),
        ("/http", 13, traced(13, &bad), Some(&header), Some(TRACE)),
        ("/http", 14, bare(14), Some(&bad), None),
        ("/http", 15, bare(15), None, None),
        ("/echo", 21, bare(21), Some(&header), Some(TRACE)),
        ("/echo", 22, traced(22, &parent(OTHER)), Some(&header), Some(OTHER)),
        ("/echo", 23, bare(23), None, None),
    ];
    for (path, _, body, header, _) in &calls {
        let mut headers = HEADERS.to_vec();
        if *path == "/echo" {
            headers.push(("mcp-session-id", &id));
        }
        headers.extend(header.map(|header| ("traceparent", &**header)));
        let mut answer = Exchange::send(&address, "POST", path, &headers, body);
        assert_eq!(answer.status(), 200);
        answer.rest();
        if *path == "/http" {
            let passed = (body.as_bytes().to_vec(), header.map(String::clone));
            assert_eq!(heard.recv().unwrap(), passed);
        }
    }
    let log = stop(session);
    for (_, id, _, _, expected) in calls {
        expect_trace(&log, &format!("tool-{id}"), expected);
    }
}

/// Two fields of a header are none (W3C Trace Context).
#[test]
fn two_traceparents_are_none() {
    let mut headers = http::HeaderMap::new();
    headers.append("traceparent", parent(TRACE).parse().unwrap());
    assert!(milepost::relay::trace_of(&headers).is_some());
    headers.append("tracestate", "a=1".parse().unwrap());
    headers.append("tracestate", "b=2".parse().unwrap());
    let found = milepost::relay::trace_of(&headers).unwrap();
    assert_eq!(found.state.as_deref(), Some("a=1,b=2"));
    headers.append("traceparent", parent(TRACE).parse().unwrap());
    assert_eq!(milepost::relay::trace_of(&headers), None);
}
