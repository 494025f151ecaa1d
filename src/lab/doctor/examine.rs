//! Judges a recorded conversation: entries in, findings out. The module does no I/O and has no clock.

mod answers;
mod aside;
mod ending;
mod overheard;
mod unknown;

use std::time::Duration;

use aside::TextStream;
use bytes::Bytes;
use litemap::LiteMap;
use serde_json::Value;
use unknown::{CallTexts, KeptNotification, NotificationsByMethod};

use super::added::AddedProgress;
use super::content::MessageContent;
use super::findings::{Examined, Finding, ObservedCall, Terms, shown};
use super::legible::Legible;
use super::rules::Rule;
use super::traffic::{TrafficEntry, TrafficEvent, TrafficStream};
use crate::progress::dialect::{self, Dialect};
use crate::progress::extract::Extract;
use crate::protocol::jsonrpc::{Key, Kind, Message};
use crate::protocol::mcp::{LOG, PROGRESS, TOOLS_CALL};

pub(in crate::lab) use unknown::is_of_specification;

/// Progress that precedes its answer by less than this is lost by clients of the TypeScript SDK: with an event loop
/// busy for 8 ms at a time, they lost 2 of 100 notifications at 20 ms.
pub const GLUED: Duration = Duration::from_millis(20);

/// Finds the faults in a conversation.
pub fn examine(entries: &[TrafficEntry], terms: Terms) -> Examined {
    examine_through(entries, terms, &AddedProgress::default())
}

/// Finds the faults in a conversation through the proxy, which has added notifications of its own.
pub fn examine_through(entries: &[TrafficEntry], terms: Terms, added: &AddedProgress) -> Examined {
    let mut examiner = Examiner {
        terms,
        added: added.clone(),
        told: MessageContent::default(),
        uses_get: false,
        asked: LiteMap::new(),
        calls: Vec::new(),
        found: LiteMap::new(),
        over: Vec::new(),
        presets: Extract::presets(),
        unknown: NotificationsByMethod::default(),
        claimed: NotificationsByMethod::default(),
        overheard: NotificationsByMethod::default(),
        texts: CallTexts::default(),
    };
    for entry in entries {
        examiner.see(entry);
    }
    let end = entries.last().map_or(Duration::ZERO, |entry| entry.at);
    examiner.finish(end)
}

struct Examiner {
    terms: Terms,
    /// The notifications that the proxy has added.
    added: AddedProgress,
    /// The texts and values of the progress that a plain client can use.
    told: MessageContent,
    /// Whether progress or log messages of a call have come on the GET stream.
    uses_get: bool,
    /// Requests of this client that are not calls, and whether they have been answered.
    asked: LiteMap<u64, bool>,
    calls: Vec<ObservedCall>,
    found: LiteMap<(Rule, Option<String>), Finding>,
    /// Streams that have ended.
    over: Vec<TrafficStream>,
    presets: Extract,
    /// Notifications with unknown methods.
    unknown: NotificationsByMethod,
    /// Notifications with methods that a dialect claims.
    claimed: NotificationsByMethod,
    /// Notifications that a dialect reads and lets pass.
    overheard: NotificationsByMethod,
    /// The texts of the calls.
    texts: CallTexts,
}

/// The stream and the time of a message.
#[derive(Clone, Copy)]
struct MessageContext<'a> {
    at: Duration,
    stream: TrafficStream,
    read: u64,
    event: Option<&'a str>,
    /// Whether plain clients can read the line or event.
    is_readable: bool,
}

impl Examiner {
    fn add_finding(&mut self, rule: Rule, message: &Message) {
        self.found_named(rule, None, message);
    }

    fn found_named(&mut self, rule: Rule, name: Option<String>, message: &Message) {
        let text = || shown(message.raw());
        let finding = self.found.entry((rule, name.clone())).or_insert_with(|| Finding {
            rule,
            count: 0,
            example: text(),
            name,
            draft: None,
            content: MessageContent::default(),
        });
        finding.count += 1;
        if rule.is_about_content() {
            finding.content.add_value(&json(message)["params"]);
        }
    }

    fn note(&mut self, rule: Rule, example: String) {
        let new = || Finding { count: 0, ..Finding::of(rule, example) };
        self.found.entry((rule, None)).or_insert_with(new).count += 1;
    }

