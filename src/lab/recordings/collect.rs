//! Collects the calls of a recording while its messages pass through new filters.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;

use super::calls::{RecordedCall, RecordedMessage, RecordedWay};
use super::player::{CallNews, PlayedCall, Player};
use super::tracks::Tracks;
use crate::config::values;
use crate::observe::transcript::{TranscriptLine, unescape};
use crate::progress::{CallId, Outcome};
use crate::protocol::json;
use crate::protocol::jsonrpc::{Key, Kind, Message};

/// The text of a line that says that a filter did not send a message to the server.
const NOTHING: &str = "nothing";

/// The word before a message of which the file has only the envelope.
const LARGE: &str = "large";

/// The calls and messages so far.
#[derive(Default)]
pub(super) struct CallCollector {
    pub(super) calls: Vec<RecordedCall>,
    pub(super) messages: Vec<RecordedMessage>,
    /// The time from the beginning to the last line.
    pub(super) length: Duration,
    /// The clock of each part.
    clocks: BTreeMap<u64, Duration>,
    /// The calls, by filter and number.
    known: BTreeMap<(u64, CallId), usize>,
    /// The calls, by the client's id.
    by_id: BTreeMap<Bytes, Vec<usize>>,
    by_token: BTreeMap<Bytes, Vec<usize>>,
    /// The numbers that filters gave to server messages: the filter, the numbers, and the index of the message.
    numbers: Vec<(u64, Range<u64>, usize)>,
    /// For each part, the calls that the last client message opened.
    asked: BTreeMap<u64, Vec<usize>>,
    /// The messages by the address of their text: a line that repeats a message has the same address and adds none.
    places: BTreeMap<(u8, usize), usize>,
    /// The index of the last server message.
    last_of_server: Option<usize>,
    /// The number of the next server message, if the file has only its envelope.
    large: Option<u64>,
}

impl CallCollector {
    /// Collects from a line that was just played.
    pub(super) fn see(
        &mut self,
        number: usize,
        line: &TranscriptLine<'_>,
        player: &mut Player,
        numbers: Range<u64>,
    ) {
        let clock = self.clocks.entry(line.part).or_default();
        if line.sign == b'+' {
            *clock = clock.saturating_add(values::time(line.text).unwrap_or_default());
            self.length = self.length.max(*clock);
        }
        let at = *clock;
        let mut message = match line.sign {
            b'>' => self.message(number, at, line, RecordedWay::FromClient),
            b'<' => self.message(number, at, line, RecordedWay::FromServer),
            b'=' => self.message(number, at, line, RecordedWay::ToClient),
            b'2' => self.message(number, at, line, RecordedWay::Stderr),
            b'^' => self.sent_message(number, at, line),
            b'!' => {
                let is_large = line.text == LARGE || line.text.starts_with("large ");
                self.large = is_large.then_some(line.part);
                None
            }
            _ => None,
        };
        match line.sign {
            b'<' => self.last_of_server = message.or(self.last_of_server),
            b'!' if !numbers.is_empty() => message = self.last_of_server,
            b'>' => drop(self.asked.insert(line.part, Vec::new())),
            _ => {}
        }
        if let Some(message) = message.filter(|_| !numbers.is_empty()) {
            self.numbers.push((line.part, numbers, message));
        }
        for news in std::mem::take(&mut player.news) {
            self.note(line, message, news);
        }
        if let (b'=', Some(message)) = (line.sign, message) {
            self.note_delivery(line, message);
        }
    }

    /// Adds a message, unless the line repeats a message.
    fn message(
        &mut self,
        number: usize,
        at: Duration,
        line: &TranscriptLine<'_>,
        way: RecordedWay,
    ) -> Option<usize> {
        let place = (line.sign, line.text.as_ptr() as usize);
        if let Some(known) = self.places.get(&place) {
            return Some(*known);
        }
        let text = Bytes::from(unescape(line.text).ok()?.into_owned());
        let is_large = self.large.take_if(|part| *part == line.part).is_some();
        let index = self.messages.len();
        self.places.insert(place, index);
        self.messages.push(RecordedMessage {
            at,
            line: number,
            way,
            text,
            call: None,
            verdict: None,
            is_beat: false,
            is_large,
        });
        Some(index)
    }

