//! The table of clients, its document, and the log's words on calls without a token.

use std::sync::Arc;

use bytes::Bytes;
use milepost::progress::clients::{
    CLIENTS, Client, NAME_MAX, Row, Situation, Support, advice, find, is_orderly,
};
use milepost::progress::{
    Filter, FilterEvent, Policy, StreamId, StreamKind, StreamPacing, Summary,
};
use milepost::protocol::jsonrpc::Message;
use proptest::prelude::*;

use crate::http::serve::proxy::{Proxy, Start};
use crate::http::serve::scripted_server::Upstream;
use crate::support::exchange::Exchange;
use crate::support::home;
use crate::support::session::Session;

/// The text above the table.
const PREFACE: &str = include_str!("clients.md");

/// The messages of a silent server with one call.
const RESULT: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#;

const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work"}}"#;

fn initialize(name: &str, version: &str) -> String {
    serde_json::json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": name, "version": version},
    }})
    .to_string()
}

/// A call of a client of 2026-07-28.
fn modern_call(name: &str) -> String {
    serde_json::json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "work", "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": name, "version": "9"},
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    }})
    .to_string()
}

mod table {
    use super::*;

    fn names(row: &Row) -> String {
        let names: Vec<_> = row.names.iter().map(|name| format!("`{name}`")).collect();
        match row.version {
            None if names.is_empty() => "chosen by its application".to_owned(),
            None => names.join(", "),
            Some(version) => format!("{}, version `{version}`", names.join(", ")),
        }
    }

    fn document() -> String {
        let mut text = PREFACE.to_owned();
        text += "| client | calls itself | sends a token | shows progress | progress resets its timer \
                 | its limits | as of |\n|---|---|---|---|---|---|---|\n";
        for row in CLIENTS {
            let limits = if row.limits.is_empty() { "unknown" } else { row.limits };
            text += &format!(
                "| {} | {} | {} | {} | {} | {limits} | {} |\n",
                row.client,
                names(row),
                row.token,
                row.shows,
                row.resets,
                row.as_of
            );
        }
        text += "\n## What to set\n\n| client | setting |\n|---|---|\n";
        for row in CLIENTS {
            text += &format!("| {} | {} |\n", row.client, row.set);
        }
        text += "\n## What the log says\n\nFor a call without a progress token:\n\n";
        for row in CLIENTS {
            let Some(name) = row.names.first() else { continue };
            let said = advice(name, row.version.unwrap_or_default(), Situation::NoToken);
            text += &format!("- {said}\n");
        }
        text += &format!("- {}. (Any other client.)\n", advice("", "", Situation::NoToken));
        text += "\nFor a call that its client cancelled although it received progress:\n\n";
        for row in CLIENTS {
            let asks = row.token != Support::No;
            let Some(name) = row.names.first().filter(|_| asks) else { continue };
            let said = advice(name, row.version.unwrap_or_default(), Situation::GivenUp);
            if said.waits_a_fixed_time() {
                text += &format!("- {said}\n");
            }
        }
        text
    }

    #[test]
    fn the_document_is_made_from_the_table() {
        let path = home().join("docs/clients.md");
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&path, document()).unwrap();
        }
        let stored = std::fs::read_to_string(&path).unwrap();
        assert_eq!(stored, document(), "docs/clients.md: run with UPDATE_EXPECT=1");
    }

    #[test]
    fn each_row_is_found_by_each_of_its_names() {
        for row in CLIENTS {
            for name in row.names {
                let version = row.version.unwrap_or("1.2.3");
                let found = find(name, version).map(|found| found.client);
                assert_eq!(found, Some(row.client), "{name}");
                assert_eq!(is_orderly(name, version), row.orderly, "{name}");
                assert_eq!(Client::new(name, "").unwrap().name(), *name, "it is cut");
            }
        }
    }

    #[test]
    fn rows_are_in_order_and_whole() {
        let names: Vec<_> = CLIENTS.iter().map(|row| row.client.to_lowercase()).collect();
        assert!(names.is_sorted(), "{names:?}");
        for row in CLIENTS {
            assert!(row.set.ends_with('.') && !row.set.contains('\n'), "{}", row.client);
            assert!(row.as_of.split(' ').nth(1).is_some_and(|year| year.starts_with("20")));
            // Without a progress token, no notification can reset a timer.
            assert!(row.token != Support::No || row.resets == Support::No, "{}", row.client);
        }
    }

    #[test]
    fn other_spellings_and_names_around_it_are_found() {
        for (name, client) in [
            ("Visual Studio Code - Insiders", "VS Code"),
            ("Visual-Studio-Code", "VS Code"),
            ("claude-code (via mcp-remote 0.1.37)", "Claude Code"),
            ("gemini-cli-mcp-client-github", "Gemini CLI"),
            ("spring-ai-mcp-client - reports", "Spring AI"),
            ("Roo-Code", "Roo Code"),
            ("CLINE", "Cline"),
            ("goose_cli", "goose"),
        ] {
            let found = find(name, "1").map(|row| row.client);
            assert_eq!(found, Some(client), "{name}");
        }
    }

    #[test]
    fn parts_of_words_and_common_words_are_not() {
        for name in
            ["", "mcp", "my-mcp-client", "claude", "visual", "decline", "zedd", "code", "MCP"]
        {
            assert!(find(name, "1").is_none(), "{name}");
        }
        assert!(find("mcp", "0.1.0").is_some());
        assert!(find("my-mcp", "0.1.0").is_none());
    }

    #[test]
    fn only_the_very_name_spares_a_client_the_pacing() {
        assert!(is_orderly("codex-mcp-client", "0.154.0"));
        assert!(is_orderly("mcp", "0.1.0"));
        for name in ["Codex-MCP-Client", "codex-mcp-client (via mcp-remote 0.1.37)", "rmcp 2", ""] {
            assert!(!is_orderly(name, "1"), "{name}");
        }
        assert!(!is_orderly("mcp", "1.0.0"));
    }
}

