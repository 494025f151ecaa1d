//! Clients and servers made with the official SDKs over HTTP, with `milepost serve` between them.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::exchange::Exchange;
use crate::support::sdk::{Proxy, Report, Upstream, route, visit};
use crate::support::server::Server;
use crate::support::within_tries;
use crate::{aside, for_each};

/// Every client, the adapters of an application framework among them.
const CLIENTS: [&str; 6] = ["ts1", "ts2", "py1", "py2", "rmcp", "langchain"];

/// On a busy machine a short call may be silent for long.
pub(crate) const NO_HEARTBEATS: &str = "heartbeat = { enabled = false }";

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#;

/// What clients report that is no fault: some servers offer no stream or know no newest version, and
/// one ends a session with 202, all of which their clients survive. A GET that a busy client opens at the same time as
/// it ends its session may come second, and finds none.
const HARMLESS: [&str; 8] = [
    "GET 404",
    "GET 405",
    "GET Server does not support SSE",
    "DELETE 405",
    "POST 400",
    "POST 404",
    "POST 422",
    "Session termination failed: 202",
];

/// Panics unless all went well: results, no complaint, no progress without a call, and rising figures.
#[track_caller]
pub(crate) fn expect_well(report: &Report) {
    let json = &report.json;
    for call in report.calls() {
        assert!(call["outcome"] == "result" && call["is_error"] == false, "{call} {json}");
    }
    let complaints = ["errors", "http_errors"].map(|key| json[key].as_array().unwrap());
    let mut complaints = complaints.into_iter().flatten().map(|error| error.as_str().unwrap());
    let fault = complaints.find(|error| !HARMLESS.contains(error));
    assert!(fault.is_none(), "{fault:?} {json}");
    assert_eq!(json["stray_progress"], 0, "{json}");
    report.expect_rising();
}

fn steps(count: u32) -> Vec<Value> {
    let total = f64::from(count);
    (1..=count).map(|step| json!([f64::from(step), total, format!("step {step}")])).collect()
}

mod servers_of_the_sdks {
    use super::*;

    /// Servers with their options, and whether they can report.
    const SERVERS: [(&str, &[&str], bool); 14] = [
        ("ts1", &[], true),
        ("ts1", &["--json"], false),
        ("ts1", &["--stateless"], true),
        ("ts1", &["--resumable"], true),
        ("ts2", &[], true),
        ("ts2", &["--json"], false),
        ("py1", &[], true),
        ("py1", &["--json", "--stateless"], false),
        ("py2", &[], true),
        ("py2", &["--stateless"], true),
        ("py128", &[], true),
        ("fastmcp", &[], true),
        ("rmcp", &[], true),
        ("rmcp", &["--stateless"], true),
    ];

    /// What every server of ours can do, through the proxy.
    #[expect(clippy::print_stdout, reason = "shown if the test fails, or when asked for")]
    fn talk(client: &str, target: &[&str], reports: bool, what: &str) {
        let options = [
            "--call",
            r#"steps={"count":3,"ms":100,"total":3}"#,
            "--call",
            r#"big={"bytes":300000}"#,
            "--timeout",
            "30",
        ];
        let report = visit(client, &options, target, &[]);
        let told = &report.calls()[0]["progress"];
        println!("{client} by {what}: {told} {}", report.json["http_errors"]);
        expect_well(&report);
        assert_eq!(report.calls().len(), 2);
        let expected = if reports { steps(3) } else { Vec::new() };
        assert_eq!(report.progress(0), expected, "{client} by {what}");
        let text = &report.calls()[1]["result"]["content"][0]["text"];
        assert_eq!(text.as_str().map(str::len), Some(300_000), "{client} by {what}");
    }

    #[test]
    fn answer_and_report_to_every_client_over_http() {
        aside(|| {
            for group in SERVERS.chunks(2) {
                for_each(group, |(name, options, reports)| {
                    let upstream = Upstream::start(name, options);
                    let proxy = Proxy::to(upstream.url(), NO_HEARTBEATS);
                    let what = format!("{name} {}", options.join(" "));
                    for pair in CLIENTS.chunks(2) {
                        for_each(pair, |client| {
                            within_tries(|| {
                                talk(client, &["--url", &proxy.url("/mcp")], *reports, &what);
                            });
                        });
                    }
                    proxy.finish();
                });
            }
        });
    }

