//! Clients and servers made with the official SDKs, with and without Milepost between them.
#![allow(clippy::unwrap_used, missing_docs)]
// The tests start shells and send signals.
#![cfg(unix)]

mod never_worse;
mod sdk_bridge;
mod sdk_check_client;
mod sdk_check_schemas;
mod sdk_conformance;
mod sdk_embedded;
mod sdk_http;
mod sdk_page;
mod sdk_remote;
mod support;

use std::fs;
use std::sync::{PoisonError, RwLock};
use std::thread;

use serde_json::{Value, json};
use tempfile::TempDir;

use support::sdk::{CLIENTS, Report, SERVERS, client, server, wrapped};
use support::session::Session;
use support::{example, runs};

/// Held by a test that measures times, against all others.
static QUIET: RwLock<()> = RwLock::new(());

/// Runs a test while no times are measured.
fn aside<T>(test: impl FnOnce() -> T) -> T {
    let _guard = QUIET.read().unwrap_or_else(PoisonError::into_inner);
    test()
}

/// Runs a test whose client has to read within milliseconds: no other test takes the time.
fn alone<T>(test: impl FnOnce() -> T) -> T {
    let _guard = QUIET.write().unwrap_or_else(PoisonError::into_inner);
    test()
}

/// Does something for each, all at once.
fn for_each<T: Send>(all: impl IntoIterator<Item = T>, work: impl Fn(T) + Sync) {
    thread::scope(|scope| {
        for one in all {
            scope.spawn(|| work(one));
        }
    });
}

mod a_busy_client {
    use super::*;

    fn unknown_tokens(report: &Report) -> u64 {
        report.json["stray_progress"].as_u64().unwrap()
    }

