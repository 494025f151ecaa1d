//! Tests that wrap and unwrap the servers of files.

use std::collections::BTreeMap;

use jsonc_parser::ast::Object;
use proptest::prelude::*;
use serde_json::Value as Json;

use super::document::{self, apply};
use super::entry::{self, Choice, EntryChange};
use super::our_command::{OurCommand, ProgramReach};

/// Wraps every entry of a file, as `adopt` does.
fn wrapped(text: &str) -> String {
    wrapped_by(&OurCommand::direct("/opt/milepost"), text)
}

fn wrapped_by(ours: &OurCommand, text: &str) -> String {
    changed(text, |object| entry::wrap(text, object, ours, Choice::WithAll))
}

/// Unwraps every entry of a file.
fn unwrapped(text: &str) -> String {
    changed(text, |object| entry::unwrap(text, object))
}

fn changed(text: &str, change: impl Fn(&Object<'_>) -> EntryChange) -> String {
    let parsed = document::parse(text).unwrap();
    let entries = parsed.as_ref().and_then(document::entries).unwrap_or_default();
    let mut edits = Vec::new();
    for entry in entries {
        if let Ok(Some(more)) = change(entry.object) {
            edits.extend(more);
        }
    }
    apply(text, edits)
}

/// Returns a file with only this entry.
fn entry(text: &str) -> String {
    format!(r#"{{"mcpServers":{{"s":{text}}}}}"#)
}

#[track_caller]
fn check(before: &str, after: &str) {
    let (before, after) = (entry(before), entry(after));
    assert_eq!(wrapped(&before), after);
    assert_eq!(wrapped(&after), after, "not the same twice");
    assert_eq!(unwrapped(&after), before, "not undone");
    assert_eq!(unwrapped(&before), before, "undone where there was nothing");
}

#[test]
fn commands_are_put_behind_wrap() {
    check(r#"{"command":"a"}"#, r#"{"command":"/opt/milepost","args":["wrap","a"]}"#);
    check(
        r#"{ "command": "a", "args": [] }"#,
        r#"{ "command": "/opt/milepost", "args": ["wrap", "--", "a"] }"#,
    );
    check(
        "{\n\t\"args\": [\n\t\t// first\n\t\t\"-y\", \"b\",\n\t],\n\t\"command\" : \"n\\u0070x\",\n}",
        "{\n\t\"args\": [\n\t\t// first\n\t\t\"wrap\",\n\t\t\"--\",\n\t\t\"n\\u0070x\",\n\t\t\"-y\", \"b\",\n\t],\
         \n\t\"command\" : \"/opt/milepost\",\n}",
    );
    check(
        "{\r\n  \"command\": \"a\" // why\r\n}",
        "{\r\n  \"command\": \"/opt/milepost\",\r\n  \"args\": [\"wrap\", \"a\"] // why\r\n}",
    );
    check(
        r#"{"args":["--","wrap",1,true],"command":"a","env":{}}"#,
        r#"{"args":["wrap","--","a","--","wrap",1,true],"command":"/opt/milepost","env":{}}"#,
    );
}

#[test]
fn a_launcher_is_put_before_every_kind_of_server_and_taken_away() {
    let exe = "/Users/a/.npm/_npx/3f1c/node_modules/milepost-linux-x64/bin/milepost";
    let ours = OurCommand::of_running(exe.as_ref(), ProgramReach::ByPath).unwrap();
    let list = r#"{"mcp":{"s":{"type":"local","command":["node","x"]}}}"#.to_owned();
    let wrapped_list = list.replace(r#"["node""#, r#"["npx","-y","milepost","wrap","--","node""#);
    for (before, after) in [
        (
            entry(r#"{"command":"node","args":["x"]}"#),
            entry(r#"{"command":"npx","args":["-y","milepost","wrap","--","node","x"]}"#),
        ),
        (
            entry(r#"{"command":"a"}"#),
            entry(r#"{"command":"npx","args":["-y","milepost","wrap","a"]}"#),
        ),
        (
            entry(r#"{"url":"http://localhost/mcp"}"#),
            entry(r#"{"command":"npx","args":["-y","milepost","wrap","http://localhost/mcp"]}"#),
        ),
        (list, wrapped_list),
    ] {
        assert_eq!(wrapped_by(&ours, &before), after);
        assert_eq!(wrapped_by(&ours, &after), after, "not the same twice");
        assert_eq!(unwrapped(&after), before, "not undone");
    }
}

#[test]
fn addresses_are_put_behind_wrap_and_headers_into_the_environment() {
    check(
        r#"{"url":"http://127.0.0.1:1/mcp"}"#,
        r#"{"command":"/opt/milepost","args":["wrap","http://127.0.0.1:1/mcp"]}"#,
    );
    check(
        r#"{ "type": "streamable-http", "headers": { "X-Key": "${K}", "x_key": "" }, "url" : "https:\/\/a.b/c" }"#,
        r#"{ "type": "stdio", "env": { "MILEPOST_HEADER_X_KEY": "${K}", "MILEPOST_HEADER_X_KEY_2": "" }, "command" : "/opt/milepost", "args" : ["wrap", "--transport", "streamable-http", "--header-env", "X-Key=MILEPOST_HEADER_X_KEY", "--header-env", "x_key=MILEPOST_HEADER_X_KEY_2", "https:\/\/a.b/c"] }"#,
    );
    check(
        r#"{"headers":{},"type":"sse","url":"http://localhost/sse"}"#,
        r#"{"env":{},"type":"stdio","command":"/opt/milepost","args":["wrap","--transport","sse","http://localhost/sse"]}"#,
    );
}

#[test]
fn what_was_changed_by_hand_since_is_kept_where_it_is_not_ours() {
    let check = |before: &str, after: &str| {
        assert_eq!(unwrapped(&entry(before)), entry(after));
    };
    check(
        r#"{"args":["wrap","--heartbeat-after","9s","--","a","b"],"command":"milepost.exe","env":{"A":"1"}}"#,
        r#"{"args":["b"],"command":"a","env":{"A":"1"}}"#,
    );
    check(r#"{"args":["wrap","a",],"command":"milepost"}"#, r#"{"args":[],"command":"a"}"#);
    check(
        r#"{"command":"npx","args":["-y","milepost@1.2","wrap","node","x"]}"#,
        r#"{"command":"node","args":["x"]}"#,
    );
    check(
        r#"{"args":["wrap","http://a/b"],"x":1,"command":"/x/milepost"}"#,
        r#"{"x":1,"url":"http://a/b"}"#,
    );
}

/// Returns the reason why a change leaves an entry unchanged.
fn alone(text: &str, change: impl FnOnce(&str, &Object<'_>) -> EntryChange) -> String {
    let text = entry(text);
    let parsed = document::parse(&text).unwrap().unwrap();
    let entry = document::entries(&parsed).unwrap()[0];
    match change(&text, entry.object) {
        Err(alone) => alone.why,
        fate => panic!("{text}: {fate:?}"),
    }
}

#[test]
fn what_could_break_is_left_alone() {
    for (text, why) in [
        (r#"{}"#, "neither"),
        (r#"{"command":1}"#, "not a string"),
        (r#"{"command":"a","args":"b"}"#, "not a list"),
        (r#"{"command":"a","command":"b"}"#, "twice"),
        (r#"{"command":" "}"#, "empty"),
        (r#"{"command":"-a"}"#, "begins with `-`"),
        (r#"{"command":"milepost","args":["serve"]}"#, "Milepost itself"),
        (r#"{"command":"a","url":"http://localhost"}"#, "both"),
        (r#"{"type":"ws","url":"ws://localhost"}"#, r#"type "ws""#),
        (r#"{"type":"sse","command":"a"}"#, r#"type "sse""#),
        (r#"{"url":"https://example.com/mcp"}"#, "sign-in"),
        (r#"{"url":"https://example.com/mcp","headers":{"X-Trace":"1"}}"#, "sign-in"),
        (r#"{"url":"http://localhost/mcp","headersHelper":"x"}"#, "headersHelper"),
        (r#"{"url":"http://localhost/mcp","oauth":{}}"#, "oauth"),
        (r#"{"url":"http://localhost/mcp","env":{}}"#, "env"),
        (r#"{"url":"http://localhost/mcp","headers":[]}"#, "not an object"),
        (r#"{"url":"http://localhost/mcp","headers":{"a b":""}}"#, "not the name of a header"),
        (r#"{"url":"http://localhost/mcp","headers":{"a":1}}"#, "not a string"),
        (r#"{"url":"http://localhost/mcp?api_key=x"}"#, "secret"),
        (r#"{"url":"http://me:word@localhost/mcp"}"#, "secret"),
        (r#"{"url":"http://localhost/s/0123456789abcdef0123456789/mcp"}"#, "secret"),
        (r#"{"url":"${BASE}/mcp"}"#, "fills in"),
        (r#"{"url":"localhost/mcp"}"#, "not an http://"),
    ] {
        let said = alone(text, |text, object| {
            entry::wrap(text, object, &OurCommand::direct("milepost"), Choice::WithAll)
        });
        assert!(said.contains(why), "{text}: {said}");
    }
    for (text, why) in [
        (r#"{"command":"milepost","args":["wrap","--config","x"]}"#, "route file"),
        (r#"{"command":"milepost","args":["wrap","--no-such","x"]}"#, "does not know"),
        (r#"{"command":"milepost","args":["wrap",null,"x"]}"#, "not every argument"),
        (r#"{"command":"milepost","args":["wrap","--bearer-env","T","http://a"]}"#, "--bearer-env"),
        (
            r#"{"command":"milepost","args":["wrap","http://a"],"env":{"A":"1"}}"#,
            r#""A" belongs to no header"#,
        ),
        (
            r#"{"command":"milepost","args":["wrap","--header-env","X=Y","http://a"]}"#,
            r#"header "X" is not in "env", but in the variable Y"#,
        ),
    ] {
        let said = alone(text, entry::unwrap);
        assert!(said.contains(why), "{text}: {said}");
    }
}

#[test]
fn the_servers_are_found_where_each_client_keeps_them() {
    let names = |text: &str| {
        let parsed = document::parse(text).unwrap()?;
        let entries = document::entries(&parsed)?;
        Some(entries.iter().map(document::ServerEntry::title).collect::<Vec<_>>().join(" "))
    };
    let check = |text: &str, expected: &str| {
        assert_eq!(names(&text.replace('@', r#"{"command":"a"}"#)).as_deref(), Some(expected));
    };
    check(r#"{"mcpServers":{"a":@,"b":@,"c":null}}"#, "a b");
    check(r#"{"servers":{"a":@},"inputs":[{"id":"x"}]}"#, "a");
    check(r#"{"editor.x":1,"mcp":{"servers":{"a":@}}}"#, "a");
    check(r#"{"mcp.servers":{"a":@}}"#, "a");
    check(r#"{"context_servers":{"a":@}}"#, "a");
    check(r#"{"projects":{"/p":{"mcpServers":{"a":@}},"/q":{}},"mcpServers":{"a":@}}"#, "a (/p) a");
    check(r#"{"a":@,"b":{"url":"x"},"version":1}"#, "a b");
    check(r#"{"mcpServers":{}}"#, "");
    for none in ["", "[]", "1", "{}", r#"{"a":1}"#, r#"{"a":{}}"#, "// nothing"] {
        assert_eq!(names(none), None, "{none}");
    }
}

/// A stream of choices, for how a file is written.
struct Style {
    choices: Vec<u8>,
}

impl Style {
    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        let choice = self.choices.pop().unwrap_or(0);
        from[usize::from(choice) % from.len()]
    }

    /// Returns text that may be between two tokens.
    fn gap(&mut self) -> &'static str {
        self.pick(&["", "", "", " ", "\n  ", "\r\n\t", " /* , \" */ ", "// ]}\n", "\n\n"])
    }

    fn write(&mut self, value: &Json) -> String {
        let (open, close, parts): (&str, &str, Vec<String>) = match value {
            Json::Object(members) => {
                let member = |(key, value): (&String, &Json)| {
                    let key = Json::from(key.as_str()).to_string();
                    let colon = self.gap().to_owned() + ":" + self.gap();
                    key + &colon + &self.write(value)
                };
                ("{", "}", members.iter().map(member).collect())
            }
            Json::Array(elements) => ("[", "]", elements.iter().map(|e| self.write(e)).collect()),
            plain => return plain.to_string(),
        };
        let mut out = open.to_owned();
        let count = parts.len();
        for (at, part) in parts.into_iter().enumerate() {
            out = out + self.gap() + &part + self.gap();
            if at + 1 < count {
                out.push(',');
            } else {
                out += self.pick(&["", "", "", ","]);
            }
        }
        out + self.gap() + close
    }
}

fn words() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,8}",
        "--?[a-z]{1,5}(=[a-z]*)?",
        "[ -~]{0,12}",
        "\\PC{0,6}",
        Just("wrap".into()),
        Just("--".into())
    ]
}

fn server() -> impl Strategy<Value = Json> {
    let object = |members: Vec<(&str, Option<Json>)>| {
        let members = members.into_iter().filter_map(|(k, v)| Some((k.to_owned(), v?)));
        Json::Object(members.collect())
    };
    let env = prop::collection::btree_map("[A-Z_]{1,8}", words(), 0..3);
    let args = prop::option::of(prop::collection::vec(words(), 0..5));
    let command = prop_oneof!["[a-z./-]{1,12}", words()];
    let stdio = (command, args, prop::option::of(env), any::<bool>()).prop_map(
        move |(command, args, env, typed)| {
            object(vec![
                ("command", Some(command.into())),
                ("args", args.map(Json::from)),
                ("env", env.map(|env| serde_json::to_value(env).unwrap())),
                ("type", typed.then(|| "stdio".into())),
            ])
        },
    );
    let kind = prop::option::of(prop::sample::select(vec!["http", "sse", "streamableHttp", "ws"]));
    let headers = prop::collection::btree_map("[A-Za-z_-]{1,8}|Authorization", words(), 0..4);
    let url = prop_oneof![Just("http://localhost:3/mcp"), Just("https://example.com/mcp?a=b")];
    let http = (url, kind, prop::option::of(headers)).prop_map(move |(url, kind, headers)| {
        object(vec![
            ("headers", headers.map(|headers| serde_json::to_value(headers).unwrap())),
            ("type", kind.map(Json::from)),
            ("url", Some(url.into())),
        ])
    });
    prop_oneof![stdio, http]
}

fn files() -> impl Strategy<Value = String> {
    let servers = prop::collection::btree_map("[a-z ]{1,6}", server(), 0..5);
    let place = prop::sample::select(vec!["mcpServers", "servers", "mcp.servers"]);
    let style = prop::collection::vec(any::<u8>(), 0..200);
    (servers, place, style).prop_map(|(servers, place, style)| {
        let file = BTreeMap::from([
            (place.to_owned(), serde_json::to_value(servers).unwrap()),
            ("other".to_owned(), Json::from(vec![1, 2])),
        ]);
        Style { choices: style }.write(&serde_json::to_value(file).unwrap())
    })
}

proptest! {
    #[test]
    fn undone_is_as_before_byte_by_byte(before in files()) {
        let after = wrapped(&before);
        prop_assert!(document::parse(&after).is_ok(), "{after}");
        prop_assert_eq!(wrapped(&after), after.clone(), "not the same twice");
        prop_assert_eq!(unwrapped(&after), before, "{}", after);
    }

    #[test]
    fn no_text_is_too_much(text in "\\PC{0,60}") {
        let _ = document::parse(&text).map(|file| file.as_ref().and_then(document::entries).map(|e| e.len()));
    }
}

/// Makes a PEM file with a certificate, in a new directory.
fn certificate() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    let made = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
    std::fs::write(&file, made.cert.pem()).unwrap();
    (folder, file.to_str().unwrap().to_owned())
}

#[test]
fn authorities_that_a_client_in_node_trusts_are_trusted_by_wrap() {
    let (_folder, file) = certificate();
    let env = format!(r#""env":{{"NODE_EXTRA_CA_CERTS":{}}}"#, Json::from(&*file));
    let wrapped = |options: &str, url: &str| {
        format!(r#"{{"command":"/opt/milepost","args":["wrap",{options}"{url}"],{env}}}"#)
    };
    let url = "https://127.0.0.1:1/mcp";
    let flags = format!(r#""--ca-file","system","--ca-file",{},"#, Json::from(&*file));
    check(&format!(r#"{{"url":"{url}",{env}}}"#), &wrapped(&flags, url));
    // A URL without TLS does not use the authorities.
    let plain = "http://127.0.0.1:1/mcp";
    check(&format!(r#"{{"url":"{plain}",{env}}}"#), &wrapped("", plain));
}

#[test]
fn authorities_that_wrap_could_not_use_leave_the_entry_alone() {
    let (_folder, file) = certificate();
    for rest in [
        r#""env":{"NODE_EXTRA_CA_CERTS":"/none/ca.pem"}"#,
        r#""env":{"NODE_EXTRA_CA_CERTS":"ca.pem"}"#,
        r#""env":{"NODE_EXTRA_CA_CERTS":"${CA}"}"#,
        r#""env":{"NODE_EXTRA_CA_CERTS":"/dev/null"}"#,
        r#""env":{"NODE_EXTRA_CA_CERTS":1}"#,
        &format!(r#""env":{{"NODE_EXTRA_CA_CERTS":"{file}","A":"b"}}"#),
        &format!(r#""headers":{{"A":"b"}},"env":{{"NODE_EXTRA_CA_CERTS":"{file}"}}"#),
    ] {
        let text = entry(&format!(r#"{{"url":"https://127.0.0.1:1/mcp",{rest}}}"#));
        assert_eq!(wrapped(&text), text);
    }
    // An option that a user has written by hand is not removed.
    let own = entry(
        r#"{"command":"/opt/milepost","args":["wrap","--ca-file","/a.pem","https://127.0.0.1:1/"]}"#,
    );
    assert_eq!(unwrapped(&own), own);
}
