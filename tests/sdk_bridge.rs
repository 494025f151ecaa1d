//! Clients of every age before stdio servers made with the official SDKs: all of them at once over HTTP,
//! with `milepost serve` between them; and clients of 2026-07-28 before servers of 2024.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::sdk_http::{NO_HEARTBEATS, expect_well};
use crate::support::sdk::{Proxy, Report, client, server, stdio_route, visit, wrapped};
use crate::{aside, for_each};

/// Clients, how they agree on a revision, and that revision if the server speaks it.
const VISITORS: [(&str, &[&str], &str); 3] = [
    ("ts2", &["--negotiate", "auto"], "2026-07-28"),
    ("ts1", &[], "2025-11-25"),
    ("ts10", &[], "2024-11-05"),
];

/// How a client reaches the route at `/mcp`.
fn target(name: &str, proxy: &Proxy) -> [String; 2] {
    match name {
        "ts10" => ["--sse".into(), proxy.url("/mcp/sse")],
        _ => ["--url".into(), proxy.url("/mcp")],
    }
}

/// A call of the long tool of a server in so many steps, 200 ms apart; it is the total of its progress.
fn long_call(upstream: &str, steps: u32) -> String {
    match upstream {
        "everything" => {
            let seconds = f64::from(steps) / 5.0;
            format!(r#"trigger-long-running-operation={{"duration":{seconds},"steps":{steps}}}"#)
        }
        _ => format!(r#"steps={{"count":{steps},"ms":200,"total":{steps}}}"#),
    }
}

/// Panics unless a call got all the figures of its own steps, in order, and its own answer.
#[track_caller]
fn expect_own(report: &Report, call: usize, steps: u32, upstream: &str) {
    let json = &report.json;
    let told = report.progress(call);
    let figures: Vec<_> = told.iter().map(|told| told[0].as_f64().unwrap()).collect();
    let all: Vec<_> = (1..=steps).map(f64::from).collect();
    // The reference server reports its last step together with the answer, which clients that read one
    // stream would take for an error.
    let last = if upstream == "everything" { all.len() - 1 } else { all.len() };
    let all_came = figures == all || figures == all[..last];
    assert!(all_came, "call {call} of {steps} steps: {json}");
    assert!(told.iter().all(|told| told[1].as_f64() == Some(f64::from(steps))), "{json}");
    let text = report.calls()[call]["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains(&steps.to_string()), "{text}: {json}");
}

/// What became of four calls that take longer than their client waits, through a route with these settings of
/// `late`.
fn impatient(name: &str, upstream: &[String], late: &str) -> Vec<String> {
    let settings = format!("{NO_HEARTBEATS}\nlate = {late}");
    let proxy = Proxy::start(&stdio_route("/mcp", upstream, &settings));
    let words = ["--call", r#"quiet={"ms":4000}"#, "--timeout", "1.5", "--repeat", "3"];
    let report = visit(name, &words, &["--url", &proxy.url("/mcp")], &[]);
    let outcome = |call: &Value| call["outcome"].as_str().unwrap().to_owned();
    report.calls().iter().map(outcome).collect()
}

#[test]
fn an_http_client_with_a_fixed_clock_gets_a_late_answer_of_a_stdio_server() {
    aside(|| {
        for_each(["ts1", "ts2", "py2"], |name| {
            crate::support::within_tries(|| {
                let outcomes = impatient(name, &server("ts1"), "{}");
                assert_eq!(outcomes, ["timeout", "timeout", "result"], "{name}");
            });
        });
        assert_eq!(impatient("ts1", &server("ts1"), "{ enabled = false }"), ["timeout"; 3]);
        crate::support::within_tries(|| {
            let told = impatient("py1", &server("ts1"), "{ tell = true, before = \"1s\" }");
            assert_eq!(told, ["result"; 3]);
        });
    });
}

#[test]
fn clients_of_three_ages_use_one_route_to_a_stdio_server_at_once() {
    aside(|| {
        for_each(["ts2", "everything"], |upstream| {
            let proxy = Proxy::start(&stdio_route("/mcp", &server(upstream), NO_HEARTBEATS));
            for_each(VISITORS.iter().enumerate(), |(at, (name, options, revision))| {
                // Nobody else's call has as many steps.
                let steps = [5, 12].map(|least| least + u32::try_from(at).unwrap());
                let calls = steps.map(|steps| long_call(upstream, steps));
                let mut words = vec!["--call", &calls[0], "--call", &calls[1]];
                words.extend(["--concurrent", "--linger", "500", "--timeout", "60"]);
                words.extend(*options);
                crate::support::within_tries(|| {
                    let [flag, url] = target(name, &proxy);
                    let report = visit(name, &words, &[&flag, &url], &[]);
                    expect_well(&report);
                    // The reference server knows no newer revision, and its client falls back.
                    let agreed = if upstream == "everything" && *name == "ts2" {
                        "2025-11-25"
                    } else {
                        revision
                    };
                    assert_eq!(report.json["protocol"], agreed, "{name}: {}", report.json);
                    for (call, steps) in steps.iter().copied().enumerate() {
                        expect_own(&report, call, steps, upstream);
                    }
                });
            });
            proxy.finish();
        });
    });
}

/// Clients of 2026-07-28 that may fall back.
const ASKING: [&str; 3] = ["ts2", "py2", "rmcp"];

/// What an old server is asked for.
const OLD_CALL: [&str; 8] = [
    "--negotiate",
    "auto",
    "--timeout",
    "30",
    "--deadline",
    "40",
    "--call",
    r#"steps={"count":3,"ms":200,"total":3}"#,
];

#[track_caller]
fn expect_served(report: &Report) {
    let Report { json, stderr, .. } = report;
    assert_eq!(json["connected"], true, "{json}\n{stderr}");
    assert_eq!(json["protocol"], "2024-11-05", "{json}");
    expect_own(report, 0, 3, "py11");
    assert_eq!(json["stray_progress"], 0, "{json}");
}

mod server_discover {
    use super::*;

    /// The session of that server is over when it reads a method that it does not know; its process
    /// says nothing, and ends with the next line.
    #[test]
    fn ends_a_server_of_the_python_sdk_1_1_which_milepost_starts_afresh() {
        aside(|| {
            for_each(ASKING, |name| {
                let alone = {
                    let mut options = OLD_CALL;
                    options[5] = "20";
                    client(name, &options, &server("py11"))
                };
                // TypeScript waits for a minute and starts another process then; for the others, which
                // ask the same one, it has ended.
                assert_eq!(alone.json["connected"], false, "{name}: {}", alone.json);
                crate::support::within_tries(|| {
                    let report =
                        client(name, &OLD_CALL, &wrapped(&["--no-heartbeat"], &server("py11")));
                    expect_served(&report);
                    assert_eq!(report.errors(), 0, "{name}: {}", report.json);
                    assert!(report.took < Duration::from_secs(25), "{name}: {:?}", report.took);
                });
            });
        });
    }

    #[test]
    fn makes_only_the_first_client_of_a_route_wait() {
        crate::support::within_tries(|| {
            aside(|| {
                let proxy = Proxy::start(&stdio_route("/mcp", &server("py11"), NO_HEARTBEATS));
                let url = proxy.url("/mcp");
                let visit = |name| {
                    let began = Instant::now();
                    let report = visit(name, &OLD_CALL, &["--url", &url], &[]);
                    expect_well(&report);
                    expect_served(&report);
                    began.elapsed()
                };
                let first = visit("ts2");
                assert!(first > Duration::from_secs(8), "{first:?}");
                assert!(first < Duration::from_secs(25), "{first:?}");
                for name in ASKING {
                    let next = visit(name);
                    assert!(next < Duration::from_secs(8), "{name}: {next:?}");
                }
                proxy.finish();
            });
        });
    }

    /// The reference server of those days says at once that it knows no such method.
    #[test]
    fn passes_to_and_from_a_server_of_the_typescript_sdk_1_0() {
        let call = r#"longRunningOperation={"duration":0.8,"steps":4}"#;
        let options = ["--negotiate", "auto", "--timeout", "30", "--call", call];
        aside(|| {
            let upstream = server("everything10");
            let proxy = Proxy::start(&stdio_route("/mcp", &upstream, NO_HEARTBEATS));
            for_each(ASKING, |name| {
                crate::support::within_tries(|| {
                    let wrapped = client(name, &options, &wrapped(&["--no-heartbeat"], &upstream));
                    assert_eq!(wrapped.errors(), 0, "{name}: {}", wrapped.json);
                    let served = visit(name, &options, &["--url", &proxy.url("/mcp")], &[]);
                    expect_well(&served);
                    for report in [wrapped, served] {
                        assert_eq!(report.json["protocol"], "2024-11-05", "{}", report.json);
                        expect_own(&report, 0, 4, "everything");
                        assert_eq!(report.calls()[0]["progress"][0][2], Value::Null);
                    }
                });
            });
            proxy.finish();
        });
    }
}
