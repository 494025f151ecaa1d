//! `milepost export`: archives that other programs read, and a page in which nothing of a recording is code.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::{BUILDS, recording, run, written};
use crate::commands::schema::check_schema;
use crate::support::session::Session;
use crate::support::{example, messages, milepost};

#[track_caller]
fn archive(args: &[&str]) -> Value {
    let (code, out, error) = run(&[&["export", "--to", "har"], args].concat());
    assert_eq!(code, Some(0), "{error}");
    let archive = serde_json::from_str(&out).unwrap();
    check_schema("har-1.2.json", &archive);
    archive
}

#[track_caller]
fn page(args: &[&str]) -> String {
    let (code, out, error) = run(&[&["export", "--to", "html"], args].concat());
    assert_eq!(code, Some(0), "{error}");
    out
}

#[test]
fn an_archive_has_an_entry_for_each_call() {
    let archive = archive(&[&recording(BUILDS)]);
    let log = &archive["log"];
    let entries = log["entries"].as_array().unwrap();
    let seen: Vec<(&str, &str, u64, f64)> = entries
        .iter()
        .map(|entry| {
            let (url, started) = (&entry["request"]["url"], &entry["startedDateTime"]);
            let status = entry["response"]["status"].as_u64().unwrap();
            let time = entry["time"].as_f64().unwrap();
            (url.as_str().unwrap(), started.as_str().unwrap(), status, time)
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("mcp+stdio://wrap/initialize", "2026-01-31T09:59:59.000Z", 200, 5.0),
            ("mcp+stdio://wrap/tools/call/build", "2026-01-31T10:00:00.000Z", 200, 500.0),
            ("mcp+stdio://wrap/tools/call/build", "2026-01-31T10:00:01.000Z", 200, 200.0),
            ("mcp+stdio://wrap/tools/call/clean", "2026-01-31T10:00:02.000Z", 0, 0.0),
        ]
    );
    let build = &entries[1];
    assert_eq!(build["timings"]["wait"], 230.0);
    assert_eq!(build["timings"]["receive"], 270.0);
    let body: Value =
        serde_json::from_str(build["request"]["postData"]["text"].as_str().unwrap()).unwrap();
    assert_eq!(body["params"]["arguments"]["apiKey"], "***1");
    let ways = build["_messages"].as_array().unwrap();
    let ways: Vec<&str> = ways.iter().map(|message| message["way"].as_str().unwrap()).collect();
    assert_eq!(ways, ["from client", "from server", "to client", "from server", "to client"]);
    assert_eq!(build["_messages"][1]["time"], 200.0);
    assert_eq!(entries[2]["_outcome"], "tool error");
    assert_eq!(entries[3]["response"]["_error"], entries[3]["_outcome"]);
    assert_eq!(log["_messages"].as_array().unwrap().len(), 3);
}

#[test]
fn the_page_loads_and_runs_nothing_of_a_recording() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"</pre></details><script>alert(1)</script><img src=x onerror=alert(1)>"#;
    let hostile = format!(
        "> {{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{{\"name\":\"{script}\"}}}}\n\
         < {{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{{\"a\":\"{script}\u{202e}\\x1B[2J\"}}}}\n\
         = {{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{{\"a\":\"{script}\u{202e}\\x1B[2J\"}}}}\n\
         < {script}\n"
    );
    let file = written(&folder, hostile);
    let page = page(&[file.to_str().unwrap()]);
    assert_eq!(page.matches("<script").count(), 1, "{page}");
    assert!(page.matches("&lt;script&gt;alert(1)").count() > 3, "{page}");
    assert!(!page.contains("<img") && !page.contains(['\u{202e}', '\u{1b}']), "{page}");
    // The page has no resource, and its policy allows none.
    for link in ["src=", "href=", "url(", "@import"] {
        assert!(!page.replace("&lt;img src=x", "").contains(link), "{link}");
    }
    assert!(page.contains("content=\"default-src 'none'; style-src 'sha256-"), "{page}");
    assert!(!page.contains("'unsafe-inline'"));
}

