//! Faults that keep `serve` from starting, and its words then.

use super::proxy::{Start, file};
use super::*;

#[test]
fn a_wrong_route_file_is_refused_with_its_place_and_the_right_word() {
    let routes = "[[route]]\npath = \"/a\"\nupstream.urll = \"http://127.0.0.1:1/mcp\"\n";
    let mut proxy = Proxy::launch(&Start::default(), routes);
    assert_eq!(proxy.code(), Some(2));
    let file = proxy.file();
    assert_eq!(
        proxy.log(),
        format!(
            "milepost: {file}:3:10: route.upstream.urll: unknown key; did you mean `url`?\n    \
             3 | upstream.urll = \"http://127.0.0.1:1/mcp\"\n      |          ^^^^\n"
        )
    );
}

#[test]
fn a_route_file_that_is_not_there_is_named() {
    let missing =
        crate::support::milepost().args(["serve", "/nowhere/proxy.toml"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
    let said = String::from_utf8(missing.stderr).unwrap();
    assert!(said.contains("there is no file /nowhere/proxy.toml"), "{said}");
}

#[test]
fn an_address_in_use_is_named_with_the_table_to_change() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let route = "[[route]]\npath = \"/a\"\nupstream.demo = true\n";
    for table in ["server", "admin"] {
        let text = file(&Start::default(), route);
        let before = format!("[{table}]\nlisten = \"127.0.0.1:0\"");
        let text = text.replace(&before, &format!("[{table}]\nlisten = \"{address}\""));
        let mut proxy = Proxy::launch(&Start::default(), &text);
        assert_eq!(proxy.code(), Some(1));
        let port = address.port();
        let other = port.checked_add(1).unwrap_or(port - 1);
        let said = format!(
            "milepost: cannot listen on {address}; end what listens there, or write another address in [{table}], such \
             as listen = \"127.0.0.1:{other}\": Address already in use (os error 98)\n"
        );
        assert_eq!(proxy.log(), said);
    }
}

#[test]
fn an_address_that_others_can_reach_needs_names() {
    let route = "[[route]]\npath = \"/a\"\nupstream.demo = true\n";
    let text = file(&Start::default(), route);
    let text = text.replacen("127.0.0.1:0", "0.0.0.0:0", 1);
    let mut proxy = Proxy::launch(&Start::default(), &text);
    let code = proxy.code();
    assert!(proxy.log().contains("allowed_hosts"), "{}", proxy.log());
    assert!(matches!(code, Some(1 | 2)), "{code:?}");
}

#[test]
fn what_is_served_is_told_at_the_start_without_secrets() {
    let routes = "[[route]]\npath = \"/a\"\nupstream.url = \"http://127.0.0.1:1/mcp?key=hush\"\n\
                  headers.request.set = { authorization = \"Bearer hush\" }\n";
    let proxy = Proxy::serving(&Start::default(), routes);
    let line = proxy.logged(&["route=\"/a\""]);
    assert!(line.contains("upstream=\"http://127.0.0.1:1/mcp\""), "{line}");
    assert!(!proxy.log().contains("hush"), "{}", proxy.log());
    assert_eq!(proxy.probe("/livez"), (200, "alive\n".to_owned()));
    assert_eq!(proxy.probe("/readyz"), (200, "ready\n".to_owned()));
}
