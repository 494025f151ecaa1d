//! The words of an input in a recording. `Display` writes them, `FromStr` reads them.

use std::fmt;
use std::fmt::Write as _;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;

use crate::progress::clients::Client;
use crate::progress::input::{
    EXPECTED, FilterScope, Input, MessageLine, ONLY, UPSTREAM_STREAMS, stream_of, upstream_stream,
};
use crate::progress::{
    CallId, OperatorCancel, Origin, Reason, Repair, Repairs, StreamId, StreamKind, StreamPacing,
};
use crate::protocol::json;
use crate::protocol::jsonrpc::{Key, Message, Scan};
use crate::protocol::mcp::Revision;

impl Input {
    /// Returns the words of the input in a recording: the text of a line that begins with `!`. `None` if the input has
    /// no words.
    pub fn words(&self) -> Option<String> {
        let mut words = String::new();
        // Writing to a string does not fail.
        let _ = self.write_words(&mut words);
        Some(words).filter(|words| !words.is_empty())
    }

    /// Returns the message of the input in the form of a recording, if the input has a message.
    pub fn message_line(&self) -> Option<MessageLine> {
        let (sign, stream, text) = match self {
            Self::ClientMessage(stream, message) => ('>', Some(*stream), message.raw().clone()),
            Self::ClientLarge(stream, scan) => ('>', Some(*stream), scan.stand_in(0)),
            Self::Refuse(message) => ('>', None, message.raw().clone()),
            Self::ServerMessage(origin, message)
            | Self::HandleForeign(origin, message)
            | Self::HearLog(origin, message)
            | Self::FindStream(origin, message)
            | Self::LearnToken(origin, message) => ('<', stream_of(*origin), message.raw().clone()),
            Self::ServerProgress(stream, text) => ('<', Some(*stream), text.clone()),
            Self::NoteDelivery(on, message) => ('<', *on, message.raw().clone()),
            Self::ServerLarge(origin, text, _) => ('<', stream_of(*origin), text.clone()),
            Self::Stderr(line) => ('2', None, Bytes::copy_from_slice(line.as_bytes())),
            _ => return None,
        };
        Some(MessageLine { sign, stream, text })
    }

