//! Programs that embed the engine, between clients of the SDKs and legacy servers.

use crate::sdk_http::expect_well;
use crate::support::sdk::{CLIENTS, Upstream, client, visit};
use crate::support::server::Server;
use crate::support::{example, home};
use crate::{aside, for_each};

/// The policy beside the examples.
fn policy() -> String {
    home().join("examples/policy.toml").display().to_string()
}

#[test]
fn a_legacy_server_reports_to_real_clients_through_embed_stdio() {
    let options = ["--call", "pagerank", "--call", "init-memory-bank"];
    let words = ["--generation", "k1", "--pace", "100ms"].map(str::to_owned);
    let embedded = [example("embed-stdio"), "--policy".to_owned(), policy(), example("kuzumem")];
    let server = [embedded.to_vec(), words.to_vec()].concat();
    aside(|| {
        for group in CLIENTS.chunks(3) {
            for_each(group, |name| {
                crate::support::within_tries(|| {
                    let report = client(name, &options, &server);
                    report.expect_all_well();
                    report.expect_rising();
                    let told = report.progress(0).len();
                    assert!(told >= 10, "{name}: {told} updates {}", report.json);
                });
            });
        }
    });
}

#[test]
fn a_legacy_server_reports_to_real_clients_through_embed_http() {
    aside(|| {
        for group in CLIENTS.chunks(3) {
            for_each(group, |name| {
                crate::support::within_tries(|| {
                    let upstream =
                        Server::start("kuzumem", &["--generation", "k5", "--pace", "100ms"]);
                    let options = [upstream.address(), "--policy", &policy()];
                    let embedded = Server::start("embed-http", &options);
                    let report =
                        visit(name, &["--call", "pagerank"], &["--url", embedded.url()], &[]);
                    expect_well(&report);
                    let told = report.progress(0).len();
                    assert!(told >= 20, "{name}: {told} updates {}", report.json);
                });
            });
        }
    });
}

/// The Python SDK 1.28 sends progress on the GET stream of the session, beside all other requests.
#[test]
fn progress_on_the_get_stream_reaches_its_call_through_embed_http() {
    let steps = r#"steps={"count":3,"ms":200,"total":3}"#;
    let options = ["--call", steps, "--call", steps, "--concurrent"];
    aside(|| {
        let upstream = Upstream::start("py128", &[]);
        let address = upstream.url().trim_start_matches("http://").trim_end_matches("/mcp");
        let embedded = Server::start("embed-http", &[address]);
        for_each(["ts1", "ts2", "py1"], |name| {
            crate::support::within_tries(|| {
                let report = visit(name, &options, &["--url", embedded.url()], &[]);
                expect_well(&report);
                for call in [0, 1] {
                    let told = report.progress(call);
                    let figures: Vec<_> = told.iter().map(|update| update[0].clone()).collect();
                    assert_eq!(figures, [1.0, 2.0, 3.0], "{name}: {}", report.json);
                }
            });
        });
    });
}