mod names {
    use super::*;

    #[test]
    fn a_name_is_one_line_of_plain_text() {
        let client = Client::new(" a\nb\u{1b}[31m\u{202e} ", "1\r\n").unwrap();
        assert_eq!(client.name(), "a\u{fffd}b\u{fffd}[31m\u{fffd}");
        assert_eq!(client.to_string(), "a\u{fffd}b\u{fffd}[31m\u{fffd} 1");
        assert!(Client::new(" \t", "1").is_none());
        assert_eq!(Client::new("a", "").unwrap().to_string(), "a");
    }

    proptest! {
        #[test]
        fn no_name_breaks_a_log_or_fills_it(name in "\\PC*|(?s:.{0,300})", version in any::<String>()) {
            if let Some(client) = Client::new(&name, &version) {
                let shown = client.to_string();
                prop_assert!(!shown.chars().any(char::is_control), "{shown:?}");
                prop_assert!(shown.chars().count() <= 2 * NAME_MAX + 1, "{shown:?}");
                // A client that is read from its own name and version is equal to itself.
                prop_assert_eq!(Client::new(client.name(), client.version()), Some(client));
            }
            find(&name, &version);
            let said = advice(&name, &version, Situation::NoToken).to_string();
            prop_assert!(!said.is_empty());
        }
    }
}

mod in_the_filter {
    use super::*;

    const WIRE: StreamId = StreamId(0);

    struct Talk(Filter);

    impl Talk {
        fn new(policy: Policy) -> Self {
            let mut filter = Filter::new(policy);
            filter.open_stream(WIRE, StreamKind::Shared, StreamPacing::Immediate);
            Self(filter)
        }

        fn client(&mut self, text: &str) {
            let message = Message::parse(Bytes::copy_from_slice(text.as_bytes()));
            self.0.client_message(std::time::Instant::now(), WIRE, &message);
        }

        /// The server is gone: how each call ended.
        fn ended(&mut self) -> Vec<Summary> {
            self.0.server_gone(std::time::Instant::now(), "gone", None);
            let records = std::iter::from_fn(|| self.0.poll_event());
            let summary = |record| match record {
                FilterEvent::Call(summary) => Some(*summary),
                _ => None,
            };
            records.filter_map(summary).collect()
        }
    }

    fn client_of(summary: &Summary) -> String {
        summary.client.as_ref().map(ToString::to_string).unwrap_or_default()
    }