    fn write_words(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        match self {
            Self::ClientMessage(..)
            | Self::ServerMessage(..)
            | Self::ServerProgress(..)
            | Self::Stderr(_) => Ok(()),
            Self::Begin(begins) => write!(f, "begins {begins}"),
            Self::ClientLarge(..) | Self::ServerLarge(_, _, None) => f.write_str("large"),
            Self::ServerLarge(_, _, Some(why)) => write!(f, "large broken {why}"),
            Self::Refuse(_) => f.write_str("refused"),
            Self::HandleLast(_) => f.write_str("here"),
            Self::HandleForeign(..) => f.write_str("moved"),
            Self::HearLog(..) => f.write_str("hears"),
            Self::NoteDelivery(..) => f.write_str("settled"),
            Self::FindStream(..) => f.write_str("whose"),
            Self::LearnToken(..) => f.write_str("learns"),
            Self::ForwardLast(_) => f.write_str("passes"),
            Self::Pair(_, upstream) => {
                write!(f, "on {}", upstream.0.saturating_sub(UPSTREAM_STREAMS) + 1)
            }
            Self::SpoolAnswer(id, needs) => write_spooled(f, id, *needs),
            Self::OpenStream(stream, kind, pacing) => {
                let kind = if *kind == StreamKind::Shared { "shared" } else { "exchange" };
                let paced = if *pacing == StreamPacing::Immediate { "" } else { " paced" };
                write!(f, "opens {} {kind}{paced}", stream.0)
            }
            Self::OpenReplay(stream, of) => write!(f, "opens {} replay{}", stream.0, replayed(*of)),
            Self::ResumeStream(old, on, None) => write!(f, "resumes {} on {}", old.0, on.0),
            Self::ResumeStream(old, on, Some(sent)) => {
                write!(f, "resumes {} on {} behind {sent}", old.0, on.0)
            }
            Self::SetPrincipal(stream, number) => write!(f, "principal {} {number}", stream.0),
            Self::CloseStream(stream, false) => write!(f, "closes {}", stream.0),
            Self::CloseStream(stream, true) => write!(f, "closes {} cancels", stream.0),
            Self::CancelCall(asked) => write_cancelled(f, asked),
            Self::SettleStream(stream) => write!(f, "settles {}", stream.0),
            Self::MarkWritten(stream) => write_of(f, "written", *stream),
            Self::MarkUnread(stream) => write_of(f, "waits", *stream),
            Self::PollInVain(stream) => write_of(f, "looks", *stream),
            Self::Expire => f.write_str("expires"),
            Self::SetKeptRoom(bytes) => write!(f, "keeps {bytes}"),
            Self::SetClientSlow(slow) => f.write_str(if *slow { "slow" } else { "quick" }),
            Self::CloseClients => f.write_str("left"),
            Self::CloseServer(why) => write!(f, "gone {why}"),
            Self::FailCalls(status, why) => write_failed(f, *status, why),
            Self::StopCalls(why) => write!(f, "stops {why}"),
            Self::StopHeartbeats => f.write_str("ending"),
            Self::Flush => f.write_str("flush"),
            Self::Settings(words, _) if words.is_empty() => f.write_str("settings"),
            Self::Settings(words, _) => write!(f, "settings {words}"),
            Self::OutOfPlace(reason) => write!(f, "out of place {}", reason.name()),
            Self::MarkIncomplete => f.write_str("knows not all"),
            Self::SetClient(client) => {
                let (name, version) =
                    client.as_ref().map_or(("", ""), |client| (client.name(), client.version()));
                write!(f, "client [{},{}]", Lossy(&json::quote(name)), Lossy(&json::quote(version)))
            }
            Self::MarkElsewhere(tokens) => {
                let tokens: Vec<Bytes> = tokens.iter().map(Key::to_json).collect();
                write!(f, "elsewhere [{}]", Lossy(&tokens.join(&b","[..])))
            }
            Self::MarkEventName => f.write_str("event renamed"),
            Self::MarkApart => f.write_str("array divided"),
            Self::EndResponse(stream) => write_response_end(f, *stream),
            Self::EndTasks => f.write_str("tasks over"),
            Self::EnableTasks(key, millis) => write!(f, "tasks of {key} from {millis}"),
            Self::TakeOver(from, None) => write!(f, "takes over from {from}"),
            Self::TakeOver(from, Some(on)) => write!(f, "takes over from {from} on {}", on.0),
            Self::FailOpen => f.write_str("failed"),
            Self::End => f.write_str("ends"),
        }
    }

    /// Whether a message follows these words in a recording.
    pub fn announces_message(words: &str) -> bool {
        matches!(
            first_word(words).0,
            "large" | "refused" | "moved" | "hears" | "settled" | "whose" | "learns"
        )
    }

    /// Reads the words of a recording, and the message that follows them.
    ///
    /// # Errors
    /// The error names the expected text.
    pub fn read(words: &str, line: Option<MessageLine>) -> Result<Self, String> {
        let Some(MessageLine { sign, stream, text }) = line else { return Self::read_words(words) };
        let (command, rest) = first_word(words);
        let origin = stream.map_or(Origin::Shared, Origin::Stream);
        Ok(match (sign, command) {
            ('2', _) => Self::Stderr(String::from_utf8_lossy(&text).into()),
            ('>', "large") => {
                let mut scan = Scan::default();
                scan.feed(&text);
                Self::ClientLarge(stream.unwrap_or(ONLY), scan)
            }
            ('>', "refused") => Self::Refuse(Message::parse(text)),
            ('>', _) => Self::ClientMessage(stream.unwrap_or(ONLY), Message::parse(text)),
            (_, "large") => {
                Self::ServerLarge(origin, text, rest.strip_prefix("broken ").map(Into::into))
            }
            (_, "moved") => Self::HandleForeign(origin, Message::parse(text)),
            (_, "hears") => Self::HearLog(origin, Message::parse(text)),
            (_, "settled") => Self::NoteDelivery(stream_of(origin), Message::parse(text)),
            (_, "whose") => Self::FindStream(origin, Message::parse(text)),
            (_, "learns") => Self::LearnToken(origin, Message::parse(text)),
            _ => Self::ServerMessage(origin, Message::parse(text)),
        })
    }

