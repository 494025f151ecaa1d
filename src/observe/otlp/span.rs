//! A call as a span, with the names of OpenTelemetry's conventions for MCP where such names exist.
//!
//! A span has names, numbers and times. It never has arguments, results, error texts or session ids.

use std::str::FromStr;
use std::time::{Instant, SystemTime};

use opentelemetry::trace::{
    Span as _, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags,
    TraceId, TraceState,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::SdkTracer;

use super::{DownstreamTransport, SpanEvent, SpanMark};
use crate::progress::{Outcome, Summary};
use crate::protocol::json;
use crate::protocol::mcp::{Revision, TOOLS_CALL};
use crate::protocol::trace_context::TraceContext;

/// Maximum number of characters of a tool's, client's or route's name in a span.
const NAME_MAX: usize = 256;

/// Maximum number of characters of a request's id in a span. A longer id is left out.
const ID_MAX: usize = 64;

/// The same moment on two clocks, a monotonic one and the time of day, to convert times.
struct Clock {
    now: Instant,
    day: SystemTime,
}

impl Clock {
    fn time(&self, at: Instant) -> SystemTime {
        let day = self.day.checked_sub(self.now.saturating_duration_since(at));
        day.unwrap_or(SystemTime::UNIX_EPOCH)
    }
}

/// Returns the first characters of a name, up to the limit.
fn cut(name: &str) -> &str {
    name.char_indices().nth(NAME_MAX).map_or(name, |(end, _)| name.get(..end).unwrap_or_default())
}

/// Makes the span of a call, and returns its trace id; `None` if the sampler rejects it.
pub(super) fn record(
    tracer: &SdkTracer,
    call: &Summary,
    over: DownstreamTransport,
    route: Option<&str>,
    marks: &[SpanMark],
) -> Option<String> {
    // Read both clocks together, so that all times of the span are converted in the same way.
    let clock = Clock { now: Instant::now(), day: SystemTime::now() };
    let method = cut(&call.method);
    let name = match &call.tool {
        Some(tool) => format!("{method} {}", cut(tool)),
        None => method.to_owned(),
    };
    let mut span = SpanBuilder::from_name(name)
        .with_kind(SpanKind::Server)
        .with_start_time(clock.time(call.opened))
        .start_with_context(tracer, &context(call.trace.as_deref()));
    if !span.is_recording() {
        return None;
    }
    span.set_attributes(attributes(call, over, route));
    for (at, name, attributes) in events(call, marks) {
        span.add_event_with_timestamp(name, clock.time(at), attributes);
    }
    if error_type(call).is_some() {
        // Leave out the description, which would be the server's own text.
        span.set_status(Status::error(""));
    }
    let trace = span.span_context().trace_id().to_string();
    span.end_with_timestamp(clock.time(call.ended));
    Some(trace)
}

/// Returns the client's span as the parent, if the client has sent a trace context.
fn context(parent: Option<&TraceContext>) -> Context {
    let Some(parent) = parent else { return Context::new() };
    let state = parent.state.as_deref().and_then(|state| TraceState::from_str(state).ok());
    let flags = TraceFlags::default().with_sampled(parent.sampled);
    let (trace, span) = (TraceId::from_bytes(parent.trace), SpanId::from_bytes(parent.parent));
    let parent = SpanContext::new(trace, span, flags, true, state.unwrap_or_default());
    Context::new().with_remote_span_context(parent)
}

fn count(key: &'static str, count: u64) -> KeyValue {
    KeyValue::new(key, i64::try_from(count).unwrap_or(i64::MAX))
}

fn attributes(call: &Summary, over: DownstreamTransport, route: Option<&str>) -> Vec<KeyValue> {
    let mut list = vec![KeyValue::new("mcp.method.name", cut(&call.method).to_owned())];
    let mut text = |key: &'static str, text: &str| list.push(KeyValue::new(key, text.to_owned()));
    if let Some(tool) = &call.tool {
        text("gen_ai.tool.name", cut(tool));
    }
    if call.method == TOOLS_CALL {
        text("gen_ai.operation.name", "execute_tool");
    }
    let date = Revision::ALL.iter().find(|(revision, _)| Some(*revision) == call.revision);
    if let Some((_, date)) = date {
        text("mcp.protocol.version", date);
    }
    let id = json::decode_str(&call.id);
    // The id is a JSON string or number. The client chose it, so its length is limited.
    let id = id.as_deref().or_else(|| std::str::from_utf8(&call.id).ok());
    if let Some(id) = id.filter(|id| id.chars().count() <= ID_MAX) {
        text("jsonrpc.request.id", id);
    }
    match over {
        DownstreamTransport::Pipe => text("network.transport", "pipe"),
        DownstreamTransport::Http => {
            text("network.transport", "tcp");
            text("network.protocol.name", "http");
        }
    }
    if let Some(kind) = error_type(call) {
        text("error.type", &kind);
    }
    if let Some(code) = call.error_code {
        text("rpc.response.status_code", &code.to_string());
    }
    if let Some(route) = route {
        text("milepost.route", cut(route));
    }
    if let Some(client) = &call.client {
        text("milepost.client", cut(&client.to_string()));
    }
    text("milepost.outcome", call.outcome.name());
    let account = &call.account;
    list.extend([
        KeyValue::new("milepost.progress.asked", call.token.is_some()),
        count("milepost.progress.received", account.received),
        count("milepost.progress.sent", account.sent),
        count("milepost.progress.withheld", account.withheld.total()),
        count("milepost.progress.repaired", account.repaired.total()),
        count("milepost.progress.beats", account.beats),
        count("milepost.progress.estimates", account.estimates),
        count("milepost.progress.overheard", account.read_from_text),
        KeyValue::new("milepost.silence.longest", call.silence.as_secs_f64()),
    ]);
    list
}

/// Returns the events of the span: one for each reason and repair, and at most two others.
fn events(call: &Summary, marks: &[SpanMark]) -> Vec<(Instant, &'static str, Vec<KeyValue>)> {
    let mut list = Vec::new();
    if let Some(at) = call.first_sent {
        list.push((at, "milepost.first_progress", Vec::new()));
    }
    let silence = KeyValue::new("milepost.silence.longest", call.silence.as_secs_f64());
    list.push((call.silent_from, "milepost.longest_silence", vec![silence]));
    let first = |event| {
        let mark = marks.iter().find(|mark| mark.event == event);
        mark.map_or(call.ended, |mark| mark.at)
    };
    for (reason, number) in call.account.withheld.iter() {
        let attributes =
            vec![KeyValue::new("milepost.reason", reason.name()), count("milepost.count", number)];
        list.push((first(SpanEvent::Withheld(reason)), "milepost.withheld", attributes));
    }
    for (repair, number) in call.account.repaired.iter() {
        let attributes =
            vec![KeyValue::new("milepost.repair", repair.name()), count("milepost.count", number)];
        list.push((first(SpanEvent::Repaired(repair)), "milepost.repaired", attributes));
    }
    list
}

/// Returns the kind of error of a failed call. A call that its client gave up is not a failure.
fn error_type(call: &Summary) -> Option<String> {
    match call.outcome {
        Outcome::ToolError => Some("tool_error".to_owned()),
        Outcome::Error => {
            Some(call.error_code.map_or_else(|| "_OTHER".to_owned(), |code| code.to_string()))
        }
        Outcome::TimedOut => Some("timeout".to_owned()),
        Outcome::ServerGone => Some("server_gone".to_owned()),
        Outcome::ProxyStopped => Some("milepost_stopped".to_owned()),
        Outcome::CancelledByOperator => Some("cancelled_by_operator".to_owned()),
        Outcome::Result
        | Outcome::Interim
        | Outcome::Cancelled
        | Outcome::TaskEnded
        | Outcome::Settled
        | Outcome::ClientLeft => None,
    }
}