    #[test]
    fn answer_and_report_over_http_sse() {
        aside(|| {
            for_each(["ts1", "py1"], |name| {
                let upstream = Upstream::start(name, &["--sse"]);
                let proxy = Proxy::start(&route("/old", "sse", upstream.url(), NO_HEARTBEATS));
                let url = proxy.url("/old/sse");
                for_each(["ts1", "py1", "langchain"], |client| {
                    within_tries(|| talk(client, &["--sse", &url], true, name));
                });
                proxy.finish();
            });
        });
    }

    #[test]
    fn the_reference_server_reports_over_both_transports() {
        let call = r#"trigger-long-running-operation={"duration":1.2,"steps":4}"#;
        aside(|| {
            let (new, old) = (&[][..], &["--sse"][..]);
            let upstreams = [new, old].map(|options| Upstream::start("everything", options));
            let [new, old] = &upstreams;
            let routes = route("/new", "url", new.url(), NO_HEARTBEATS)
                + &route("/old", "sse", old.url(), NO_HEARTBEATS);
            let proxy = Proxy::start(&routes);
            let (new, old) = (proxy.url("/new"), proxy.url("/old/sse"));
            let visits = CLIENTS.map(|client| (client, ["--url", &new])).into_iter();
            let visits: Vec<_> =
                visits.chain(["ts1", "py1"].map(|client| (client, ["--sse", &old]))).collect();
            for three in visits.chunks(3) {
                for_each(three, |(client, target)| {
                    within_tries(|| {
                        let report = visit(client, &["--call", call], target, &[]);
                        expect_well(&report);
                        let told = report.progress(0);
                        let figures: Vec<_> = told.iter().map(|update| update[0].clone()).collect();
                        let expected = [1.0, 2.0, 3.0, 4.0].map(Value::from);
                        // The last comes with the answer, where this client would call it an error.
                        let some = if *client == "ts1" && target[0] == "--sse" { 3 } else { 4 };
                        assert_eq!(figures, expected[..some], "{}", report.json);
                    });
                });
            }
            proxy.finish();
        });
    }

    /// What a session of each client looks like, but for times and what the SDKs count anew.
    fn seen(report: &Report) -> Value {
        let mut json = report.json.clone();
        for call in json["calls"].as_array_mut().unwrap() {
            call["ms"] = Value::Null;
            for update in call["progress"].as_array_mut().unwrap() {
                update[3] = Value::Null;
            }
        }
        json
    }

    #[test]
    fn look_the_same_behind_two_proxies_as_behind_one() {
        let upstreams = ["py1", "ts1"];
        let options = [
            "--call",
            r#"steps={"count":3,"ms":100,"total":3}"#,
            "--call",
            "burst",
            "--call",
            "no-such-tool",
        ];
        aside(|| {
            for_each(upstreams, |name| {
                within_tries(|| {
                    let upstream = Upstream::start(name, &[]);
                    let inner = Proxy::to(upstream.url(), NO_HEARTBEATS);
                    let outer = Proxy::to(&inner.url("/mcp"), NO_HEARTBEATS);
                    for client in ["ts1", "py2", "rmcp"] {
                        let [one, two] = [&inner, &outer].map(|proxy| {
                            visit(client, &options, &["--url", &proxy.url("/mcp")], &[])
                        });
                        assert_eq!(one.calls()[0]["outcome"], "result", "{}", one.json);
                        assert_eq!(seen(&one), seen(&two));
                    }
                    outer.finish();
                    inner.finish();
                });
            });
        });
    }
}

mod progress_on_the_session_stream {
    use super::*;