    /// Reads the stream that opens, its kind and its pacing.
    fn read_opened(rest: &str) -> Result<Self, String> {
        let (stream, kind) = first_word(rest);
        let stream = StreamId(number(stream)?);
        let (kind, more) = first_word(kind);
        let is_paced = more == "paced";
        let pacing = if is_paced { StreamPacing::ByCall } else { StreamPacing::Immediate };
        Ok(match kind {
            "shared" => Self::OpenStream(stream, StreamKind::Shared, pacing),
            "exchange" => Self::OpenStream(stream, StreamKind::Exchange, pacing),
            "replay" if more == "exchange" => Self::OpenReplay(stream, StreamKind::Exchange),
            "replay" => Self::OpenReplay(stream, StreamKind::Shared),
            _ => {
                let expected = "shared, exchange or replay is expected behind the number";
                return Err(expected.to_owned());
            }
        })
    }

    /// Reads the client's old stream, its new stream, and the last value that the client got.
    fn read_resumed(rest: &str) -> Result<Self, String> {
        let (old, rest) = first_word(rest);
        let (on, sent) = first_word(rest.trim_start_matches("on "));
        let sent = sent.strip_prefix("behind ").and_then(|sent| sent.parse().ok());
        Ok(Self::ResumeStream(StreamId(number(old)?), StreamId(number(on)?), sent))
    }

    /// Reads the repairs that an answer in a file needs, and its id.
    fn read_spooled(mut rest: &str) -> Result<Self, String> {
        let mut needs = Repairs::default();
        // An id is a string or a number, so it does not begin with a lower-case letter.
        while rest.starts_with(|first: char| first.is_ascii_lowercase()) {
            let (word, behind) = first_word(rest);
            let named = Repair::ALL.into_iter().find(|repair| repair.name() == word);
            needs.add(named.ok_or("the name of a repair is expected")?);
            rest = behind;
        }
        let id = Key::read(&Bytes::copy_from_slice(rest.as_bytes()));
        Ok(Self::SpoolAnswer(id.ok_or("the id of a request is expected")?, needs))
    }

    /// Reads a cancellation by an operator: the call, the operator's address, and the reason.
    fn read_cancelled(rest: &str) -> Result<Self, String> {
        let (call, rest) = first_word(rest);
        let (by, reason) = first_word(rest);
        let (call, by, reason) = (CallId(number(call)?), by.into(), reason.into());
        Ok(Self::CancelCall(Arc::new(OperatorCancel { call, by, reason })))
    }

    /// Reads the words of [`Input::EndTasks`] and [`Input::EnableTasks`].
    fn read_tasks(rest: &str) -> Result<Self, String> {
        let named = rest.strip_prefix("of ").and_then(|rest| rest.split_once(" from "));
        let Some((key, millis)) = named else { return Ok(Self::EndTasks) };
        let key = key.parse().map_err(|_| "the key of tasks is expected")?;
        Ok(Self::EnableTasks(key, millis.parse().map_err(|_| "a time is expected")?))
    }

    fn read_failed(rest: &str) -> Self {
        let (status, why) = first_word(rest);
        Self::FailCalls(status.parse().ok(), why.into())
    }