    #[test]
    fn of_typescript_loses_what_comes_with_the_answer_and_calls_it_an_error() {
        aside(|| {
            for_each(["ts1", "ts2"], |name| {
                support::within_tries(|| {
                    let options =
                        ["--call", r#"burst={"seconds":0}"#, "--repeat", "30", "--busy", "8"];
                    let report = client(name, &options, &[example("silent")]);
                    assert!(unknown_tokens(&report) >= 20, "{}", report.json);
                });
            });
        });
    }

    #[test]
    fn of_typescript_makes_a_thousand_calls_without_an_error_behind_milepost() {
        aside(|| {
            for_each(["ts1", "ts2"], |name| {
                support::within_tries(|| {
                    let options =
                        ["--call", r#"burst={"seconds":0}"#, "--repeat", "1000", "--busy", "8"];
                    let report = client(name, &options, &wrapped(&[], &[example("silent")]));
                    report.expect_all_well();
                    assert_eq!(report.calls().len(), 1000);
                    // Progress that a call of a few milliseconds does not need costs no time either.
                    let ms: u64 =
                        report.calls().iter().map(|call| call["ms"].as_u64().unwrap()).sum();
                    assert!(ms < 50_000, "{ms} ms");
                });
            });
        });
    }

    #[test]
    fn of_typescript_gets_progress_and_answers_apart_when_calls_take_longer() {
        alone(|| {
            for_each(["ts1", "ts2"], |name| {
                support::within_tries(|| {
                    // Steps of 35 ms are longer than the hold, so that the last one is followed closely.
                    let steps = r#"steps={"count":9,"ms":35,"total":9}"#;
                    let burst = r#"quiet={"ms":200}"#;
                    let options = [
                        "--call",
                        steps,
                        "--call",
                        burst,
                        "--repeat",
                        "50",
                        "--concurrent",
                        "--busy",
                        "8",
                    ];
                    let wrapped = wrapped(&["--no-heartbeat"], &server("ts1"));
                    let report = client(name, &options, &wrapped);
                    report.expect_all_well();
                    let shown = report.calls().iter().filter(|call| call["tool"] == "steps");
                    assert!(shown.clone().count() == 50);
                    for call in shown {
                        let count = call["progress"].as_array().unwrap().len();
                        assert!(count >= 3, "{call}");
                    }
                });
            });
        });
    }
}

mod a_client_with_a_fixed_clock {
    use super::*;

    /// A tool of four seconds, called four times by a client that waits for so many seconds, and how often its server
    /// was asked to work.
    fn calls(name: &str, timeout: &str, options: &[&str]) -> (Report, usize) {
        let folder = TempDir::new().unwrap();
        let asked = folder.path().join("asked");
        // What the server reads is written down.
        let script = format!("tee '{}' | '{}'", asked.display(), example("silent"));
        let server = ["sh".to_owned(), "-c".to_owned(), script];
        let call = ["--call", r#"sleep={"seconds":4}"#, "--timeout", timeout, "--repeat", "4"];
        let report = client(name, &call, &wrapped(options, &server));
        let asked = fs::read_to_string(asked).unwrap();
        (report, asked.matches("tools/call").count())
    }

    fn outcomes(report: &Report) -> Vec<&str> {
        report.calls().iter().map(|call| call["outcome"].as_str().unwrap()).collect()
    }

    #[test]
    fn never_gets_the_answer_and_runs_the_work_each_time() {
        support::within_tries(|| {
            aside(|| {
                let (report, asked) = calls("ts1", "1.5", &["--no-heartbeat"]);
                assert_eq!(outcomes(&report), ["timeout"; 4], "{}", report.json);
                assert_eq!(asked, 4);
            });
        });
    }

    #[test]
    fn gets_the_answer_of_the_first_call_with_late_answers() {
        aside(|| {
            for_each(["ts1", "ts2", "rmcp"], |name| {
                support::within_tries(|| {
                    let (report, asked) = calls(name, "1.5", &["--late"]);
                    let outcomes = outcomes(&report);
                    assert_eq!(outcomes[..2], ["timeout"; 2], "{name}: {}", report.json);
                    assert_eq!(outcomes[2], "result", "{name}: {}", report.json);
                    // The fourth call came after the answer, and is new work.
                    assert_eq!(asked, 2, "{name}: {}", report.json);
                });
            });
        });
    }

    #[test]
    fn is_told_to_go_on_waiting() {
        support::within_tries(|| {
            aside(|| {
                let options = ["--late", "--late-tell", "--late-before", "1s"];
                let (report, asked) = calls("py1", "3.5", &options);
                let texts: Vec<String> =
                    report.calls().iter().map(|call| call["result"].to_string()).collect();
                assert_eq!(outcomes(&report), ["result"; 4], "{}", report.json);
                assert!(texts[0].contains("Still running after 1s"), "{texts:?}");
                assert_eq!(asked, 1, "{}", report.json);
            });
        });
    }
}

mod an_impatient_client {
    use super::*;

    /// With its own timeout, which progress resets, and a tool that is silent for longer.
    fn outlasts(name: &str, timeout: &str, seconds: u32, options: &[&str]) {
        let call = format!(r#"sleep={{"seconds":{seconds}}}"#);
        let ask = ["--call", &call, "--timeout", timeout, "--reset"];
        let silent = [example("silent")];
        let without = client(name, &ask, &silent);
        assert_eq!(without.calls()[0]["outcome"], "timeout", "{}", without.json);
        let with = client(name, &ask, &wrapped(options, &silent));
        with.expect_all_well();
    }

    #[test]
    fn outlasts_a_silent_tool_with_heartbeats_and_not_without() {
        let options = ["--heartbeat-after", "1s", "--heartbeat-every", "1s"];
        aside(|| {
            for_each(["ts1", "ts2", "rmcp"], |name| {
                support::within_tries(|| outlasts(name, "3", 12, &options))
            })
        });
    }
}

#[test]
fn a_server_that_looks_for_the_token_in_the_arguments_reports_when_it_is_asked() {
    let devtools = ["mcp_devtools", "--pace", "200ms", "--late", "3"];
    let mut devtools = devtools.map(str::to_owned);
    devtools[0] = example("mcp_devtools");
    let options = ["--call", "project_actions", "--busy", "8"];
    aside(|| {
        for_each(CLIENTS, |name| {
            support::within_tries(|| {
                let without = client(name, &options, &wrapped(&["--no-heartbeat"], &devtools));
                without.expect_all_well();
                assert!(without.progress(0).is_empty(), "{}", without.json);
                // 5,000 lines in two seconds, and more behind the answer: ten in a second are shown.
                let asks = ["--no-heartbeat", "--ask-token-in-arguments"];
                let with = client(name, &options, &wrapped(&asks, &devtools));
                with.expect_all_well();
                with.expect_rising();
                let told = with.progress(0).len();
                assert!((5..=40).contains(&told), "{told} {}", with.json);
            });
        });
    });
}

#[test]
fn invented_tokens_of_two_calls_at_once_move_neither_the_wrong_one() {
    let sammy = [example("swissarmyhammer"), "--generation".into(), "s0".into()];
    let of_shell = |text: &str| text.starts_with("Shell") || text.starts_with("Command");
    aside(|| {
        for_each(CLIENTS, |name| {
            support::within_tries(|| {
                let options = ["--concurrent", "--call", "shell", "--call", "flow"];
                let report = client(name, &options, &wrapped(&["--no-heartbeat"], &sammy));
                report.expect_all_well();
                for call in report.calls() {
                    let messages = call["progress"].as_array().unwrap().iter();
                    for message in messages.map(|update| update[2].as_str().unwrap()) {
                        assert_eq!(of_shell(message), call["tool"] == "shell", "{name}: {call}");
                    }
                }
            });
        });
    });
}

mod servers_of_the_sdks {
    use super::*;

    /// The TypeScript SDK reads no line of more than 10 MiB, and the servers of the Python SDKs say
    /// everything twice, in `content` and in `structuredContent`.
    fn big(upstream: &str) -> usize {
        if upstream.starts_with("py") { 4_900_000 } else { 10_000_000 }
    }

    fn pair(name: &str, upstream: &str) {
        let bytes = big(upstream);
        let big = format!(r#"big={{"bytes":{bytes}}}"#);
        let steps = r#"steps={"count":3,"ms":200,"total":3}"#;
        let options = ["--call", steps, "--call", "ask", "--call", &big];
        let wrapped = wrapped(&["--no-heartbeat"], &server(upstream));
        let report = client(name, &options, &wrapped);
        let Report { json, stderr, .. } = &report;
        let what = format!("{name} by {upstream}");
        let calls = report.calls();
        assert_eq!(calls.len(), 3, "{what}: {stderr}");
        let told = calls[0]["progress"].as_array().unwrap().iter();
        let told: Vec<_> = told.map(|told| json!([told[0], told[1], told[2]])).collect();
        let number = |value: &Value| value[0].as_f64().zip(value[1].as_f64());
        assert_eq!(
            told.iter().map(number).collect::<Vec<_>>(),
            [1.0, 2.0, 3.0].map(|step| Some((step, 3.0))),
            "{what}: {told:?}"
        );
        assert!(
            (1..).zip(&told).all(|(step, told)| told[2] == format!("step {step}")),
            "{what}: {told:?}"
        );
        // A server cannot ask a client of 2026-07-28 anything.
        let asks = json["protocol"] != "2026-07-28";
        assert!(
            !asks || calls[1]["outcome"] == "result" && calls[1]["is_error"] == false,
            "{what}: {}",
            calls[1]
        );
        let text = calls[2]["result"]["content"][0]["text"].as_str().unwrap_or_default();
        assert_eq!(text.len(), bytes, "{what}: {}", calls[2]["error"]);
        assert_eq!(report.errors(), 0, "{what}: {}", json["errors"]);
    }

    #[test]
    fn answer_report_and_ask_every_client_as_they_do_without_milepost() {
        aside(|| {
            for upstream in SERVERS {
                for_each(CLIENTS, |name| support::within_tries(|| pair(name, upstream)));
            }
        });
    }

    /// What a client reads of one call.
    fn conversation(command: &[String]) -> Vec<String> {
        let (program, args) = command.split_first().unwrap();
        let mut session = Session::start(std::process::Command::new(program).args(args));
        session.tell(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#);
        let mut said = session.lines_until(r#""id":0"#);
        session.tell(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        session.call("1", Some("\"t\""), "steps", r#"{"count":4,"ms":200,"total":4}"#);
        said.extend(session.lines_until(r#""id":1"#));
        session.tell(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#);
        said.extend(session.lines_until(r#""id":2"#));
        said
    }

    #[test]
    fn are_passed_on_byte_for_byte() {
        aside(|| {
            for_each(SERVERS, |upstream| {
                support::within_tries(|| {
                    let command = server(upstream);
                    let with = conversation(&wrapped(&["--no-heartbeat"], &command));
                    assert_eq!(with.len(), 7, "{with:?}");
                    assert_eq!(with, conversation(&command), "{upstream}");
                });
            });
        });
    }
}

#[test]
fn a_server_that_will_not_end_is_gone_when_its_client_is() {
    aside(|| {
        for_each(CLIENTS, |name| {
            let folder = TempDir::new().unwrap();
            let path = folder.path().join("pid");
            let silent = example("silent");
            let script = format!(
                "trap '' TERM INT HUP; echo $$ >'{}'; '{silent}'; for _ in $(seq 30); do sleep 1; done",
                path.display()
            );
            let stubborn = ["sh".to_owned(), "-c".into(), script];
            let report = client(name, &["--call", "echo"], &wrapped(&[], &stubborn));
            assert_eq!(report.calls()[0]["outcome"], "result", "{}", report.json);
            let pid: u32 = fs::read_to_string(path).unwrap().trim().parse().unwrap();
            support::until("the server is gone", || !runs(pid));
        });
    });
}
