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

/// A task of 2025-11-25 that a call has turned into.
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
    /// The time of the last report, or of the beginning.
    pub(crate) at: Instant,
}

impl TaskNotes {
    /// Notes of a task that begins now.
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

    /// Returns the server's text, with its value unless the text contains it; empty if the server sent neither.
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
    /// The value and the total of a report.
    pub(crate) fn figures(report: &ReportView<'_>) -> (Option<f64>, Option<f64>) {
        let figure = report.figure.as_ref();
        let total = figure.and_then(|figure| figure.total);
        (figure.map(|figure| figure.value.value), total.map(|total| total.value))
    }

    /// Whether a report says the same.
    pub(crate) fn is_repeated_by(&self, report: &ReportView<'_>) -> bool {
        (self.value, self.total) == Self::figures(report)
            && self.message.as_deref() == report.message
    }
}

/// The last state of a counter in text.
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
    /// The longest time between two notifications, or before the first, and when it began.
    pub(crate) silence: (Duration, Instant),
    pub(crate) last: Option<(LastSent, Instant)>,
    /// The last heartbeat, to recognise an equal one from another proxy.
    pub(crate) last_heartbeat: Option<(LastSent, Instant)>,
    /// The server's last message for this call, if it differs from the last sent message.
    pub(crate) last_message: Option<Bytes>,
    /// The joined text so far, if messages are pieces of one text.
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

    /// Keeps the last progress that was sent: its value, total and text. The older text stays if the new progress has
    /// none.
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
            // The text that was left out for the new progress is newer.
            self.last_message.get_or_insert_with(|| words.into());
        }
    }

    /// The server's last message for this call.
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
    /// The text of a message. The first value in a text had this total.
    Words { total: Option<f64> },
    /// Members of a notification. From then on, numbers in texts are ignored.
    Members,
}

impl ProtocolValues {
    /// Whether a value in words is of the same work as the values before, and notes the value. With
    /// [`OnFall::Rebase`] each total may begin a phase of its own.
    pub(crate) fn follow(&mut self, figure: &ProgressValue, on_fall: OnFall) -> bool {
        let found = figure.total.as_ref().map(|total| total.value);
        match *self {
            Self::Members => false,
            // Words with another total count something else.
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
    /// The server has reported something for this call.
    pub(crate) began: bool,
    /// The server has reported a value.
    pub(crate) has_figure: bool,
    /// The source of the values of the server's progress, text of other messages aside.
    pub(crate) protocol_values: ProtocolValues,
    /// The counter that is followed in text.
    pub(crate) text_counter: Option<Counter>,
    /// The dialect in which the server has marked its last notification.
    pub(crate) last_of: Option<Dialect>,
    /// Whether the server has used a dialect whose tools return bare results.
    pub(crate) bare_results: bool,
}

/// Whether the client of a call has reconnected for it on the call's stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Resumption {
    /// The client has not come back, or the filter of the stream that the client left has handed
    /// the call over.
    #[default]
    None,
    /// The client has left this stream of another filter.
    Left(StreamId),
    /// The answer has been written to a stream that the client has left. The client may have read the answer, or may
    /// wait for the server to repeat it. Milepost still forwards what the server repeats, but sends no heartbeat.
    AnsweredThere,
}

/// A request without an answer, or the task that the request has become.
#[derive(Debug)]
pub(crate) struct Call {
    /// Another filter sends the progress of this call, for now.
    pub(crate) shadow: bool,
    /// The call's record has been written, as the client left. Further messages are still handled.
    pub(crate) is_recorded: bool,
    pub(crate) stream: StreamId,
    pub(crate) resumption: Resumption,
    /// The client that asked.
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
    /// A `tools/call` for which the client gave no token.
    pub(crate) lacks_token: bool,
    /// The client, if the request itself names one.
    pub(crate) client: Option<Arc<Client>>,
    pub(crate) origin: RequestOrigin,
    pub(crate) opened: Instant,
    /// The request asks to be run as a task.
    pub(crate) asks_for_task: bool,
    pub(crate) task: Option<Task>,
    /// The task that a `tasks/...` request names.
    pub(crate) about_task: Option<Key>,
    pub(crate) meter: Meter,
    pub(crate) pending: PendingQueue,
    pub(crate) sent: SendHistory,
    pub(crate) reports: ServerReports,
    /// The time of the next check of this call, and its place among other calls of the same moment.
    pub(crate) wake: Option<(Instant, u64)>,
    /// The time when the call ends without an answer: `call_timeout`, or a task's time to live.
    pub(crate) expires: Option<Instant>,
    /// The pauses of the call's time limits, if its server has asked the client a question.
    pub(crate) clock: Option<Box<StoppedClock>>,
    pub(crate) account: CallStats,
    /// The code of the error that the server has answered with.
    pub(crate) error_code: Option<i64>,
    /// The operator's cancellation that ends the call now.
    pub(crate) cancellation: Option<Arc<OperatorCancel>>,
    /// The signature of the call's work, if the work may continue without its client (`late`).
    pub(crate) signature: Option<Box<Signature>>,
    /// The time at which the client sent the call, if the call has joined the work of an earlier call: the server
    /// knows that call's id.
    pub(crate) joined: Option<Instant>,
    /// Calls so far that asked for this work, this call among them.
    pub(crate) attempts: u32,
    /// The age at which the client gives calls up, if Milepost has learned it (`late`).
    pub(crate) client_limit: Option<Duration>,
}

impl Call {
    /// The settings of the call.
    pub(crate) fn settings(&self) -> &CallPolicy {
        self.policy.of(self.tool.as_deref())
    }

