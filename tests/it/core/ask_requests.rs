//! Additions to the requests of clients: between their bytes, and nowhere else.

use std::process::Command;

use bytes::Bytes;
use milepost::progress::policy::ask::{JsonObject, TokenType};
use milepost::progress::{Filter, Mode, Policy, StreamId, StreamKind, StreamPacing};
use milepost::protocol::jsonrpc::Message;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::core::checker::Checker;
use crate::support::session::Session;
use crate::support::{MILEPOST, example};

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#;

const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"project_actions","arguments":{},"_meta":{"progressToken":5}}}"#;

fn members(value: Value) -> JsonObject {
    match value {
        Value::Object(members) => members,
        other => panic!("{other}"),
    }
}

fn message(text: &str) -> Message {
    Message::parse(Bytes::copy_from_slice(text.as_bytes()))
}

/// The request that the server gets.
fn asked(policy: &Policy, text: &str) -> String {
    let asked = policy.with_members(&message(text));
    asked.map_or_else(|| text.to_owned(), |asked| String::from_utf8(asked.to_vec()).unwrap())
}

#[test]
fn every_other_byte_stays_where_it_is() {
    let mut policy = Policy::default();
    policy.call.ask.token_type = TokenType::String;
    policy.call.ask.token_in_arguments = true;
    policy.call.ask.meta = members(json!({ "stream": true }));
    for (text, wanted) in [
        (
            "\t{ \"params\" :\t{ \"_meta\" : { \"progressToken\" : 1e2 , \"x\" : NaN } , \"arguments\" : { } , \"name\":\"\\u0061\\ud83d\" } , \"method\":\"tools\\/call\",\"id\" : 1 }\r\n",
            "\t{ \"params\" :\t{ \"_meta\" : {\"stream\":true, \"progressToken\" : \"100\" , \"x\" : NaN } , \"arguments\" : {\"_meta\":{\"progressToken\":\"100\"} } , \"name\":\"\\u0061\\ud83d\" } , \"method\":\"tools\\/call\",\"id\" : 1 }\r\n",
        ),
        // A value that is not an object stays unchanged, and so does a member meant for another tool.
        (
            r#"{"id":1,"method":"tools/call","params":{"name":"a","_meta":null,"arguments":null}}"#,
            r#"{"id":1,"method":"tools/call","params":{"name":"a","_meta":null,"arguments":null}}"#,
        ),
        (
            r#"{"id":1,"method":"tools/call","params":[{"_meta":{"progressToken":1}}]}"#,
            r#"{"id":1,"method":"tools/call","params":[{"_meta":{"progressToken":1}}]}"#,
        ),
        (
            r#"{"id":1,"method":"tools/call","params":{"arguments":[1],"_meta":{"progressToken":0}}}"#,
            r#"{"id":1,"method":"tools/call","params":{"arguments":[1],"_meta":{"stream":true,"progressToken":"0"}}}"#,
        ),
        // An escape in a key changes nothing, and a member that the client has set stays.
        (
            r#"{"id":1,"method":"tools/call","params":{"\u005fmeta":{"progress\u0054oken":18446744073709551616,"stream":{}},"arguments":{"_meta":{"progressToken":"mine"}}}}"#,
            r#"{"id":1,"method":"tools/call","params":{"\u005fmeta":{"progress\u0054oken":"18446744073709551616","stream":{}},"arguments":{"_meta":{"progressToken":"mine"}}}}"#,
        ),
        // Incomplete text, text after the message, and an id that cannot be answered: the message stays unchanged.
        (
            r#"{"id":1,"method":"tools/call","params":{"_meta":{"progressToken":1}}"#,
            r#"{"id":1,"method":"tools/call","params":{"_meta":{"progressToken":1}}"#,
        ),
        (
            r#"{"id":true,"method":"tools/call","params":{"_meta":{"progressToken":1}}}"#,
            r#"{"id":true,"method":"tools/call","params":{"_meta":{"progressToken":1}}}"#,
        ),
        (
            r#"{"method":"tools/call","params":{"_meta":{"progressToken":1}}}"#,
            r#"{"method":"tools/call","params":{"_meta":{"progressToken":1}}}"#,
        ),
        (
            r#"{"id":1,"result":{"_meta":{"progressToken":1}}}"#,
            r#"{"id":1,"result":{"_meta":{"progressToken":1}}}"#,
        ),
        // Two equal keys: it is unknown which of them counts.
        (
            r#"{"id":1,"method":"tools/call","params":{"_meta":{},"_meta":{"progressToken":1},"arguments":{}}}"#,
            r#"{"id":1,"method":"tools/call","params":{"_meta":{},"_meta":{"progressToken":1},"arguments":{"_meta":{"progressToken":"1"}}}}"#,
        ),
    ] {
        assert_eq!(asked(&policy, text), wanted);
    }
}

