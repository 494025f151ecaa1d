//! `milepost try`: both sides of a call.

use std::process::Stdio;

use super::doctor::servers_without_example::{HANDSHAKE, shell};
use crate::support::milepost;

/// Exit code, standard output and standard error of `milepost try ARGS`.
fn tried(args: &[&str]) -> (Option<i32>, String, String) {
    let output = milepost().arg("try").args(args).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn both_sides_of_a_call_are_shown() {
    crate::support::within_tries(|| {
        let call = r#"*tools/call*) sleep 0.3; say '{"jsonrpc":"2.0","method":"tools/progress","params":{"id":2,"content":[{"type":"text","text":"reading"}]}}'; sleep 0.3; say '{"jsonrpc":"2.0","id":2,"result":{"content":[]}}';;"#;
        let server = shell(&[HANDSHAKE, call].concat());
        let (code, out, error) = tried(&["--call", "t", "--", "sh", "-c", &server]);
        assert_eq!(code, Some(0), "{out}{error}");
        assert!(out.starts_with("Tools: t\n"), "{out}");
        let sent =
            out.find("server sends  {\"jsonrpc\":\"2.0\",\"method\":\"tools/progress\"").unwrap();
        let got = out
            .find("client gets   {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"")
            .unwrap();
        assert!(sent < got && out[got..].contains("repaired: dialect"), "{out}");
        assert!(out[got..].contains("\"result\":{\"content\":[]}"), "{out}");
        // Without a terminal no question can be asked.
        let (code, out, _) = tried(&["--", "sh", "-c", &server]);
        assert!(code == Some(0) && out.contains("`--call NAME"), "{out}");
        let (code, _, error) = tried(&["--call", "tt", "--", "sh", "-c", &server]);
        assert!(code == Some(2) && error.contains("did you mean \"t\"?"), "{error}");
    });
}

#[test]
fn a_server_at_an_address_is_reached_too() {
    crate::support::within_tries(|| {
        let server = crate::support::server::Server::start("scout", &["--pace", "60ms"]);
        let (code, out, error) = tried(&["--call", "run_materialization", server.url()]);
        assert_eq!(code, Some(0), "{out}{error}");
        assert!(out.contains("client gets   "), "{out}");
    });
}