    fn see(&mut self, entry: &TrafficEntry) {
        match &entry.what {
            TrafficEvent::Sent(message) => self.sent(entry.at, message),
            TrafficEvent::Received { stream, read, event, message } => {
                let event = event.as_deref();
                let (at, stream, read) = (entry.at, *stream, *read);
                let place = MessageContext { at, stream, read, event, is_readable: true };
                self.byte(at, stream);
                self.received(place, message);
            }
            TrafficEvent::Noise(text) => {
                self.byte(entry.at, TrafficStream::Shared);
                self.noise(text);
            }
            TrafficEvent::Stderr(line) => self.line(TextStream::Stderr, line),
            TrafficEvent::Head(stream) => self.byte(entry.at, *stream),
            TrafficEvent::Over(stream) => self.over.push(*stream),
        }
    }

    fn has_open_call(&self) -> bool {
        self.calls.iter().any(|call| call.ended.is_none())
    }

    /// Notes that the server has sent bytes on this stream.
    fn byte(&mut self, at: Duration, stream: TrafficStream) {
        for call in &mut self.calls {
            let its = match stream {
                TrafficStream::Shared => true,
                TrafficStream::Post(id) => id == Some(call.id),
                TrafficStream::Get => false,
            };
            if its && call.ended.is_none() && call.first_byte.is_none() {
                call.first_byte = Some(at.saturating_sub(call.begun));
            }
        }
    }

    fn sent(&mut self, at: Duration, message: &Message) {
        let Some(Key::Integer(id)) = message.id_key() else { return };
        let (Ok(id), Kind::Request) = (u64::try_from(id), message.kind()) else { return };
        let text = json(message);
        if message.method().as_deref() != Some(TOOLS_CALL) {
            self.asked.insert(id, false);
            return;
        }
        let params = &text["params"];
        self.calls.push(ObservedCall {
            id,
            tool: params["name"].as_str().unwrap_or_default().to_owned(),
            token: params["_meta"].get("progressToken").cloned(),
            begun: at,
            last_progress: at,
            ..ObservedCall::default()
        });
    }

    fn received(&mut self, place: MessageContext<'_>, message: &Message) {
        if place.event.is_some_and(|name| name != "message") {
            self.add_finding(Rule::EventName, message);
        }
        let Legible { messages, faults } = Legible::of(message);
        let is_named = place.event.is_none_or(|name| name == "message");
        let is_readable = place.is_readable && is_named && faults.is_empty();
        for (fault, kind) in faults {
            let kind = kind.map(str::to_owned);
            self.found_named(fault, kind.clone(), message);
            if let Some(found) = self.found.get_mut(&(fault, kind)) {
                messages.iter().for_each(|one| found.content.add_value(&json(one)["params"]));
            }
        }
        for one in &messages {
            self.message(MessageContext { is_readable, ..place }, one);
        }
    }

    fn message(&mut self, place: MessageContext<'_>, message: &Message) {
        match message.kind() {
            Kind::Batch => {
                if !self.terms.knows_arrays {
                    self.add_finding(Rule::Array, message);
                }
                for element in message.elements() {
                    self.received(MessageContext { event: None, ..place }, &element);
                }
            }
            Kind::Response => self.response(place, message),
            Kind::Notification => self.notification(place, message),
            Kind::Request | Kind::Noise => {}
            Kind::Opaque => self.add_finding(Rule::Envelope, message),
        }
    }

    fn notification(&mut self, place: MessageContext<'_>, message: &Message) {
        let method = message.method().unwrap_or_default().into_owned();
        let text = json(message);
        let params = &text["params"];
        if method == PROGRESS {
            return self.progress(place, message, &text);
        }
        if let Some((dialect, _)) = dialect_of(&method) {
            let named = self.named_inside(params, 0);
            if dialect.overhears(&method) {
                self.overhear(place, method, named, message);
            } else {
                self.foreign(place, message, named);
                let call = named.or_else(|| self.implied_call(place.stream)).unwrap_or_default();
                let message = message.clone();
                self.claimed.add(method, KeptNotification { message, call, is_over: false });
            }
        } else if method == LOG {
            if self.has_open_call() {
                self.uses_get |= place.stream == TrafficStream::Get;
                self.add_finding(Rule::LogProgress, message);
                // Some servers omit `data`, and put the text in a member beside it.
                self.texts.log.add_value(params.get("data").unwrap_or(params));
            }
        } else if !is_of_specification(&method) && !self.calls.is_empty() {
            let named = self.named_inside(params, 0);
            let implied = || self.implied_call(place.stream);
            // A message that names no call may be about any open call; it counts for the last one.
            let open = || self.calls.iter().rposition(|call| call.ended.is_none());
            if let Some(at) = named.or_else(implied).or_else(open) {
                let is_over = self.calls.get(at).is_some_and(|call| call.ended.is_some());
                let message = message.clone();
                self.unknown.add(method, KeptNotification { message, call: at, is_over });
            }
        }
    }