    #[test]
    fn a_call_lacks_a_token_only_if_none_was_given() {
        for (meta, lacks) in [
            (r#","_meta":{}"#, true),
            ("", true),
            (r#","_meta":{"progressToken":0}"#, false),
            (r#","_meta":{"progressToken":""}"#, false),
            // The request has a token, but in a form that progress cannot use.
            (r#","_meta":{"progressToken":1.5}"#, false),
        ] {
            let mut talk = Talk::new(Policy::default());
            talk.client(&CALL.replace("}}", &format!("{meta}}}}}")));
            assert_eq!(talk.ended()[0].lacks_token, lacks, "{meta}");
        }
        let mut talk = Talk::new(Policy::default());
        talk.client(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
        assert!(!talk.ended()[0].lacks_token);
    }

    #[test]
    fn the_client_of_initialize_is_that_of_each_call() {
        let mut talk = Talk::new(Policy::default());
        talk.client(&initialize("a", "1"));
        talk.client(CALL);
        let ended = talk.ended();
        assert_eq!(ended.iter().map(client_of).collect::<Vec<_>>(), ["a 1", "a 1"]);
        let [first, second] = [0, 1].map(|at: usize| ended[at].client.clone().unwrap());
        assert!(Arc::ptr_eq(&first, &second), "one copy is enough");
    }

    #[test]
    fn clients_that_share_a_server_speak_for_themselves() {
        let mut talk = Talk::new(Policy { id_mapping: true, ..Policy::default() });
        talk.client(&initialize("a", "1"));
        talk.client(&modern_call("b"));
        talk.client(&CALL.replace(r#""id":1"#, r#""id":2"#));
        let clients: Vec<_> = talk.ended().iter().map(client_of).collect();
        assert_eq!(clients, ["", "b 9", ""]);
    }
}

mod in_the_log {
    use super::*;

    /// A server that answers `initialize` and then each call of `work`.
    const SERVER: &str = r#"
        while read -r line; do
            case $line in
                *initialize*) echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}' ;;
                *work*) echo '{"jsonrpc":"2.0","id":1,"result":{"content":[]}}' ;;
            esac
        done"#;

    fn told(session: &mut Session, line: &str) {
        session.tell(line);
        session.line();
    }

    #[test]
    fn a_client_without_tokens_is_advised_once_and_counted_each_time() {
        let mut session = Session::sh(SERVER);
        told(&mut session, &initialize("@librechat/api-client", "1.2.3"));
        for _ in 0..3 {
            told(&mut session, CALL);
        }
        let (_, _, log) = session.finish();
        let said = log.lines().filter(|line| line.contains("sends no progress tokens"));
        let said: Vec<_> = said.collect();
        assert_eq!(said.len(), 1, "{log}");
        assert!(said[0].contains("Set `timeout` (ms) of the server in `librechat.yaml`."), "{log}");
        assert!(said[0].contains("client=\"@librechat/api-client 1.2.3\""), "{log}");
        let over = log.lines().find(|line| line.contains("connection over")).unwrap();
        assert!(over.contains("without_token=3"), "{over}");
        assert!(over.contains("client=\"@librechat/api-client 1.2.3\""), "{over}");
    }

    #[test]
    fn a_client_that_asks_for_progress_is_not_advised() {
        let mut session = Session::sh(SERVER);
        told(&mut session, &initialize("codex-mcp-client", "0.154.0"));
        session.call("1", Some("1"), "work", "{}");
        session.line();
        let (_, _, log) = session.finish();
        assert!(!log.contains("As of") && !log.contains("without_token="), "{log}");
    }

    #[test]
    fn a_client_that_nobody_knows_gets_general_advice() {
        let mut session = Session::sh(SERVER);
        told(&mut session, &initialize("evil\u{1b}[2J\nname", &"9".repeat(10_000)));
        told(&mut session, CALL);
        let (_, _, log) = session.finish();
        assert!(log.contains("this client has sent no progress token"), "{log}");
        assert!(!log.contains('\u{1b}') && !log.contains(&"9".repeat(100)), "{log}");
    }

    #[test]
    fn a_client_that_gives_up_what_it_is_told_of_is_advised_if_that_is_known_of_it() {
        for (name, said) in [("codex-mcp-client", true), ("claude-code", false)] {
            let options = ["--heartbeat-after", "50ms", "--heartbeat-every", "50ms"];
            let mut session = Session::wrap(&options, &["sh", "-c", SERVER]);
            told(&mut session, &initialize(name, "1"));
            session.call("2", Some("2"), "sleep", "{}");
            session.lines_until("notifications/progress");
            session.tell(
                r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#,
            );
            let (_, _, log) = session.finish();
            assert_eq!(log.contains("`tool_timeout_sec`"), said, "{log}");
        }
    }

    /// Posts to the route and lets the server answer with this.
    fn exchange(proxy: &Proxy, upstream: &Upstream, session: &str, body: &str, answer: &str) {
        let headers = [
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-session-id", session),
        ];
        let headers = if session.is_empty() { &headers[..2] } else { &headers };
        let mut asked = Exchange::send(proxy.address(), "POST", "/a", headers, body);
        let named = body.contains("\"initialize\"").then(|| {
            format!("mcp-session-id: {}\r\n", if body.contains("Cline") { "one" } else { "two" })
        });
        let headers = format!("content-type: application/json\r\n{}", named.unwrap_or_default());
        upstream.asked().answer("200 OK", &headers, answer);
        assert_eq!(asked.status(), 200);
        asked.rest();
    }

    #[test]
    fn over_http_each_session_has_its_client() {
        let upstream = Upstream::start();
        let proxy =
            Proxy::with(&Start::default(), &format!("upstream.url = \"{}\"", upstream.url()));
        let begun = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}"#;
        exchange(&proxy, &upstream, "", &initialize("Cline", "3.1"), begun);
        exchange(&proxy, &upstream, "", &initialize("Zed", "0.200"), begun);
        for session in ["one", "two", "two", "one"] {
            exchange(&proxy, &upstream, session, CALL, RESULT);
        }
        // The sessions of these clients were not seen to begin; the last request names its client itself.
        exchange(&proxy, &upstream, "three", CALL, RESULT);
        exchange(&proxy, &upstream, "", CALL, RESULT);
        exchange(&proxy, &upstream, "", &modern_call("ai-sdk-mcp-client"), RESULT);
        proxy.logged(&["client=\"Cline 3.1\"", "`cline_mcp_settings.json`"]);
        proxy.logged(&["client=\"Zed 0.200\"", "`context_server_timeout`"]);
        proxy.logged(&["client=\"unknown\"", "this client has sent no progress token"]);
        proxy.logged(&["client=\"ai-sdk-mcp-client 9\"", "AI SDK sends no progress tokens"]);
        let log = proxy.log();
        let advised = log.lines().filter(|line| line.contains("no progress token"));
        assert_eq!(advised.count(), 4, "{log}");
    }
}
