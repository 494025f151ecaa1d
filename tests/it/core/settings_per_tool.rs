//! Settings of single tools.

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

/// The output of a transcript.
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
            // The tool that uses the other dialect does not read this message.
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
            // A client identifies progress by its token, so for this client the value has fallen.
            &progress("7", 1),
        ],
    );
    let figures = told.lines().filter(|line| line.starts_with('='));
    let figures: Vec<&str> =
        figures.filter_map(|line| line.split(r#""progress":"#).nth(1)).collect();
    assert_eq!(figures, ["5}}", r#"5.000001,"message":"y: running"}}"#]);
}

/// A setting of a tool overrides the setting of its route, and that overrides all defaults.
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

/// The same route with times: what waits on it waits because a tool says so.
fn timed(tools: &str) -> Policy {
    let text = "[[route]]\npath = \"/r\"\nupstream.demo = true\n".to_owned() + tools;
    let routes = Routes::parse(Path::new(""), &text, &Environment::default()).unwrap();
    routes.policy(routes.find(None).unwrap())
}

/// Progress of a call whose token is its id.
fn progress(id: u8, figure: &str) -> String {
    format!("< {}", progress_text(id, figure))
}

fn progress_text(id: impl std::fmt::Display, figure: &str) -> String {
    let params = format!(r#"{{"progressToken":{id},"progress":{figure},"message":"m"}}"#);
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{params}}}"#)
}

fn answer(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[]}}}}"#)
}