    /// Adds a message that the server got. Its requests belong to the calls of the last client message.
    fn sent_message(
        &mut self,
        number: usize,
        at: Duration,
        line: &TranscriptLine<'_>,
    ) -> Option<usize> {
        if line.text == NOTHING {
            return None;
        }
        let index = self.message(number, at, line, RecordedWay::ToServer)?;
        let message = Message::parse(self.messages.get(index)?.text.clone());
        let requests: Vec<Message> = match message.kind() {
            Kind::Batch => message.elements().filter(|one| one.kind() == Kind::Request).collect(),
            Kind::Request => vec![message],
            _ => Vec::new(),
        };
        let asked = self.asked.get(&line.part).cloned().unwrap_or_default();
        for (call, request) in asked.into_iter().zip(requests) {
            let Some(known) = self.calls.get_mut(call) else { continue };
            if known.sent.is_none() && request.method().as_deref() == Some(&*known.method) {
                known.sent = Some(request.raw().clone());
                self.belongs(index, call);
            }
        }
        Some(index)
    }

    fn belongs(&mut self, message: usize, call: usize) {
        if let Some(message) = self.messages.get_mut(message) {
            message.call.get_or_insert(call);
        }
    }

    fn note(&mut self, line: &TranscriptLine<'_>, message: Option<usize>, news: CallNews) {
        match news {
            CallNews::Opened(call) => {
                let Some(message) = message else { return };
                self.open(line, message, call);
            }
            CallNews::TakenOver(call) => {
                let earlier = self.by_id.get(&call.id).and_then(|all| {
                    let is =
                        |at: &&usize| self.calls.get(**at).is_some_and(|c| c.token == call.token);
                    all.iter().rev().find(is)
                });
                if let Some(earlier) = earlier {
                    self.known.insert((line.part, call.call), *earlier);
                }
            }
            CallNews::Beat(call) => {
                let call = self.known.get(&(line.part, call)).copied();
                let message = message.filter(|_| line.sign == b'=');
                if let Some(message) = message.and_then(|at| self.messages.get_mut(at)) {
                    message.is_beat = true;
                    message.call = message.call.or(call);
                }
            }
            CallNews::Ended(call, outcome) => {
                let call = self.known.get(&(line.part, call)).copied();
                let Some(call) = call.and_then(|at| self.calls.get_mut(at)) else { return };
                // A filter that hands a call over does not know how the call ends: the other filter's outcome counts.
                if call.outcome.is_none() || outcome != Outcome::Settled {
                    call.outcome = Some(outcome);
                }
            }
        }
    }

    fn open(&mut self, line: &TranscriptLine<'_>, message: usize, call: PlayedCall) {
        let index = self.calls.len();
        let Some(from) = self.messages.get(message) else { return };
        let whole = Message::parse(from.text.clone());
        let element = whole.elements().find(|one| one.id().as_ref() == Some(&call.id));
        let request = element.map_or_else(|| from.text.clone(), |one| one.raw().clone());
        self.known.insert((line.part, call.call), index);
        self.by_id.entry(call.id.clone()).or_default().push(index);
        if let Some(token) = &call.token {
            self.by_token.entry(token.clone()).or_default().push(index);
        }
        self.asked.entry(line.part).or_default().push(index);
        self.calls.push(RecordedCall {
            at: from.at,
            line: from.line,
            part: line.part,
            stream: line.at,
            method: call.method,
            tool: call.tool,
            id: call.id,
            token: call.token,
            request,
            sent: None,
            outcome: None,
            messages: Vec::new(),
            answer: None,
            server_answer: None,
        });
        self.belongs(message, index);
    }

