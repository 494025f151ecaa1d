//! One request of a client, from its forwarding until its answer reaches the gate.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::progress::clients::Client;
use crate::progress::correlate::meter::Meter;
use crate::progress::correlate::pending::PendingQueue;
use crate::progress::correlate::signature::Signature;
use crate::progress::correlate::stopped_clock::StoppedClock;
use crate::progress::dialect::Dialect;
use crate::progress::dialect::report::{Report, ReportView, message_text};
use crate::progress::event::operator_cancel::OperatorCancel;
use crate::progress::event::request_origin::RequestOrigin;
use crate::progress::event::summary::{CallStats, Outcome, Summary};
use crate::progress::ids::{CallId, MappedId, Principal, StreamId};
use crate::progress::policy::{AnswerRepairs, CallPolicy, OnFall, Policy};
use crate::progress::streams::ClientStreams;
use crate::progress::value::{ProgressValue, is_total_of};
use crate::progress::verdict::{Repair, Repairs};
use crate::protocol::json;
use crate::protocol::jsonrpc::Key;
use crate::protocol::mcp::{LISTEN, Revision, TOOLS_CALL};

/// A task (MCP 2025-11-25) that a call has become.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) id: Key,
    pub(crate) text: Bytes,
    /// The last report of the server, if Milepost runs the task; `None` for a task that the server
    /// runs.
    pub(crate) notes: Option<Box<TaskNotes>>,
}

/// The last text and the last value that a server has reported for a call that runs as one of Milepost's own tasks.
#[derive(Debug, Clone)]
pub(crate) struct TaskNotes {
    message: Option<String>,
    figure: Option<(f64, Option<f64>)>,
    /// The time of the server's last report, or the time when the task began.
    pub(crate) at: Instant,
}

impl TaskNotes {
    /// Returns the notes of a task that begins now, without a report.
    pub(crate) fn new(now: Instant) -> Self {
        Self { message: None, figure: None, at: now }
    }

    pub(crate) fn note(&mut self, report: &Report, figure: Option<&ProgressValue>, now: Instant) {
        self.at = now;
        let words = report.message.as_ref().map(|words| message_text(words));
        if let Some(words) = words.as_ref().and_then(|words| json::decode_str(words)) {
            self.message = Some(words.into_owned());
        }
        if let Some(figure) = figure {
            let (value, total) = (figure.value.value, figure.total.as_ref());
            let total = total.map(|total| total.value);
            self.figure = Some((value, total.filter(|total| is_total_of(*total, value))));
        }
    }

    /// Returns the server's last text, followed by its last value unless the text contains the value; empty if the
    /// server sent neither.
    pub(crate) fn words(&self) -> String {
        let value = self.figure.map(|(value, _)| value.to_string()).unwrap_or_default();
        let figure = self.figure.map(|(value, total)| match total {
            Some(total) => format!("{value} of {total}"),
            None => value.to_string(),
        });
        match (&self.message, figure) {
            // Many servers already include the value in their text.
            (Some(message), Some(figure)) if !message.contains(&value) => {
                format!("{message}, {figure}")
            }
            (Some(message), _) => message.clone(),
            (None, figure) => figure.unwrap_or_default(),
        }
    }
}

/// The shortest time between notifications for a client that reads too slowly, even if the route sets a shorter time.
const SLOW_INTERVAL: Duration = Duration::from_millis(100);

/// The progress that was sent last, to recognise an exact duplicate.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct LastSent {
    pub(crate) value: Option<f64>,
    pub(crate) total: Option<f64>,
    /// The text, as a JSON string.
    pub(crate) message: Option<Vec<u8>>,
}

impl LastSent {
    /// Returns the value and the total of a report.
    pub(crate) fn figures(report: &ReportView<'_>) -> (Option<f64>, Option<f64>) {
        let figure = report.figure.as_ref();
        let total = figure.and_then(|figure| figure.total);
        (figure.map(|figure| figure.value.value), total.map(|total| total.value))
    }

    /// Whether `report` has the same value, total and text as this progress.
    pub(crate) fn is_repeated_by(&self, report: &ReportView<'_>) -> bool {
        (self.value, self.total) == Self::figures(report)
            && self.message.as_deref() == report.message
    }
}