    fn read_words(words: &str) -> Result<Self, String> {
        let (command, rest) = first_word(words);
        Ok(match command {
            "begins" => Self::Begin(rest.parse()?),
            "here" => Self::HandleLast(None),
            "passes" => Self::ForwardLast(None),
            "on" => Self::Pair(None, upstream_stream(number(rest)?)),
            "apart" => Self::read_spooled(rest)?,
            "opens" => Self::read_opened(rest)?,
            "resumes" => Self::read_resumed(rest)?,
            "principal" => {
                let (stream, principal) = first_word(rest);
                Self::SetPrincipal(StreamId(number(stream)?), number(principal)?)
            }
            "closes" => {
                let (stream, cancels) = first_word(rest);
                Self::CloseStream(StreamId(number(stream)?), cancels == "cancels")
            }
            "cancels" => Self::read_cancelled(rest)?,
            "settles" => Self::SettleStream(StreamId(number(rest)?)),
            "written" => Self::MarkWritten(stream_or_first(rest)?),
            "waits" => Self::MarkUnread(stream_or_first(rest)?),
            "looks" => Self::PollInVain(stream_or_first(rest)?),
            "expires" => Self::Expire,
            "keeps" => Self::SetKeptRoom(usize::try_from(number(rest)?).unwrap_or(usize::MAX)),
            "slow" => Self::SetClientSlow(true),
            "quick" => Self::SetClientSlow(false),
            "left" => Self::CloseClients,
            "gone" => Self::CloseServer(rest.into()),
            "fails" => Self::read_failed(rest),
            "stops" => Self::StopCalls(rest.into()),
            "ending" => Self::StopHeartbeats,
            "flush" => Self::Flush,
            "settings" => Self::Settings(rest.into(), None),
            "out" => {
                let name = rest.trim_start_matches("of place ");
                let reason = Reason::ALL.into_iter().find(|reason| reason.name() == name);
                Self::OutOfPlace(reason.ok_or("a reason of docs/verdicts.md is expected")?)
            }
            "knows" => Self::MarkIncomplete,
            "client" => {
                let said = values(rest)?;
                let word = |at: usize| said.get(at).and_then(|text| json::decode_str(text));
                let version = word(1).unwrap_or_default();
                let client = word(0).and_then(|name| Client::new(&name, &version));
                Self::SetClient(client.map(Arc::new))
            }
            "elsewhere" => {
                Self::MarkElsewhere(values(rest)?.iter().filter_map(Key::read).collect())
            }
            "response" => {
                let stream = rest.trim_start_matches("ends ");
                Self::EndResponse(match stream.strip_prefix('@') {
                    Some(client) => StreamId(number(client)?),
                    None => upstream_stream(number(stream)?),
                })
            }
            "event" => Self::MarkEventName,
            "array" => Self::MarkApart,
            "tasks" => Self::read_tasks(rest)?,
            "takes" => {
                let (from, on) = first_word(rest.trim_start_matches("over from "));
                let on = on.strip_prefix("on ").map(number).transpose()?;
                Self::TakeOver(number(from)?, on.map(StreamId))
            }
            "failed" => Self::FailOpen,
            "ends" => Self::End,
            _ => return Err(format!("{command:?} is not known; {EXPECTED}")),
        })
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_words(f)?;
        let Some(line) = self.message_line() else { return Ok(()) };
        if self.words().is_some() {
            f.write_char('\n')?;
        }
        let text = line.text.strip_suffix(b"\n").unwrap_or(&line.text);
        write!(f, "{}{} {}", line.sign, line.stream_words(), Lossy(text))
    }
}

impl FromStr for Input {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (words, line) = match text.split_once('\n') {
            Some((words, line)) => (words, line),
            None if text.starts_with(['>', '<', '2']) => ("", text),
            None => (text, ""),
        };
        let Some(sign) = line.chars().next() else { return Self::read(words, None) };
        let (stream, text) = first_word(line.get(1..).unwrap_or_default());
        let stream = match (stream, stream.strip_prefix('@')) {
            ("", _) => None,
            ("-", _) => Some(StreamId::NOWHERE),
            (_, Some(client)) => Some(StreamId(number(client)?)),
            (upstream, None) if sign == '<' => Some(upstream_stream(number(upstream)?)),
            (client, None) => Some(StreamId(number(client)?)),
        };
        let text = Bytes::copy_from_slice(text.as_bytes());
        Self::read(words, Some(MessageLine { sign, stream, text }))
    }
}

