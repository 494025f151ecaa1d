//! `milepost check-progress --client`: reports of drivers and files, and the reference server as clients meet it.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::thread;

use serde_json::{Value, json};

use super::check_progress::{at_once, check_progress, ids, judged};
use crate::support::exchange::Exchange;
use crate::support::{messages, milepost};

/// A client that shows `shown` of the call of `tool`.
fn report(tool: &str, shown: &[u32]) -> String {
    let shown: Vec<Value> = shown.iter().map(|value| json!([value, 4, "m"])).collect();
    json!({ "client": "c", "calls": [
        { "tool": tool, "outcome": "result", "progress": shown },
        { "tool": "correct", "outcome": "result", "progress": [] },
    ] })
    .to_string()
}

#[test]
fn a_driver_is_run_for_each_scenario_and_its_last_line_is_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let driver = folder.path().join("driver");
    let script = format!(
        "echo beginning\ncase $1 in glued) echo '{}';; *) echo '{}' | sed \"s/TOOL/$1/\";; esac\n",
        report("glued", &[1, 2, 3]),
        report("TOOL", &[1, 2, 3, 4]),
    );
    std::fs::write(&driver, script).unwrap();
    let driver = format!("sh {} {{tool}}", driver.display());
    let only = "client/correct,client/late,client/glued";
    let (code, report) = judged(&["--client", "--only", only, "--driver", &driver]);
    assert_eq!(code, Some(1));
    assert_eq!(ids(&report, "passed"), ["client/correct", "client/late"]);
    assert_eq!(ids(&report, "failed"), ["client/glued"]);
    assert_eq!(report["client"]["name"], "c");
}

#[test]
fn a_report_in_a_file_is_judged_without_a_client() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, report("late", &[1, 2, 3, 4])).unwrap();
    let (code, report) = judged(&["--client", "--report", file.path().to_str().unwrap()]);
    assert_eq!(code, Some(0));
    assert_eq!(ids(&report, "passed"), ["client/late"]);
    assert_eq!(ids(&report, "not assessed").len(), 6, "{report}");
}

#[test]
fn a_driver_without_a_report_and_one_that_hangs_are_told() {
    let cases = [
        (&["--driver", "echo nothing"][..], "not \"nothing\""),
        (&["--driver", "sleep 600", "--timeout", "1s", "--silence", "1ms"], "did not end within"),
        (&["--report", "/nowhere/report.json"], "cannot read the report"),
    ];
    at_once(&cases, |(args, why)| {
        let output = check_progress(&[&["--client"], *args].concat());
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(why), "{errors}");
    });
}

/// Returns the messages of the reference server on standard streams up to the end of the call of a tool.
fn said(tool: &str) -> Vec<Value> {
    let mut server = milepost()
        .args(["check-progress", "--serve", "--silence", "10ms"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = server.stdin.take().unwrap();
    let params = json!({ "name": tool, "arguments": {}, "_meta": { "progressToken": "t" } });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let steps = json!({ "steps": [{ "wait": 1500, "do": "answer" }] });
    let last = json!({ "name": "play", "arguments": steps });
    let last = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": last });
    writeln!(input, "{call}\n{last}").unwrap();
    let mut said = Vec::new();
    for line in BufReader::new(server.stdout.take().unwrap()).lines().map_while(Result::ok) {
        let message: Value = serde_json::from_str(&line).unwrap();
        let is_last = message["id"] == 2;
        said.push(message);
        if is_last {
            break;
        }
    }
    drop(input);
    assert!(server.wait().unwrap().success());
    said.retain(|message| message["id"] != 2);
    said
}

#[test]
fn the_reference_server_says_what_its_tools_promise() {
    let progress = |said: &[Value]| -> Vec<Value> {
        let notes = said.iter().filter(|message| message["method"] == "notifications/progress");
        notes.map(|message| message["params"]["progress"].clone()).collect()
    };
    let tools = ["correct", "late", "falling", "null", "invented"];
    // Each client waits for the messages after its answer.
    let [correct, late, falling, null, invented] = thread::scope(|scope| {
        let said = tools.map(|tool| scope.spawn(move || said(tool)));
        said.map(|said| said.join().unwrap())
    });
    assert_eq!(progress(&correct), [1, 2, 3, 4].map(Value::from));
    assert_eq!(
        correct.last().unwrap()["result"]["content"][0]["text"],
        "correct: done, token \"t\""
    );
    assert_eq!(late.last().unwrap()["params"]["progress"], 5);
    assert_eq!(progress(&falling), [1, 3, 2, 2, 4].map(Value::from));
    assert!(progress(&null).contains(&Value::Null));
    assert_eq!(invented.iter().filter(|one| one["params"]["progressToken"] == "t").count(), 2);
    assert_eq!(invented.len(), 5);
}

#[test]
fn pages_of_other_sites_cannot_ask_the_reference_server() {
    let mut server = milepost()
        .args(["check-progress", "--serve", "--listen", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap();
    let initialize = messages::initialize("2025-11-25");
    let asked = |name: &str, value: &str| {
        let headers = [("content-type", "application/json"), (name, value)];
        Exchange::send(address, "POST", "/mcp", &headers, &initialize).status()
    };
    let statuses = [
        asked("origin", "https://evil.example"),
        asked("sec-fetch-site", "cross-site"),
        asked("accept", "application/json, text/event-stream"),
    ];
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(statuses, [403, 403, 200]);
}