    /// Finds the call of a message to a client, by the client's own id or token.
    fn note_delivery(&mut self, line: &TranscriptLine<'_>, index: usize) {
        let Some(message) = self.messages.get(index) else { return };
        let message = Message::parse(message.text.clone());
        let all = match message.kind() {
            Kind::Batch => message.elements().collect(),
            _ => vec![message],
        };
        for one in all {
            let is_answer = one.kind() == Kind::Response;
            let names = if is_answer { &self.by_id } else { &self.by_token };
            let name = if is_answer { one.id() } else { token_of(&one) };
            let Some(known) = name.and_then(|name| names.get(&name)) else { continue };
            let Some(call) = self.nearest(known, line) else { continue };
            self.belongs(index, call);
            if let Some(call) = self.calls.get_mut(call).filter(|_| is_answer) {
                call.answer.get_or_insert(index);
            }
        }
    }

    /// Returns the call that a message on this stream is about: the last unanswered call, on the same stream if
    /// possible, else in the same part.
    fn nearest(&self, known: &[usize], line: &TranscriptLine<'_>) -> Option<usize> {
        let part_and_stream = |call: &RecordedCall| {
            let open = call.answer.is_none();
            (open, call.part == line.part && call.stream == line.at, call.part == line.part)
        };
        let rank = |at: &usize| self.calls.get(*at).map(part_and_stream);
        known.iter().copied().max_by_key(|at| (rank(at), *at))
    }

    /// Finds the calls of answers and progress without a decision: the recording ended before the filter decided.
    fn find_undecided(&mut self) {
        let mut names: BTreeMap<(bool, Key), Vec<usize>> = BTreeMap::new();
        for (index, call) in self.calls.iter().enumerate() {
            let request = Message::parse(call.sent.as_ref().unwrap_or(&call.request).clone());
            let token = request_token(&request).and_then(|token| Key::read(&token));
            for (is_id, key) in [(true, request.id_key()), (false, token)] {
                if let Some(key) = key {
                    names.entry((is_id, key)).or_default().push(index);
                }
            }
        }
        let undecided = |message: &&mut RecordedMessage| {
            message.way == RecordedWay::FromServer
                && message.call.is_none()
                && message.verdict.is_none()
        };
        for message in self.messages.iter_mut().filter(undecided) {
            let read = Message::parse(message.text.clone());
            let is_answer = read.kind() == Kind::Response;
            let key = if is_answer {
                read.id_key()
            } else {
                token_of(&read).and_then(|token| Key::read(&token))
            };
            let known = key.and_then(|key| names.get(&(is_answer, key)));
            let before =
                |at: &&usize| self.calls.get(**at).is_some_and(|call| call.line < message.line);
            message.call = known.and_then(|known| known.iter().rev().find(before)).copied();
        }
    }

    /// Ends the collection, when the verdicts and calls of all server messages are known.
    pub(super) fn finish(mut self, tracks: &Tracks) -> Self {
        for (part, numbers, index) in std::mem::take(&mut self.numbers) {
            let Some(track) = tracks.get(&part) else { continue };
            let Some(message) = self.messages.get_mut(index) else { continue };
            for number in numbers {
                let call = track.player.calls.get(&number);
                let call = call.and_then(|call| self.known.get(&(part, *call))).copied();
                message.verdict = track.player.verdicts.get(&number).copied().or(message.verdict);
                message.call = message.call.or(call);
            }
        }
        self.find_undecided();
        for (index, message) in self.messages.iter().enumerate() {
            let Some(call) = message.call.and_then(|call| self.calls.get_mut(call)) else {
                continue;
            };
            call.messages.push(index);
            if message.way == RecordedWay::FromServer && message.is_answer() {
                call.server_answer.get_or_insert(index);
            }
        }
        self
    }
}

/// Returns the progress token of a request, as the request has it.
pub(in crate::lab) fn request_token(request: &Message) -> Option<Bytes> {
    json::member(&json::member(&request.params()?, "_meta")?, "progressToken")
}

/// Returns the token of a notification of progress.
fn token_of(message: &Message) -> Option<Bytes> {
    json::member(&message.params()?, "progressToken")
}