/// The last state of a counter that the server writes in a text, such as `3/10`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counter {
    pub(crate) value: f64,
    pub(crate) total: Option<f64>,
    pub(crate) seen_at: Instant,
}

/// The notifications of one call that were sent to its client.
#[derive(Debug, Clone)]
pub(crate) struct SendHistory {
    /// The time of the last sent notification.
    pub(crate) at: Option<Instant>,
    /// The time of the first sent notification.
    pub(crate) first: Option<Instant>,
    /// The longest silence so far, between two notifications or before the first, and the time when it began.
    pub(crate) silence: (Duration, Instant),
    pub(crate) last: Option<(LastSent, Instant)>,
    /// The last heartbeat, to recognise an equal heartbeat of another proxy.
    pub(crate) last_heartbeat: Option<(LastSent, Instant)>,
    /// The server's last message for this call, if it differs from the last sent message.
    pub(crate) last_message: Option<Bytes>,
    /// The text joined so far, if the call's messages are pieces of one text.
    pub(crate) joined: Option<Bytes>,
}

impl SendHistory {
    /// The history of a call that has just opened.
    pub(crate) fn new(opened: Instant) -> Self {
        Self {
            at: None,
            first: None,
            silence: (Duration::ZERO, opened),
            last: None,
            last_heartbeat: None,
            last_message: None,
            joined: None,
        }
    }

    /// Keeps the value, total and text of the progress that was sent last. If that progress has no text, the older text
    /// stays the server's last message.
    pub(crate) fn remember(
        &mut self,
        (value, total): (Option<f64>, Option<f64>),
        words: Option<&[u8]>,
        now: Instant,
    ) {
        let (last, at) = self.last.get_or_insert_with(|| (LastSent::default(), now));
        (last.value, last.total, *at) = (value, total, now);
        if let Some(words) = words {
            self.last_message = None;
            // A copy, in the buffer of the last text: a call may be open for hours, and a slice would keep a whole read
            // buffer alive.
            let kept = last.message.get_or_insert_default();
            kept.clear();
            kept.extend_from_slice(words);
        } else if let Some(words) = last.message.take() {
            // `last_message` may already have a text that was not sent. That text is newer than `words`, so it stays.
            self.last_message.get_or_insert_with(|| words.into());
        }
    }

    /// Returns the server's last message for this call.
    pub(crate) fn last_words(&self) -> Option<&[u8]> {
        let sent = self.last.as_ref().and_then(|(sent, _)| sent.message.as_deref());
        self.last_message.as_deref().or(sent)
    }
}

/// The source of the values of one call's progress notifications.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) enum ProtocolValues {
    /// No notification had a value.
    #[default]
    Missing,
    /// The texts of messages. `total` is the total of the first value that was found in a text.
    Words { total: Option<f64> },
    /// Members of a notification. Once a member has had a value, numbers in texts are ignored.
    Members,
}

impl ProtocolValues {
    /// Notes a value that was found in a text. Returns whether the value counts the same work as the values before it.
    /// With [`OnFall::Rebase`] a value with another total begins a new phase, which counts as the same work.
    pub(crate) fn follow(&mut self, figure: &ProgressValue, on_fall: OnFall) -> bool {
        let found = figure.total.as_ref().map(|total| total.value);
        match *self {
            Self::Members => false,
            // A text with another total counts something else.
            Self::Words { total } => on_fall == OnFall::Rebase || total == found,
            Self::Missing => {
                *self = Self::Words { total: found };
                true
            }
        }
    }
}

/// The server's reports on one call.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerReports {
    /// Whether the server has reported something for this call.
    pub(crate) began: bool,
    /// Whether the server has reported a value.
    pub(crate) has_figure: bool,
    /// The source of the values in the server's progress. Values in texts that are not progress are not considered.
    pub(crate) protocol_values: ProtocolValues,
    /// The counter in the server's texts whose values are used as progress.
    pub(crate) text_counter: Option<Counter>,
    /// The dialect of the notification that the server has marked as its last one.
    pub(crate) last_of: Option<Dialect>,
    /// Whether the server has used a dialect whose tools return bare results.
    pub(crate) bare_results: bool,
}

