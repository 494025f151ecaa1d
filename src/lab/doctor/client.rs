//! A plain client that begins a session, lists tools, calls them, and records the messages.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use litemap::LiteMap;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::legible::Legible;
use super::link::{Arrival, Link, TimedArrival};
use super::required_arguments::RequiredArguments;
use super::traffic::{TrafficEntry, TrafficEvent, TrafficStream};
use super::trouble::Trouble;
use crate::protocol::jsonrpc::{Key, Kind, METHOD_NOT_FOUND, Message, error_answer};
use crate::protocol::mcp::{
    DISCOVER, INITIALIZE, INITIALIZED, META_CAPABILITIES, META_CLIENT, META_REVISION, TOOLS_LIST,
};

/// Maximum number of traffic events that `doctor` keeps. A server can send thousands for one call; later events are not
/// examined.
const ENTRIES_MAX: usize = 100_000;

/// Maximum number of bytes of messages that `doctor` keeps.
const BYTES_MAX: usize = 128 << 20;

/// Maximum number of pages of the list of tools that `doctor` requests.
const PAGES_MAX: usize = 100;

/// Deadline for the head of the GET stream, on which progress may arrive.
const GET_HEAD: Duration = Duration::from_secs(2);

/// The time after which the proxy has certainly opened the GET stream itself. It waits 2 s for the client to open it,
/// which this client does not do.
const GET_ELSEWHERE: Duration = Duration::from_millis(2500);

/// Deadline for the server to send the `endpoint` event of HTTP+SSE.
const ENDPOINT_WAIT: Duration = Duration::from_secs(5);

/// The number of last lines of standard error that are shown for a server that has ended.
const LAST_WORDS: usize = 3;

/// A session with a server, and the messages seen so far.
pub(in crate::lab) struct DoctorClient {
    pub(in crate::lab) link: Link,
    began: Instant,
    pub(in crate::lab) entries: Vec<TrafficEntry>,
    bytes: usize,
    /// The id of the next request. It begins with 0 for `initialize`, as in clients of the SDKs.
    pub(super) next_id: u64,
    /// The name that the client gives itself.
    name: String,
    pub(super) timeout: Duration,
    /// Answers to this client's requests that have not been taken yet.
    answers: LiteMap<u64, Message>,
    /// The answers that a caller has taken.
    seen_answers: BTreeSet<u64>,
    /// The failures in place of an answer.
    failures: LiteMap<Option<u64>, String>,
    /// Facts from the heads of responses: whether the GET stream has arrived, and the last session id.
    get_head: bool,
    session: Option<HeaderValue>,
    closed: bool,
    has_endpoint: bool,
    /// The revision that each request names (2026-07-28).
    modern: Option<&'static str>,
    /// The tools that only read, according to the server's annotation `readOnlyHint`.
    read_only: BTreeSet<String>,
    /// The arguments that the listed tools require.
    pub(super) required: RequiredArguments,
    last_errors: Vec<String>,
    /// Whether the client opens a GET stream.
    pub(super) listens: bool,
}

impl DoctorClient {
    pub(in crate::lab) fn new(link: Link, name: &str, timeout: Duration) -> Self {
        Self {
            link,
            began: Instant::now(),
            entries: Vec::new(),
            bytes: 0,
            next_id: 0,
            name: name.to_owned(),
            timeout,
            answers: LiteMap::new(),
            seen_answers: BTreeSet::new(),
            failures: LiteMap::new(),
            get_head: false,
            session: None,
            closed: false,
            has_endpoint: false,
            modern: None,
            read_only: BTreeSet::new(),
            required: RequiredArguments::default(),
            last_errors: Vec::new(),
            listens: true,
        }
    }

    fn us(&self) -> Value {
        json!({ "name": self.name, "version": env!("CARGO_PKG_VERSION") })
    }

    fn keep(&mut self, at: Instant, what: TrafficEvent) {
        let length = match &what {
            TrafficEvent::Sent(message) | TrafficEvent::Received { message, .. } => {
                message.raw().len()
            }
            TrafficEvent::Noise(text) => text.len(),
            TrafficEvent::Stderr(line) => line.len(),
            TrafficEvent::Head(_) | TrafficEvent::Over(_) => 0,
        };
        if self.entries.len() < ENTRIES_MAX && self.bytes + length <= BYTES_MAX {
            self.bytes += length;
            let at = at.saturating_duration_since(self.began);
            self.entries.push(TrafficEntry { at, what });
        }
    }

