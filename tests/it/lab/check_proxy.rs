//! `milepost check-progress --proxy`: our own proxy passes on every pair of transports, and each fault of a
//! wrong proxy is found.

use std::fmt::Write as _;
use std::thread;

use serde_json::Value;

use super::check_progress::{at_once, check_progress, ids, judged};
use crate::support::{MILEPOST, example, within_tries};

/// The ids that failed, without the pair.
fn failed(report: &Value) -> Vec<String> {
    let bare = |id: &str| id.split_once('@').map_or(id, |(bare, _)| bare).to_owned();
    ids(report, "failed").into_iter().map(bare).collect()
}

/// Returns a command that serves a route over HTTP to the server in `{server}`, `{url}` or `{sse}`.
fn serve(folder: &std::path::Path, upstream: &str) -> String {
    let mut script = String::from("#!/bin/sh\nport=$1; shift\n");
    let _ = writeln!(script, "file={}/$port.toml", folder.display());
    script += "list=''\nfor word in \"$@\"; do list=\"$list, '$word'\"; done\n";
    let value = match upstream {
        "command" => "[${list#, }]",
        _ => "'$1'",
    };
    let _ = writeln!(
        script,
        "cat > \"$file\" <<END\n[server]\nlisten = \"127.0.0.1:$port\"\n[[route]]\npath = \"/mcp\"\nupstream.{upstream} = {value}\nEND"
    );
    let _ = writeln!(script, "exec {MILEPOST} serve --no-socket \"$file\"");
    let path = folder.join(format!("{upstream}.sh"));
    std::fs::write(&path, script).unwrap();
    format!("sh {}", path.display())
}

#[test]
fn our_own_proxy_passes_on_every_pair_of_transports() {
    let folder = tempfile::tempdir().unwrap();
    let wraps = ["-- {server}", "{url}", "{sse}"].map(|end| format!("{MILEPOST} wrap {end}"));
    let upstreams = [("command", "{server}"), ("url", "{url}"), ("sse", "{sse}")];
    let serves = upstreams.iter().flat_map(|(upstream, place)| {
        let serve = serve(folder.path(), upstream);
        ["mcp", "mcp/sse"]
            .map(|path| format!("http://127.0.0.1:{{port}}/{path} {serve} {{port}} {place}"))
    });
    let templates: Vec<String> = wraps.into_iter().chain(serves).collect();
    thread::scope(|scope| {
        for template in &templates {
            scope.spawn(move || {
                within_tries(|| {
                    let args = ["--long", "1s", "--timeout", "60s", "--proxy", template];
                    let (code, report) = judged(&args);
                    assert_eq!(failed(&report), [""; 0], "{template}: {report}");
                    assert_eq!(code, Some(0));
                    let results = report["results"].as_array().unwrap().iter();
                    let assessed =
                        results.filter(|result| result["outcome"] != "not assessed").count();
                    assert!(assessed >= 15, "{template}: {report}");
                })
            });
        }
    });
}

#[test]
fn our_own_proxy_passes_in_the_revision_without_sessions() {
    let folder = tempfile::tempdir().unwrap();
    let listens = "http://127.0.0.1:{port}/mcp";
    let templates = [
        format!("{MILEPOST} wrap -- {{server}}"),
        format!("{MILEPOST} wrap --modern -- {{server}}"),
        format!("{MILEPOST} wrap {{url}}"),
        format!("{listens} {} {{port}} {{server}}", serve(folder.path(), "command")),
        format!("{listens} {} {{port}} {{url}}", serve(folder.path(), "url")),
    ];
    thread::scope(|scope| {
        for template in &templates {
            scope.spawn(move || {
                within_tries(|| {
                    let args =
                        ["--revision", "2026-07-28", "--timeout", "60s", "--proxy", template];
                    let (code, report) = judged(&args);
                    assert_eq!(failed(&report), [""; 0], "{template}: {report}");
                    assert_eq!(code, Some(0));
                    let unseen =
                        ids(&report, "not assessed").into_iter().map(|id| id.split_once('@'));
                    let unseen: Vec<_> = unseen.map(|id| id.unwrap().0).collect();
                    let expected = ["proxy/ping", "proxy/polling", "proxy/resume", "proxy/long"];
                    assert_eq!(unseen, expected, "{template}");
                })
            });
        }
    });
}

