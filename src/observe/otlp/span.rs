//! A call as a span, in the words of OpenTelemetry's conventions for MCP as far as they go.
//!
//! What is in a span: names, numbers, times. Never: arguments, results, texts of errors, session ids.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::protobuf::{Fields, Value, Writer};
use super::settings::Settings;
use super::{Mark, Over, What};
use crate::progress::{Outcome, Summary};
use crate::protocol::json;
use crate::protocol::mcp::{Revision, TOOLS_CALL};

/// Characters of a tool's, client's or route's name in a span.
const NAME_MAX: usize = 256;

/// Characters of a request's id in a span. A longer id is left out.
const ID_MAX: usize = 64;

const KIND_SERVER: i64 = 2;
const STATUS_ERROR: i64 = 2;

/// Flags of a span: what is known of whether its parent is another process's, and that it is.
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// Which span it is.
pub(super) struct Identity {
    pub(super) trace: [u8; 16],
    pub(super) span: [u8; 8],
}

/// What tells apart two clocks: one that only rises, and the time of day.
struct Clock(Instant, SystemTime);

impl Clock {
    fn nanos(&self, at: Instant) -> u64 {
        let day = self.1.checked_sub(self.0.saturating_duration_since(at));
        let since = day.and_then(|day| day.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Attributes of what is being written, in one of its fields.
struct Attributes<'a>(&'a mut Writer, u64);

impl Attributes<'_> {
    fn put(&mut self, key: &str, value: impl FnOnce(&mut Writer)) {
        self.0.message(self.1, |pair| {
            pair.bytes(1, key.as_bytes());
            pair.message(2, value);
        });
    }

    fn text(&mut self, key: &str, text: &str) {
        self.put(key, |value| value.bytes(1, text.as_bytes()));
    }

    fn is(&mut self, key: &str, whether: bool) {
        self.put(key, |value| value.element(2, i64::from(whether)));
    }

    fn count(&mut self, key: &str, count: u64) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.put(key, |value| value.element(3, count));
    }

    fn seconds(&mut self, key: &str, seconds: f64) {
        self.put(key, |value| value.fixed64(4, seconds.to_bits()));
    }
}

/// At most so many characters of a name.
fn cut(name: &str) -> &str {
    name.char_indices().nth(NAME_MAX).map_or(name, |(end, _)| name.get(..end).unwrap_or_default())
}

/// A span, ready to be sent with others.
pub(super) fn encode(
    call: &Summary,
    id: &Identity,
    over: Over,
    route: Option<&str>,
    marks: &[Mark],
) -> Vec<u8> {
    let clock = Clock(Instant::now(), SystemTime::now());
    let mut span = Writer::default();
    span.bytes(1, &id.trace);
    span.bytes(2, &id.span);
    let mut flags = HAS_IS_REMOTE | 1;
    if let Some(parent) = &call.trace {
        flags |= IS_REMOTE;
        if let Some(state) = &parent.state {
            span.bytes(3, state.as_bytes());
        }
        span.bytes(4, &parent.parent);
    }
    let method = cut(&call.method);
    let name = match &call.tool {
        Some(tool) => format!("{method} {}", cut(tool)),
        None => method.to_owned(),
    };
    span.bytes(5, name.as_bytes());
    span.integer(6, KIND_SERVER);
    span.fixed64(7, clock.nanos(call.opened));
    span.fixed64(8, clock.nanos(call.ended));
    attributes(&mut Attributes(&mut span, 9), call, over, route);
    events(&mut span, &clock, call, marks);
    if error_type(call).is_some() {
        // What the server says of its error is its own text, and stays out.
        span.message(15, |status| status.integer(3, STATUS_ERROR));
    }
    span.fixed32(16, flags);
    span.into_bytes()
}

fn attributes(to: &mut Attributes<'_>, call: &Summary, over: Over, route: Option<&str>) {
    to.text("mcp.method.name", cut(&call.method));
    if let Some(tool) = &call.tool {
        to.text("gen_ai.tool.name", cut(tool));
    }
    if call.method == TOOLS_CALL {
        to.text("gen_ai.operation.name", "execute_tool");
    }
    let date = Revision::ALL.iter().find(|(revision, _)| Some(*revision) == call.revision);
    if let Some((_, date)) = date {
        to.text("mcp.protocol.version", date);
    }
    let id = json::words(&call.id);
    let id = id.as_deref().or_else(|| std::str::from_utf8(&call.id).ok());
    if let Some(id) = id.filter(|id| id.chars().count() <= ID_MAX) {
        to.text("jsonrpc.request.id", id);
    }
    match over {
        Over::Pipe => to.text("network.transport", "pipe"),
        Over::Http => {
            to.text("network.transport", "tcp");
            to.text("network.protocol.name", "http");
        }
    }
    if let Some(kind) = error_type(call) {
        to.text("error.type", &kind);
    }
    if let Some(code) = call.error_code {
        to.text("rpc.response.status_code", &code.to_string());
    }
    if let Some(route) = route {
        to.text("milepost.route", cut(route));
    }
    if let Some(client) = &call.client {
        to.text("milepost.client", cut(&client.to_string()));
    }
    to.text("milepost.outcome", call.outcome.name());
    to.is("milepost.progress.asked", call.token.is_some());
    let account = &call.account;
    to.count("milepost.progress.received", account.received);
    to.count("milepost.progress.sent", account.sent);
    to.count("milepost.progress.withheld", account.withheld.values().sum());
    to.count("milepost.progress.repaired", account.repaired.values().sum());
    to.count("milepost.progress.beats", account.beats);
    to.count("milepost.progress.estimates", account.estimates);
    to.count("milepost.progress.overheard", account.overheard);
    to.seconds("milepost.silence.longest", call.silence.as_secs_f64());
}

