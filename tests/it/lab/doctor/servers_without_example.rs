//! Kinds of servers without an example: HTTP+SSE, 2026-07-28, unknown methods.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use serde_json::Value;

use super::doctor;
use crate::http::serve::proxy::{Proxy, Start};
use crate::support::example;

fn report(args: &[&str]) -> (i32, Value) {
    let output = doctor(args);
    let errors = String::from_utf8_lossy(&output.stderr);
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{errors}"));
    (output.status.code().unwrap(), report)
}

/// Rules and how often they are broken.
fn rules(of: &Value) -> Vec<(&str, u64)> {
    let findings = of["findings"].as_array().unwrap();
    findings.iter().map(|f| (f["rule"].as_str().unwrap(), f["count"].as_u64().unwrap())).collect()
}

/// A server in a few lines of shell: `PATTERN) answer` for each request, with ids from 0.
pub(crate) fn shell(cases: &str) -> String {
    format!(
        r#"say() {{ printf '%s\n' "$1"; }}
        while read -r line; do case "$line" in
        {cases}
        esac; done"#
    )
}

pub(crate) const HANDSHAKE: &str = r#"
    *'"initialize"'*) say '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x"}}}';;
    *server/discover*) say '{"jsonrpc":"2.0","id":0,"error":{"code":-32601,"message":"m"}}';;
    *tools/list*) say '{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"t"}]}}';;"#;

#[test]
fn http_and_sse() {
    crate::support::within_tries(|| {
        let scout = example("scout");
        let route =
            format!("upstream.command = [{scout:?}, \"--pace\", \"60ms\"]\nmode = \"observe\"");
        let proxy = Proxy::with(&Start::default(), &route);
        let url = format!("http://{}/a/sse", proxy.address());
        let (code, report) = report(&[
            "--call",
            "run_materialization",
            "--json",
            "--through",
            "--revision",
            "2024-11-05",
            &url,
        ]);
        assert_eq!(code, 1);
        assert_eq!(report["server"]["transport"], "HTTP+SSE");
        assert_eq!(report["revision"], "2024-11-05");
        let found = rules(&report);
        assert!(
            found.contains(&("figure-repeats", 4)) && found.contains(&("figure-falls", 1)),
            "{report}"
        );
        assert_eq!(report["through"]["grade"], "fine", "{report}");
        assert_eq!(report["cure"]["lines"], Value::Null);
    });
}

#[test]
fn a_server_that_speaks_only_2026_07_28() {
    crate::support::within_tries(|| {
        let server = shell(
            r#"*server/discover*) say '{"jsonrpc":"2.0","id":0,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{},"serverInfo":{"name":"new","version":"1"}}}';;
        *'"initialize"'*) say '{"jsonrpc":"2.0","id":0,"error":{"code":-32022,"message":"m","data":{"supported":["2026-07-28"]}}}';;
        *io.modelcontextprotocol/protocolVersion*tools/list*|*tools/list*io.modelcontextprotocol/protocolVersion*) say '{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","tools":[{"name":"t"}]}}';;
        *tools/call*) say '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7001,"progress":1,"total":null}}'; sleep 0.1; say '{"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","content":[]}}';;"#,
        );
        let (code, report) =
            report(&["--call", "t", "--json", "--through", "--", "sh", "-c", &server]);
        assert_eq!((code, &report["revision"]), (1, &Value::from("2026-07-28")), "{report}");
        assert_eq!(rules(&report), [("total", 1)]);
        assert_eq!(report["through"]["grade"], "fine", "{report}");
    });
}

#[test]
fn a_method_that_nobody_knows_gets_a_dialect() {
    crate::support::within_tries(|| {
        let call = r#"*tools/call*) for pct in 10 40 90; do say "{\"jsonrpc\":\"2.0\",\"method\":\"acme/state\",\"params\":{\"callId\":2,\"pct\":$pct,\"text\":\"m\"}}"; sleep 0.2; done; say '{"jsonrpc":"2.0","id":2,"result":{"content":[]}}';;"#;
        let server = shell(&[HANDSHAKE, call].concat());
        let (code, report) =
            report(&["--call", "t", "--json", "--through", "--", "sh", "-c", &server]);
        assert_eq!(code, 1);
        assert_eq!(rules(&report), [("method-unknown", 3)], "{report}");
        let lines = report["cure"]["lines"].as_str().unwrap();
        assert!(
            lines.contains("method = \"acme/state\"\nrequest_id = \"/params/callId\""),
            "{lines}"
        );
        assert_eq!(report["through"]["findings"], Value::Array(Vec::new()), "{report}");
        let call = &report["through"]["calls"][0];
        assert!(call["usable"].as_u64() >= Some(2), "{call}");
    });
}