    /// Reads the next arrival until `deadline`. Returns whether something arrived.
    async fn step(&mut self, deadline: Instant) -> bool {
        let Some(arrived) = self.link.next(deadline).await else { return false };
        if self.closed && matches!(arrived.what, Arrival::Closed) {
            return false;
        }
        self.take(arrived).await;
        true
    }

    async fn take(&mut self, TimedArrival { at, what }: TimedArrival) {
        match what {
            Arrival::Seen(what) => self.see(at, what).await,
            Arrival::Head(stream, session) => {
                self.get_head |= stream == TrafficStream::Get;
                self.session = session.or_else(|| self.session.take());
                self.keep(at, TrafficEvent::Head(stream));
            }
            Arrival::Failed(stream, why) => {
                let id = match stream {
                    TrafficStream::Post(id) => id,
                    TrafficStream::Get => {
                        self.get_head = true;
                        return;
                    }
                    TrafficStream::Shared => {
                        self.closed = true;
                        None
                    }
                };
                self.failures.insert(id, why);
            }
            Arrival::Closed => self.closed = true,
        }
    }

    async fn see(&mut self, at: Instant, what: TrafficEvent) {
        match &what {
            TrafficEvent::Received { event: Some(name), message, .. } if name == "endpoint" => {
                let web = self.link.web().filter(|web| web.is_sse);
                self.has_endpoint |= web.is_some_and(|web| web.set_endpoint(message.raw()));
                return;
            }
            TrafficEvent::Received { message, .. } if !Legible::is_message(message) => {
                return self.keep(at, TrafficEvent::Noise(message.raw().clone()));
            }
            TrafficEvent::Received { message, .. } => {
                // A faulty message is a finding, but no reason to stop.
                for message in Legible::of(message).messages {
                    self.receive(&message).await;
                    for element in message.elements() {
                        self.receive(&element).await;
                    }
                }
            }
            TrafficEvent::Stderr(line) => {
                if self.last_errors.len() >= LAST_WORDS {
                    self.last_errors.remove(0);
                }
                self.last_errors.push(super::findings::shown(line.as_bytes()));
            }
            TrafficEvent::Over(TrafficStream::Post(Some(id)))
                if !self.answers.contains_key(id) && !self.seen_answers.contains(id) =>
            {
                let why = self.unanswered(TrafficStream::Post(Some(*id)));
                self.failures.insert(Some(*id), why);
            }
            _ => {}
        }
        self.keep(at, what);
    }

    /// Describes a response that has ended without an answer.
    fn unanswered(&self, stream: TrafficStream) -> String {
        let said = self.entries.iter().rev().find_map(|entry| match &entry.what {
            TrafficEvent::Received { stream: on, message, .. } if *on == stream => {
                Some(message.raw())
            }
            _ => None,
        });
        let said =
            said.map(|text| format!("; its last message was {}", super::findings::shown(text)));
        format!("the response ended without the answer{}", said.unwrap_or_default())
    }

