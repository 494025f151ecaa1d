//! A player gives the recorded inputs of one filter to a new filter, at the recorded times.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use litemap::LiteMap;

use crate::config::values;
use crate::observe::events::APART;
use crate::observe::transcript::{LineStream, TranscriptLine, escape, settings, summary, unescape};
use crate::progress::durations::LearnedDurations;
use crate::progress::input::{FilterScope, Input, InputResult, MessageLine, upstream_stream};
use crate::progress::{
    CallId, Disposition, Filter, FilterEvent, Fragment, Origin, Outcome, Policy, Reason, StreamId,
    StreamKind, StreamPacing, Verdict,
};
use crate::protocol::jsonrpc::Message;
use crate::relay::SOLE_STREAM;

/// An output may be recorded this much later than it was due. An output that is overdue for longer is written even if
/// the recording does not have it.
const SLACK: Duration = Duration::from_millis(100);

/// A call that the filter has opened, or has taken over from another filter.
#[derive(Debug)]
pub(in crate::lab) struct PlayedCall {
    /// The call in its filter.
    pub(in crate::lab) call: CallId,
    /// The method of the request.
    pub(in crate::lab) method: String,
    /// The tool of `tools/call`.
    pub(in crate::lab) tool: Option<String>,
    /// The id, as its client wrote it.
    pub(in crate::lab) id: Bytes,
    /// The progress token, as its client wrote it.
    pub(in crate::lab) token: Option<Bytes>,
}

/// An event of a call. The filter's events come in order.
#[derive(Debug)]
pub(in crate::lab) enum CallNews {
    /// A call begins.
    Opened(PlayedCall),
    /// A call of another filter continues here.
    TakenOver(PlayedCall),
    /// The client of the call got a heartbeat.
    Beat(CallId),
    /// A call has ended.
    Ended(CallId, Outcome),
}

/// The settings with which a recording is played.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::lab) enum PolicySource {
    /// The recording's own.
    Recording,
    /// Settings that may differ from the recording's.
    Other,
}

/// A line of the output.
#[derive(Debug, Clone)]
pub(in crate::lab) struct PlayedLine {
    /// The line, in the form of a recording.
    pub(in crate::lab) text: String,
    /// The filter's time, counted from the start of the recording.
    pub(in crate::lab) at: Duration,
    /// Whether the line is a heartbeat.
    pub(in crate::lab) is_beat: bool,
}

/// A filter, its clients, and a clock that moves only on command.
pub(in crate::lab) struct Player {
    filter: Filter,
    learned: Arc<LearnedDurations>,
    /// Whether the connection has a single client, on a single stream.
    is_wire: bool,
    /// Whether clients that do not know each other share the server.
    is_shared: bool,
    start: Instant,
    /// The time of the recording.
    clock: Instant,
    /// The time of the filter. It may be ahead of `clock`: an output slightly before its due time gets its due time.
    now: Instant,
    pub(in crate::lab) policy_source: PolicySource,
    streams: BTreeSet<StreamId>,
    /// The last client message.
    asked: Option<(StreamId, Message)>,
    /// The last server message.
    last_message: Option<(Origin, Message)>,
    /// The words of a line whose message is on the next line.
    announced: String,
    /// A message that the filter forwards unchanged to the client.
    passes: Option<String>,
    /// Streams whose client has not read its messages yet.
    unwritten: BTreeSet<StreamId>,
    waits: BTreeSet<StreamId>,
    out: Vec<PlayedLine>,
    messages: u64,
    /// The verdicts on server messages, by number.
    pub(in crate::lab) verdicts: LiteMap<u64, Verdict>,
    /// The calls that server messages were about, by the number of the message.
    pub(in crate::lab) calls: LiteMap<u64, CallId>,
    /// Heartbeats.
    pub(in crate::lab) beats: u64,
    /// Events of calls that were not taken yet.
    pub(in crate::lab) news: Vec<CallNews>,
}

