//! `milepost diff`: what differs between two recordings, call by call.

use std::fs;

use serde_json::{Value, json};

use super::{BUILDS, recording, run, written};

/// The second recording: another message, another answer, another time, another argument.
const SLOWER: &str = "slower.transcript";

#[test]
fn differences_are_listed_by_call() {
    let (a, b) = (recording(BUILDS), recording(SLOWER));
    let (code, out, error) = run(&["diff", &a, &b]);
    assert_eq!(code, Some(1), "{error}");
    let expected = format!(
        r#"A: {a}, 4 calls
B: {b}, 4 calls
what clients got is compared

tools/call build {{"apiKey":"***1","target":"all"}} (A line 11, B line 11)
  answer: result.content[0].text: A "built", B "built twice"
  figures: report 1: A 1/2, B 1/4
  messages: report 1: A <b>compiling</b>, B <b>linking</b>
  time: A 500.000ms, B 2.500s

only in A: tools/call clean (line 27)

only in B: tools/call clean {{"deep":true}} (line 27)

2 calls equal, 1 different, 1 only in A, 1 only in B
"#
    );
    assert_eq!(out, expected);
}

#[test]
fn times_are_compared_as_far_as_wanted() {
    let (a, b) = (recording(BUILDS), recording(SLOWER));
    for (tolerance, has_time) in [("1s", true), ("3s", false), ("off", false)] {
        let (_, out, _) = run(&["diff", "--tolerance", tolerance, &a, &b]);
        assert_eq!(out.contains("  time: "), has_time, "{tolerance}: {out}");
    }
    let (code, _, error) = run(&["diff", "--tolerance", "soon", &a, &b]);
    assert!(code == Some(2) && error.contains("--tolerance"), "{error}");
}

#[test]
fn the_report_for_machines_has_the_same() {
    let (a, b) = (recording(BUILDS), recording(SLOWER));
    let (code, out, _) = run(&["diff", "--json", &a, &b]);
    assert_eq!((code, out.lines().count()), (Some(1), 1));
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&report["form"], &report["equal"], &report["side"]),
        (&json!(1), &json!(false), &json!("client"))
    );
    let pairs = report["pairs"].as_array().unwrap();
    assert_eq!(pairs.len(), 3);
    let answer = json!({"what": "answer", "at": "result.content[0].text", "a": "\"built\"", "b": "\"built twice\""});
    assert_eq!(pairs[1]["differences"][0], answer);
    assert_eq!(pairs[1]["lines"], json!([11, 11]));
    assert_eq!(report["only_b"][0]["params"]["arguments"], json!({"deep": true}));
}

#[test]
fn a_recording_is_equal_to_itself_on_both_sides() {
    let builds = recording(BUILDS);
    for side in ["client", "server"] {
        let (code, out, error) = run(&["diff", "--side", side, &builds, &builds]);
        assert_eq!(code, Some(0), "{error}");
        assert!(out.ends_with("\n4 calls equal, 0 different, 0 only in A, 0 only in B\n"), "{out}");
    }
}

#[test]
fn another_order_another_outcome_and_other_reports_are_differences() {
    let folder = tempfile::tempdir().unwrap();
    let call = |id: u32, tool: &str| {
        format!(
            r#"> {{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","_meta":{{"progressToken":{id}}}}}}}"#
        )
    };
    let answer =
        |id: u32, result: &str| format!(r#"= {{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
    let from_server = |line: String| format!("{}\n{line}", line.replacen('=', "<", 1));
    let report = r#"= {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":1}}"#;
    let plain = ["a", "b", "c"].map(|tool| (tool, "{}"));
    let text = |order: &[(&str, &str)], extra: bool| {
        let mut lines = Vec::new();
        for (id, (tool, result)) in (1..).zip(order) {
            lines.push(call(id, tool));
            if extra && id == 2 {
                lines.push(from_server(report.to_owned()));
            }
            lines.push(from_server(answer(id, result)));
        }
        lines.join("\n") + "\n! ends\n"
    };
    let one = written(&folder, text(&plain, false));
    let other = folder.path().join("other");
    fs::write(&other, text(&[("c", "{}"), ("a", "{}"), ("b", r#"{"isError":true}"#)], true))
        .unwrap();
    let (code, out, error) = run(&["diff", one.to_str().unwrap(), other.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{error}");
    assert!(out.contains("tools/call a (A line 1, B line 4)\n  reports: A 0, B 1\n"), "{out}");
    assert!(
        out.contains("tools/call b (A line 4, B line 9)\n  outcome: A result, B tool error\n"),
        "{out}"
    );
    assert!(out.contains("  answer: result.isError: A (nothing), B true\n"), "{out}");
    assert!(
        out.contains("tools/call c (A line 7, B line 1)\n  order: another place among the calls\n"),
        "{out}"
    );
}
