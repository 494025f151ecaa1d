//! Text for people that a route reads as progress: log notifications, standard error, and lines on standard output that
//! are not messages.
//!
//! Text does not name a request, unless a dialect of the route file says how it does. It is attributed to the only call
//! that it can be about, or to no call. The server's own progress takes precedence.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::progress::correlate::call::{Call, Counter, ProtocolValues};
use crate::progress::correlate::open_calls::only;
use crate::progress::correlate::place::OVER;
use crate::progress::dialect::fields::Fields;
use crate::progress::dialect::report::{About, Report, TextSource};
use crate::progress::event::Origin;
use crate::progress::gate::hold::SourceMessage;
use crate::progress::gate::questions::{note_question, note_withdrawal};
use crate::progress::gate::state::Gate;
use crate::progress::ids::{CallId, StreamId};
use crate::progress::intake::scale::apply_scale;
use crate::progress::intake::text;
use crate::progress::policy::{CallPolicy, Messages, Mode};
use crate::progress::value::ProgressValue;
use crate::progress::verdict::Reason;
use crate::protocol::jsonrpc::{Kind, Message};
use crate::protocol::terminal::Terminal;
use crate::protocol::{json, mcp};

/// A text that a server wrote.
pub(crate) enum SourceText<'a> {
    /// A line in the form that a terminal would show.
    Line(&'a str),
    /// The `data` of a log notification.
    Data(&'a Bytes),
}

/// Methods of log notifications. The second is used by a reference server, the third by servers that forward the log of
/// a language server.
const LOGS: [&str; 3] = [mcp::LOG, "notifications/stderr", "window/logMessage"];

/// Members by which a structured log names a tool.
const TOOLS: [&str; 3] = ["tool", "toolName", "tool_name"];

/// How long a counter is followed without a new value, before another counter may be followed.
const COUNTER_KEPT: Duration = Duration::from_secs(10);

/// Whether a value belongs to the followed counter, or begins the next counter. A program may alternate between
/// counting files and bytes; the client's progress bar follows only one of these counters.
fn follows(counter: &mut Option<Counter>, seen_at: Instant, figure: &ProgressValue) -> bool {
    let total = figure.total.as_ref().map(|total| total.value);
    let is_other = counter.as_ref().is_some_and(|last| {
        // A counter that has reached its total is complete, so another counter may be followed immediately.
        let is_done = last.total.is_some_and(|total| last.value >= total);
        last.total != total && !is_done && seen_at < last.seen_at + COUNTER_KEPT
    });
    if !is_other {
        *counter = Some(Counter { value: figure.value.value, total, seen_at });
    }
    !is_other
}

// Text does not name a request. A line is therefore progress of the only active call. It is progress of no call if two
// are active, or if one was cancelled a moment ago and the server may still work on it. Text that is in the pipe when a
// request arrives was written before the request, so it is read first. Of the lines that are read together, only the
// newest are searched, because newer progress would replace older lines before anyone saw them.
/// Handles a line that the server has written outside of messages, in the form that a terminal would show.
pub(crate) fn take_line(gate: &mut Gate, now: Instant, source: TextSource, line: &str) {
    if gate.calls.policy.listens_to(source) {
        gate.calls.received_at = Some(now);
        let meant = sole_candidate(gate, now, Origin::Shared, &[]);
        take_text(gate, now, meant, source, SourceText::Line(line));
    }
}

/// Reads a line on standard output that is not a message.
pub(crate) fn text_from_stdout(gate: &mut Gate, now: Instant, origin: Origin, text: &[u8]) {
    if !gate.calls.policy.listens_to(TextSource::Stdout) {
        return;
    }
    // A progress bar draws its states over each other on one line. All these states have arrived together, so only the
    // last one matters.
    let mut last = None;
    let mut terminal = Terminal::default();
    terminal.feed(text, &mut |line| last = Some(line.to_owned()));
    terminal.flush(&mut |line| last = Some(line.to_owned()));
    if let Some(line) = last {
        let meant = sole_candidate(gate, now, origin, &[]);
        take_text(gate, now, meant, TextSource::Stdout, SourceText::Line(&line));
    }
}

/// Returns the stream of the call that a log notification is about, if another filter sends the progress of the call
/// ([`Input::HearLog`](crate::progress::input::Input::HearLog)).
pub(crate) fn stream_of_log(
    gate: &mut Gate,
    now: Instant,
    origin: Origin,
    message: &Message,
) -> Option<StreamId> {
    let Some((meant, data)) = read_log(gate, now, origin, message) else {
        let call = overhear(gate, origin, message)?.0;
        let call = gate.calls.open.get(call)?;
        return call.shadow.then_some(call.stream);
    };
    let named = named_in(gate, TextSource::Log, &SourceText::Data(&data));
    let call = gate.calls.open.get(named.unwrap_or(meant).ok()?)?;
    let listens = call.settings().listens_to(TextSource::Log);
    (call.shadow && listens).then_some(call.stream)
}

/// Handles a message that the server has sent on another stream, where another filter forwards it: a log message, or a
/// question that may be about a call of this filter.
pub(crate) fn hear(gate: &mut Gate, now: Instant, origin: Origin, message: &Message) {
    match message.kind() {
        Kind::Request => note_question(gate, now, origin, message, None),
        _ if message.method().as_deref() == Some(mcp::CANCELLED) => {
            note_withdrawal(gate, now, message);
        }
        _ => text_from_log(gate, now, origin, message),
    }
}

/// Reads the text of a log notification that has already been forwarded.
pub(crate) fn text_from_log(gate: &mut Gate, now: Instant, origin: Origin, message: &Message) {
    if let Some((meant, data)) = read_log(gate, now, origin, message) {
        take_text(gate, now, meant, TextSource::Log, SourceText::Data(&data));
    } else if let Some((id, report)) = overhear(gate, origin, message) {
        take_overheard(gate, now, id, report);
    }
}

/// Returns the call that a forwarded notification is about, and the progress in it, if a dialect overhears
/// notifications with this method.
pub(crate) fn overhear(
    gate: &mut Gate,
    origin: Origin,
    message: &Message,
) -> Option<(CallId, Report)> {
    let (policies, method) = (gate.calls.policy.clone(), message.method()?);
    policies.overheard(&method, message).find_map(|(dialect, report)| {
        let (id, _) = gate.calls.attribute(&report.about, origin).ok()?;
        let settings = gate.calls.open.get(id)?.settings();
        let takes = settings.mode == Mode::Full && settings.dialects.contains(dialect);
        takes.then_some((id, report))
    })
}

/// Uses the progress in a notification that has already been forwarded.
pub(crate) fn take_overheard(gate: &mut Gate, now: Instant, id: CallId, mut report: Report) {
    let Some(call) = gate.calls.open.get_mut(id).filter(|call| !call.shadow) else {
        return;
    };
    call.account.read_from_text += 1;
    call.note_for_task(&report, now);
    if call.token.is_none() || call.is_subscription() {
        return call.account.withheld(Reason::NoToken);
    }
    let policy = Arc::clone(&call.policy);
    let policy = policy.of(call.tool.as_deref());
    if report.figure.is_none() && !report.chunk {
        let words = report.message.as_ref().and_then(|message| json::decode_str(message));
        report.figure = words.and_then(|words| policy.extract.figure(&words));
    }
    hold_text(gate, now, id, report, policy);
}

/// Returns the call that a log notification can be about, and the report in it.
pub(crate) fn read_log(
    gate: &Gate,
    now: Instant,
    origin: Origin,
    message: &Message,
) -> Option<(Result<CallId, Reason>, Bytes)> {
    let is_log = message.method().is_some_and(|method| LOGS.contains(&&*method));
    if !is_log || !gate.calls.policy.listens_to(TextSource::Log) {
        return None;
    }
    let params = message.params().unwrap_or_default();
    let data = log_data(params.clone())?;
    let logger = json::member(&params, "logger");
    let member = || Fields::read(&data)?.text(&TOOLS);
    let logger = logger.as_ref().and_then(|text| json::decode_str(text));
    let logger = logger.map(|logger| logger.into_owned());
    let names: Vec<String> = logger.into_iter().chain(member()).collect();
    Some((sole_candidate(gate, now, origin, &names), data))
}

/// Returns the only call that a text can be about: the call of its stream, the call whose tool is named in the text, or
/// the only active call.
pub(crate) fn sole_candidate(
    gate: &Gate,
    now: Instant,
    origin: Origin,
    said: &[String],
) -> Result<CallId, Reason> {
    if let Some(call) = gate.calls.open.sole_call_on(origin, &gate.calls.streams) {
        return Ok(call);
    }
    if gate.calls.open.is_stale(origin, &gate.calls.streams) {
        return Err(Reason::Unknown);
    }
    // After a cancellation the server may work on the cancelled call for a moment, and write about it. The name of a
    // tool does not help, because the next call may use the same tool.
    if gate.calls.given_up_at.is_some_and(|at| now < at + OVER) {
        return Err(Reason::Ambiguous);
    }
    let is_named = |call: &Call, name| call.tool.as_deref().is_some_and(|tool| names(name, tool));
    let named = |name| only(gate.calls.open.active(|call| is_named(call, name))).ok();
    if let Some(call) = said.iter().find_map(|name| named(name)) {
        return gate.calls.unless_over(call);
    }
    gate.calls.guess(&About::default(), origin)
}

/// Returns the call that an object of a structured log names by a pointer of its dialect; `None` if the object names no
/// call.
pub(crate) fn named_in(
    gate: &Gate,
    source: TextSource,
    text: &SourceText<'_>,
) -> Option<Result<CallId, Reason>> {
    let all = gate.calls.policy.everywhere().flat_map(|policy| &policy.dialects);
    let mut naming = all.filter_map(|dialect| dialect.that_names(source)).peekable();
    naming.peek()?;
    let object = match text {
        SourceText::Line(line) => Bytes::copy_from_slice(line.trim().as_bytes()),
        SourceText::Data(data) => json::decode_str(data).map_or_else(
            || (*data).clone(),
            |words| Bytes::copy_from_slice(words.trim().as_bytes()),
        ),
    };
    naming.find_map(|own| {
        let found = gate.calls.open.named_in_text(&own.about(&object)?);
        Some(found.ok_or(Reason::Unknown))
    })
}

pub(crate) fn take_text(
    gate: &mut Gate,
    now: Instant,
    meant: Result<CallId, Reason>,
    source: TextSource,
    text: SourceText<'_>,
) {
    let id = match named_in(gate, source, &text).unwrap_or(meant) {
        Ok(id) => id,
        Err(Reason::Ambiguous) => return withhold_ambiguous(gate, source),
        Err(_) => return,
    };
    let Some(call) = gate.calls.open.get_mut(id).filter(|call| !call.shadow) else {
        return;
    };
    let policy = Arc::clone(&call.policy);
    let policy = policy.of(call.tool.as_deref());
    if !policy.listens_to(source) {
        return;
    }
    call.account.read_from_text += 1;
    // The status of a task shows the text too, even if the client sent no token.
    if call.is_own_task() {
        let report = match &text {
            SourceText::Line(line) => text::read(source, line, policy),
            SourceText::Data(data) => text::read_json(source, data, policy),
        };
        report.iter().for_each(|report| call.note_for_task(report, now));
    }
    if call.token.is_none() || call.is_subscription() {
        return call.account.withheld(Reason::NoToken);
    }
    let read = match text {
        SourceText::Line(line) => text::read(source, line, policy),
        SourceText::Data(data) => text::read_json(source, data, policy),
    };
    let Some(report) = read else { return call.account.withheld(Reason::Unreadable) };
    hold_text(gate, now, id, report, policy);
}

/// Lets a report from text wait until it is sent. The server's own progress takes precedence over it.
pub(crate) fn hold_text(
    gate: &mut Gate,
    now: Instant,
    id: CallId,
    mut report: Report,
    policy: &CallPolicy,
) {
    let Some(call) = gate.calls.open.get_mut(id) else { return };
    // If pieces of text are joined, a piece from text is treated like a piece of progress.
    let is_joined = report.chunk && policy.messages == Messages::Append;
    report.from_text = !is_joined;
    report.in_words = true;
    apply_scale(&mut report, policy.scale);
    if call.reports.protocol_values != ProtocolValues::Missing {
        // Values in text may count something else than the values in the server's own progress, so they are dropped.
        report.figure = None;
    }
    // The server's own report waits, and text must not replace it.
    if !is_joined && call.pending.last().is_some_and(|last| !last.report.from_text) {
        return call.account.withheld(Reason::Superseded);
    }
    report.figure =
        report.figure.filter(|figure| follows(&mut call.reports.text_counter, now, figure));
    call.reports.has_figure |= report.figure.is_some();
    gate.hold(now, id, SourceMessage::default(), report);
}

/// Withholds a text while several calls are active, because it is unknown which call it belongs to. The record of each
/// call contains the reason.
pub(crate) fn withhold_ambiguous(gate: &mut Gate, source: TextSource) {
    let listens = |call: &Call| call.settings().listens_to(source);
    let candidates = gate.calls.open.active(|call| call.token.is_some() && listens(call));
    let candidates: Vec<CallId> = candidates.collect();
    for id in candidates {
        if let Some(call) = gate.calls.open.get_mut(id) {
            call.account.read_from_text += 1;
            call.account.withheld(Reason::Ambiguous);
        }
    }
}

/// Returns the text of a log notification: its `data`, or all members if its text has another name. Servers that write
/// maps (mcp-go) send `message`, `msg` or `text`.
fn log_data(params: Bytes) -> Option<Bytes> {
    let fields = Fields::read(&params)?;
    let beside = ["message", "msg", "text", "content"];
    match fields.first(&["data"]) {
        // If `data` is a map of details, the text may be in a member beside `data`.
        Some(data) if !data.starts_with(b"{") || fields.string(beside[0]).is_none() => {
            Some(data.clone())
        }
        // There is no text, or the text is a map inside a string.
        _ => match beside.iter().find_map(|name| fields.string(name)) {
            Some(words) if words.starts_with(b"\"{") || fields.string("content").is_some() => {
                Some(words.clone())
            }
            words => words.is_some().then_some(params),
        },
    }
}

/// Whether a logger's name is the name of a tool, possibly after the names of its server or module.
fn names(logger: &str, tool: &str) -> bool {
    let before = logger.strip_suffix(tool).filter(|_| !tool.is_empty());
    before.is_some_and(|before| before.is_empty() || before.ends_with(['.', '/']))
}
