//! The calls of a recording, with the messages of both sides.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use clap::ValueEnum;

use super::collect::CallCollector;
use super::player::PolicySource;
use super::{RecordingError, at_line, is_newer, not_cut, parse, read, tracks, version};
use crate::observe::transcript::LineStream;
use crate::progress::{Outcome, Verdict};
use crate::protocol::json;
use crate::protocol::jsonrpc::{Kind, Message};
use crate::protocol::mcp;

/// The beginning of a remark in a recording that was made with `--record-secrets`.
const WITH_SECRETS: &str = "# with its secrets";

/// The beginning of a remark that ends with the path of a route.
const ON_ROUTE: &str = "# on the route ";

/// The last second of the year 9999, since 1970. Later dates cannot be written in the usual form.
const DATE_MAX: Duration = Duration::from_secs(253_402_300_799);

/// A side of the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum RecordedSide {
    /// What the client got from Milepost
    #[default]
    Client,
    /// What the server sent to Milepost
    Server,
}

/// The direction of a recorded message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordedWay {
    /// A client sent it.
    FromClient,
    /// The server got the message instead of a client's message, or in addition.
    ToServer,
    /// The server sent it.
    FromServer,
    /// A client got it.
    ToClient,
    /// The server wrote it to standard error.
    Stderr,
}

/// A message of a recording.
#[derive(Debug, Clone)]
pub struct RecordedMessage {
    /// The time since the beginning of the recording.
    pub at: Duration,
    /// The line in the file, from 1.
    pub line: usize,
    /// The direction.
    pub way: RecordedWay,
    /// The bytes, without a line ending.
    pub text: Bytes,
    /// The call that the message belongs to, if one is known: an index of [`RecordedCalls::calls`].
    pub call: Option<usize>,
    /// The verdict on a message of the server.
    pub verdict: Option<Verdict>,
    /// Whether the message is a heartbeat of Milepost.
    pub is_beat: bool,
    /// Whether the recording has only the envelope of the message.
    pub is_large: bool,
}

/// A request and what followed it.
#[derive(Debug, Clone)]
pub struct RecordedCall {
    /// The time since the beginning of the recording.
    pub at: Duration,
    /// The line of the request in the file, from 1.
    pub line: usize,
    /// The number of the filter in the file.
    pub part: u64,
    /// The client's stream on which the request came.
    pub(super) stream: LineStream,
    /// The method.
    pub method: String,
    /// The tool of `tools/call`.
    pub tool: Option<String>,
    /// The id, as the client wrote it.
    pub id: Bytes,
    /// The progress token, as the client wrote it.
    pub token: Option<Bytes>,
    /// The client's request.
    pub request: Bytes,
    /// The request that the server got instead.
    pub sent: Option<Bytes>,
    /// The outcome; `None` if the recording ends before the call.
    pub outcome: Option<Outcome>,
    /// The messages in their order: indices of [`RecordedCalls::messages`].
    pub messages: Vec<usize>,
    /// The answer that the client got: an index of [`RecordedCalls::messages`].
    pub answer: Option<usize>,
    /// The answer of the server: an index of [`RecordedCalls::messages`].
    pub server_answer: Option<usize>,
}

/// A recording, with its messages sorted by calls.
#[derive(Debug, Clone)]
pub struct RecordedCalls {
    /// The file.
    pub path: PathBuf,
    /// The time at which the recording began.
    pub begun: SystemTime,
    /// Whether `begun` comes from the file's name. Otherwise it is the time of the file, minus the recording's length.
    pub is_begun_exact: bool,
    /// The route of `serve`; `None` for a recording of `wrap`.
    pub route: Option<String>,
    /// The version of Milepost that wrote the recording.
    pub version: Option<String>,
    /// Whether secrets are masked in the file.
    pub is_masked: bool,
    /// Remarks for the reader about what the recording does not contain.
    pub remarks: Vec<String>,
    /// The time from the beginning to the last line.
    pub length: Duration,
    /// The calls, in the order of their requests.
    pub calls: Vec<RecordedCall>,
    /// All messages, in the order of the file.
    pub messages: Vec<RecordedMessage>,
}

/// The values of a notification of progress.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedFigure {
    /// The text of `progress`.
    pub progress: String,
    /// The text of `total`.
    pub total: Option<String>,
    /// The message, as plain text.
    pub message: Option<String>,
}

impl RecordedMessage {
    /// Returns the values of a notification of progress; `None` for other messages.
    pub fn figure(&self) -> Option<RecordedFigure> {
        let message = Message::parse(self.text.clone());
        if message.method().as_deref() != Some(mcp::PROGRESS) {
            return None;
        }
        let params = message.params()?;
        let [progress, total, words] = json::members(&params, ["progress", "total", "message"]);
        let plain = |text: Bytes| String::from_utf8_lossy(&text).into_owned();
        Some(RecordedFigure {
            progress: progress.map(plain).unwrap_or_default(),
            total: total.map(plain),
            message: words.and_then(|text| json::decode_str(&text).map(|text| text.into_owned())),
        })
    }

    /// Whether the message is an answer.
    pub fn is_answer(&self) -> bool {
        Message::parse(self.text.clone()).kind() == Kind::Response
    }
}