    #[test]
    fn of_the_python_sdk_reaches_every_client_and_ends_with_the_answer() {
        aside(|| {
            let upstream = Upstream::start("py128", &[]);
            let proxy = Proxy::to(upstream.url(), NO_HEARTBEATS);
            let options = ["--call", r#"steps={"count":4,"ms":150,"total":4}"#, "--linger", "1000"];
            for pair in CLIENTS.chunks(3) {
                for_each(pair, |client| {
                    within_tries(|| {
                        let report = visit(client, &options, &["--url", &proxy.url("/mcp")], &[]);
                        expect_well(&report);
                        assert_eq!(report.progress(0), steps(4), "{client}: {}", report.json);
                    });
                });
            }
            proxy.finish();
        });
    }

    /// It comes on the stream that answers the call, before the answer.
    #[test]
    fn moves_to_the_stream_of_its_call() {
        within_tries(|| {
            aside(|| {
                let upstream = Upstream::start("py128", &[]);
                let lines = format!("own_get = true\n{NO_HEARTBEATS}");
                let proxy = Proxy::to(upstream.url(), &lines);
                let client = Raw::new(&proxy);
                // The stream that the proxy holds is opened when the client has had time to open its own.
                std::thread::sleep(Duration::from_secs(5));
                let body = client.call("steps", r#"{"count":3,"ms":200,"total":3}"#, true).rest();
                let told = body.matches(r#""progressToken":"t""#).count();
                assert_eq!(told, 3, "{body}");
                let [last, answer] =
                    ["notifications/progress", r#""id":1"#].map(|text| body.rfind(text).unwrap());
                assert!(last < answer, "{body}");
                proxy.finish();
            });
        });
    }

    #[test]
    fn reaches_a_client_that_opens_none_if_the_proxy_does() {
        // It takes an answer of 405 for a server without such streams.
        const NO_GET: &str = "const real = globalThis.fetch;
            globalThis.fetch = (url, init) => init?.method === 'GET'
                ? Promise.resolve(new Response(null, { status: 405 })) : real(url, init);";
        let folder = TempDir::new().unwrap();
        let no_get = imported(&folder, "no-get.mjs", NO_GET);
        aside(|| {
            let upstream = Upstream::start("py128", &[]);
            let lines = format!("own_get = true\n{NO_HEARTBEATS}");
            let with = route("/with", "url", upstream.url(), &lines);
            let proxy = Proxy::start(&(with + &route("/without", "url", upstream.url(), "")));
            let call = r#"steps={"count":12,"ms":400,"total":12}"#;
            for_each([("ts1", "/with"), ("ts2", "/with"), ("ts1", "/without")], |(name, path)| {
                within_tries(|| {
                    let options = ["--call", call, "--linger", "1000"];
                    let variables = [("NODE_OPTIONS", no_get.as_str())];
                    let report = visit(name, &options, &["--url", &proxy.url(path)], &variables);
                    expect_well(&report);
                    let last = report.progress(0).last().cloned();
                    let told = (path == "/with").then(|| json!([12.0, 12.0, "step 12"]));
                    if told.is_some() {
                        assert_eq!(last, told, "{name}: {}", report.json);
                    } else {
                        // What there is then are heartbeats.
                        assert_ne!(last.map(|last| last[2].clone()), Some(json!("step 12")));
                    }
                });
            });
            proxy.finish();
        });
    }
}

/// A client without any SDK.
struct Raw {
    address: String,
    session: Option<String>,
}

impl Raw {
    const HEADERS: [(&'static str, &'static str); 3] = [
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2025-06-18"),
    ];

    fn new(proxy: &Proxy) -> Self {
        let url = proxy.url("");
        let address = url.trim_start_matches("http://").to_owned();
        let mut opening = Exchange::send(&address, "POST", "/mcp", &Self::HEADERS, INITIALIZE);
        let session = opening.header("mcp-session-id");
        let client = Self { address, session };
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        assert!(client.post(initialized).status() < 300);
        client
    }

    fn post(&self, body: &str) -> Exchange {
        let session = self.session.as_ref().map(|id| ("mcp-session-id", id.as_str()));
        let headers: Vec<_> = Self::HEADERS.into_iter().chain(session).collect();
        Exchange::send(&self.address, "POST", "/mcp", &headers, body)
    }

    fn call(&self, tool: &str, arguments: &str, token: bool) -> Exchange {
        let meta = if token { r#","_meta":{"progressToken":"t"}"# } else { "" };
        self.post(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}{meta}}}}}"#
        ))
    }
}

/// A value of `NODE_OPTIONS` that runs a script before the program.
fn imported(folder: &TempDir, name: &str, script: &str) -> String {
    let path = folder.path().join(name);
    fs::write(&path, script).unwrap();
    format!("--import={}", path.display())
}

mod tasks {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::support::example;
    use crate::support::sdk::{sdk_folder, set_up, stdio_route, wrapped};