    /// Whether the messages of this call are forwarded unchanged, beside other calls whose messages are repaired.
    pub(crate) fn is_observed(&self) -> bool {
        self.settings().observes() && !self.policy.observes()
    }

    /// The repairs that an answer to the call gets.
    pub(crate) fn answer_repairs(&self) -> AnswerRepairs {
        if self.is_observed() { AnswerRepairs::NONE } else { self.settings().answers }
    }

    /// The repairs that an answer to the call gets while it passes in pieces.
    pub(crate) fn large_answer_repairs(&self) -> AnswerRepairs {
        let mut repairs = self.answer_repairs();
        repairs.bare_result &= self.may_have_bare_result();
        repairs
    }

    /// Whether a second answer to the call is left unchanged.
    pub(crate) fn passes_answers(&self) -> bool {
        !self.answer_repairs().orphan_answer
    }

    /// Whether the call runs as a task of Milepost's own.
    pub(crate) fn is_own_task(&self) -> bool {
        self.task.as_ref().is_some_and(|task| task.notes.is_some())
    }

    /// Returns the repairs of a report: for one of Milepost's own tasks, the report names the task.
    pub(crate) fn repairs_of(&self, report: &ReportView<'_>) -> Repairs {
        let mut repairs = report.repairs;
        if self.is_own_task() {
            repairs.add(Repair::Task);
        }
        repairs
    }

    /// Notes a report for the status of the task that the call runs as, if the task is Milepost's own.
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
        // Before `at` changes: the silence that ends now began with the previous notification.
        self.sent.silence = self.silence_until(now);
        self.sent.first.get_or_insert(now);
        self.sent.at = Some(now);
        self.account.sent += 1;
    }

    /// The longest silence so far, and when it began.
    fn silence_until(&self, now: Instant) -> (Duration, Instant) {
        let since = self.sent.at.unwrap_or(self.opened);
        let silent = now.saturating_duration_since(since);
        if silent > self.sent.silence.0 { (silent, since) } else { self.sent.silence }
    }

    /// The age of the call at a time, without the time for which its clocks stood still.
    pub(crate) fn age_at(&self, at: Instant) -> Duration {
        let stood = self.clock.as_ref().map_or(Duration::ZERO, |clock| clock.stood_at(at));
        at.saturating_duration_since(self.opened).saturating_sub(stood)
    }

    /// The time for which the client has waited for the answer to this request.
    pub(crate) fn waited_at(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.joined.unwrap_or(self.opened))
    }

    /// The time since which the client has been asked something, if it has not answered.
    pub(crate) fn asked_since(&self) -> Option<Instant> {
        self.clock.as_ref().and_then(|clock| clock.asked_since())
    }

    /// The shortest time between thinned notifications of the call.
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

    /// The name of the call in messages of Milepost's own.
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