#[test]
fn each_fault_of_a_proxy_is_found() {
    let wrong = example("wrong_proxy");
    let calls = "proxy/begins,proxy/answers,proxy/asks,proxy/token,proxy/arrives,proxy/value,proxy/order,proxy/prompt,proxy/after-answer,proxy/apart,proxy/no-token";
    let faults: [(&str, &str, &[&str]); 16] = [
        ("none", calls, &[]),
        ("hide", calls, &["proxy/begins"]),
        ("double", calls, &["proxy/answers"]),
        ("strip", calls, &["proxy/asks"]),
        ("rename", calls, &["proxy/token", "proxy/arrives"]),
        ("drop", calls, &["proxy/arrives"]),
        ("round", calls, &["proxy/value"]),
        ("swap", calls, &["proxy/order"]),
        ("buffer", calls, &["proxy/prompt"]),
        ("late", calls, &["proxy/prompt", "proxy/after-answer"]),
        ("mix", calls, &["proxy/arrives", "proxy/value", "proxy/order", "proxy/apart"]),
        ("invent", calls, &["proxy/no-token"]),
        ("keep-cancel", "proxy/cancel", &["proxy/cancel"]),
        ("keep-ping", "proxy/ping", &["proxy/ping"]),
        ("round", "proxy/heartbeat", &["proxy/heartbeat"]),
        ("impatient", "proxy/long", &["proxy/long"]),
    ];
    thread::scope(|scope| {
        for (fault, only, found) in faults {
            let template = format!("{wrong} {fault} {{server}}");
            scope.spawn(move || {
                within_tries(|| {
                    let args =
                        ["--timeout", "20s", "--long", "1s", "--only", only, "--proxy", &template];
                    let (code, report) = judged(&args);
                    assert_eq!(failed(&report), found, "{fault}: {report}");
                    assert_eq!(code, Some(i32::from(!found.is_empty())), "{fault}");
                })
            });
        }
    });
}

#[test]
fn a_proxy_that_forgets_the_ids_of_events_loses_what_was_interrupted() {
    within_tries(|| {
        let wrong = example("wrong_proxy");
        let template = format!("http://127.0.0.1:{{port}}/mcp {wrong} forgetful {{port}} {{url}}");
        let only = "proxy/polling,proxy/resume";
        // The answers never arrive.
        let (code, report) = judged(&["--timeout", "4s", "--only", only, "--proxy", &template]);
        assert_eq!(failed(&report), ["proxy/polling", "proxy/resume"], "{report}");
        assert_eq!(code, Some(1));
    });
}

#[test]
fn a_proxy_that_hangs_is_told_and_ended() {
    let wrong = example("wrong_proxy");
    let (code, report) =
        judged(&["--timeout", "1s", "--proxy", &format!("{wrong} hang {{server}}")]);
    assert_eq!((code, failed(&report)), (Some(1), vec!["proxy/begins".to_owned()]));
    let finding = &report["results"][0]["findings"][0];
    assert_eq!(finding["what"], "no session begins; the proxy was ended");
    assert_eq!(finding["example"], "no answer within 1s");
    assert_eq!(report["results"][1]["outcome"], "not assessed");
}

#[test]
fn a_proxy_that_does_not_start_is_no_result() {
    let listens = "http://127.0.0.1:{port}/mcp ";
    let cases = [
        ("/nowhere/proxy {server}".to_owned(), "/nowhere/proxy"),
        ("false {url}".to_owned(), "stdio to HTTP: the proxy ended"),
        (format!("{listens}false {{url}}"), "HTTP to HTTP: the proxy ended before it listened"),
        (format!("{listens}sleep 600 # {{url}}"), "the proxy does not listen at http://127.0.0.1:"),
    ];
    at_once(&cases, |(template, why)| {
        let output = check_progress(&["--timeout", "1s", "--json", "--proxy", template]);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{template}: {errors}");
        assert!(errors.starts_with("milepost: the proxy does not start, "), "{errors}");
        assert!(errors.contains(why), "{errors}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["passed"], false);
        assert_eq!(report["results"][0]["findings"][0]["what"], "the proxy does not start");
    });
}

#[test]
fn a_pair_that_does_not_start_hides_no_other() {
    let wrap = format!("{MILEPOST} wrap -- {{server}}");
    let args = ["--only", "proxy/begins", "--proxy", "/nowhere/proxy {url}", "--proxy", &wrap];
    let (code, report) = judged(&args);
    assert_eq!(code, Some(2));
    assert_eq!(ids(&report, "failed"), ["proxy/begins@stdio-to-HTTP"]);
    assert_eq!(ids(&report, "passed"), ["proxy/begins@stdio-to-stdio"]);
}

#[test]
fn a_command_line_without_a_place_for_the_server_is_refused() {
    for (args, why) in [
        (&["--proxy", "proxy"][..], "no place for the server"),
        (&["--proxy", "proxy {url} {server}"], "not several"),
        (&["--proxy", "proxy {url}", "--", "server"], "cannot be used with"),
        (&["--proxy", "proxy {url}", "--only", "server-token"], "no scenario of a proxy"),
        (&["--driver", "driver"], "--client"),
    ] {
        let output = check_progress(args);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(why), "{errors}");
    }
}