    /// What the client of the Rust SDK gets of three calls through `target`.
    #[track_caller]
    fn ran(target: &[String]) -> Value {
        set_up();
        let client = sdk_folder("rmcp").join("debug/milepost-rmcp-tasks");
        let mut command = Command::new(client);
        command.args(target).envs([crate::support::FORGETFUL]).stdin(Stdio::null());
        let done = command.output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{said}");
        serde_json::from_slice(&done.stdout).unwrap()
    }

    #[test]
    fn of_the_rust_sdk_run_on_a_server_that_knows_none() {
        within_tries(|| {
            let expected = json!({
                "status": "working", "result": "slept for 1s", "cancelled": "cancelled", "plain": "slept for 0ns"
            });
            aside(|| {
                let server = [example("silent")];
                let options = ["--modern", "--tasks", "--tasks-after", "200ms"];
                let over_stdio = [vec!["--".to_owned()], wrapped(&options, &server)].concat();
                assert_eq!(ran(&over_stdio), expected);
                let lines = "modern = true\ntasks = { after = \"200ms\" }";
                let proxy = Proxy::start(&stdio_route("/mcp", &server, lines));
                assert_eq!(ran(&["--url".to_owned(), proxy.url("/mcp")]), expected);
                proxy.finish();
            });
        });
    }
}

mod a_server_that_answers_with_json_after_a_while {
    use super::*;

    /// All times a tenth of what they are by default, or less.
    const QUICK: &str = "upgrade_after = \"500ms\"\nkeep_alive = \"300ms\"\n\
        heartbeat = { after = \"500ms\", every = \"500ms\" }\n";

    /// This client gives up a connection on which no byte comes for so long.
    const SHORT_OF_PATIENCE: &str = "await fetch('data:,');
        const at = Symbol.for('undici.globalDispatcher.1');
        const { constructor: Agent } = globalThis[at];
        globalThis[at] = new Agent({ headersTimeout: 1500, bodyTimeout: 1500 });";

