//! The token of a file as the credential of a route.

use std::process::Stdio;

use super::proxy::Start;
use super::*;
use crate::observe::metrics::page::Page;
use crate::support::milepost;

/// The token that the server gets with a call.
fn presented(proxy: &Proxy, upstream: &Upstream) -> String {
    let headers = [&POST[..], &[("authorization", "Bearer of-the-client")]].concat();
    let mut asked = Exchange::send(proxy.address(), "POST", "/a", &headers, &call("1", ""));
    let mut server = upstream.asked();
    let head = server.head.clone();
    server.json(&result("1"));
    assert_eq!(asked.rest(), result("1"));
    let mut lines = head.lines().filter_map(|line| line.strip_prefix("authorization: Bearer "));
    let token = lines.next().unwrap_or_else(|| panic!("{head}")).to_owned();
    assert_eq!(lines.next(), None, "{head}");
    token
}

#[test]
fn the_token_of_a_file_is_read_again_and_the_last_good_one_stays() {
    let upstream = Upstream::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    for settings in ["", "opaque = true"] {
        std::fs::write(&file, " c4n4ry-1\n").unwrap();
        let route = format!(
            "upstream.url = \"{}\"\nheaders.request.set.authorization = {{ bearer_file = '{}' }}\n{settings}",
            upstream.url(),
            file.display()
        );
        let proxy = Proxy::with(&Start::default(), &route);
        assert_eq!(presented(&proxy, &upstream), "c4n4ry-1");
        std::fs::write(&file, "c4n4ry-second").unwrap();
        assert_eq!(presented(&proxy, &upstream), "c4n4ry-second");
        std::fs::write(&file, "\n").unwrap();
        assert_eq!(presented(&proxy, &upstream), "c4n4ry-second");
        proxy.logged(&[
            "WARN",
            "`bearer_file` cannot be used",
            "holds no token",
            "header=\"authorization\"",
        ]);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(presented(&proxy, &upstream), "c4n4ry-second");
        std::fs::write(&file, "c4n4ry-third-one").unwrap();
        assert_eq!(presented(&proxy, &upstream), "c4n4ry-third-one");
        let page = Page::read(&proxy.probe("/metrics").1);
        let labels = [("route", "/a"), ("kind", "token-file")];
        assert_eq!(page.sum("milepost_server_notices_total", &labels), 2.0);
        proxy.stop();
        let log = proxy.log();
        assert_eq!(log.matches("`bearer_file` cannot be used").count(), 1, "{log}");
        assert!(!log.contains("c4n4ry"), "{log}");
    }
}

/// A token may expire while `doctor` and `check-progress` run.
#[test]
fn doctor_and_the_suite_read_the_token_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    for command in ["doctor", "check-progress"] {
        // A connection that the other command has not used.
        let upstream = Upstream::start();
        std::fs::write(&file, "c4n4ry-1\n").unwrap();
        let mut doctor = milepost();
        doctor.arg(command).arg("--bearer-file").arg(&file).arg(upstream.url());
        doctor.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut doctor = doctor.spawn().unwrap();
        let mut first = upstream.asked();
        assert!(first.head.contains("authorization: Bearer c4n4ry-1\r\n"), "{}", first.head);
        std::fs::write(&file, "c4n4ry-second\n").unwrap();
        first.answer("400 Bad Request", "content-type: application/json\r\n", "{}");
        let second = upstream.asked();
        let head = second.head.clone();
        doctor.kill().unwrap();
        doctor.wait().unwrap();
        drop(second);
        assert!(head.contains("authorization: Bearer c4n4ry-second\r\n"), "{command}: {head}");
    }
}
