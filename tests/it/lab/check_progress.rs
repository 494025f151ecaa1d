//! `milepost check-progress`: the defects of an example, none behind the proxy, and each format.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;

use serde_json::Value;

use crate::commands::schema::check_schema;
use crate::support::server::Server;
use crate::support::{MILEPOST, example, milepost};

pub(super) fn check_progress(args: &[&str]) -> Output {
    let mut command = milepost();
    command.arg("check-progress").args(args).stdin(Stdio::null()).output().unwrap()
}

/// Does something for each case, all at once: a judgement waits more than it works.
pub(super) fn at_once<T: Sync>(cases: &[T], work: impl Fn(&T) + Sync) {
    thread::scope(|scope| {
        for case in cases {
            scope.spawn(|| work(case));
        }
    });
}

/// The exit code and the report as JSON.
pub(super) fn judged(args: &[&str]) -> (Option<i32>, Value) {
    let output = check_progress(&[&["--json"], args].concat());
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), serde_json::from_slice(&output.stdout).expect(&errors))
}

/// The ids of the results with this outcome.
pub(super) fn ids<'a>(report: &'a Value, outcome: &str) -> Vec<&'a str> {
    let results = report["results"].as_array().unwrap().iter();
    let its = results.filter(|result| result["outcome"] == outcome);
    its.map(|result| result["id"].as_str().unwrap()).collect()
}

/// Checks a file against the schema of JUnit XML, where this machine has a validator.
#[track_caller]
fn check_xml(file: &Path) {
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/schemas/junit.xsd");
    let checked =
        Command::new("xmllint").args(["--noout", "--nonet", "--schema", schema]).arg(file).output();
    if let Ok(Output { status, stderr, .. }) = checked {
        assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    }
}

#[test]
fn the_defects_of_a_server_are_named_in_its_revision() {
    crate::support::within_tries(|| {
        let server = example("kuzumem");
        let server = [server.as_str(), "--variant", "k1", "--pace", "10ms"];
        let args = ["--call", "pagerank", "--revision", "2025-06-18", "--"];
        let (code, report) = judged(&[&args[..], &server].concat());
        assert_eq!(code, Some(1));
        let faults =
            ["server-answers", "server-standard-output", "server-method", "server-no-token"];
        let faults = faults.map(|id| format!("{id}@2025-06-18"));
        assert_eq!(ids(&report, "failed"), faults);
        assert_eq!(report["passed"], false);
        // `doctor --suite` gives the same result.
        let args = [&["doctor", "--suite", "--json"], &args[..], &server].concat();
        let output = milepost().args(args).stdin(Stdio::null()).output().unwrap();
        let suite: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(output.status.code(), code);
        for outcome in ["passed", "failed", "not assessed"] {
            assert_eq!(ids(&suite, outcome), ids(&report, outcome));
        }
    });
}

#[test]
fn a_server_behind_the_proxy_passes_in_each_revision() {
    crate::support::within_tries(|| {
        let server = example("kuzumem");
        let server = [MILEPOST, "wrap", "--", &server, "--variant", "k1", "--pace", "10ms"];
        let (code, report) = judged(&[&["--call", "pagerank", "--"][..], &server].concat());
        assert_eq!(ids(&report, "failed"), [""; 0], "{report}");
        assert_eq!(code, Some(0));
        for date in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
            let id = format!("server-token@{date}");
            assert!(ids(&report, "passed").contains(&id.as_str()), "{report}");
        }
    });
}

#[test]
fn a_server_over_http_is_judged_by_the_chosen_scenarios() {
    crate::support::within_tries(|| {
        let server = Server::start("scout", &["--pace", "120ms"]);
        let only =
            ["--only", "server-value-rises,server-stream", "--only", "server-standard-output"];
        let args = ["--call", "run_materialization", "--once", "--revision", "2025-11-25"];
        let (code, report) = judged(&[&only[..], &args, &[server.url()]].concat());
        assert_eq!(code, Some(1));
        assert_eq!(
            ids(&report, "failed"),
            ["server-value-rises@2025-11-25", "server-stream@2025-11-25"]
        );
        assert_eq!(ids(&report, "not assessed"), ["server-standard-output@2025-11-25"]);
        assert_eq!(report["results"].as_array().unwrap().len(), 3);
    });
}

#[test]
fn without_a_call_nothing_is_claimed_of_progress() {
    let (code, report) = judged(&["--revision", "2025-06-18", "--", &example("silent")]);
    assert_eq!(code, Some(0));
    let claimed = ids(&report, "passed");
    let expected = ["server-begins", "server-messages@2025-06-18"];
    assert_eq!(claimed[..2], expected);
    assert_eq!(claimed[2..], ["server-standard-output@2025-06-18"]);
}

