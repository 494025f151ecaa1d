//! The judgement of a recorded conversation: entries in, findings out. The module knows no I/O and
//! no clock.

mod answers;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use super::added::AddedProgress;
use super::content::ContentWords;
use super::findings::{Examined, Finding, ObservedCall, Terms, shown};
use super::rules::Rule;
use super::traffic::{TrafficEntry, TrafficEvent, TrafficStream, TransportKind};
use crate::progress::dialect;
use crate::progress::extract::Extract;
use crate::protocol::jsonrpc::{Key, Kind, Message};
use crate::protocol::mcp::{PROGRESS, TOOLS_CALL};

/// Progress so close to its answer is lost by clients of the TypeScript SDK: with a busy event loop of 8 ms
/// they lost 2 of 100 at 20 ms.
pub const GLUED: Duration = Duration::from_millis(20);

/// The length from which a call without any message is silent. Heartbeats begin after 2 s.
pub const SILENT_CALL: Duration = Duration::from_secs(3);

/// Names under which servers tell how far they are; a number there makes an unknown method look like
/// progress.
pub(super) const FIGURES: [&str; 10] = [
    "progress",
    "percent",
    "percentage",
    "percentComplete",
    "pct",
    "progressPercent",
    "completed",
    "current",
    "step",
    "done",
];

/// Finds the faults in a conversation.
pub fn examine(entries: &[TrafficEntry], terms: Terms) -> Examined {
    examine_through(entries, terms, &AddedProgress::default())
}