    #[test]
    fn keeps_a_client_whose_timeout_progress_resets() {
        let options = ["--call", r#"sleep={"seconds":5}"#, "--timeout", "2", "--reset"];
        aside(|| {
            let silent = Server::start("silent", &["--json"]);
            let proxy = Proxy::to(silent.url(), QUICK);
            for_each(["ts1", "ts2", "rmcp"], |name| {
                within_tries(|| {
                    let without = visit(name, &options, &["--url", silent.url()], &[]);
                    assert_eq!(without.calls()[0]["outcome"], "timeout", "{}", without.json);
                    let with = visit(name, &options, &["--url", &proxy.url("/mcp")], &[]);
                    expect_well(&with);
                    assert!(with.progress(0).len() >= 4, "{}", with.json);
                });
            });
            proxy.finish();
        });
    }

    #[test]
    fn keeps_a_client_that_wants_bytes_and_gave_no_token() {
        let folder = TempDir::new().unwrap();
        let node = imported(&folder, "limits.mjs", SHORT_OF_PATIENCE);
        let variables = [("NODE_OPTIONS", node.as_str())];
        let options = ["--call", r#"sleep={"seconds":5}"#, "--no-progress"];
        aside(|| {
            let silent = Server::start("silent", &["--json", "--sessions"]);
            let proxy = Proxy::to(silent.url(), QUICK);
            for_each(["ts1", "ts2"], |name| {
                within_tries(|| {
                    let without = visit(name, &options, &["--url", silent.url()], &variables);
                    assert_eq!(without.calls()[0]["outcome"], "error", "{}", without.json);
                    let with = visit(name, &options, &["--url", &proxy.url("/mcp")], &variables);
                    expect_well(&with);
                    assert_eq!(with.progress(0).len(), 0, "{}", with.json);
                });
            });
            proxy.finish();
        });
    }

    #[test]
    fn is_silent_but_for_comments_to_a_client_without_token() {
        within_tries(|| {
            aside(|| {
                let silent = Server::start("silent", &["--json"]);
                let proxy = Proxy::to(silent.url(), QUICK);
                let client = Raw::new(&proxy);
                let mut answer = client.call("sleep", r#"{"seconds":3}"#, false);
                assert_eq!(answer.status(), 200);
                assert_eq!(answer.header("content-type").as_deref(), Some("text/event-stream"));
                let body = answer.rest();
                assert!(body.lines().filter(|line| line.starts_with(':')).count() >= 2, "{body}");
                let data: Vec<_> = body.lines().filter(|line| line.starts_with("data:")).collect();
                assert!(data.len() == 1 && data[0].contains("slept for 3s"), "{body}");
                proxy.finish();
            });
        });
    }
}

#[test]
fn invented_tokens_of_two_calls_at_once_move_each_its_own() {
    aside(|| {
        let plexus = Server::start("plexus", &["--variant", "p0", "--pace", "200ms"]);
        let proxy = Proxy::to(plexus.url(), NO_HEARTBEATS);
        let options = ["--concurrent", "--call", "claudecode.chat", "--call", "orcha.run_task"];
        for group in CLIENTS.chunks(3) {
            for_each(group, |name| {
                within_tries(|| {
                    let report = visit(name, &options, &["--url", &proxy.url("/mcp")], &[]);
                    expect_well(&report);
                    for call in report.calls() {
                        let told = call["progress"].as_array().unwrap().iter();
                        let told: Vec<_> = told.map(|update| update[2].as_str().unwrap()).collect();
                        let expected: &[_] = if call["tool"] == "claudecode.chat" {
                            &["All ", "Using tool: Read", "Using tool: Grep", "seems ", "well."]
                        } else {
                            &["first attempt failed\n", "second attempt passed\n"]
                        };
                        assert_eq!(told, expected, "{name}: {call}");
                    }
                });
            });
        }
        proxy.finish();
    });
}

#[test]
fn adapters_of_a_framework_see_progress_where_they_saw_none() {
    within_tries(|| {
        aside(|| {
            let kuzumem = Server::start("kuzumem", &["--generation", "k5", "--pace", "100ms"]);
            let proxy = Proxy::to(kuzumem.url(), "");
            let call = ["--call", "pagerank"];
            let without = visit("langchain", &call, &["--url", kuzumem.url()], &[]);
            assert_eq!(without.calls().first().map_or(0, |_| without.progress(0).len()), 0);
            let with = visit("langchain", &call, &["--url", &proxy.url("/mcp")], &[]);
            expect_well(&with);
            assert!(with.progress(0).len() >= 20, "{}", with.json);
            proxy.finish();
        });
    });
}

mod a_server_that_knows_only_calls {
    use super::*;

    const LIFECYCLE: &str = "upstream.lifecycle = { tools = \"/tools/list\", initialize = \"/initialize\" }\n\
        heartbeat = { enabled = false }";

    /// Clients and how they agree on a revision.
    const VISITORS: [(&str, &[&str], &str); 6] = [
        ("ts1", &["--list"], "2025-11-25"),
        ("ts2", &["--list"], "2025-11-25"),
        ("ts2", &["--list", "--negotiate", "auto", "--protocol", "2025-11-25"], "2025-11-25"),
        ("py1", &["--list", "--protocol", "2025-06-18"], "2025-06-18"),
        ("py2", &["--list"], "2025-11-25"),
        ("rmcp", &[], "2025-11-25"),
    ];

    const CALLS: [&str; 6] = [
        "--call",
        "pagerank",
        "--call",
        "get-component-dependencies",
        "--call",
        "init-memory-bank",
    ];

    fn expect_served(report: &Report, revision: &str) {
        let json = &report.json;
        expect_well(report);
        assert_eq!(json["server_version"]["name"], "KuzuMem-MCP", "{json}");
        assert_eq!(json["protocol"], revision, "{json}");
        let tools = json!(["pagerank", "get-component-dependencies", "init-memory-bank"]);
        assert!(json.get("tools").is_none_or(|listed| *listed == tools), "{json}");
        let [rank, dependencies, prepared] = report.calls() else { panic!("{json}") };
        for (call, said) in [
            (rank, "\"iterationsCompleted\":20"),
            (dependencies, "\"totalDependencies\":2"),
            (prepared, "\"success\":true"),
        ] {
            let text = call["result"]["content"][0]["text"].as_str().unwrap();
            assert!(text.contains(said), "{said}: {json}");
        }
        let told = report.progress(0);
        // On a busy machine one report may be so close to the next that the newer takes its place.
        let is_whole = |told: &Value| told[0] == 100.0 && told[1] == 100.0;
        assert!(told.len() >= 15 && told.iter().any(is_whole), "{json}");
        assert!(!report.progress(1).is_empty(), "{json}");
    }

    #[test]
    fn serves_clients_of_every_sdk() {
        aside(|| {
            for generation in ["k2", "k3h"] {
                let kuzumem =
                    Server::start("kuzumem", &["--generation", generation, "--pace", "120ms"]);
                // Without the proxy nobody gets anywhere.
                let alone = ["--deadline", "3"];
                let alone = visit("ts2", &alone, &["--url", kuzumem.url()], &[]);
                assert_eq!(alone.json["connected"], false, "{}", alone.json);
                let proxy = Proxy::to(kuzumem.url(), LIFECYCLE);
                for group in VISITORS.chunks(3) {
                    for_each(group, |(name, options, revision)| {
                        within_tries(|| {
                            let options = [options, &CALLS[..]].concat();
                            let report = visit(name, &options, &["--url", &proxy.url("/mcp")], &[]);
                            expect_served(&report, revision);
                        });
                    });
                }
                // An error without code and message, which would not be heard.
                for_each(["ts1", "py1"], |name| {
                    let call = ["--call", "no-such-tool", "--timeout", "30"];
                    let report = visit(name, &call, &["--url", &proxy.url("/mcp")], &[]);
                    let call = &report.calls()[0];
                    assert_eq!(call["outcome"], "error", "{}", report.json);
                    assert!(call["error"].as_str().unwrap().contains("no-such-tool"), "{call}");
                });
                proxy.finish();
            }
        });
    }
}

/// Legacy servers, what to call, and the least number of updates that a client is to get.
const LEGACY: [(&str, &[&str], &str, usize); 7] = [
    ("kuzumem", &["--generation", "k5", "--pace", "100ms"], "pagerank", 20),
    ("plexus", &["--variant", "p0", "--pace", "150ms"], "claudecode.chat", 5),
    ("plexus", &["--variant", "p1", "--pace", "150ms"], "claudecode.chat", 6),
    ("swissarmyhammer", &["--generation", "s1", "--pace", "150ms"], "shell", 0),
    ("swissarmyhammer", &["--generation", "s2", "--pace", "150ms"], "code_context", 10),
    ("mcp_devtools", &["--pace", "100ms", "--lines", "500"], "project_actions", 0),
    (
        "mcp_devtools",
        &["--pace", "100ms", "--lines", "500", "--token-from", "meta"],
        "project_actions",
        10,
    ),
];

#[test]
fn a_server_that_looks_for_the_token_in_the_arguments_reports_when_it_is_asked() {
    let upstream = Server::start("mcp_devtools", &["--pace", "200ms"]);
    let lines = format!("ask = {{ token_in_arguments = true }}\n{NO_HEARTBEATS}");
    let proxy = Proxy::to(upstream.url(), &lines);
    aside(|| {
        for_each(["ts1", "ts2", "py1", "py2", "rmcp"], |name| {
            within_tries(|| {
                let url = proxy.url("/mcp");
                let report = visit(name, &["--call", "project_actions"], &["--url", &url], &[]);
                expect_well(&report);
                let told = report.progress(0);
                assert!((2..=40).contains(&told.len()), "{name}: {}", report.json);
                // On a stream of its own the newest is told before the answer.
                assert_eq!(told.last().unwrap()[0], 5000.0, "{name}: {}", report.json);
            });
        });
    });
    proxy.finish();
}

#[test]
fn legacy_servers_report_to_real_clients_over_http() {
    let visits = LEGACY.iter().flat_map(|row| ["ts2", "py2", "rmcp"].map(|name| (row, name)));
    aside(|| {
        for group in visits.collect::<Vec<_>>().chunks(3) {
            // A server each: some have one session for all that come.
            for_each(group, |((server, options, call, updates), name)| {
                within_tries(|| {
                    let upstream = Server::start(server, options);
                    let proxy = Proxy::to(upstream.url(), "");
                    let url = proxy.url("/mcp");
                    let report = visit(name, &["--call", call], &["--url", &url], &[]);
                    println!("{name} by {server} {options:?}: {}", report.json);
                    expect_well(&report);
                    let told = report.progress(0).len();
                    assert!(told >= *updates, "{name} by {server}: {told} updates {}", report.json);
                    proxy.finish();
                });
            });
        }
    });
}