#[test]
fn the_files_for_other_tools_have_the_same_failures() {
    crate::support::within_tries(|| {
        let folder = tempfile::tempdir().unwrap();
        let (junit, sarif) = (folder.path().join("j.xml"), folder.path().join("s.sarif"));
        let server = example("kuzumem");
        let (junit_name, sarif_name) = (junit.to_str().unwrap(), sarif.to_str().unwrap());
        let output = check_progress(&[
            "--call",
            "pagerank",
            "--once",
            "--revision",
            "2025-06-18",
            "--junit",
            junit_name,
            "--sarif",
            sarif_name,
            "--",
            &server,
            "--variant",
            "k1",
            "--pace",
            "10ms",
        ]);
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("\n  failed        server-method            MUST "), "{text}");
        let (junit_file, junit) = (junit.clone(), fs::read_to_string(junit).unwrap());
        assert_eq!(junit.matches("<testsuite ").count(), 2, "{junit}");
        assert_eq!(junit.matches("</testcase>").count() + junit.matches("\"/>\n").count(), 19);
        assert_eq!(junit.matches("<failure ").count(), 3, "{junit}");
        check_xml(&junit_file);
        let sarif: Value = serde_json::from_slice(&fs::read(sarif).unwrap()).unwrap();
        check_schema("sarif-2.1.0.json", &sarif);
        assert_eq!(sarif["version"], "2.1.0");
        let results = sarif["runs"][0]["results"].as_array().unwrap();
        let faults: Vec<&Value> =
            results.iter().filter(|result| result["level"] == "error").collect();
        assert_eq!(faults.len(), 3, "{faults:?}");
        assert_eq!(faults[2]["partialFingerprints"]["scenario/v1"], "server-method@2025-06-18");
    });
}

#[test]
fn the_list_and_the_page_have_each_scenario() {
    let output = check_progress(&["--list"]);
    assert!(output.status.success());
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/check-progress.md"));
    let page = page.unwrap();
    let list = String::from_utf8(output.stdout).unwrap();
    for line in list.lines() {
        let (id, title) = (line[..24].trim_end(), &line[35..]);
        let duty = line[25..35].trim_end();
        assert!(page.contains(&format!("| `{id}` | {duty} | {title} |")), "{line}");
    }
    let rows = ["| `server-", "| `proxy/", "| `client/"].map(|row| page.matches(row).count());
    assert_eq!(rows.iter().sum::<usize>(), list.lines().count());
}

#[test]
fn what_cannot_be_judged_is_told() {
    let cases = [
        (&["--", "/nowhere/server"][..], "/nowhere/server"),
        (&["--", "true"][..], "cannot use the server"),
        (&["--timeout", "1s", "--", "sleep", "600"][..], "cannot use the server"),
        (&["--only", "server-nothing", "--", "true"][..], "server-nothing"),
        (&[][..], "required"),
    ];
    at_once(&cases, |(args, why)| {
        let output = check_progress(args);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(why) && output.stdout.is_empty(), "{errors}");
    });
}

#[test]
fn each_example_has_its_defects_and_none_behind_the_proxy() {
    let cases: [(&str, &str, &str, &[&str]); 5] = [
        (
            "kuzumem",
            "--variant k1 --pace 10ms",
            "pagerank",
            &["server-answers", "server-standard-output", "server-method"],
        ),
        ("scout", "--pace 60ms", "run_materialization", &["server-value-rises"]),
        ("swissarmyhammer", "--pace 60ms", "shell", &["server-token", "server-value"]),
        ("mcp_devtools", "--pace 60ms", "project_actions", &[]),
        ("builder", "", "build", &[]),
    ];
    at_once(&cases, |(name, options, call, defects)| {
        crate::support::within_tries(|| {
            let server = example(name);
            let server: Vec<&str> =
                [&*server].into_iter().chain(options.split_whitespace()).collect();
            let args = ["--call", call, "--once", "--revision", "2025-06-18", "--"];
            let (_, report) = judged(&[&args[..], &server].concat());
            let mut found = ids(&report, "failed");
            // It is chance whether two messages arrive in one read.
            found.retain(|id| !id.starts_with("server-before-answer"));
            let expected: Vec<String> =
                defects.iter().map(|id| format!("{id}@2025-06-18")).collect();
            assert_eq!(found, expected, "{name}");
            let (code, report) = judged(&[&args[..], &[MILEPOST, "wrap", "--"], &server].concat());
            assert_eq!((code, ids(&report, "failed")), (Some(0), vec![]), "{name}: {report}");
        })
    });
}