#[test]
fn a_dialect_that_is_off_is_set() {
    crate::support::within_tries(|| {
        let call = r#"*tools/call*) sleep 0.2; say '{"jsonrpc":"2.0","method":"codex/event","params":{"_meta":{"requestId":2},"msg":{"type":"agent_message","message":"m"}}}'; sleep 0.1; say '{"jsonrpc":"2.0","id":2,"result":{"content":[]}}';;"#;
        let server = shell(&[HANDSHAKE, call].concat());
        let (_, report) =
            report(&["--call", "t", "--json", "--through", "--", "sh", "-c", &server]);
        assert_eq!(rules(&report), [("method-off", 1)], "{report}");
        let lines = report["cure"]["lines"].as_str().unwrap();
        assert!(lines.contains("\npreset = \"codex\"\n"), "{lines}");
        assert_eq!(report["through"]["calls"][0]["usable"], 1, "{report}");
        assert_eq!(report["through"]["grade"], "fine", "{report}");
    });
}

#[test]
fn a_server_that_ends_over_the_first_question_does_not_behind_the_proxy() {
    let dies = HANDSHAKE.replace(
        "say '{\"jsonrpc\":\"2.0\",\"id\":0,\"error\":{\"code\":-32601,\"message\":\"m\"}}'",
        "exit 1",
    );
    assert_ne!(dies, HANDSHAKE);
    let (code, report) = report(&["--json", "--through", "--", "sh", "-c", &shell(&dies)]);
    assert_eq!((code, rules(&report)), (1, vec![("discover-ends", 1)]), "{report}");
    assert_eq!(report["through"]["findings"], Value::Array(Vec::new()), "{report}");
}

#[test]
fn a_client_is_known_by_its_name() {
    let silent = example("silent");
    let output = doctor(&["--client", "claude-code", "--revision", "2025-06-18", "--", &silent]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("\nClaude Code (as of ")
            && text.contains("CLAUDE_CODE_MCP_TOOL_IDLE_TIMEOUT")
    );
    assert_eq!(output.status.code(), Some(0));
    let output = doctor(&["--client", "nobody", "--revision", "2025-06-18", "--", &silent]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("Nothing is known of the client \"nobody\""), "{text}");
}

/// The head of a request, in small letters, and its body.
fn request(connection: &TcpStream) -> (String, String) {
    let mut reader = BufReader::new(connection);
    let mut head = String::new();
    while reader.read_line(&mut head).unwrap_or(0) > 2 && !head.ends_with("\r\n\r\n") {}
    let head = head.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    reader.read_exact(&mut body).unwrap();
    (head, String::from_utf8(body).unwrap())
}

/// Answers one request of a client, with events in the stream that are not messages.
fn pinged(mut connection: TcpStream) {
    let (head, body) = request(&connection);
    let message = |result: &str| {
        let id = body.split("\"id\":").nth(1).and_then(|rest| rest.split([',', '}']).next());
        format!(r#"data: {{"jsonrpc":"2.0","id":{},"result":{result}}}"#, id.unwrap_or("null"))
    };
    let answer = if body.contains("tools/call") {
        let result = message(r#"{"content":[]}"#);
        format!("data: ping\n\ndata: {{\"type\":\"heartbeat\"}}\n\n{result}\n\ndata: [DONE]\n\n")
    } else if body.contains("tools/list") {
        message(r#"{"tools":[{"name":"t"}]}"#) + "\n\n"
    } else if body.contains("\"initialize\"") {
        message(r#"{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x"}}"#)
            + "\n\n"
    } else {
        String::new()
    };
    let status = match (head.starts_with("get"), answer.is_empty()) {
        (true, _) => "405 Method Not Allowed",
        (false, true) => "202 Accepted",
        (false, false) => "200 OK\r\ncontent-type: text/event-stream",
    };
    let length = answer.len();
    let head =
        format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    let _ = connection.write_all((head + &answer).as_bytes());
}

#[test]
fn events_that_are_no_messages_become_comments() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    thread::spawn(move || listener.incoming().for_each(|connection| pinged(connection.unwrap())));
    let args = ["--call", "t", "--json", "--through", "--revision", "2025-11-25", &url];
    let (code, report) = report(&args);
    assert_eq!((code, rules(&report)), (1, vec![("event-noise", 3)]), "{report}");
    assert_eq!(rules(&report["through"]), [], "{report}");
    assert_eq!(report["cure"]["uncured"], serde_json::json!([]), "{report}");
    assert_eq!(report["through"]["calls"][0]["answer"], "result", "{report}");
}

/// Answers one request of a client to a server that ends its stream before the answer.
fn polled(mut connection: TcpStream) {
    let (head, body) = request(&connection);
    let events = "200 OK\r\ncontent-type: text/event-stream";
    let json = "200 OK\r\ncontent-type: application/json";
    let (status, answer) = if head.starts_with("get") && head.contains("last-event-id: 7") {
        (events, "id: 8\ndata: {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"content\":[]}}\n\n")
    } else if head.starts_with("get") {
        ("405 Method Not Allowed", "")
    } else if body.contains("tools/call") {
        (events, "id: 7\nretry: 10\ndata: \n\n")
    } else if body.contains("tools/list") {
        (json, r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"t"}]}}"#)
    } else if body.contains("\"initialize\"") {
        (
            json,
            r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x"}}}"#,
        )
    } else {
        ("202 Accepted", "")
    };
    let length = answer.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{answer}"
    );
    let _ = connection.write_all(answer.as_bytes());
}