#[test]
fn a_tool_that_is_observed_is_left_as_it_is_beside_others() {
    let tools = r#"
        tools.x = { mode = "observe", heartbeat = { enabled = true }, call_timeout = "10s", ask = { arguments = { a = 1 } } }
        tools.y = { ask = { arguments = { a = 1 } } }
    "#;
    let told = played(
        policy("", tools),
        &[
            &call(1, "x"),
            &call(2, "y"),
            &progress(1, "5"),
            &progress(1, "3"),
            &progress(2, "5"),
            &progress(2, "3"),
            r#"< {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"1","progress":"40%"}}"#,
            "+ 11s",
            &format!("< {}", answer("\"1\"")),
            &format!("< {}", answer("\"2\"")),
            // A second answer: the answer of the observed tool is forwarded too.
            &format!("< {}", answer("1")),
            &format!("< {}", answer("2")),
        ],
    );
    let asked = call(2, "y").replace("\"arguments\":{}", "\"arguments\":{\"a\":1}");
    let expected = [
        asked.replace("> ", "^ "),
        format!("= {}", progress_text(1, "5")),
        format!("= {}", progress_text(1, "3")),
        format!("= {}", progress_text(2, "5")),
        r#"= {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"1","progress":"40%"}}"#.to_owned(),
        "@ 100ms".to_owned(),
        format!("= {}", progress_text(2, "5.000001")),
        format!("= {}", answer("\"1\"")),
        format!("= {}", answer("2")),
        format!("= {}", answer("1")),
        "x second-answer".to_owned(),
    ];
    assert_eq!(told.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_tool_may_be_repaired_on_a_route_that_is_observed() {
    let tools = r#"
        mode = "observe"
        tools.y = { mode = "full", heartbeat = { enabled = true } }
        tools.z = { mode = "enforce", heartbeat = { enabled = true } }
    "#;
    let invented = progress_text("\"invented\"", "1");
    let told = played(
        policy("", tools),
        &[
            &call(1, "x"),
            &call(2, "y"),
            &call(3, "z"),
            // The call of the message is uncertain; on this route it passes.
            &format!("< {invented}"),
            "< a line that is no message",
            &progress(1, "null"),
            &progress(2, "7"),
            &progress(2, "7"),
            &progress(3, "null"),
            "+ 11s",
            &format!("< {}", answer("1")),
            &format!("< {}", answer("\"2\"")),
            &format!("< {}", answer("\"3\"")),
        ],
    );
    let beat = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":7.000001,"message":"m (10s)"}}"#;
    let expected = [
        format!("= {invented}"),
        "= a line that is no message".to_owned(),
        format!("= {}", progress_text(1, "null")),
        format!("= {}", progress_text(2, "7")),
        format!("= {}", progress_text(3, "0.000001")),
        "@ 100ms".to_owned(),
        "x duplicate".to_owned(),
        "@ 10s".to_owned(),
        format!("= {beat}"),
        format!("= {}", answer("1")),
        format!("= {}", answer("2")),
        format!("= {}", answer("3")),
    ];
    assert_eq!(told.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn tools_may_wait_for_different_times() {
    let tools = r#"
        heartbeat = { enabled = false }
        tools.quick = { first_after = "0", hold = "0", guard = "0" }
        tools.slow = { first_after = "400ms", hold = "60ms", guard = "70ms" }
    "#;
    let told = |tool| {
        let lines = [
            call(1, tool),
            progress(1, "1"),
            "+ 500ms".to_owned(),
            progress(1, "2"),
            "+ 100ms".to_owned(),
            progress(1, "3"),
            "+ 65ms".to_owned(),
            format!("< {}", answer("1")),
            "+ 1s".to_owned(),
        ];
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let told = played(timed(tools), &lines);
        told.lines().map(|line| line.replace(&progress_text(1, ""), "")).collect::<Vec<_>>()
    };
    let said = |figure: &str| format!("= {}", progress_text(1, figure));
    let ended = format!("= {}", answer("1"));
    assert_eq!(told("quick"), [said("1"), said("2"), said("3"), ended.clone()]);
    let at = |time: &str, text: String| [format!("@ {time}"), text];
    let route = [at("150ms", said("1")), at("30ms", said("2")), at("30ms", said("3"))];
    assert_eq!(told("any"), [route.as_flattened(), &at("15ms", ended.clone())].concat());
    let slow = [at("400ms", said("1")), at("60ms", said("2")), at("60ms", said("3"))];
    assert_eq!(told("slow"), [slow.as_flattened(), &at("65ms", ended)].concat());
}

/// A client that is known not to need times is spared those of a route, and gets those that a tool names.
#[test]
fn a_tool_that_names_a_time_means_it_for_every_client() {
    let hello = r#"> {"jsonrpc":"2.0","id":9,"method":"initialize","params":{"clientInfo":{"name":"mcp","version":"0.1.0"}}}"#;
    let told = |tool| {
        let lines = [hello, &*call(1, tool), &*progress(1, "1"), "+ 200ms"];
        played(timed("heartbeat.enabled = false\ntools.slow = { hold = \"40ms\" }"), &lines)
    };
    assert!(!told("any").contains('@'), "{}", told("any"));
    assert!(told("slow").starts_with("@ 150ms\n"), "{}", told("slow"));
}

#[test]
fn tools_may_be_thinned_differently() {
    let tools = r#"
        tools.all = { coalesce = "all" }
        tools.often = { coalesce = "all", min_interval = "20ms" }
    "#;
    let times = |tool| {
        let mut lines = vec![call(1, tool)];
        for figure in 1..=20 {
            lines.extend([progress(1, &figure.to_string()), "+ 10ms".to_owned()]);
        }
        lines.push("+ 1s".to_owned());
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let told = played(policy("", tools), &lines);
        told.lines().filter(|line| line.starts_with('=')).count()
    };
    assert_eq!([times("any"), times("often"), times("all")], [20, 11, 3]);
}

#[test]
fn tools_may_keep_different_faults_of_answers() {
    let tools = r#"
        no_repair = ["error-shape"]
        tools.x = { no_repair = ["response-id", "orphan-answer"] }
        tools.y = { no_repair = ["missing-id"] }
    "#;
    let bare = r#"{"jsonrpc":"2.0","result":{"content":[]}}"#;
    let error = r#"{"jsonrpc":"2.0","id":"1","error":"no"}"#;
    let told = played(
        policy("", tools),
        &[
            &call(1, "x"),
            &format!("< {bare}"),
            &format!("< {error}"),
            &format!("< {}", answer("1")),
            &call(2, "y"),
            &format!("< {bare}"),
            &format!("< {}", answer("\"2\"")),
            &format!("< {}", answer("2")),
        ],
    );
    let expected = [
        "x missing-id".to_owned(),
        format!("= {error}"),
        format!("= {}", answer("1")),
        format!("= {bare}"),
        format!("= {}", answer("2")),
        "x second-answer".to_owned(),
    ];
    assert_eq!(told.lines().collect::<Vec<_>>(), expected);
}

/// The id of one call is the token of another: which of the two a server means, the tool's settings say.
#[test]
fn tools_may_put_different_names_where_the_token_belongs() {
    let figures = |tools: &str| {
        let crossed = |id, token, tool: &str| format!("> {}", call_of(tool, id, token));
        let lines = [crossed(1, 2, "x"), crossed(2, 1, "y"), progress(1, "5"), progress(2, "7")];
        let lines: Vec<&str> = lines.iter().map(String::as_str).chain(["+ 1s"]).collect();
        let told = played(policy("", tools), &lines);
        let told = told.lines().filter(|line| line.starts_with('='));
        let token = |line: &str| line.split("progressToken\":").nth(1).unwrap()[..1].to_owned();
        told.map(token).collect::<Vec<_>>()
    };
    // The number 1 is the id of the call of x, whose token is 2.
    assert_eq!(figures("token_is = \"token\""), ["1", "2"]);
    assert_eq!(figures("token_is = \"request_id\""), ["2", "1"]);
    // Both reports name the call of x, and its values rise.
    assert_eq!(
        figures("token_is = \"token\"\ntools.x = { token_is = \"request_id\" }"),
        ["2", "2"]
    );
    assert_eq!(
        figures("token_is = \"request_id\"\ntools.x = { token_is = \"token\" }"),
        ["1", "1"]
    );
}
