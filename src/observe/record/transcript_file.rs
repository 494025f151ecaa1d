//! The recording of one conversation, and its file.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use litemap::LiteMap;

use super::{RecordedSecrets, RecordingStart};
use crate::config::values::exact_time;
use crate::observe::events::{APART, EventKind, ObserverEvent};
use crate::observe::redact::Masking;
use crate::observe::transcript::{SAME, escape, settings, summary};
use crate::progress::input::{Input, MessageLine};
use crate::progress::{FilterEvent, Policy, Reason, Verdict};

/// Maximum number of bytes of one recording. The recording ends there.
pub const FILE_MAX: u64 = 64 << 20;

/// Maximum number of bytes that are held back before the first message. A client could open and close streams for ever
/// without sending a message.
const HEAD_MAX: usize = 64 << 10;

/// A filter of the conversation, which is one part of the file.
struct RecordedFilter {
    /// The number of the part.
    number: u64,
    /// The time up to which the file accounts for; at first, the start of the conversation.
    at: Option<Instant>,
    /// The settings of the part, if they differ from those at the head of the file.
    settings: Option<String>,
}

/// The recording of one conversation.
pub(super) struct TranscriptFile {
    route: Box<str>,
    /// The policy of the first part.
    policy: Arc<Policy>,
    /// The text that is not in the file yet. Before the first message, that is all text.
    text: String,
    /// The name of the file, which is created for the first message.
    pub(super) name: Option<String>,
    pub(super) file: Option<BufWriter<File>>,
    /// The position of the last write in the order of all writes.
    pub(super) used: u64,
    masking: Option<Masking>,
    start: Option<Instant>,
    parts: LiteMap<u64, RecordedFilter>,
    /// Parts that there have been.
    count: u64,
    /// The last client message and the last server message.
    last: [Bytes; 2],
    len: u64,
    /// Whether there was a message.
    pub(super) speaks: bool,
    /// Whether the recording is finished.
    pub(super) is_over: bool,
}

impl TranscriptFile {
    pub(super) fn new(begins: &RecordingStart, secrets: RecordedSecrets) -> Self {
        let policy = &begins.policy;
        let mut transcript = Self {
            route: begins.route.clone(),
            policy: Arc::clone(policy),
            text: String::new(),
            name: None,
            file: None,
            used: 0,
            masking: (secrets == RecordedSecrets::Masked)
                .then(|| Masking::new(policy.call.masks.clone())),
            start: None,
            parts: LiteMap::new(),
            count: 0,
            last: [Bytes::new(), Bytes::new()],
            len: 0,
            speaks: false,
            is_over: false,
        };
        let version = env!("CARGO_PKG_VERSION");
        transcript
            .line(1, &format!("# recorded by milepost {version}; `milepost replay` plays it"));
        if !begins.route.is_empty() {
            transcript.line(1, &format!("# on the route {}", escape(begins.route.as_bytes())));
        }
        if secrets == RecordedSecrets::Unmasked {
            transcript.line(1, "# with its secrets");
        }
        let written = settings::write(policy);
        if !written.words.is_empty() {
            transcript.line(1, &format!("! {}", written.words));
        }
        if !written.missing.is_empty() {
            let missing = written.missing.join(", ");
            transcript.line(1, &format!("# a replay needs flags or --config for: {missing}"));
        }
        transcript
    }

    pub(super) fn route(&self) -> &str {
        &self.route
    }

    /// Adds a filter, which becomes a part of the file.
    pub(super) fn join(&mut self, part: u64, policy: &Arc<Policy>) {
        self.count += 1;
        // Usually all filters of a conversation share one policy, so compare the pointers first.
        let own = (!Arc::ptr_eq(policy, &self.policy)).then(|| settings::write(policy).words);
        let settings = own.filter(|own| *own != settings::write(&self.policy).words);
        self.parts.insert(part, RecordedFilter { number: self.count, at: None, settings });
    }