#[test]
fn a_stream_that_ends_early_is_gone_on_with() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    thread::spawn(move || listener.incoming().for_each(|connection| polled(connection.unwrap())));
    let (code, report) = report(&["--call", "t", "--json", "--revision", "2025-11-25", &url]);
    assert_eq!((code, rules(&report)), (0, vec![]), "{report}");
    assert_eq!(report["calls"][0]["answer"], "result");
}

#[test]
fn a_route_is_examined_as_it_is_configured() {
    crate::support::within_tries(|| {
        let call = r#"*tools/call*) for at in 1 2 3; do say "{\"jsonrpc\":\"2.0\",\"method\":\"farm/tick\",\"params\":{\"id\":2,\"at\":$at,\"end\":9}}"; sleep 0.2; done; say '{"jsonrpc":"2.0","id":2,"result":{"content":[]}}';;"#;
        let server = shell(&[HANDSHAKE, call].concat());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("proxy.toml");
        let command = toml::Value::from(vec!["sh", "-c", &server]).to_string().replace("${", "$${");
        let routes = |more: &str| {
            format!(
                "[[route]]\npath = \"/other\"\nupstream.demo = true\n[[route]]\npath = \"/farm\"\nupstream.command = {command}\n{more}"
            )
        };
        let examine = |more: &str| {
            std::fs::write(&file, routes(more)).unwrap();
            report(&[
                "--call",
                "t",
                "--json",
                "--revision",
                "2025-06-18",
                "--config",
                file.to_str().unwrap(),
                "--route",
                "/farm",
            ])
        };
        let (code, bare) = examine("");
        assert_eq!((code, rules(&bare)), (1, vec![("method-unknown", 3)]), "{bare}");
        assert_eq!(rules(&bare["through"]), [("method-unknown", 3)], "{bare}");
        assert!(bare["cure"]["lines"].as_str().unwrap().contains("progress = \"/params/at\""));
        let dialect = "dialects = [\"defaults\", \"farm\"]\n[[dialect]]\nname = \"farm\"\nmethod = \"farm/tick\"\nprogress = \"/params/at\"\ntotal = \"/params/end\"\n";
        let (code, cured) = examine(dialect);
        assert_eq!((code, rules(&cured)), (1, vec![("method-unknown", 3)]), "{cured}");
        assert_eq!(rules(&cured["through"]), [], "{cured}");
        assert_eq!(cured["cure"]["lines"], Value::Null, "{cured}");
        assert_eq!(cured["through"]["calls"][0]["usable"], 3, "{cured}");
        assert_eq!(cured["through"]["missed"], Value::Array(Vec::new()), "{cured}");
        // An error of Milepost itself does not count as an answer.
        let (_, replaced) = examine(&format!("call_timeout = \"300ms\"\n{dialect}"));
        assert_eq!(rules(&replaced["through"]), [("answer-replaced", 1)], "{replaced}");
        assert_eq!(replaced["through"]["grade"], "may break", "{replaced}");
        let (_, missed) = examine(&dialect.replace("/params/end", "/params/ende"));
        let expected =
            "the dialect \"farm\": `total` (/params/ende) found nothing in any of 3 messages";
        assert_eq!(missed["through"]["missed"], serde_json::json!([expected]), "{missed}");
    });
}