    /// Answers the server's requests, and keeps the server's answers for [`Self::wait`].
    async fn receive(&mut self, message: &Message) {
        match message.kind() {
            Kind::Response => {
                let id = match message.id_key() {
                    Some(Key::Integer(id)) => u64::try_from(id).ok(),
                    Some(Key::Text(id)) => str::from_utf8(&id).ok().and_then(|id| id.parse().ok()),
                    _ => None,
                };
                // An answer that matches no request is judged elsewhere, and not kept here.
                if let Some(id) = id.filter(|id| *id < self.next_id) {
                    self.answers.entry(id).or_insert_with(|| message.clone());
                }
            }
            Kind::Request => {
                let Some(id) = message.id() else { return };
                let answer = if message.method().as_deref() == Some("ping") {
                    [br#"{"jsonrpc":"2.0","id":"#, &id[..], br#","result":{}}"#].concat().into()
                } else {
                    error_answer(&id, METHOD_NOT_FOUND, "this client only looks", None)
                };
                let _ = self.link.send_message(&Message::parse(answer)).await;
            }
            _ => {}
        }
    }

    /// Sends a request, and returns its id.
    pub(in crate::lab) async fn ask(
        &mut self,
        method: &str,
        params: Value,
    ) -> Result<u64, Trouble> {
        let mut params = params;
        if let Some(revision) = self.modern {
            let us = self.us();
            let meta = &mut params["_meta"];
            meta[META_REVISION] = revision.into();
            meta[META_CLIENT] = us;
            meta[META_CAPABILITIES] = json!({});
        }
        let id = self.next_id;
        self.next_id += 1;
        let text = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.send(text).await?;
        Ok(id)
    }

    pub(in crate::lab) async fn send(&mut self, text: Value) -> Result<(), Trouble> {
        let message = Message::parse(Bytes::from(text.to_string()));
        self.keep(Instant::now(), TrafficEvent::Sent(message.clone()));
        match self.link.send_message(&message).await {
            Ok(()) => Ok(()),
            Err(why) => {
                self.drain(Duration::from_millis(200)).await;
                Err(self.ended().await.unwrap_or(Trouble::Failed(why)))
            }
        }
    }

    /// Returns the failure that describes how the server ended, if it has ended.
    async fn ended(&mut self) -> Option<Trouble> {
        if !self.closed {
            return None;
        }
        if let Some(why) = self.failures.get(&None) {
            return Some(Trouble::Failed(why.clone()));
        }
        let exit = self.link.exit().await.map(|exit| format!(" ({exit})")).unwrap_or_default();
        let words = match &self.last_errors[..] {
            [] => String::new(),
            lines => format!("; its last words: {}", lines.join(" | ")),
        };
        Some(Trouble::Ended(exit + &words))
    }

    /// Waits for the answers to these requests; a missing answer is an error.
    pub(in crate::lab) async fn wait(
        &mut self,
        ids: &[u64],
        patience: Duration,
    ) -> Result<(), Trouble> {
        let deadline = Instant::now() + patience;
        loop {
            if ids.iter().all(|id| self.answers.contains_key(id)) {
                return Ok(());
            }
            let failure = ids.iter().find_map(|id| self.failures.remove(&Some(*id)));
            if let Some(why) = failure {
                return Err(Trouble::Failed(why));
            }
            if self.closed {
                // Read what is still arriving, for example on standard error.
                self.drain(Duration::from_millis(100)).await;
                if ids.iter().all(|id| self.answers.contains_key(id)) {
                    return Ok(());
                }
                return Err(self.ended().await.unwrap_or(Trouble::Silent(patience)));
            }
            if !self.step(deadline).await || Instant::now() >= deadline {
                // Record that the conversation lasted until now, so that the silence at its end is counted.
                self.keep(Instant::now(), TrafficEvent::Over(TrafficStream::Shared));
                return Err(Trouble::Silent(patience));
            }
        }
    }

    /// Reads what arrives during the given time.
    pub(in crate::lab) async fn drain(&mut self, time: Duration) {
        let deadline = Instant::now() + time;
        // The time is limited, because some servers never pause.
        while Instant::now() < deadline && self.step(deadline).await {}
    }

    /// Sends a request, and returns its result.
    async fn request(&mut self, method: &str, params: Value) -> Result<Value, Trouble> {
        let patience = self.timeout;
        self.request_within(method, params, patience).await
    }

    async fn request_within(
        &mut self,
        method: &str,
        params: Value,
        patience: Duration,
    ) -> Result<Value, Trouble> {
        let id = self.ask(method, params).await?;
        self.wait(&[id], patience).await?;
        let Some(answer) = self.answers.remove(&id) else {
            return Err(Trouble::Silent(patience));
        };
        self.seen_answers.insert(id);
        match answer.result() {
            Some(result) => Ok(serde_json::from_slice(&result).unwrap_or_default()),
            None => {
                let method = method.to_owned();
                Err(Trouble::Refused { method, answer })
            }
        }
    }

    /// Waits for the `endpoint` event, if the transport is HTTP+SSE.
    pub(super) async fn attach(&mut self) -> Result<(), Trouble> {
        if !self.link.web().is_some_and(|web| web.is_sse) {
            return Ok(());
        }
        self.link.listen();
        let deadline = Instant::now() + ENDPOINT_WAIT;
        while !self.has_endpoint {
            if let Some(why) = self.failures.get(&None) {
                return Err(Trouble::Failed(why.clone()));
            }
            if self.closed || Instant::now() >= deadline || !self.step(deadline).await {
                let why = "it names no endpoint (an `endpoint` event) on its stream";
                return Err(Trouble::Failed(why.to_owned()));
            }
        }
        Ok(())
    }

    /// Begins a session in a revision up to 2025-11-25, and returns the server's answer.
    pub(in crate::lab) async fn initialize(&mut self, revision: &str) -> Result<Value, Trouble> {
        self.attach().await?;
        let us = self.us();
        let params = json!({ "protocolVersion": revision, "capabilities": {}, "clientInfo": us });
        let said = self.request(INITIALIZE, params).await?;
        let agreed = said["protocolVersion"].as_str().unwrap_or_default().to_owned();
        let session = self.session.clone();
        if let Some(web) = self.link.web() {
            web.session = session;
            // Older servers do not know this header.
            let knows = *agreed >= *"2025-06-18";
            web.revision = HeaderValue::try_from(&agreed).ok().filter(|_| knows);
        }
        self.send(json!({ "jsonrpc": "2.0", "method": INITIALIZED })).await?;
        if self.listens && self.link.web().is_some_and(|web| !web.is_sse) {
            self.link.listen();
            let deadline = Instant::now() + GET_HEAD;
            while !self.get_head && Instant::now() < deadline && self.step(deadline).await {}
        } else if !self.listens {
            self.drain(GET_ELSEWHERE).await;
        }
        Ok(said)
    }

    /// Sends `server/discover`, as a client of 2026-07-28 begins, to ask whether the server supports that revision.
    pub(in crate::lab) async fn discover(
        &mut self,
        revision: &'static str,
        patience: Duration,
    ) -> Result<Value, Trouble> {
        self.attach().await?;
        self.modern = Some(revision);
        if let Some(web) = self.link.web() {
            web.revision = HeaderValue::try_from(revision).ok();
        }
        let params = json!({ "_meta": {} });
        self.request_within(DISCOVER, params, patience).await
    }

    /// Returns the names of all tools.
    pub(in crate::lab) async fn tools(&mut self) -> Result<Vec<String>, Trouble> {
        let mut names = Vec::new();
        let mut cursor = Value::Null;
        for _ in 0..PAGES_MAX {
            let mut params = json!({});
            if !cursor.is_null() {
                params["cursor"] = cursor;
            }
            let page = self.request(TOOLS_LIST, params).await?;
            names.extend(tool_names(&page));
            self.read_only.extend(tools_that_read(&page));
            self.required.note(&page);
            cursor = page["nextCursor"].clone();
            if !cursor.is_string() {
                break;
            }
        }
        Ok(names)
    }

    /// Whether a listed tool only reads, according to the server.
    pub(super) fn only_reads(&self, tool: &str) -> bool {
        self.read_only.contains(tool)
    }

    /// Returns the names of the tools from the path `/tools/list`, at which some hand-written servers list them.
    pub(super) async fn tools_elsewhere(&mut self) -> Option<Vec<String>> {
        let list = self.link.web()?.clone().fetch("/tools/list").await?;
        let list: Value = serde_json::from_slice(&list).ok()?;
        let names: Vec<String> = tool_names(&list).chain(tool_names(&list["result"])).collect();
        (!names.is_empty()).then_some(names)
    }

    /// Ends the session, and the server if `doctor` started it.
    pub(in crate::lab) async fn close(self) -> Vec<TrafficEntry> {
        self.link.close().await;
        self.entries
    }
}

fn tool_names(page: &Value) -> impl Iterator<Item = String> {
    let tools = page["tools"].as_array().into_iter().flatten();
    tools.filter_map(|tool| tool["name"].as_str().map(str::to_owned))
}

/// Returns the names of the tools whose annotations say that the tool changes nothing.
fn tools_that_read(page: &Value) -> impl Iterator<Item = String> {
    let tools = page["tools"].as_array().into_iter().flatten();
    let reads = tools.filter(|tool| tool["annotations"]["readOnlyHint"] == true);
    reads.filter_map(|tool| tool["name"].as_str().map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_only_reads_by_its_own_account() {
        let page = json!({ "tools": [
            { "name": "reads", "annotations": { "readOnlyHint": true } },
            { "name": "writes", "annotations": { "readOnlyHint": false } },
            { "name": "odd", "annotations": { "readOnlyHint": "true" } },
            { "name": "plain" },
        ] });
        assert_eq!(tools_that_read(&page).collect::<Vec<_>>(), ["reads"]);
    }
}
