//! A conversation with a clock that tests move, and a record of its output.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use milepost_core::conversation::{Conversation, ConversationEvent, Output};
use milepost_core::progress::{Policy, StreamId};

/// A conversation, and a record of its output.
pub(super) struct Embedded {
    pub(super) conversation: Conversation,
    pub(super) to_client: BTreeMap<StreamId, Vec<Bytes>>,
    pub(super) to_server: Vec<(StreamId, Bytes)>,
    pub(super) events: Vec<ConversationEvent>,
    /// The time that the last timeout asked for.
    pub(super) due: Option<Instant>,
    start: Instant,
    now: Duration,
}

impl Embedded {
    pub(super) fn new(policy: Policy) -> Self {
        Self {
            conversation: Conversation::new(policy),
            to_client: BTreeMap::new(),
            to_server: Vec::new(),
            events: Vec::new(),
            due: None,
            start: Instant::now(),
            now: Duration::ZERO,
        }
    }

    pub(super) fn now(&self) -> Instant {
        self.start + self.now
    }

    /// Gives the conversation an input, and does what it asks for.
    pub(super) fn put(&mut self, input: impl FnOnce(&mut Conversation, Instant)) {
        let now = self.now();
        input(&mut self.conversation, now);
        self.drain();
        // The bytes of the last output have been written by now.
        while self.due.is_some_and(|at| at <= now) {
            self.conversation.tick(now);
            self.drain();
        }
    }

    pub(super) fn client(&mut self, text: &str) {
        self.put(|conversation, now| conversation.client(now, text.as_bytes()));
    }

    pub(super) fn server(&mut self, text: &str) {
        self.put(|conversation, now| conversation.server(now, text.as_bytes()));
    }

    /// Lets time pass, and calls the conversation whenever a timeout asks for that.
    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.due.map(|at| at - self.start).filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.put(|conversation, now| conversation.tick(now));
        }
        self.now = end;
        self.put(|conversation, now| conversation.tick(now));
    }

    fn drain(&mut self) {
        loop {
            match self.conversation.poll() {
                Output::ToClient(stream, bytes) => {
                    self.to_client.entry(stream).or_default().push(bytes);
                }
                Output::ToServer(stream, bytes) => self.to_server.push((stream, bytes)),
                Output::Event(event) => self.events.push(event),
                Output::Timeout(at) => return self.due = at,
            }
        }
    }

    /// Returns everything that was written to a client stream since the last call.
    pub(super) fn told(&mut self, stream: u64) -> String {
        let told = self.to_client.remove(&StreamId(stream)).unwrap_or_default();
        String::from_utf8(told.concat()).unwrap()
    }

    /// Returns everything that was written to the server for this client stream since the last call.
    pub(super) fn asked(&mut self, stream: StreamId) -> String {
        let own = self.to_server.extract_if(.., |(of, _)| *of == stream);
        let own: Vec<Bytes> = own.map(|(_, bytes)| bytes).collect();
        String::from_utf8(own.concat()).unwrap()
    }
}

/// Returns a tool call with this id and token.
pub(super) fn call(id: u64) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"scan","_meta":{{"progressToken":"t{id}"}}}}}}"#
    )
}

/// Returns progress in the form of older servers, with a method of their own.
pub(super) fn legacy(id: u64, percent: u64) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"tools/progress","params":{{"token":"t{id}","percent":{percent}}}}}"#
    )
}

/// Returns progress in the form of the specification.
pub(super) fn progress(id: u64, percent: u64) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":"t{id}","progress":{percent},"total":100}}}}"#
    )
}

/// Returns the answer to the call with this id.
pub(super) fn answer(id: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[]}}}}"#)
}
