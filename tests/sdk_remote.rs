//! Stdio clients made with the official SDKs in front of servers over HTTP, with `milepost wrap URL`
//! between them.

use serde_json::json;

use crate::support::MILEPOST;
use crate::support::sdk::{CLIENTS, Upstream, client};
use crate::{aside, for_each};

/// The command that an SDK's client starts.
fn wrapped(url: &str) -> Vec<String> {
    [MILEPOST, "wrap", "--state-dir", "off", "--no-heartbeat", url].map(str::to_owned).to_vec()
}

/// What every server of ours can do.
#[expect(clippy::print_stdout, reason = "shown if the test fails, or when asked for")]
fn talk(name: &str, url: &str, reports: bool, what: &str) {
    let options = [
        "--call",
        r#"steps={"count":3,"ms":200,"total":3}"#,
        "--call",
        r#"big={"bytes":300000}"#,
        "--timeout",
        "30",
    ];
    let report = client(name, &options, &wrapped(url));
    println!("{name} by {what}: {} {}", report.json, report.stderr);
    report.expect_all_well();
    report.expect_rising();
    let steps = (1..=3).map(|step| json!([f64::from(step), 3.0, format!("step {step}")]));
    let expected = if reports { steps.collect() } else { Vec::new() };
    assert_eq!(report.progress(0), expected, "{name} by {what}");
    let text = &report.calls()[1]["result"]["content"][0]["text"];
    assert_eq!(text.as_str().map(str::len), Some(300_000), "{name} by {what}");
}

#[test]
fn servers_at_an_address_answer_and_report_to_every_stdio_client() {
    let servers: [(&str, &[&str], bool); 12] = [
        ("ts1", &[], true),
        ("ts1", &["--json"], false),
        ("ts1", &["--stateless"], true),
        ("ts1", &["--resumable"], true),
        ("ts1", &["--sse"], true),
        ("ts2", &[], true),
        ("py1", &[], true),
        ("py1", &["--sse"], true),
        ("py2", &[], true),
        ("py2", &["--stateless"], true),
        ("fastmcp", &[], true),
        ("rmcp", &[], true),
    ];
    aside(|| {
        for group in servers.chunks(2) {
            for_each(group, |(name, options, reports)| {
                let upstream = Upstream::start(name, options);
                let what = format!("{name} {}", options.join(" "));
                for pair in CLIENTS.chunks(2) {
                    for_each(pair, |client| {
                        crate::support::within_tries(|| {
                            talk(client, upstream.url(), *reports, &what)
                        });
                    });
                }
            });
        }
    });
}

#[test]
fn the_reference_server_is_found_to_speak_whichever_transport_it_speaks() {
    let call = r#"trigger-long-running-operation={"duration":1.2,"steps":4}"#;
    aside(|| {
        for options in [&[][..], &["--sse"][..]] {
            let upstream = Upstream::start("everything", options);
            for_each(CLIENTS, |name| {
                crate::support::within_tries(|| {
                    let options = ["--call", call, "--timeout", "30"];
                    let report = client(name, &options, &wrapped(upstream.url()));
                    report.expect_all_well();
                    report.expect_rising();
                    let told = report.progress(0);
                    assert!(told.len() >= 3, "{name}: {told:?} {}", report.stderr);
                });
            });
        }
    });
}