impl RecordedCall {
    /// Returns the method and, after a space, the tool.
    pub fn name(&self) -> String {
        match &self.tool {
            Some(tool) => format!("{} {tool}", self.method),
            None => self.method.clone(),
        }
    }

    /// Returns the name of the outcome.
    pub fn outcome_name(&self) -> &'static str {
        self.outcome.map_or("unanswered", Outcome::name)
    }

    /// Returns the request as it was on this side.
    pub fn request_of(&self, side: RecordedSide) -> &Bytes {
        match (side, &self.sent) {
            (RecordedSide::Server, Some(sent)) => sent,
            _ => &self.request,
        }
    }

    /// Returns the index of the answer on this side.
    pub fn answer_of(&self, side: RecordedSide) -> Option<usize> {
        match side {
            RecordedSide::Client => self.answer,
            RecordedSide::Server => self.server_answer,
        }
    }
}

impl RecordedCalls {
    /// Reads a recording.
    ///
    /// # Errors
    /// If the file cannot be read, or is not a complete recording; the error names the line.
    pub fn load(path: &Path) -> Result<Self, RecordingError> {
        let text = read(path)?;
        Self::read(path, &text).map_err(|fault| at_line(path, &text, fault))
    }

    fn read(path: &Path, text: &str) -> Result<Self, (usize, String)> {
        let recorded = parse(text)?;
        not_cut(text)?;
        let policy = Arc::new(recorded.policy()?);
        let mut collector = CallCollector::default();
        let (tracks, _) = tracks::play(
            &recorded,
            (&policy, PolicySource::Recording),
            |number, line, player, numbers| {
                collector.see(number, line, player, numbers);
            },
        )?;
        let mut remarks: Vec<String> = recorded.remarks.iter().map(|&one| one.to_owned()).collect();
        if !tracks.values().all(|track| track.ends) {
            remarks.push("the recording ends before the conversation does".to_owned());
        }
        let version = version(text);
        if let Some(newer) = version.filter(|version| is_newer(version, env!("CARGO_PKG_VERSION")))
        {
            remarks.push(format!("milepost {newer} wrote the recording, which is newer than this"));
        }
        let collected = collector.finish(&tracks);
        let length = collected.length;
        let head = || text.lines().take_while(|line| line.starts_with(['#', '!']));
        let route = head().find_map(|line| line.strip_prefix(ON_ROUTE)).map(str::to_owned);
        let is_masked = version.is_some() && !head().any(|line| line == WITH_SECRETS);
        let named = begun_by_name(path);
        let of_file = || {
            let changed = fs::metadata(path).and_then(|known| known.modified()).ok();
            changed.and_then(|at| at.checked_sub(length)).unwrap_or(SystemTime::UNIX_EPOCH)
        };
        Ok(Self {
            path: path.to_owned(),
            begun: named.unwrap_or_else(of_file),
            is_begun_exact: named.is_some(),
            route,
            version: version.map(str::to_owned),
            is_masked,
            remarks,
            length,
            calls: collected.calls,
            messages: collected.messages,
        })
    }

    /// Returns the time of an event that was recorded this long after the beginning.
    pub fn time_of(&self, at: Duration) -> SystemTime {
        let begun = self.begun.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        SystemTime::UNIX_EPOCH + begun.saturating_add(at).min(DATE_MAX)
    }

    /// Returns the messages of a call in their order.
    pub fn messages_of<'a>(
        &'a self,
        call: &'a RecordedCall,
    ) -> impl Iterator<Item = &'a RecordedMessage> {
        call.messages.iter().filter_map(|at| self.messages.get(*at))
    }

    /// Returns the answer of a call on this side.
    pub fn answer(&self, call: &RecordedCall, side: RecordedSide) -> Option<&RecordedMessage> {
        self.messages.get(call.answer_of(side)?)
    }

    /// Returns the notifications about a call on this side, in their order.
    pub fn reports<'a>(
        &'a self,
        call: &'a RecordedCall,
        side: RecordedSide,
    ) -> impl Iterator<Item = &'a RecordedMessage> {
        let way = match side {
            RecordedSide::Client => RecordedWay::ToClient,
            RecordedSide::Server => RecordedWay::FromServer,
        };
        self.messages_of(call).filter(move |message| message.way == way && !message.is_answer())
    }
}

/// Returns the start time in the name of a recording: `2026-01-31T09-59-59Z-0001-github.transcript`.
fn begun_by_name(path: &Path) -> Option<SystemTime> {
    let name = path.file_name()?.to_str()?;
    let (date, time) = name.get(..20)?.split_once('T')?;
    humantime::parse_rfc3339(&format!("{date}T{}", time.replace('-', ":"))).ok()
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn the_name_of_a_recording_gives_its_start() {
        let begun = begun_by_name(Path::new("/x/2026-01-31T09-59-59Z-0001-github.transcript"));
        let expected = humantime::parse_rfc3339("2026-01-31T09:59:59Z").unwrap();
        assert_eq!(begun, Some(expected));
        assert_eq!(begun_by_name(Path::new("/x/conversation.transcript")), None);
        assert_eq!(begun_by_name(Path::new("é")), None);
        assert!(expected > UNIX_EPOCH);
    }
}