#[test]
fn the_page_has_a_row_for_each_call_with_both_sides() {
    let page = page(&[&recording(BUILDS)]);
    // Three calls of tools, the handshake, and the messages that belong to no call.
    assert_eq!(page.matches("<details").count(), 5, "{page}");
    // The first call of a tool is expanded, and lines above the calls summarise them.
    let (_, open) = page.split_once("<details open>\n").unwrap();
    assert!(open.starts_with("<summary><span>2</span>"), "{page}");
    let summary = page.split_once("<p>outcomes: ").unwrap().1.split_once("</p>").unwrap().0;
    assert!(summary.contains("result 2, tool error 1"), "{summary}");
    assert!(page.contains("<p>of the server&#39;s messages "), "{page}");
    assert!(page.contains("<b>build · tools/call</b><span>0.500 s</span><span>result</span><span>1 from the server, 1 to the client</span>"), "{page}");
    assert!(page.contains("<span class=\"bad\">tool error</span>"), "{page}");
    assert_eq!(page.matches("&lt;b&gt;compiling&lt;/b&gt;").count(), 2, "{page}");
    assert!(page.contains("forwarded as it is"), "{page}");
}

#[test]
fn secrets_are_masked_where_the_recording_has_them() {
    let folder = tempfile::tempdir().unwrap();
    let text = "# recorded by milepost 0.1.0; `milepost replay` plays it\n# with its secrets\n\
        > {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"x\",\"arguments\":{\"password\":\"hunter two\"}}}\n";
    let file = written(&folder, text);
    let file = file.to_str().unwrap();
    for format in ["har", "html"] {
        let (_, masked, _) = run(&["export", "--to", format, file]);
        assert!(!masked.contains("hunter two") && masked.contains("***1"), "{masked}");
        let (_, kept, _) = run(&["export", "--to", format, "--keep-secrets", file]);
        assert!(kept.contains("hunter two"), "{kept}");
    }
}

#[test]
fn the_name_of_the_output_gives_the_format() {
    let folder = tempfile::tempdir().unwrap();
    for (name, start) in [("a.html", "<!doctype html>"), ("a.har", "{\"log\":"), ("a", "{\"log\":")]
    {
        let to = folder.path().join(name);
        let (code, out, error) = run(&["export", &recording(BUILDS), "-o", to.to_str().unwrap()]);
        assert_eq!((code, &*out), (Some(0), ""), "{error}");
        assert!(fs::read_to_string(&to).unwrap().starts_with(start));
        assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let (code, _, error) = run(&["export", &recording(BUILDS), "-o", "/nowhere/a.har"]);
    assert!(code == Some(1) && error.contains("cannot write /nowhere/a.har"), "{error}");
}

#[test]
fn a_recording_of_wrap_is_exported_and_served_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let server = example("kuzumem");
    let mut session =
        Session::wrap(&["--record", path], &[&server, "--generation", "k1", "--pace", "20ms"]);
    session.tell(&messages::initialize("2025-06-18"));
    session.lines_until("serverInfo");
    session.call("1", Some("\"one\""), "pagerank", "{}");
    let answer = session.lines_until("\"id\":1").pop().unwrap();
    session.finish();
    let file = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let file = file.to_str().unwrap();
    let archive = archive(&[file]);
    let call = &archive["log"]["entries"][1];
    assert!(call["_messages"].as_array().unwrap().len() > 25, "{call}");
    assert_eq!(call["response"]["content"]["text"].as_str(), Some(answer.trim_end()));
    // The recording is served in the place of the server: the legacy dialect is repaired again.
    let mut mock = milepost();
    mock.args(["wrap", "--", crate::support::MILEPOST, "mock", file]);
    let mut session = Session::start(&mut mock);
    session.tell(&messages::initialize("2025-06-18"));
    session.lines_until("serverInfo");
    session.call("5", Some("55"), "pagerank", "{}");
    let lines = session.lines_until("\"id\":5");
    assert_eq!(lines.last().unwrap(), &answer.replace("\"id\":1", "\"id\":5"));
    assert!(lines.iter().any(|line| line.contains("\"progressToken\":55")), "{lines:?}");
    session.finish();
}