impl Player {
    pub(in crate::lab) fn new(
        policy: &Arc<Policy>,
        begins: Option<FilterScope>,
        start: Instant,
    ) -> Self {
        let learned = Arc::clone(&policy.learned);
        let mut policy = Arc::clone(policy);
        if matches!(begins, Some(FilterScope::Shared(_))) {
            Arc::make_mut(&mut policy).id_mapping = true;
        }
        let mut filter = match begins {
            Some(FilterScope::Request(_)) => Filter::of_request(policy),
            Some(FilterScope::Session) => Filter::of_session(policy),
            _ => Filter::new(policy),
        };
        match begins {
            Some(begins) => drop(filter.handle(start, &Input::Begin(begins))),
            None => filter.open_stream(SOLE_STREAM, StreamKind::Shared, StreamPacing::ByCall),
        }
        Self {
            filter,
            learned,
            is_wire: begins.is_none(),
            is_shared: matches!(begins, Some(FilterScope::Shared(_))),
            start,
            clock: start,
            now: start,
            policy_source: PolicySource::Recording,
            streams: BTreeSet::from([SOLE_STREAM]),
            asked: None,
            last_message: None,
            announced: String::new(),
            passes: None,
            unwritten: BTreeSet::new(),
            waits: BTreeSet::new(),
            out: Vec::new(),
            messages: 0,
            verdicts: LiteMap::new(),
            calls: LiteMap::new(),
            beats: 0,
            news: Vec::new(),
        }
    }

    /// Returns the output since the last call of this method.
    pub(in crate::lab) fn take(&mut self) -> Vec<PlayedLine> {
        std::mem::take(&mut self.out)
    }

    /// Adds a line to the output.
    fn put(&mut self, text: String) {
        let at = self.now.saturating_duration_since(self.start);
        self.out.push(PlayedLine { text, at, is_beat: false });
    }

    /// Returns the time since the start.
    pub(in crate::lab) fn time(&self) -> Duration {
        self.clock.saturating_duration_since(self.start)
    }

    /// Applies an input. Returns the numbers of the server's messages in it.
    ///
    /// # Errors
    /// The text that was expected instead.
    pub(in crate::lab) fn input(
        &mut self,
        line: &TranscriptLine<'_>,
    ) -> Result<Range<u64>, String> {
        let before = self.filter.intake().messages();
        let text = unescape(line.text)?;
        if line.sign == b'!' {
            let words = String::from_utf8_lossy(&text);
            if Input::announces_message(&words) {
                self.announced = words.into_owned();
            } else {
                self.handle(Input::read(&words, None)?)?;
            }
        } else {
            let stream = match line.at {
                LineStream::Only => (line.sign == b'>').then_some(SOLE_STREAM),
                LineStream::Nowhere => Some(StreamId::NOWHERE).filter(|_| line.sign == b'>'),
                LineStream::Stream(0) if line.sign == b'<' => None,
                LineStream::Stream(stream) if line.sign == b'<' => Some(upstream_stream(stream)),
                LineStream::Stream(stream) | LineStream::Client(stream) => Some(StreamId(stream)),
            };
            if self.is_wire && line.sign == b'>' && stream != Some(SOLE_STREAM) {
                return Err("a client on its only stream is expected".to_owned());
            }
            let text = Bytes::from(text.into_owned());
            let line = MessageLine { sign: char::from(line.sign), stream, text };
            let announced = std::mem::take(&mut self.announced);
            self.handle(Input::read(&announced, Some(line))?)?;
        }
        self.records();
        self.messages = self.filter.intake().messages();
        Ok(before + 1..self.messages + 1)
    }