    /// Notes that a filter has ended. Returns whether it was the last one.
    pub(super) fn leave(&mut self, part: u64, left_out: u64) -> bool {
        self.left_out(left_out);
        if let Some(part) = self.parts.remove(&part).filter(|_| !self.is_over) {
            self.line(part.number, &format!("! {}", Input::End));
        }
        self.parts.is_empty()
    }

    /// Whether there is text that must be written to the file now.
    pub(super) fn has_text(&self) -> bool {
        !self.text.is_empty() && (self.speaks || self.text.len() > HEAD_MAX)
    }

    /// Writes the text that is not in the file yet.
    pub(super) fn write(&mut self) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write_all(self.text.as_bytes())?;
        self.text.clear();
        Ok(())
    }

    /// Flushes the file's buffer.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), Write::flush)
    }

    /// Ends the recording: closes its file, and frees its memory.
    pub(super) fn end(&mut self) {
        self.is_over = true;
        self.text = String::new();
        self.file = None;
        self.masking = None;
        self.last = [Bytes::new(), Bytes::new()];
    }

    /// Notes in the file that events were left out because the queue was full.
    pub(super) fn left_out(&mut self, events: u64) {
        if events > 0 && !self.is_over {
            self.line(1, &format!("# {events} lines are missing: the disk was too slow"));
        }
    }

    /// Writes the beginning of a part, before its first event.
    fn part_begins(&mut self, part: u64, start: Instant, command: &str) {
        let Some(known) = self.parts.get_mut(&part) else { return };
        known.at = Some(start);
        let (number, settings) = (known.number, known.settings.take());
        self.line(number, &format!("! {}", escape(command.as_bytes())));
        if let Some(words) = settings {
            self.line(number, format!("! settings {words}").trim_end());
        }
    }

    /// Writes an event.
    pub(super) fn record_event(&mut self, part: u64, event: ObserverEvent) {
        let start = *self.start.get_or_insert(event.at);
        let Some(known) = self.parts.get_mut(&part) else { return };
        let number = known.number;
        if known.at.is_none()
            && let EventKind::Input(input, _) = &event.kind
            && input.message_line().is_none()
            && let Some(words) = input.words()
        {
            return self.part_begins(part, start, &words);
        }
        let at = known.at.get_or_insert(start);
        let passed = event.at.saturating_duration_since(*at);
        if passed >= APART {
            // Add the rounded time, because a replay adds up the times in the file.
            let passed = Duration::from_micros(passed.as_micros().try_into().unwrap_or(u64::MAX));
            *at += passed;
            self.line(number, &format!("+ {}", exact_time(passed)));
        }
        self.speaks |= match &event.kind {
            EventKind::Input(input, _) => input.message_line().is_some(),
            EventKind::Decided(_) => false,
            _ => true,
        };
        match event.kind {
            EventKind::Input(input, _) => self.input(number, &input),
            EventKind::ToServer(text) if text.is_empty() => self.line(number, "^ nothing"),
            EventKind::ToServer(text) => {
                self.message_line(number, &MessageLine { sign: '^', stream: None, text })
            }
            EventKind::ToClient(stream, text) => {
                self.message_line(number, &MessageLine { sign: '=', stream: Some(stream), text });
            }
            EventKind::Noise(text) => {
                self.message_line(number, &MessageLine { sign: 'e', stream: None, text })
            }
            EventKind::Decided(FilterEvent::Message {
                verdict: Verdict::Withheld(reason), ..
            }) if reason != Reason::Noise => {
                self.line(number, &format!("x {}", reason.name()));
            }
            EventKind::Decided(FilterEvent::Call(call)) => {
                self.line(number, &format!("~ {}", summary(&call)));
            }
            EventKind::Decided(FilterEvent::Late(news)) => {
                self.line(number, &format!("~ late {}", news.event.name()));
            }
            EventKind::Decided(FilterEvent::Task(news)) => {
                self.line(number, &format!("~ task {}", news.event.name()));
            }
            EventKind::Decided(_) => {}
        }
        if self.len > FILE_MAX {
            self.line(1, "# the recording is as long as one may be, and ends here");
        }
    }

    /// Writes the words and the message of an input.
    fn input(&mut self, part: u64, input: &Input) {
        if let Input::TakeOver(from, on) = input {
            // The file has its own numbers for filters.
            let number = self.parts.get(from).map(|part| part.number);
            return match number.and_then(|number| Input::TakeOver(number, *on).words()) {
                Some(words) => self.line(part, &format!("! {words}")),
                None => self.line(part, "# calls of another recording go on here"),
            };
        }
        if let Some(words) = input.words() {
            // Do not mask these words: they belong to the file's format and have nothing of the conversation. If a mask
            // changed one, the file would be unreadable.
            let is_fixed = matches!(
                input,
                Input::Begin(_)
                    | Input::EnableTasks(..)
                    | Input::Refuse(_)
                    | Input::NoteDelivery(..)
                    | Input::FindStream(..)
                    | Input::LearnToken(..)
            );
            let words = if is_fixed { words } else { self.masked_words(&words) };
            self.line(part, &format!("! {}", escape(words.as_bytes())));
        }
        let Some(line) = input.message_line() else { return };
        if let Input::Stderr(line) = input {
            let line = self.masked_words(line);
            return self.line(part, &format!("2 {}", escape(line.as_bytes())));
        }
        if let Some(masking) = &mut self.masking
            && matches!(input, Input::ClientMessage(..) | Input::ClientLarge(..))
            && !is_same(&self.last[0], &line.text)
        {
            masking.learn_names(&line.text);
        }
        self.message_line(part, &line);
    }

    /// Returns the length of the recording so far, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.len
    }

    /// Notes in the file that all recordings together have reached their limit.
    pub(super) fn crowd_out(&mut self) {
        self.line(
            1,
            "# the recordings are as long together as they may be, and this one ends here",
        );
    }

    /// Whether the file has reached its limit ([`FILE_MAX`]).
    pub(super) fn is_full(&self) -> bool {
        self.len > FILE_MAX
    }

    fn masked_words(&mut self, words: &str) -> String {
        match &mut self.masking {
            Some(masking) => masking.words(words),
            None => words.to_owned(),
        }
    }

    fn message_line(&mut self, part: u64, line: &MessageLine) {
        let MessageLine { sign, text, .. } = line;
        let stream = line.stream_words();
        let last = match sign {
            '>' => Some(0),
            '<' => Some(1),
            _ => None,
        };
        if let Some(last) = last.and_then(|at| self.last.get_mut(at)) {
            if is_same(last, text) {
                return self.line(part, &format!("{sign}{stream} {SAME}"));
            }
            last.clone_from(text);
        }
        // Leave out the line ending, because the line of the file has its own.
        let written = text.strip_suffix(b"\n").unwrap_or(text);
        let written = match &mut self.masking {
            Some(masking) => escape(&masking.mask(written)),
            None => escape(written),
        };
        // A message that is only this sign would be read as a repetition, so it is escaped.
        if written == SAME {
            return self.line(part, &format!("{sign}{stream} \\x22"));
        }
        self.line(part, &format!("{sign}{stream} {written}"));
    }

    fn line(&mut self, part: u64, line: &str) {
        let before = self.text.len();
        let _ = match part {
            1 => writeln!(self.text, "{line}"),
            part => writeln!(self.text, "{part}| {line}"),
        };
        self.len += (self.text.len() - before) as u64;
    }
}

/// Whether two values are the same bytes in memory, so that the second need not be written again.
fn is_same(one: &Bytes, other: &Bytes) -> bool {
    // Compare addresses, not texts: filters that see the same message share its bytes.
    !one.is_empty() && one.as_ptr() == other.as_ptr() && one.len() == other.len()
}
