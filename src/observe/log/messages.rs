//! The log line for each message at `debug`: sender, method, and the verdict with its reason.
//!
//! The lines contain only names: methods, tools, ids and verdicts. `tap` shows the contents of messages.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::Arc;

use bytes::Bytes;
use tracing::{Level, debug, enabled};

use crate::observe::events::{
    EventKind, FilterId, Observer, ObserverEvent, ObserverFactory, Scope,
};
use crate::observe::pending_verdicts::PendingVerdicts;
use crate::progress::input::Input;
use crate::progress::{CallId, FilterEvent, OpenCall, Outcome, Policy, RefusalRule, Verdict};
use crate::protocol::jsonrpc::{Kind, Message};
use crate::protocol::mcp;

/// Maximum number of calls of one filter whose method is remembered for the line of their answer.
const METHODS_MAX: usize = 256;

/// Maximum number of unanswered ended calls of one filter that are remembered for the line of the answer in the
/// server's place.
const UNANSWERED_MAX: usize = 64;

/// Maximum number of bytes of an id in a line. A longer id is left out.
const ID_MAX: usize = 256;

/// Makes the observers that write log lines for messages.
#[derive(Debug)]
pub struct MessageLog;

impl MessageLog {
    /// The factory.
    pub fn factory() -> Arc<dyn ObserverFactory> {
        Arc::new(Self)
    }

    /// The factory, or `None` if the log filter of now lets no line through.
    pub fn factory_if_on() -> Option<Arc<dyn ObserverFactory>> {
        is_on().then(Self::factory)
    }
}

impl ObserverFactory for MessageLog {
    fn begin(
        &self,
        _: FilterId,
        route: &str,
        scope: Scope,
        policy: &Arc<Policy>,
    ) -> Option<Box<dyn Observer>> {
        let route = (!route.is_empty()).then(|| route.into());
        Some(Box::new(MessageLogger {
            names: Names { route, is_observed: policy.observes() },
            scope,
            memory: LoggerMemory::default(),
        }))
    }
}

fn is_on() -> bool {
    enabled!(Level::DEBUG)
}

/// The names that are in every line of a filter.
#[derive(Debug)]
struct Names {
    route: Option<Box<str>>,
    /// Whether the route only observes: all messages are forwarded unchanged.
    is_observed: bool,
}

/// Logs the messages at one filter.
#[derive(Debug)]
struct MessageLogger {
    names: Names,
    scope: Scope,
    memory: LoggerMemory,
}

/// What a logger remembers for later lines.
#[derive(Debug, Default)]
struct LoggerMemory {
    /// Whether the memory may have entries.
    is_used: bool,
    pending: PendingVerdicts,
    methods: BTreeMap<CallId, (Box<str>, Option<Box<str>>)>,
    unanswered: VecDeque<(Bytes, Outcome)>,
    /// The last client message, until the decision about it comes.
    client_message: Option<Bytes>,
    is_changed: bool,
    refused: Option<RefusalRule>,
    /// The last message to a client, until the decision about it comes.
    to_client: Option<Bytes>,
}

/// The sender and the receiver of a message.
#[derive(Debug, Clone, Copy)]
struct MessageWay(&'static str, &'static str);

const FROM_CLIENT: MessageWay = MessageWay("client", "server");
const FROM_SERVER: MessageWay = MessageWay("server", "client");
const TO_CLIENT: MessageWay = MessageWay("milepost", "client");
const TO_SERVER: MessageWay = MessageWay("milepost", "server");

impl Names {
    /// Writes the line of a message. `of`: the method and the tool of the message's call.
    fn write(
        &self,
        MessageWay(sender, receiver): MessageWay,
        message: Option<&Message>,
        of: (Option<&str>, Option<&str>),
        verdict: &'static str,
        reason: Option<&str>,
    ) {
        let method = message.and_then(Message::method);
        let id = message.and_then(Message::id).filter(|id| id.len() <= ID_MAX);
        let id = id.as_deref().map(String::from_utf8_lossy);
        debug!(
            sender,
            receiver,
            kind = message.map(|message| kind(message.kind())),
            method = method.as_deref().or(of.0),
            tool = of.1,
            id = id.as_deref(),
            verdict,
            reason,
            observed = self.is_observed.then_some(true),
            route = self.route.as_deref(),
            "message"
        );
    }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Request => "request",
        Kind::Notification => "notification",
        Kind::Response => "response",
        Kind::Batch => "batch",
        Kind::Opaque => "opaque",
        Kind::Noise => "noise",
    }
}