    /// Gives an input to the filter. First adds the parts that the recording does not repeat.
    fn handle(&mut self, input: Input) -> Result<(), String> {
        let input = match input {
            Input::PollInVain(stream) => {
                self.poll_stream(stream, APART);
                return Ok(());
            }
            Input::MarkUnread(stream) => {
                self.waits.insert(stream);
                return Ok(());
            }
            Input::ForwardLast(_) => {
                let (_, message) = self.last_server_message()?;
                self.passes = Some(format!("= {}", escape(message.raw())));
                return Ok(());
            }
            Input::HandleLast(_) => Input::HandleLast(Some(self.last_server_message()?)),
            Input::Pair(_, upstream) => Input::Pair(self.asked.clone(), upstream),
            Input::Settings(words, _) => {
                let learned = Arc::clone(&self.learned);
                let mut policy =
                    Policy { learned, id_mapping: self.is_shared, ..Policy::default() };
                settings::read(&mut policy, &words)?;
                Input::Settings(words, Some(Arc::new(policy)))
            }
            input => input,
        };
        let output = self.filter.handle(self.now, &input);
        match (input, output) {
            (Input::ClientMessage(stream, message), InputResult::ToServer(sent)) => {
                let sent = sent.to_bytes();
                if sent.is_empty() {
                    self.put("^ nothing".to_owned());
                } else if sent != *message.raw() {
                    self.put(format!("^ {}", escape(&sent)));
                }
                self.asked = Some((stream, message));
            }
            (Input::ServerMessage(origin, message), output) => {
                if let InputResult::Server(Disposition::NotAMessage(noise)) = output {
                    let text = noise.strip_suffix(b"\n").unwrap_or(&noise);
                    self.put(format!("e {}", escape(text)));
                }
                self.last_message = Some((origin, message));
            }
            (Input::NoteDelivery(on, message), _) => {
                self.last_message = Some((on.map_or(Origin::Shared, Origin::Stream), message));
            }
            (
                Input::FindStream(origin, message)
                | Input::LearnToken(origin, message)
                | Input::HandleForeign(origin, message)
                | Input::HearLog(origin, message),
                _,
            ) => self.last_message = Some((origin, message)),
            (Input::OpenStream(stream, ..) | Input::OpenReplay(stream, _), _) => {
                self.streams.insert(stream);
            }
            (Input::CloseStream(stream, _), _) => {
                self.streams.remove(&stream);
                self.unwritten.remove(&stream);
                self.waits.remove(&stream);
            }
            (Input::MarkWritten(stream), _) => {
                self.waits.remove(&stream);
                self.unwritten.remove(&stream);
            }
            _ => {}
        }
        Ok(())
    }

    fn last_server_message(&self) -> Result<(Origin, Message), String> {
        self.last_message.clone().ok_or_else(|| "an earlier message is expected".to_owned())
    }

    /// Continues the calls of another filter of the conversation.
    pub(in crate::lab) fn take_over(&mut self, from: &mut Self, on: Option<StreamId>) {
        from.filter.gate_mut().hand_over(self.filter.gate_mut(), on);
        self.records();
    }

    /// Marks messages as written, except on streams whose clients wait, and on those in `later`, marked by a later
    /// line.
    pub(in crate::lab) fn written(&mut self, later: &BTreeSet<StreamId>) {
        let all = std::mem::take(&mut self.unwritten);
        for stream in all {
            if self.waits.contains(&stream) || later.contains(&stream) {
                self.unwritten.insert(stream);
            } else {
                self.filter.written(self.now, stream);
                self.records();
            }
        }
    }

    /// Advances the clock by the time in `text`.
    ///
    /// # Errors
    /// If the text is not a time.
    pub(in crate::lab) fn pass(&mut self, text: &str) -> Result<(), String> {
        let end = self.clock + values::time(text)?;
        // With other settings than the recording's, other outputs are due, and time stops at each of them.
        while self.policy_source == PolicySource::Other
            && self.waits.is_empty()
            && let Some(due) = self.filter.poll_timeout()
            && due + SLACK <= end
        {
            self.now = self.now.max(due);
            if !self.drain() {
                break;
            }
        }
        self.clock = end;
        self.now = self.now.max(end);
        Ok(())
    }

    /// Advances the clock in a transcript of tests, where each output comes exactly when it is due.
    ///
    /// # Errors
    /// If the text is not a time.
    pub(in crate::lab) fn pass_exactly(&mut self, text: &str) -> Result<(), String> {
        let begin = self.now;
        let end = begin + values::time(text)?;
        while let Some(due) = self.filter.poll_timeout()
            && due <= end
        {
            self.now = self.now.max(due);
            let before = self.out.len();
            self.drain();
            if self.out.len() > before && self.now > begin {
                let text = format!("@ {:?}", self.now - begin);
                let at = self.now.saturating_duration_since(self.start);
                self.out.insert(before, PlayedLine { text, at, is_beat: false });
            }
        }
        (self.now, self.clock) = (end, end);
        self.drain();
        Ok(())
    }

    /// Writes a message to a client that the recording has at this time.
    pub(in crate::lab) fn write_recorded(&mut self, at: LineStream) {
        if let Some(text) = self.passes.take() {
            self.unwritten.insert(SOLE_STREAM);
            return self.put(text);
        }
        match at {
            LineStream::Stream(stream) => self.poll_stream(StreamId(stream), SLACK),
            _ => self.poll_stream(SOLE_STREAM, SLACK),
        }
    }

