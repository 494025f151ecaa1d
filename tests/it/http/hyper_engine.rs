//! hyper towards servers over HTTP/1.1: what holds with Milepost's own engine holds with hyper. The tests run again in
//! a process whose routes have hyper.

use std::env;
use std::process::Command;

use super::rig::HYPER_ENGINE;

/// The tests that run again: those whose servers a test plays byte for byte, and connections of real sockets and TLS.
const TESTS: &[&str] = &[
    "http::direct::",
    "http::bridge::http_servers",
    "http::serve::byte_exact",
    "http::serve::idle_connections",
    "http::serve::tls_and_http2",
    "upstream::",
];

#[test]
fn what_holds_with_the_own_engine_holds_with_hyper() {
    let mut again = Command::new(env::current_exe().unwrap());
    let output =
        again.args(TESTS).env(HYPER_ENGINE, "1").env_remove("UPDATE_EXPECT").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !text.contains("running 0 tests"), "{text}{errors}");
}