/// At most one for each reason and repair, and two.
fn events(span: &mut Writer, clock: &Clock, call: &Summary, marks: &[Mark]) {
    let mut put = |at: Instant, name: &str, write: &dyn Fn(&mut Attributes<'_>)| {
        span.message(11, |event| {
            event.fixed64(1, clock.nanos(at));
            event.bytes(2, name.as_bytes());
            write(&mut Attributes(event, 3));
        });
    };
    if let Some(at) = call.first_sent {
        put(at, "milepost.first_progress", &|_| {});
    }
    put(call.silent_from, "milepost.longest_silence", &|to| {
        to.seconds("milepost.silence.longest", call.silence.as_secs_f64());
    });
    let first = |what: What| marks.iter().find(|mark| mark.what == what).map(|mark| mark.at);
    for (reason, count) in &call.account.withheld {
        let at = first(What::Withheld(*reason)).unwrap_or(call.ended);
        put(at, "milepost.withheld", &|to| {
            to.text("milepost.reason", reason.name());
            to.count("milepost.count", *count);
        });
    }
    for (repair, count) in &call.account.repaired {
        let at = first(What::Repaired(*repair)).unwrap_or(call.ended);
        put(at, "milepost.repaired", &|to| {
            to.text("milepost.repair", repair.name());
            to.count("milepost.count", *count);
        });
    }
}

/// How a call has failed. One that its client gave up has not.
fn error_type(call: &Summary) -> Option<String> {
    match call.outcome {
        Outcome::ToolError => Some("tool_error".to_owned()),
        Outcome::Error => {
            Some(call.error_code.map_or_else(|| "_OTHER".to_owned(), |code| code.to_string()))
        }
        Outcome::TimedOut => Some("timeout".to_owned()),
        Outcome::ServerGone => Some("server_gone".to_owned()),
        Outcome::Result
        | Outcome::Interim
        | Outcome::Cancelled
        | Outcome::TaskEnded
        | Outcome::Settled => None,
    }
}

/// Who tells of spans: what stands before them in each request.
pub(super) fn resource(settings: &Settings, instance: &str) -> Vec<u8> {
    let version = env!("CARGO_PKG_VERSION");
    let own = [
        ("service.name", &*settings.service),
        ("service.version", version),
        ("service.instance.id", instance),
        ("telemetry.sdk.language", "rust"),
        ("telemetry.sdk.name", "milepost"),
        ("telemetry.sdk.version", version),
    ];
    let mut resource = Writer::default();
    let mut to = Attributes(&mut resource, 1);
    for (key, value) in own {
        if !settings.attributes.iter().any(|(given, _)| given == key) {
            to.text(key, value);
        }
    }
    for (key, value) in &settings.attributes {
        to.text(key, value);
    }
    resource.into_bytes()
}

/// A request that tells a collector of `spans`.
pub(super) fn request(resource: &[u8], spans: &[Vec<u8>]) -> Vec<u8> {
    let mut request = Writer::default();
    request.message(1, |of_resource| {
        of_resource.bytes(1, resource);
        of_resource.message(2, |of_scope| {
            of_scope.message(1, |scope| {
                scope.bytes(1, b"milepost");
                scope.bytes(2, env!("CARGO_PKG_VERSION").as_bytes());
            });
            for span in spans {
                of_scope.bytes(2, span);
            }
        });
    });
    request.into_bytes()
}

/// How many spans a collector did not take, as it says in its answer.
pub(super) fn rejected(answer: &[u8]) -> u64 {
    let partial = Fields(answer).find_map(|(field, value)| match (field, value) {
        (1, Value::Bytes(partial)) => Some(partial),
        _ => None,
    });
    let rejected = Fields(partial.unwrap_or_default()).find_map(|(field, value)| match value {
        Value::Integer(number) if field == 1 => Some(number),
        _ => None,
    });
    rejected.unwrap_or_default()
}