    /// Writes the output that is due on a stream now or within `soon`.
    fn poll_stream(&mut self, stream: StreamId, soon: Duration) {
        if !self.poll(stream)
            && let Some(due) = self.filter.calls().poll_stream_timeout(stream)
            && due <= self.now + soon
        {
            self.now = self.now.max(due);
            self.poll(stream);
        }
    }

    /// Ends the recording of the filter. If there is only one client and stream, marks all messages as written.
    pub(in crate::lab) fn end(&mut self) {
        if self.is_wire {
            self.written(&BTreeSet::new());
            self.drain();
        }
    }

    /// Writes all messages that are due, one after the other. Returns whether there was any.
    pub(in crate::lab) fn drain(&mut self) -> bool {
        let mut any = false;
        if let Some(text) = self.passes.take() {
            self.put(text);
        }
        let streams: Vec<StreamId> = self.streams.iter().copied().collect();
        for stream in streams {
            while self.poll(stream) {
                any = true;
                self.written(&BTreeSet::new());
            }
        }
        any
    }

    /// Writes one message to a client. Returns whether a message was due.
    pub(in crate::lab) fn poll(&mut self, stream: StreamId) -> bool {
        let mut pieces: Vec<u8> = Vec::new();
        let mut any = false;
        while let Some(transmit) = self.filter.poll_transmit(self.now, stream) {
            any = true;
            pieces.extend_from_slice(&transmit.payload.to_bytes());
            if transmit.part != Fragment::Piece {
                break;
            }
        }
        if any {
            self.unwritten.insert(stream);
            let text = escape(pieces.strip_suffix(b"\n").unwrap_or(&pieces));
            self.put(match stream {
                SOLE_STREAM => format!("= {text}"),
                StreamId(number) => format!("={number} {text}"),
            });
        }
        self.records();
        any
    }

    fn records(&mut self) {
        while let Some(record) = self.filter.poll_event() {
            match record {
                FilterEvent::Message { number, verdict, call } => {
                    self.verdicts.insert(number, verdict);
                    if let Some(call) = call {
                        self.calls.insert(number, call);
                    }
                    if let Verdict::Withheld(reason) = verdict
                        && reason != Reason::Noise
                    {
                        self.put(format!("x {}", reason.name()));
                    }
                }
                FilterEvent::Call(call) => {
                    self.learned.learn(&call);
                    self.news.push(CallNews::Ended(call.call, call.outcome));
                    self.put(format!("~ {}", summary(&call)));
                }
                FilterEvent::Heartbeat(call) => {
                    self.beats += 1;
                    // A heartbeat is decided when it is written, so the decision belongs to the last message to a
                    // client.
                    let mut written = self.out.iter_mut().rev();
                    if let Some(line) = written.find(|line| line.text.starts_with('=')) {
                        line.is_beat = true;
                    }
                    self.news.push(CallNews::Beat(call));
                }
                FilterEvent::Opened(call) => {
                    self.news.extend(self.played(call).map(CallNews::Opened));
                }
                FilterEvent::TakenOver(call) => {
                    self.news.extend(self.played(call).map(CallNews::TakenOver));
                }
                FilterEvent::Late(news) => self.put(format!("~ late {}", news.event.name())),
                FilterEvent::Task(news) => self.put(format!("~ task {}", news.event.name())),
                FilterEvent::Refused(_) | FilterEvent::UnansweringError(_) => {}
            }
        }
        while let Some(payload) = self.filter.poll_to_server() {
            self.put(format!("^ {}", escape(&payload.to_bytes())));
        }
        while let Some(released) = self.filter.poll_released() {
            self.put(format!("^ {}", escape(&released.payload.to_bytes())));
            self.asked = Some((released.stream, released.message));
        }
    }

    fn played(&self, call: CallId) -> Option<PlayedCall> {
        let open = self.filter.calls().opened(call)?;
        Some(PlayedCall {
            call,
            method: open.method.to_owned(),
            tool: open.tool.map(str::to_owned),
            id: open.id.clone(),
            token: open.token.cloned(),
        })
    }
}