    /// Judges progress under a method that a plain client does not know.
    fn foreign(&mut self, place: MessageContext<'_>, message: &Message, named: Option<usize>) {
        if let Some(at) = named.or_else(|| self.implied_call(place.stream))
            && let Some(call) = self.calls.get(at)
        {
            if call.ended.is_some() {
                self.late_foreign_report(at, message);
            } else {
                self.foreign_report(at, message);
            }
        }
    }

    /// A report of an open call under a method that a plain client does not know.
    fn foreign_report(&mut self, at: usize, message: &Message) {
        let Some(call) = self.calls.get_mut(at) else { return };
        call.reports += 1;
        if call.token.is_none() {
            self.add_finding(Rule::Unasked, message);
        }
    }

    /// Such a report of a call that is over.
    fn late_foreign_report(&mut self, at: usize, message: &Message) {
        let Some(call) = self.calls.get_mut(at) else { return };
        call.reports += 1;
        self.add_finding(Rule::AfterAnswer, message);
    }

    /// The call that a value names, and how.
    fn named(&self, value: &Value) -> Option<(usize, CallReference)> {
        let text = Bytes::from(value.to_string());
        let key = Key::read(&text)?;
        let by = |named: CallReference, is: &dyn Fn(&ObservedCall) -> bool| {
            self.calls.iter().rposition(is).map(|at| (at, named))
        };
        let token = |call: &ObservedCall| {
            call.token.as_ref().and_then(|token| Key::read(&token.to_string()))
        };
        by(CallReference::Token, &|call| token(call).as_ref() == Some(&key))
            .or_else(|| {
                by(CallReference::Respelled, &|call| {
                    token(call).is_some_and(|own| own.respelled(&key))
                })
            })
            .or_else(|| {
                by(CallReference::Id, &|call| {
                    let id = i64::try_from(call.id).map(Key::Integer);
                    id.is_ok_and(|id| id == key || id.respelled(&key))
                })
            })
    }

    /// Returns the call of a message that names none: that of its stream, else the only open call, else the last call.
    fn implied_call(&self, stream: TrafficStream) -> Option<usize> {
        if let TrafficStream::Post(Some(id)) = stream {
            return self.calls.iter().position(|call| call.id == id);
        }
        let open = || self.calls.iter().enumerate().filter(|(_, call)| call.ended.is_none());
        match open().count() {
            0 => self.calls.len().checked_sub(1),
            1 => open().next().map(|(at, _)| at),
            _ => None,
        }
    }

