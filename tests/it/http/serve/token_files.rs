//! The token of a file as the credential of a route.

use super::proxy::Start;
use super::*;

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
        proxy.stop();
        let log = proxy.log();
        assert_eq!(log.matches("`bearer_file` cannot be used").count(), 1, "{log}");
        assert!(!log.contains("c4n4ry"), "{log}");
    }
}