/// Says what is wrong in a conversation through the proxy, which has added notifications of its own.
pub fn examine_through(entries: &[TrafficEntry], terms: Terms, added: &AddedProgress) -> Examined {
    let mut examiner = Examiner {
        terms,
        added: added.clone(),
        told: ContentWords::default(),
        uses_get: false,
        asked: BTreeMap::new(),
        calls: Vec::new(),
        found: BTreeMap::new(),
        over: Vec::new(),
        presets: Extract::presets(),
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
    /// The words of usable progress.
    told: ContentWords,
    /// Progress or log messages of a call have come on the GET stream.
    uses_get: bool,
    /// Requests of this client that are not calls, and whether they have been answered.
    asked: BTreeMap<u64, bool>,
    calls: Vec<ObservedCall>,
    found: BTreeMap<(Rule, Option<String>), Finding>,
    /// Streams that have ended.
    over: Vec<TrafficStream>,
    presets: Extract,
}

/// The stream and the time of a message.
#[derive(Clone, Copy)]
struct MessageContext<'a> {
    at: Duration,
    stream: TrafficStream,
    read: u64,
    event: Option<&'a str>,
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
            message: Some(message.raw().clone()),
            content: ContentWords::default(),
        });
        finding.count += 1;
        if rule.is_about_content() {
            let text: Value = serde_json::from_slice(message.raw()).unwrap_or_default();
            finding.content.add_value(&text["params"]);
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
                let place = MessageContext { at: entry.at, stream: *stream, read: *read, event };
                self.byte(entry.at, *stream);
                self.received(place, message);
            }
            TrafficEvent::Noise(text) => {
                self.byte(entry.at, TrafficStream::Shared);
                self.note(Rule::Noise, shown(text));
            }
            TrafficEvent::Stderr(line) => {
                if self.calls.iter().any(|call| call.ended.is_none()) && self.has_progress(line) {
                    self.note(Rule::AsideProgress, shown(line.as_bytes()));
                    if let Some(found) = self.found.get_mut(&(Rule::AsideProgress, None)) {
                        found.content.add_text(line);
                    }
                }
            }
            TrafficEvent::Head(stream) => self.byte(entry.at, *stream),
            TrafficEvent::Over(stream) => self.over.push(*stream),
        }
    }

    /// Whether a line of standard error has a progress value.
    fn has_progress(&self, line: &str) -> bool {
        let structured = line.trim_start().starts_with('{')
            && ["\"percent", "\"progress"].iter().any(|name| line.contains(name));
        structured || self.presets.figure(line).is_some()
    }

    /// The server has sent bytes on this stream.
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
        let text: Value = serde_json::from_slice(message.raw()).unwrap_or_default();
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
        let text: Value = serde_json::from_slice(message.raw()).unwrap_or_default();
        let params = &text["params"];
        if method == PROGRESS {
            return self.progress(place, message, &text);
        }
        let dialect = dialect::ALL.iter().find(|dialect| dialect.claims(&method));
        let own = method.starts_with("notifications/");
        if let Some(dialect) = dialect {
            let default = dialect::defaults().any(|one| one.name() == dialect.name());
            let rule = if default { Rule::Method } else { Rule::MethodOff };
            self.found_named(rule, Some(dialect.name().to_owned()), message);
            let names = ["id", "requestId", "token", "progressToken"];
            let named =
                names.iter().filter_map(|name| params.get(name)).find_map(|v| self.named(v));
            self.foreign(place, message, named.map(|(at, _)| at));
        } else if method == "notifications/message" {
            if self.calls.iter().any(|call| call.ended.is_none()) {
                self.uses_get |= place.stream == TrafficStream::Get;
                self.add_finding(Rule::LogProgress, message);
            }
        } else if method.contains("progress") || (!own && has_figure(params)) {
            self.found_named(Rule::MethodUnknown, Some(method), message);
            let named = params.as_object().into_iter().flatten();
            let named = named.filter_map(|(_, value)| self.named(value)).next();
            self.foreign(place, message, named.map(|(at, _)| at));
        }
    }

    /// Progress under a method that a plain client does not know.
    fn foreign(&mut self, place: MessageContext<'_>, message: &Message, named: Option<usize>) {
        if let Some(at) = named.or_else(|| self.implied_call(place.stream))
            && let Some(call) = self.calls.get_mut(at)
        {
            call.reports += 1;
            if call.ended.is_some() {
                self.add_finding(Rule::AfterAnswer, message);
            } else if call.token.is_none() {
                self.add_finding(Rule::Unasked, message);
            }
        }
    }

    /// The call that a value names, and how.
    fn named(&self, value: &Value) -> Option<(usize, CallReference)> {
        let text = Bytes::from(value.to_string());
        let key = Key::read(&text)?;
        let by = |named: CallReference, is: &dyn Fn(&ObservedCall) -> bool| {
            self.calls.iter().rposition(is).map(|at| (at, named))
        };
        let token = |call: &ObservedCall| {
            call.token.as_ref().and_then(|token| Key::read(&token.to_string().into()))
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

    /// The call that is meant if nothing names it: that of the stream, or the only one that is open, or
    /// the last one.
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
        let is_message = place.event.is_none_or(|name| name == "message");
        let Some(call) = self.calls.get_mut(at) else { return };
        call.last = Some((place.at, Some(place.read)));
        if right && is_message {
            if !is_added {
                call.usable += 1;
                let after = place.at.saturating_sub(call.begun);
                call.first_progress = call.first_progress.or(Some(after));
                call.habits.see_time(place.at);
                self.told.add_value(params);
            }
            call.silence = call.silence.max(place.at.saturating_sub(call.last_progress));
            call.last_progress = place.at;
        }
    }

    fn wrong(&mut self, rule: Rule, message: &Message) -> bool {
        self.add_finding(rule, message);
        false
    }

    /// Judges the value, the total and the message; returns whether clients can read them.
    fn figures(&mut self, at: usize, message: &Message, params: &Value) -> bool {
        let mut right = true;
        let value = params.get("progress");
        let figure = value.and_then(Value::as_f64);
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
                call.habits.see_value(figure, params.get("total").is_some_and(Value::is_number));
            }
            if let Some(words) = params["message"].as_str().filter(|_| !is_added) {
                call.habits.see_words(words);
            }
        }
        match params.get("total") {
            None => {}
            Some(Value::Number(total)) => {
                let above = |figure| total.as_f64().is_some_and(|total| figure > total);
                let above = figure.is_some_and(above);
                if above {
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

    fn finish(mut self, end: Duration) -> Examined {
        let limit = self.terms.silence_max;
        for at in 0..self.calls.len() {
            let Some(call) = self.calls.get_mut(at) else { continue };
            if call.ended.is_none() {
                call.took = end.saturating_sub(call.begun);
                call.silence = call.silence.max(end.saturating_sub(call.last_progress));
            }
            let call = call.clone();
            let (id, tool) = (call.id, &call.tool);
            if call.ended.is_none() {
                self.note(Rule::NoAnswer, format!("{tool} (id {id})"));
            }
            let mute = call.usable + call.added == 0 && call.took >= SILENT_CALL.min(limit);
            if call.token.is_some() && (mute || call.silence > limit) {
                let silent = call.silence.as_secs_f64();
                self.note(Rule::Silence, format!("{tool} said nothing for {silent:.1} s"));
            }
            if call.habits.are_pieces() {
                self.note(Rule::Pieces, format!("{tool} ends with {:?}", call.habits.last_words()));
            }
            if let Some(scale) = call.habits.scale() {
                let values = call.habits.shown_values();
                let key = (Rule::NoTotal, Some(scale.to_owned()));
                let example = format!("{tool} counts {values}");
                self.found.entry(key).or_insert_with(|| Finding {
                    name: Some(scale.to_owned()),
                    ..Finding::of(Rule::NoTotal, example)
                });
            }
            if let Some(most) = call.habits.flood() {
                self.note(Rule::Flood, format!("{tool} sent {most} notifications within a second"));
            }
            let begun = call.first_byte.unwrap_or(call.took);
            if self.terms.wire == TransportKind::Streamable && begun > limit {
                let late = begun.as_secs_f64();
                self.note(Rule::FirstByte, format!("{tool} sent no byte for {late:.1} s"));
            }
            let open = !self.over.contains(&TrafficStream::Post(Some(id)));
            if self.terms.wire == TransportKind::Streamable && call.ended.is_some() && open {
                self.note(Rule::StaysOpen, format!("the response to {tool} (id {id})"));
            }
        }
        // Where progress is told, text is only text.
        if self.calls.iter().any(|call| call.reports > 0) {
            let texts = [Rule::LogProgress, Rule::AsideProgress];
            self.found.retain(|(rule, _), _| !texts.contains(rule));
        }
        let (told, uses_get) = (self.told, self.uses_get);
        Examined { findings: self.found.into_values().collect(), calls: self.calls, told, uses_get }
    }
}

/// The value by which a report names its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallReference {
    Token,
    Respelled,
    Id,
}

/// Whether an object has a number in a member for progress values.
fn has_figure(params: &Value) -> bool {
    FIGURES.iter().any(|name| params.get(name).is_some_and(Value::is_number))
}