    fn progress(&mut self, place: MessageContext<'_>, message: &Message, text: &Value) {
        if text.is_null() || !message.is_strict() || message.repeats_a_key() {
            return self.add_finding(Rule::Envelope, message);
        }
        let params = &text["params"];
        let token = params.get("progressToken").filter(|token| !token.is_null());
        let named = token.and_then(|token| self.named(token));
        let Some(at) = named.map(|(at, _)| at).or_else(|| self.implied_call(place.stream)) else {
            let rule = if token.is_some() { Rule::TokenInvented } else { Rule::TokenMissing };
            return self.add_finding(rule, message);
        };
        let is_added = self.added.contains(params);
        let Some(call) = self.calls.get_mut(at) else { return };
        let (over, asked) = (call.ended.is_some(), call.token.is_some());
        if is_added {
            call.added += 1;
        } else {
            call.reports += 1;
        }
        if over {
            return self.add_finding(Rule::AfterAnswer, message);
        }
        if !asked {
            return self.add_finding(Rule::Unasked, message);
        }
        let mut right = true;
        match named {
            Some((_, CallReference::Token)) => {}
            _ if token.is_none() => right = self.wrong(Rule::TokenMissing, message),
            Some((_, CallReference::Respelled)) => right = self.wrong(Rule::TokenSpelling, message),
            Some((_, CallReference::Id)) => right = self.wrong(Rule::TokenIsId, message),
            None => right = self.wrong(Rule::TokenInvented, message),
        }
        right &= self.figures(at, message, params);
        if place.stream == TrafficStream::Get {
            self.uses_get = true;
            self.add_finding(Rule::OnGet, message);
        }
        let Some(call) = self.calls.get_mut(at) else { return };
        call.last = Some((place.at, Some(place.read)));
        if right && place.is_readable {
            if !is_added {
                call.usable += 1;
                let after = place.at.saturating_sub(call.begun);
                call.first_progress = call.first_progress.or(Some(after));
                call.habits.see_time(place.at);
                self.told.add_told(params);
            }
            call.silence = call.silence.max(place.at.saturating_sub(call.last_progress));
            call.last_progress = place.at;
        }
    }

    fn wrong(&mut self, rule: Rule, message: &Message) -> bool {
        self.add_finding(rule, message);
        false
    }

    /// Judges the value, the total and the message of progress; returns whether clients can read them.
    fn figures(&mut self, at: usize, message: &Message, params: &Value) -> bool {
        let mut right = true;
        let value = params.get("progress");
        let figure = value.and_then(Value::as_f64);
        if figure.is_none() {
            ["message", "status"]
                .iter()
                .for_each(|name| self.texts.progress.add_value(&params[*name]));
        }
        match value {
            None => right = self.wrong(Rule::FigureMissing, message),
            Some(Value::Null) => right = self.wrong(Rule::FigureNull, message),
            Some(_) if figure.is_none() => right = self.wrong(Rule::FigureType, message),
            Some(_) => {}
        }
        let last = self.calls.get(at).and_then(|call| call.figure);
        if let (Some(figure), Some(last)) = (figure, last) {
            if figure < last {
                self.add_finding(Rule::FigureFalls, message);
            } else if figure <= last {
                self.add_finding(Rule::FigureRepeats, message);
            }
        }
        let is_added = self.added.contains(params);
        if let Some(call) = self.calls.get_mut(at) {
            call.figure = figure.or(call.figure);
            if let Some(figure) = figure.filter(|_| !is_added) {
                match params.get("total").is_some_and(Value::is_number) {
                    true => call.habits.has_total = true,
                    false => call.habits.see_value(figure),
                }
            }
            if let Some(words) = params["message"].as_str().filter(|_| !is_added) {
                call.habits.see_words(words);
                let in_words = self.presets.figure(words).and_then(|figure| figure.total);
                if figure.is_some() && params.get("total").is_none() && in_words.is_some() {
                    call.habits.see_figure_beside_counter();
                }
            }
        }
        match params.get("total") {
            None => {}
            Some(Value::Number(total)) => {
                let total = total.as_f64();
                let is_none = total.is_some_and(|total| total <= 0.0);
                if is_none || figure.zip(total).is_some_and(|(figure, total)| figure > total) {
                    self.add_finding(Rule::AboveTotal, message);
                }
            }
            Some(_) => right = self.wrong(Rule::Total, message),
        }
        if params.get("message").is_some_and(|words| !words.is_string()) {
            right = self.wrong(Rule::Words, message);
        }
        right
    }
}

/// Returns the dialect that reads a method, and the rule for its messages. Dialects that are on by default are
/// preferred.
fn dialect_of(method: &str) -> Option<(&'static Dialect, Rule)> {
    let reading = || dialect::ALL.iter().filter(|one| one.reads(method));
    let is_default = |one: &&Dialect| dialect::defaults().any(|on| on.name() == one.name());
    match reading().find(is_default) {
        Some(dialect) => Some((dialect, Rule::Method)),
        None => reading().next().map(|dialect| (dialect, Rule::MethodOff)),
    }
}

/// Returns a message as JSON; null if it is not JSON.
fn json(message: &Message) -> Value {
    serde_json::from_slice(message.raw()).unwrap_or_default()
}

/// The value by which a report names its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallReference {
    Token,
    Respelled,
    Id,
}