#[test]
fn settings_of_a_tool_are_its_own() {
    let mut policy = Policy::default();
    policy.tools.entry("other".to_owned()).or_default().ask.token_in_arguments = true;
    let call = |tool: &str| {
        format!(
            r#"{{"id":1,"method":"tools/call","params":{{"name":"{tool}","_meta":{{"progressToken":1}}}}}}"#
        )
    };
    assert_eq!(asked(&policy, &call("work")), call("work"));
    assert!(
        asked(&policy, &call("other")).contains(r#""arguments":{"_meta":{"progressToken":"1"}}"#)
    );
    policy.set_mode(Mode::Observe);
    assert_eq!(asked(&policy, &call("other")), call("other"));
}

#[test]
fn a_real_server_finds_the_token_where_it_looks() {
    let server = example("mcp_devtools");
    let server = [&*server, "--lines", "2000", "--late", "3"];
    for (asks, updates) in [(&[][..], 0..=0), (&["--ask-token-in-arguments"], 3..=20)] {
        let mut session = Session::wrap(asks, &server);
        let mut checker = Checker::default();
        for line in [INITIALIZE, CALL] {
            session.tell(line);
            checker.client_said(line);
        }
        let mut told = Vec::new();
        while !told.last().is_some_and(|line: &String| line.contains(r#""id":1,"#)) {
            let line = session.line();
            checker.client_told(&line);
            told.push(line);
        }
        let progress = told.iter().filter(|line| line.contains(r#""progressToken":5,"#));
        assert!(updates.contains(&progress.count()), "{told:?}");
        // A message after the answer reaches no client.
        let (rest, code, _) = session.finish();
        assert_eq!((rest.trim(), code), ("", Some(0)));
    }
}

#[test]
fn flags_put_into_requests_what_route_files_do() {
    let flags = [
        "--ask-token-type=string",
        r#"--ask-meta={"stream":true}"#,
        r#"--ask-arguments={"verbose":1}"#,
        r#"--ask-capabilities={"x":{}}"#,
        "--ask-log-level=warning",
    ];
    let folder = tempfile::TempDir::new().unwrap();
    let heard = folder.path().join("heard");
    let begun = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{"logging":{}},"serverInfo":{"name":"s","version":"1"}}}"#;
    let script = r#"read -r line; echo "$line" >"$0"; echo "$1"; cat >>"$0""#;
    let server = ["sh", "-c", script, heard.to_str().unwrap(), begun];
    let mut session = Session::wrap(&flags, &server);
    session.tell(INITIALIZE);
    assert_eq!(session.line().trim_end(), begun);
    let ready = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    session.tell(ready);
    session.tell(CALL);
    session.finish();
    let lines = [
        &*INITIALIZE.replace(r#""capabilities":{}"#, r#""capabilities":{"x":{}}"#),
        ready,
        r#"{"jsonrpc":"2.0","id":"milepost:logging/setLevel","method":"logging/setLevel","params":{"level":"warning"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"project_actions","arguments":{"verbose":1},"_meta":{"stream":true,"progressToken":"5"}}}"#,
    ];
    let mut got: Vec<String> =
        std::fs::read_to_string(heard).unwrap().lines().map(str::to_owned).collect();
    // The client may be faster than the proxy, so the order may differ.
    got[2..].sort_by_key(|line| line.contains("tools/call"));
    assert_eq!(got, lines);
}

#[test]
fn flags_that_cannot_be_used_say_why() {
    for (flag, why) in [
        (r#"--ask-meta={"progressToken":1}"#, "is for the client to say"),
        ("--ask-meta=stream", "a JSON object is expected"),
        ("--ask-arguments=[1]", "a JSON object is expected"),
        ("--ask-token-type=number", "[possible values: same, string, integer, none]"),
        ("--ask-log-level=warn", "did you mean \"warning\"?"),
    ] {
        let tried = Command::new(MILEPOST).args(["wrap", flag, "--", "true"]).output().unwrap();
        let said = String::from_utf8(tried.stderr).unwrap();
        assert!(!tried.status.success() && said.contains(why), "{flag}: {said}");
    }
}

/// A value that JSON has.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-c\"\\\\é]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let name = prop_oneof![
            Just("_meta"),
            Just("progressToken"),
            Just("arguments"),
            Just("capabilities"),
            Just("io.modelcontextprotocol/clientCapabilities"),
            Just("name"),
            Just("a"),
            Just("b"),
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name, inner), 0..6).prop_map(|members| {
                Value::Object(members.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
            }),
        ]
    })
}

