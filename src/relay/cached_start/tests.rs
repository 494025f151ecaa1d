//! Tests of the answers of the last start, message by message.

use std::path::Path;

use super::*;
use crate::transport::child::{KeptStarts, Program};

const INITIALIZE: &str =
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#;
const STARTED: &str = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"prompts":{}}}}"#;
const TOOLS: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

/// A start of a server: the part between the client and the server's pipe.
struct Start(CachedStart);

impl Start {
    fn new(folder: &Path) -> Self {
        Self::of(folder, Some("ada"))
    }

    fn of(folder: &Path, principal: Option<&str>) -> Self {
        let command = vec!["server".into()];
        let principal = principal.map(str::to_owned);
        let starts = KeptStarts { folder: folder.to_owned(), principal, scope: Vec::new() };
        let program = Program { command, starts: Some(starts), ..Program::default() };
        Self(CachedStart::new(StartStore::of(&program).unwrap()))
    }

    /// Passes a message of the client. Returns whether the server gets it now.
    fn client(&mut self, text: &str) -> bool {
        let message = Message::parse(Bytes::copy_from_slice(text.as_bytes()));
        self.0.note_sent(Some(&message), &Payload::of(&message))
    }

    /// Passes a message of the server. Returns whether the client gets it.
    fn server(&mut self, text: &str) -> bool {
        let message = Message::parse(Bytes::copy_from_slice(text.as_bytes()));
        let from = FromServer::Message(crate::progress::Origin::Shared, message);
        self.0.intercept(from).is_some()
    }

    /// Returns what the client gets in the server's place.
    fn own(&mut self) -> Vec<String> {
        let own = std::iter::from_fn(|| self.0.next_own());
        own.map(|message| String::from_utf8_lossy(message.raw()).into_owned()).collect()
    }

    /// Returns the messages that no longer wait.
    fn released(&mut self) -> Vec<String> {
        let held = std::iter::from_fn(|| self.0.release());
        held.filter_map(|held| match held {
            HeldMessage::Whole(whole) => {
                Some(String::from_utf8_lossy(&whole.1.to_bytes()).into_owned())
            }
            _ => None,
        })
        .collect()
    }
}

fn tools(names: &[&str]) -> String {
    let tools: Vec<String> = names.iter().map(|name| format!(r#"{{"name":"{name}"}}"#)).collect();
    format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"tools":[{}]}}}}"#, tools.join(","))
}

/// Runs a first start, which forwards all messages.
fn first_start(folder: &Path) {
    let mut start = Start::new(folder);
    assert!(start.client(INITIALIZE) && start.server(STARTED));
    assert!(start.client(TOOLS) && start.server(&tools(&["a"])));
    assert!(start.own().is_empty());
}

