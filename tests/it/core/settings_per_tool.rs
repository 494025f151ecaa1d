//! What is set for single tools.

use std::path::Path;

use milepost::config::routes::{Environment, Routes};
use milepost::progress::Policy;

use crate::core::transcripts::Player;
use crate::support::messages::call_of;

const ROUTE: &str = r#"
    [[route]]
    path = "/r"
    upstream.demo = true
    heartbeat = { enabled = false }
    first_after = "0"
    hold = "0"
    guard = "0"
"#;

/// The policy of a route where nothing waits, with these dialects and settings of tools.
fn policy(dialects: &str, tools: &str) -> Policy {
    let text = [dialects, ROUTE, tools].concat();
    let routes = Routes::parse(Path::new(""), &text, &Environment::default()).unwrap();
    routes.policy(routes.find(None).unwrap())
}

/// What comes out of a transcript.
fn played(policy: Policy, lines: &[&str]) -> String {
    let mut player = Player::new(policy);
    lines.iter().for_each(|line| player.play(line));
    player.take()
}

fn call(id: u8, tool: &str) -> String {
    format!("> {}", call_of(tool, id, id))
}

#[test]
fn tools_may_have_different_dialects_of_one_method() {
    let file = r#"
        [[dialect]]
        name = "one"
        method = "acme/status"
        request_id = "/params/a"
        progress = "/params/done"

        [[dialect]]
        name = "other"
        method = "acme/status"
        request_id = "/params/b"
        progress = "/params/pct"
        scale = "percent"
    "#;
    let tools = r#"
        tools.x = { dialects = ["one"] }
        tools.y = { dialects = ["other"] }
    "#;
    let told = played(
        policy(file, tools),
        &[
            &call(1, "x"),
            &call(2, "y"),
            r#"< {"jsonrpc":"2.0","method":"acme/status","params":{"a":1,"done":5}}"#,
            r#"< {"jsonrpc":"2.0","method":"acme/status","params":{"b":2,"pct":7}}"#,
            // To the tool that goes by another one it means nothing.
            r#"< {"jsonrpc":"2.0","method":"acme/status","params":{"b":1,"pct":8}}"#,
        ],
    );
    let params = |text: &str| {
        format!(r#"= {{"jsonrpc":"2.0","method":"notifications/progress","params":{{{text}}}}}"#)
    };
    let expected = [
        params(r#""progressToken":1,"progress":5,"message":"x: running""#),
        params(r#""progressToken":2,"progress":7,"total":100,"message":"y: running""#),
        r#"= {"jsonrpc":"2.0","method":"acme/status","params":{"b":1,"pct":8}}"#.to_owned(),
    ];
    assert_eq!(told.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn tools_may_know_tokens_of_different_types() {
    let progress = |token: &str, figure: u8| {
        format!(
            r#"< {{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{figure}}}}}"#
        )
    };
    let told = played(
        policy("", r#"tools.x = { ask = { token_type = "string" } }"#),
        &[
            &call(7, "x"),
            &call(8, "y").replace("progressToken\":8", "progressToken\":7"),
            &progress("\"7\"", 5),
            // A client knows progress by its token: for it the figure has fallen.
            &progress("7", 1),
        ],
    );
    let figures = told.lines().filter(|line| line.starts_with('='));
    let figures: Vec<&str> =
        figures.filter_map(|line| line.split(r#""progress":"#).nth(1)).collect();
    assert_eq!(figures, ["5}}", r#"5.000001,"message":"y: running"}}"#]);
}

/// What is said of a tool goes before what is said of its route, and that before all defaults.
#[test]
fn the_nearest_setting_holds() {
    let file = r#"
        [defaults]
        dialects = ["defaults", "log"]
        scale = "percent"
        on_fall = "drop"
        tools.x = { scale = "unit", estimate = true, messages = "append" }

        [[route]]
        path = "/r"
        upstream.demo = true
        dialects = ["defaults", "stderr"]
        messages = "replace"
        tools.x = { on_fall = "rebase" }
        tools.y = { mask = ["x+"] }
    "#;
    let routes = Routes::parse(Path::new(""), file, &Environment::default()).unwrap();
    let printed = routes.print();
    let line = |start: &str| printed.lines().find(|line| line.starts_with(start)).unwrap();
    let names = |text: &str| {
        let known = ["log", "stderr", "percent", "unit", "drop", "rebase", "append", "replace"];
        let here = known.iter().filter(|name| text.contains(&format!("\"{name}\"")));
        here.copied().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(line("dialects =")), "stderr");
    assert_eq!(names(line("tools.x =")), "stderr unit rebase replace");
    assert_eq!(names(line("tools.y =")), "stderr percent drop replace");
    assert!(line("tools.x =").contains("estimate = true"));
    assert!(line("tools.y =").contains("estimate = false"));
    let again = Routes::parse(Path::new(""), &printed, &Environment::default()).unwrap();
    assert_eq!(again.print(), printed);
}