/// How far the client of a call has moved the call to a new stream by reconnecting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Resumption {
    /// The client has not reconnected, or the filter of its old stream has already handed the call over.
    #[default]
    None,
    /// The client has reconnected and left this stream, whose filter has not handed the call over yet.
    Left(StreamId),
    /// The answer has been written to a stream that the client has left. The client may have read the answer, or may
    /// wait for the server to repeat it. Milepost still forwards what the server repeats, but sends no heartbeat.
    AnsweredThere,
}

/// A request without an answer, or the task that the request has become.
#[derive(Debug)]
pub(crate) struct Call {
    /// Whether another filter sends the progress of this call at present.
    pub(crate) shadow: bool,
    /// Whether the call's record has been written because the client has left. Later messages are still handled.
    pub(crate) is_recorded: bool,
    pub(crate) stream: StreamId,
    pub(crate) resumption: Resumption,
    /// The client that sent the request.
    pub(crate) principal: Principal,
    /// The policy at the time when the call opened.
    pub(crate) policy: Arc<Policy>,
    /// The upstream stream of the call, if the stream is not a client stream.
    pub(crate) paired: Option<StreamId>,
    pub(crate) id: MappedId,
    pub(crate) token: Option<MappedId>,
    pub(crate) method: Cow<'static, str>,
    pub(crate) tool: Option<String>,
    pub(crate) revision: Option<Revision>,
    /// Whether this is a `tools/call` for which the client gave no token.
    pub(crate) lacks_token: bool,
    /// The client, if the request itself names one.
    pub(crate) client: Option<Arc<Client>>,
    pub(crate) origin: RequestOrigin,
    pub(crate) opened: Instant,
    /// Whether the request asks to be run as a task.
    pub(crate) asks_for_task: bool,
    pub(crate) task: Option<Task>,
    /// The task that a `tasks/...` request names.
    pub(crate) about_task: Option<Key>,
    pub(crate) meter: Meter,
    pub(crate) pending: PendingQueue,
    pub(crate) sent: SendHistory,
    pub(crate) reports: ServerReports,
    /// The time of the next check of this call, and its order among other calls that are due at the same time.
    pub(crate) wake: Option<(Instant, u64)>,
    /// The deadline at which the call ends without an answer: `call_timeout`, or a task's time to live.
    pub(crate) expires: Option<Instant>,
    /// The pauses of the call's time limits while the client answers questions of the server.
    pub(crate) clock: Option<Box<StoppedClock>>,
    pub(crate) account: CallStats,
    /// The code of the error that the server has answered with.
    pub(crate) error_code: Option<i64>,
    /// The operator's cancellation that ends the call now.
    pub(crate) cancellation: Option<Arc<OperatorCancel>>,
    /// The signature of the call's work, if the work may continue without its client (`late`).
    pub(crate) signature: Option<Box<Signature>>,
    /// For a call that has joined the work of an earlier call: the time when the client sent this call. The server
    /// knows only the id of the earlier call.
    pub(crate) joined: Option<Instant>,
    /// The number of calls that have asked for this work so far, including this call.
    pub(crate) attempts: u32,
}

impl Call {
    /// Returns the settings that apply to the call.
    pub(crate) fn settings(&self) -> &CallPolicy {
        self.policy.of(self.tool.as_deref())
    }

    /// Whether the messages of this call are forwarded unchanged while messages of other calls are repaired.
    pub(crate) fn is_observed(&self) -> bool {
        self.settings().observes() && !self.policy.observes()
    }

    /// Returns the repairs that are allowed for an answer to the call.
    pub(crate) fn answer_repairs(&self) -> AnswerRepairs {
        if self.is_observed() { AnswerRepairs::NONE } else { self.settings().answers }
    }

    /// Returns the repairs that are allowed for an answer to the call that is forwarded in pieces.
    pub(crate) fn large_answer_repairs(&self) -> AnswerRepairs {
        let mut repairs = self.answer_repairs();
        repairs.bare_result &= self.may_have_bare_result();
        repairs
    }

    /// Whether a second answer to the call is forwarded unchanged.
    pub(crate) fn passes_answers(&self) -> bool {
        !self.answer_repairs().orphan_answer
    }

    /// Whether the call runs as a task of Milepost's own.
    pub(crate) fn is_own_task(&self) -> bool {
        self.task.as_ref().is_some_and(|task| task.notes.is_some())
    }