impl MessageLogger {
    fn decision(&mut self, event: &FilterEvent) {
        match event {
            FilterEvent::Opened(_)
            | FilterEvent::TakenOver(_)
            | FilterEvent::Late(_)
            | FilterEvent::UnansweringError(_)
            | FilterEvent::Task(_) => {}
            FilterEvent::Refused(rule) => self.memory.refused = Some(*rule),
            FilterEvent::Call(summary) => {
                if !has_answer(summary.outcome) {
                    if self.memory.unanswered.len() >= UNANSWERED_MAX {
                        self.memory.unanswered.pop_front();
                    }
                    self.memory.unanswered.push_back((summary.id.clone(), summary.outcome));
                }
            }
            FilterEvent::Heartbeat(call) => {
                let beat = self.memory.to_client.take().map(Message::parse);
                let of = self.of(Some(*call));
                self.names.write(TO_CLIENT, beat.as_ref(), of, "added", Some("heartbeat"));
            }
            FilterEvent::Message { number, call, verdict } => {
                let message =
                    self.memory.pending.take(*number).map(|(_, text)| Message::parse(text));
                if !matches!(verdict, Verdict::Withheld(_)) {
                    self.memory.to_client = None;
                }
                let (name, reason) = match verdict {
                    Verdict::Forwarded => ("forwarded", None),
                    Verdict::Withheld(reason) => ("withheld", Some(reason.name().to_owned())),
                    Verdict::Repaired(repairs) => {
                        let names: Vec<&str> = repairs.iter().map(|it| it.name()).collect();
                        ("repaired", Some(names.join(", ")))
                    }
                };
                let of = self.of(*call);
                self.names.write(FROM_SERVER, message.as_ref(), of, name, reason.as_deref());
            }
        }
    }

    /// Returns the method and the tool of a call.
    fn of(&self, call: Option<CallId>) -> (Option<&str>, Option<&str>) {
        let known = call.and_then(|call| self.memory.methods.get(&call));
        known.map_or((None, None), |(method, tool)| (Some(&**method), tool.as_deref()))
    }

    /// Logs a client message. In an HTTP session several filters see the message, but only one logs it.
    fn client_message(&mut self, text: Bytes) {
        let (changed, refused) =
            (mem::take(&mut self.memory.is_changed), self.memory.refused.take());
        let message = Message::parse(text);
        let is_request = matches!(message.kind(), Kind::Request | Kind::Batch);
        let is_logged_elsewhere = match self.scope {
            Scope::Whole => false,
            Scope::Exchange => !is_request,
            Scope::Session => is_request,
        };
        if is_logged_elsewhere {
            return;
        }
        let (verdict, reason) = match refused {
            Some(rule) => ("refused", Some(rule.name())),
            None if changed => ("changed", None),
            None => ("forwarded", None),
        };
        let nothing = (None, None);
        if message.kind() == Kind::Batch {
            for element in message.elements() {
                self.names.write(FROM_CLIENT, Some(&element), nothing, verdict, reason);
            }
        } else {
            self.names.write(FROM_CLIENT, Some(&message), nothing, verdict, reason);
        }
    }

    /// Logs a message to a client that does not come from a server message: progress made of text, or an answer in the
    /// server's place.
    fn own_message(&mut self, text: Bytes) {
        let message = Message::parse(text);
        let reason = if message.method().as_deref() == Some(mcp::PROGRESS) {
            Some("text")
        } else if message.kind() == Kind::Response && message.error().is_some() {
            let place = message.id().and_then(|id| {
                self.memory.unanswered.iter().position(|(unanswered, _)| *unanswered == id)
            });
            place.and_then(|at| self.memory.unanswered.remove(at)).map(|(_, why)| why.name())
        } else {
            None
        };
        if reason.is_some() {
            self.names.write(TO_CLIENT, Some(&message), (None, None), "added", reason);
        }
    }
}

/// Whether the server has answered a call with this outcome.
fn has_answer(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Result | Outcome::ToolError | Outcome::Interim | Outcome::Error)
}

impl Observer for MessageLogger {
    fn on_event(&mut self, event: &ObserverEvent) {
        if !is_on() {
            if mem::take(&mut self.memory.is_used) {
                self.memory = LoggerMemory::default();
            }
            return;
        }
        self.memory.is_used = true;
        match &event.kind {
            EventKind::Input(
                input @ (Input::ClientMessage(..) | Input::ClientLarge(..) | Input::Refuse(_)),
                _,
            ) => {
                self.memory.client_message = input.message_line().map(|line| line.text);
                self.memory.is_changed = false;
                self.memory.refused = None;
            }
            EventKind::Input(input, number) => {
                self.memory.pending.receive(event.at, input, *number);
            }
            EventKind::ToServer(_) if self.memory.client_message.is_some() => {
                self.memory.is_changed = true;
            }
            EventKind::ToServer(text) => {
                let message = Message::parse(text.clone());
                self.names.write(TO_SERVER, Some(&message), (None, None), "added", None);
            }
            EventKind::ToClient(_, text) => self.memory.to_client = Some(text.clone()),
            EventKind::Noise(_) => {}
            EventKind::Decided(event) => self.decision(event),
        }
    }

    fn on_call(&mut self, call: &OpenCall<'_>) {
        if !is_on() {
            return;
        }
        self.memory.is_used = true;
        if self.memory.methods.len() >= METHODS_MAX {
            self.memory.methods.pop_first();
        }
        let names = (call.method.into(), call.tool.map(Into::into));
        self.memory.methods.insert(call.call, names);
    }

    fn settle(&mut self) {
        if let Some(text) = self.memory.to_client.take()
            && !self.names.is_observed
        {
            self.own_message(text);
        }
        if let Some(text) = self.memory.client_message.take() {
            self.client_message(text);
        }
    }
}