impl MessageLine {
    /// Returns the stream in the form that follows the sign in a recording.
    pub fn stream_words(&self) -> String {
        match self.stream {
            None => String::new(),
            Some(StreamId::NOWHERE) => "-".to_owned(),
            Some(StreamId(upstream)) if upstream >= UPSTREAM_STREAMS => {
                (upstream - UPSTREAM_STREAMS + 1).to_string()
            }
            // After `<` a number without `@` names a server's stream.
            Some(StreamId(client)) if self.sign == '<' => format!("@{client}"),
            Some(ONLY) => String::new(),
            Some(StreamId(client)) => client.to_string(),
        }
    }
}

impl fmt::Display for FilterScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, revision) = match self {
            Self::Open => ("open", None),
            Self::Shared(None) => ("shared", None),
            Self::Shared(Some(key)) => return write!(f, "shared {key}"),
            Self::Exchange(revision) => ("exchange", *revision),
            Self::Request(revision) => ("request", *revision),
            Self::Session => ("session", None),
        };
        f.write_str(word)?;
        revision.map_or(Ok(()), |revision| write!(f, " {}", revision.date()))
    }
}

impl FromStr for FilterScope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, date) = first_word(text);
        let revision = Revision::from_date(date);
        Ok(match word {
            "open" => Self::Open,
            "shared" => Self::Shared(date.parse().ok()),
            "exchange" => Self::Exchange(revision),
            "request" => Self::Request(revision),
            "session" => Self::Session,
            _ => {
                let expected = "open, shared, exchange, request or session is expected";
                return Err(format!("nothing begins as {word:?}; {expected}"));
            }
        })
    }
}

/// Displays bytes as text.
struct Lossy<'a>(&'a [u8]);

impl fmt::Display for Lossy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.0))
    }
}

/// Writes a cancellation by an operator: the call, the operator's address, and the reason.
fn write_cancelled(f: &mut dyn fmt::Write, asked: &OperatorCancel) -> fmt::Result {
    write!(f, "cancels {} {} {}", asked.call.0, asked.by, asked.reason)
}

/// Writes the words about an answer in a file.
fn write_spooled(f: &mut dyn fmt::Write, id: &Key, needs: Repairs) -> fmt::Result {
    f.write_str("apart ")?;
    needs.iter().try_for_each(|repair| write!(f, "{} ", repair.name()))?;
    write!(f, "{}", Lossy(&id.to_json()))
}

fn write_response_end(f: &mut dyn fmt::Write, stream: StreamId) -> fmt::Result {
    let line = MessageLine { sign: '<', stream: Some(stream), text: Bytes::new() };
    write!(f, "response ends {}", line.stream_words())
}

/// Returns the word for the kind of stream that a replay continues.
const fn replayed(of: StreamKind) -> &'static str {
    match of {
        StreamKind::Shared => "",
        StreamKind::Exchange => " exchange",
    }
}

/// Writes the end of all calls with an error: the HTTP status of the server, or `-`, and why.
fn write_failed(f: &mut dyn fmt::Write, status: Option<u16>, why: &str) -> fmt::Result {
    match status {
        Some(status) => write!(f, "fails {status} {why}"),
        None => write!(f, "fails - {why}"),
    }
}

/// Writes words about a stream. The first stream is not named.
fn write_of(f: &mut dyn fmt::Write, words: &str, stream: StreamId) -> fmt::Result {
    if stream == ONLY { f.write_str(words) } else { write!(f, "{words} {}", stream.0) }
}

fn first_word(text: &str) -> (&str, &str) {
    text.split_once(' ').unwrap_or((text, ""))
}

/// Returns the values of an array.
fn values(text: &str) -> Result<Vec<Bytes>, String> {
    let text = Bytes::copy_from_slice(text.as_bytes());
    let (all, _) = json::elements(&text).ok_or("an array is expected")?;
    Ok(all.into_iter().map(|at| text.slice(at)).collect())
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "the number of a stream is expected".to_owned())
}

/// Returns the stream that the text names, or the first stream if the text is empty.
fn stream_or_first(text: &str) -> Result<StreamId, String> {
    if text.is_empty() { Ok(ONLY) } else { number(text).map(StreamId) }
}