#[test]
fn the_second_start_is_answered_at_once_and_the_server_gets_every_request() {
    let folder = tempfile::tempdir().unwrap();
    first_start(folder.path());
    let mut start = Start::new(folder.path());
    assert!(start.client(INITIALIZE));
    let own = start.own();
    assert!(
        own.len() == 1 && own[0].contains(r#""id":0,"result""#) && own[0].contains("2025-06-18")
    );
    let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let call = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a"}}"#;
    let ping = r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#;
    for message in [initialized, TOOLS, call, ping] {
        assert!(!start.client(message), "{message}");
    }
    let ponged = r#"{"jsonrpc":"2.0","id":3,"result":{}}"#;
    assert_eq!(start.own(), [tools(&["a"]), ponged.to_owned()]);
    assert!(start.0.is_holding() && start.released().is_empty());
    // The server has started: the client already has this answer, and the waiting messages are released.
    assert!(!start.server(STARTED));
    assert_eq!(start.released(), [initialized, TOOLS, call]);
    assert!(!start.server(&tools(&["a"])));
    assert!(start.own().is_empty());
    assert!(start.server(r#"{"jsonrpc":"2.0","id":2,"result":{"content":[]}}"#));
}

#[test]
fn a_list_that_differs_is_said_by_a_notification() {
    let folder = tempfile::tempdir().unwrap();
    first_start(folder.path());
    let mut start = Start::new(folder.path());
    start.client(INITIALIZE);
    start.client(TOOLS);
    start.own();
    start.server(STARTED);
    start.released();
    assert!(!start.server(&tools(&["a", "b"])));
    assert_eq!(start.own(), [r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#]);
    // The third start has the new list.
    let mut third = Start::new(folder.path());
    third.client(INITIALIZE);
    third.client(TOOLS);
    assert_eq!(third.own()[1], tools(&["a", "b"]));
}

#[test]
fn a_list_without_list_changed_and_a_page_are_the_servers() {
    let folder = tempfile::tempdir().unwrap();
    first_start(folder.path());
    let mut start = Start::new(folder.path());
    start.client(INITIALIZE);
    start.own();
    start.client(r#"{"jsonrpc":"2.0","id":4,"method":"prompts/list"}"#);
    start.client(r#"{"jsonrpc":"2.0","id":5,"method":"tools/list","params":{"cursor":"x"}}"#);
    assert!(start.own().is_empty());
}

#[test]
fn another_server_gets_its_client_to_connect_again() {
    let folder = tempfile::tempdir().unwrap();
    first_start(folder.path());
    let mut start = Start::new(folder.path());
    start.client(INITIALIZE);
    start.client(r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a"}}"#);
    start.own();
    let other = STARTED.replace("2025-06-18", "2025-03-26");
    assert!(!start.server(&other));
    assert!(start.released().is_empty());
    let own = start.own();
    assert!(own.len() == 1 && own[0].contains(r#""id":2,"error""#) && own[0].contains("connect"));
    assert!(!start.client(r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#));
    assert!(start.own()[0].contains(r#""id":3,"error""#));
    // The answers are forgotten, so the next start is handled as a first start.
    let mut next = Start::new(folder.path());
    assert!(next.client(INITIALIZE) && next.own().is_empty());
}

const CALL: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"login"}}"#;

/// Starts the server for a client of `principal`, which sends `first` before it requests the list.
fn start_with(folder: &Path, principal: Option<&str>, first: &str) {
    let mut start = Start::of(folder, principal);
    assert!(start.client(INITIALIZE) && start.server(STARTED));
    assert!(start.client(first) && start.client(TOOLS) && start.server(&tools(&["of-ada"])));
}

/// Returns the list that a new client gets in the server's place.
fn list_for(folder: &Path, principal: Option<&str>) -> Option<String> {
    let mut start = Start::of(folder, principal);
    start.client(INITIALIZE);
    assert_eq!(start.own().len(), 1, "the client gets the answer to `initialize`");
    start.client(TOOLS);
    start.own().pop()
}

#[test]
fn what_a_client_made_of_its_list_is_kept_for_nobody_else() {
    let roots = r#"{"jsonrpc":"2.0","id":9,"result":{"roots":[{"uri":"file:///home/ada"}]}}"#;
    let listed =
        r#"{"jsonrpc":"2.0","id":8,"method":"tools/list","params":{"_meta":{"user":"ada"}}}"#;
    let level = r#"{"jsonrpc":"2.0","id":8,"method":"logging/setLevel","params":{"level":"info"}}"#;
    for first in [CALL, roots, listed, level, "[]", "{"] {
        let folder = tempfile::tempdir().unwrap();
        start_with(folder.path(), None, first);
        assert_eq!(list_for(folder.path(), None), None, "{first}");
    }
    // The same principal gets its own list.
    let folder = tempfile::tempdir().unwrap();
    start_with(folder.path(), Some("ada"), CALL);
    assert_eq!(list_for(folder.path(), Some("ada")), Some(tools(&["of-ada"])));
}

#[test]
fn the_list_of_an_untouched_server_is_everybodys() {
    let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let folder = tempfile::tempdir().unwrap();
    start_with(folder.path(), None, initialized);
    assert_eq!(list_for(folder.path(), None), Some(tools(&["of-ada"])));
    // The list that came after a call is not stored, and the outdated list is removed.
    let mut start = Start::of(folder.path(), None);
    start.client(INITIALIZE);
    start.server(STARTED);
    start.client(CALL);
    start.client(TOOLS);
    assert!(start.server(&tools(&["of-eve"])));
    assert_eq!(list_for(folder.path(), None), None);
}