fn object() -> impl Strategy<Value = Value> {
    value().prop_map(|value| if value.is_object() { value } else { json!({ "a": value }) })
}

/// Merges `wanted` into `place` wherever `place` has no value: the expected result of the proxy.
fn merged(place: &mut Value, wanted: &Value) {
    let (Value::Object(place), Value::Object(wanted)) = (place, wanted) else { return };
    for (name, value) in wanted {
        match place.get_mut(name) {
            Some(own) => merged(own, value),
            None => drop(place.insert(name.clone(), value.clone())),
        }
    }
}

/// Whether `part` is left of `whole` when some bytes of it are taken away.
fn is_within(part: &str, whole: &str) -> bool {
    let mut rest = whole.bytes();
    part.bytes().all(|byte| rest.any(|other| other == byte))
}

proptest! {
    /// The server gets JSON with the client's members and the added members. All bytes of the client are in it, except
    /// for its token.
    #[test]
    fn only_what_is_asked_for_is_new(
        params in object(),
        method in prop_oneof![Just("tools/call"), Just("initialize"), Just("ping")],
        (meta, arguments, capabilities) in (object(), object(), object()),
        token_type in prop_oneof![
            Just(TokenType::Same), Just(TokenType::String), Just(TokenType::Integer), Just(TokenType::None)
        ],
        copies in any::<bool>(),
        pretty in any::<bool>(),
    ) {
        let mut policy = Policy { capabilities: members(capabilities.clone()), ..Policy::default() };
        let ask = &mut policy.call.ask;
        (ask.token_type, ask.token_in_arguments) = (token_type, copies);
        (ask.meta, ask.arguments) = (members(meta.clone()), members(arguments.clone()));
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let text = if pretty {
            serde_json::to_string_pretty(&request).unwrap()
        } else {
            request.to_string()
        };
        let sent = asked(&policy, &text);
        let said: Value = serde_json::from_str(&sent).unwrap();
        prop_assert_eq!(asked(&policy, &text), &*sent, "always the same");

        // The token first: it keeps its position.
        let mut wanted = request.clone();
        let token = params["_meta"]["progressToken"].clone();
        let is_token = token.is_string() || token.is_i64();
        if is_token && token_type == TokenType::None {
            let members = wanted["params"]["_meta"].as_object_mut().unwrap();
            members.remove("progressToken");
            if members.is_empty() {
                wanted["params"].as_object_mut().unwrap().remove("_meta");
            }
        } else if is_token {
            let given = &said["params"]["_meta"]["progressToken"];
            match token_type {
                TokenType::None => unreachable!("handled above"),
                TokenType::Same => prop_assert_eq!(given, &token),
                TokenType::String => prop_assert!(given.as_str().is_some_and(|given| !given.is_empty())),
                TokenType::Integer => prop_assert!((1..1 << 53).contains(&given.as_i64().unwrap())),
            }
            wanted["params"]["_meta"]["progressToken"] = given.clone();
        }
        let mut more = json!({});
        if method == "tools/call" {
            let mut into = arguments;
            if copies && is_token {
                let given = match token_type {
                    TokenType::None => &token,
                    _ => &wanted["params"]["_meta"]["progressToken"],
                };
                let copy = given.as_str().map_or_else(|| given.to_string(), str::to_owned);
                if into.get("_meta").is_none_or(Value::is_object) {
                    into["_meta"]["progressToken"] = copy.into();
                }
            }
            for (name, members) in [("arguments", into), ("_meta", meta)] {
                if members != json!({}) {
                    more[name] = members;
                }
            }
        }
        if method == "initialize" && capabilities != json!({}) {
            more["capabilities"] = capabilities.clone();
        }
        let own = "io.modelcontextprotocol/clientCapabilities";
        if params["_meta"].get(own).is_some() && capabilities != json!({}) {
            more["_meta"][own] = capabilities;
        }
        merged(&mut wanted["params"], &more);
        prop_assert_eq!(&said, &wanted, "{} became {}", text, sent);
        if token_type == TokenType::Same {
            prop_assert!(is_within(&text, &sent), "{} became {}", text, sent);
        }

        // Another filter that sees the request finds the same names.
        let mut filter = Filter::new(policy);
        filter.open_stream(StreamId(0), StreamKind::Shared, StreamPacing::Immediate);
        let now = std::time::Instant::now();
        let payload = filter.client_message(now, StreamId(0), &message(&text));
        prop_assert_eq!(payload.to_bytes(), sent.as_bytes());
    }
}