    /// Returns the repairs that count for a report. If the call runs as one of Milepost's own tasks, the client is
    /// informed about the task, which counts as a repair.
    pub(crate) fn repairs_of(&self, report: &ReportView<'_>) -> Repairs {
        let mut repairs = report.repairs;
        if self.is_own_task() {
            repairs.add(Repair::Task);
        }
        repairs
    }

    /// Notes a report for the status of the call's task, if the task is Milepost's own.
    pub(crate) fn note_for_task(&mut self, report: &Report, now: Instant) {
        if !self.is_own_task() {
            return;
        }
        let words = report.message.as_ref().and_then(|words| json::decode_str(words));
        let in_words = || self.settings().extract.figure(words.as_deref()?);
        let figure = report.figure.clone().or_else(in_words);
        if let Some(notes) = self.task.as_mut().and_then(|task| task.notes.as_mut()) {
            notes.note(report, figure.as_ref(), now);
        }
    }

    pub(crate) fn is_tool_call(&self) -> bool {
        &*self.method == TOOLS_CALL
    }

    /// Whether the result may be the bare payload of a tool.
    pub(crate) fn may_have_bare_result(&self) -> bool {
        (self.reports.bare_results || self.policy.bare_results) && self.is_tool_call()
    }

    pub(crate) fn is_subscription(&self) -> bool {
        &*self.method == LISTEN
    }

    /// Notes that a notification goes to the client now.
    pub(crate) fn note_sent(&mut self, now: Instant) {
        // Updated before `at` changes, because the silence that ends now began with the previous notification.
        self.sent.silence = self.silence_until(now);
        self.sent.first.get_or_insert(now);
        self.sent.at = Some(now);
        self.account.sent += 1;
    }

    /// Returns the longest silence so far, and the time when it began.
    fn silence_until(&self, now: Instant) -> (Duration, Instant) {
        let since = self.sent.at.unwrap_or(self.opened);
        let silent = now.saturating_duration_since(since);
        if silent > self.sent.silence.0 { (silent, since) } else { self.sent.silence }
    }

    /// Returns the age of the call at a time, without the pauses of its time limits.
    pub(crate) fn age_at(&self, at: Instant) -> Duration {
        let stood = self.clock.as_ref().map_or(Duration::ZERO, |clock| clock.stood_at(at));
        at.saturating_duration_since(self.opened).saturating_sub(stood)
    }

    /// Returns how long the client has waited for the answer to this request.
    pub(crate) fn waited_at(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.joined.unwrap_or(self.opened))
    }

    /// Returns the time of the server's oldest open question to the client; `None` if no question is open.
    pub(crate) fn asked_since(&self) -> Option<Instant> {
        self.clock.as_ref().and_then(|clock| clock.asked_since())
    }

    /// Returns the shortest time between thinned notifications of the call.
    pub(crate) fn min_interval(&self, streams: &ClientStreams) -> Duration {
        let slow = if streams.client_is_slow { SLOW_INTERVAL } else { Duration::ZERO };
        self.settings().min_interval.max(slow)
    }

    /// Returns the server's last value with its total, as text; `None` if the server sent none.
    pub(crate) fn figure_words(&self) -> Option<String> {
        let (last, _) = self.sent.last.as_ref().filter(|_| self.reports.has_figure)?;
        let (value, total) = (last.value?, last.total?);
        is_total_of(total, value).then(|| format!("{value} of {total}"))
    }

    /// Returns the name of the call for use in Milepost's own messages.
    pub(crate) fn label(&self) -> &str {
        self.tool.as_deref().unwrap_or(&self.method)
    }

    pub(crate) fn summary(self, id: CallId, ended: Instant, outcome: Outcome) -> Summary {
        let (silence, silent_from) = self.silence_until(ended);
        Summary {
            call: id,
            id: self.id.client,
            method: self.method,
            tool: self.tool,
            token: self.token.map(|token| token.client),
            lacks_token: self.lacks_token,
            client: self.client,
            revision: self.revision,
            trace: self.origin.trace,
            hop: self.origin.hop,
            opened: self.opened,
            ended,
            outcome,
            cancellation: self.cancellation,
            error_code: self.error_code,
            first_sent: self.sent.first,
            silence,
            silent_from,
            has_figure: self.reports.has_figure,
            account: self.account,
        }
    }
}
