//! All inputs of a [`Filter`](crate::progress::Filter) as one type, and their text in a recording.
//!
//! [`Filter::handle`](crate::progress::Filter::handle) applies an input. `Display` writes an input as the lines of a
//! recording, `FromStr` reads these lines: first the words after `!`, if the input has any, then its message, if it has
//! one. `Display` loses bytes that are not text; a recording escapes such messages itself.

mod apply;
mod words;

use std::sync::Arc;

use bytes::Bytes;

use crate::progress::clients::Client;
use crate::progress::{
    CancelResult, Disposition, NameKey, OperatorCancel, Origin, Payload, Policy, Reason, Repairs,
    SpooledAnswer, StreamId, StreamKind, StreamPacing,
};
use crate::protocol::jsonrpc::{Key, Message, Scan};
use crate::protocol::mcp::Revision;

/// The first number of the server's streams. A recording numbers these streams from 1.
// A separate range, so that a number never means both a client stream and a server's stream.
pub const UPSTREAM_STREAMS: u64 = 1 << 63;

/// The only stream of a filter that begins with [`FilterScope::Exchange`] or [`FilterScope::Request`].
const ONLY: StreamId = StreamId(0);

/// The words that a recording may have after `!`.
const EXPECTED: &str = "one of left, gone, settings, fails, ending, flush, slow, quick, large, on, apart, opens, closes, \
                        settles, settled, whose, learns, moved, here, passes, out of place, refused, principal, resumes, hears, \
                        knows not all, client, elsewhere, event, response, tasks, looks, waits, written, cancels is expected";

/// The part of a conversation that a filter handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterScope {
    /// Clients of one server; the caller opens their streams.
    Open,
    /// Clients that must not see each other's messages. Contains the key of the names that their server gets;
    /// recordings of earlier versions have no key.
    Shared(Option<NameKey>),
    /// One POST without a session, and the protocol revision that it names.
    Exchange(Option<Revision>),
    /// One POST of a session, and the protocol revision that it names.
    Request(Option<Revision>),
    /// The state that the streams of a session share.
    Session,
}

/// An input of a filter: a message, a call of a method, or the time.
#[derive(Debug, Clone)]
pub enum Input {
    /// The filter begins.
    Begin(FilterScope),
    /// A client sends a message.
    ClientMessage(StreamId, Message),
    /// A client has sent a message of which only the envelope was read.
    ClientLarge(StreamId, Scan),
    /// The server has refused this message of a client.
    Refuse(Message),
    /// The server sends a message.
    ServerMessage(Origin, Message),
    /// The server sends compliant progress on the stream of its request. The envelope is not read
    /// ([`Intake::fast_path`](crate::progress::Intake::fast_path)).
    ServerProgress(StreamId, Bytes),
    /// The latest message is handled by this filter after all. A recording does not repeat the message.
    HandleLast(Option<(Origin, Message)>),
    /// The server sent this message on a stream of another filter, which passed it to this filter.
    HandleForeign(Origin, Message),
    /// The server has sent this log notification, or this question to its client, on a stream of another filter, which
    /// forwards it.
    HearLog(Origin, Message),
    /// The server has sent a large message in pieces. Contains a small message that represents it, and the reason why
    /// it is incomplete, if it is.
    ServerLarge(Origin, Bytes, Option<Box<str>>),
    /// Another filter has delivered the message to its client, on this stream if known.
    NoteDelivery(Option<StreamId>, Message),
    /// The caller asks which stream a message is for ([`InputResult::Stream`]).
    FindStream(Origin, Message),
    /// The filter learns a token from a message that another filter handles.
    LearnToken(Origin, Message),
    /// The last message is forwarded to its client unchanged, after all earlier messages. The filter does not handle
    /// the message.
    ForwardLast(Option<(StreamId, Message)>),
    /// The server writes a line on its standard error.
    Stderr(Box<str>),
    /// The server sends its answers to the requests of this message on this stream of the server. A recording does not
    /// repeat the message, because it is the client's latest.
    Pair(Option<(StreamId, Message)>, StreamId),
    /// The answer with this id, which needs these repairs, is too large and is kept in a file ([`InputResult::Spool`]).
    SpoolAnswer(Key, Repairs),
    /// A client stream opens.
    OpenStream(StreamId, StreamKind, StreamPacing),
    /// A client stream opens that continues an earlier stream of this kind. The server repeats messages of the earlier
    /// stream.
    OpenReplay(StreamId, StreamKind),
    /// The client of the first stream has reconnected on the second stream. The value is the last one that the client
    /// has received for its only request ([`Gate::resume_stream`](crate::progress::Gate::resume_stream)).
    ResumeStream(StreamId, StreamId, Option<f64>),
    /// The client of the stream gets this number. Streams with the same number may see each other's messages.
    SetPrincipal(StreamId, u64),
    /// A client stream closes. The flag tells whether that cancels its requests.
    CloseStream(StreamId, bool),
    /// An operator cancels a call ([`InputResult::Cancel`]).
    CancelCall(Arc<OperatorCancel>),
    /// All requests of a stream have ended.
    SettleStream(StreamId),
    /// A client has read everything that was sent on its stream.
    MarkWritten(StreamId),
    /// A client has not read its stream yet, so the next input comes before [`Input::MarkWritten`]. The filter does
    /// nothing.
    MarkUnread(StreamId),
    /// The caller asked a stream for due messages, and there were none
    /// ([`Filter::poll_transmit`](crate::progress::Filter::poll_transmit)).
    PollInVain(StreamId),
    /// The time limit of a call or of a waiting message has passed.
    Expire,
    /// Whether clients read too slowly.
    SetClientSlow(bool),
    /// The number of bytes of answers that may still be kept in memory.
    SetKeptRoom(usize),
    /// Clients send no more messages.
    CloseClients,
    /// The server has ended, for this reason.
    CloseServer(Box<str>),
    /// All requests fail, with this HTTP status and for this reason.
    FailCalls(Option<u16>, Box<str>),
    /// The proxy stops before the server has answered, and why.
    StopCalls(Box<str>),
    /// The server is about to end, so heartbeats stop.
    StopHeartbeats,
    /// The connection is about to end, so no message waits any longer.
    Flush,
    /// The policy of later calls, and its words in a recording. Only the words can be read back from a recording.
    Settings(Box<str>, Option<Arc<Policy>>),
    /// A message counts as withheld for this reason.
    OutOfPlace(Reason),
    /// Some requests of the connection are unknown to the filter.
    MarkIncomplete,
    /// The client as it named itself to another filter.
    SetClient(Option<Arc<Client>>),
    /// The next message contains these tokens, which only calls of other sessions have.
    MarkElsewhere(Vec<Key>),
    /// The event of the next message had another name than `message`. Its client gets the name `message` instead.
    MarkEventName,
    /// The next message arrived in an array with other messages. Its client gets the messages one by one.
    MarkApart,
    /// The response to a POST has ended, for whatever reason.
    EndResponse(StreamId),
    /// All tasks have ended.
    EndTasks,
    /// Calls may run as Milepost's own tasks. Contains the key of the task ids, and the time in milliseconds since
    /// 1970.
    EnableTasks(NameKey, u64),
    /// This filter takes over the calls of the filter with this number
    /// ([`Gate::hand_over`](crate::progress::Gate::hand_over)). The second field is the stream of these calls, if a
    /// recording names it.
    TakeOver(u64, Option<StreamId>),
    /// The filter has panicked. Later inputs are not recorded.
    FailOpen,
    /// The filter ends, and its recording is complete.
    End,
}

/// A message of a recording: its direction, its stream and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageLine {
    /// `>` from a client, `<` from the server, `2` from its standard error, `=` to a client.
    pub sign: char,
    /// The stream, if it is known.
    pub stream: Option<StreamId>,
    /// The text of the message.
    pub text: Bytes,
}

/// The direct result of an input.
#[derive(Debug, Clone)]
pub enum InputResult {
    /// The input returns no result.
    Nothing,
    /// The payload to send to the server in place of a client's message.
    ToServer(Payload),
    /// What the caller has to do with a message of the server.
    Server(Disposition),
    /// The stream that a message is for, if it is known.
    Stream(Option<StreamId>),
    /// How an answer that is kept in a file has to be sent, if it is sent at all.
    Spool(Option<SpooledAnswer>),
    /// Whether an operator's cancellation has ended its call.
    Cancel(CancelResult),
}

impl Input {
    /// Whether the input belongs to the previous input, and has no time of its own in a recording.
    pub fn is_sequel(&self) -> bool {
        matches!(
            self,
            Self::Pair(..)
                | Self::SetClient(_)
                | Self::OutOfPlace(_)
                | Self::Settings(..)
                | Self::FailOpen
        )
    }
}

impl InputResult {
    /// Returns what the caller has to do with a message of the server.
    pub fn place(self) -> Disposition {
        if let Self::Server(place) = self { place } else { Disposition::Consumed }
    }

    /// Returns how an answer that is kept in a file has to be sent.
    pub fn apart(self) -> Option<SpooledAnswer> {
        if let Self::Spool(apart) = self { apart } else { None }
    }

    /// Returns whether an operator's cancellation has ended its call. A failed filter knows no calls.
    pub fn cancel(self) -> CancelResult {
        if let Self::Cancel(result) = self { result } else { CancelResult::Over }
    }

    /// Returns the stream that a message is for.
    pub fn stream(self) -> Option<StreamId> {
        if let Self::Stream(stream) = self { stream } else { None }
    }
}

/// Returns the server's stream that a recording gives this number, counted from 1.
pub fn upstream_stream(number: u64) -> StreamId {
    StreamId(UPSTREAM_STREAMS.saturating_add(number.saturating_sub(1)))
}

/// Returns the server's stream of a message; `None` if one connection carries all messages.
pub const fn stream_of(origin: Origin) -> Option<StreamId> {
    match origin {
        Origin::Shared => None,
        Origin::Stream(stream) => Some(stream),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::{CallId, Repair};

    /// Returns the index of a variant in [`samples`]. The match is exhaustive, so a new variant does not compile until
    /// it has an index.
    const fn place(input: &Input) -> usize {
        match input {
            Input::Begin(_) => 0,
            Input::ClientMessage(..) => 1,
            Input::ClientLarge(..) => 2,
            Input::Refuse(_) => 3,
            Input::ServerMessage(..) => 4,
            Input::ServerProgress(..) => 5,
            Input::HandleLast(_) => 6,
            Input::HandleForeign(..) => 7,
            Input::ServerLarge(..) => 8,
            Input::NoteDelivery(..) => 9,
            Input::FindStream(..) => 10,
            Input::LearnToken(..) => 11,
            Input::ForwardLast(_) => 12,
            Input::Stderr(_) => 13,
            Input::Pair(..) => 14,
            Input::SpoolAnswer(..) => 15,
            Input::OpenStream(..) => 16,
            Input::OpenReplay(..) => 17,
            Input::CloseStream(..) => 18,
            Input::SettleStream(_) => 19,
            Input::MarkWritten(_) => 20,
            Input::MarkUnread(_) => 21,
            Input::PollInVain(_) => 22,
            Input::SetClientSlow(_) => 23,
            Input::Expire => 44,
            Input::SetKeptRoom(_) => 45,
            Input::CloseClients => 24,
            Input::CloseServer(_) => 25,
            Input::FailCalls(..) => 26,
            Input::StopHeartbeats => 27,
            Input::Flush => 28,
            Input::Settings(..) => 29,
            Input::OutOfPlace(_) => 30,
            Input::MarkIncomplete => 31,
            Input::SetClient(_) => 32,
            Input::MarkElsewhere(_) => 33,
            Input::EndTasks => 34,
            Input::TakeOver(..) => 35,
            Input::FailOpen => 36,
            Input::End => 37,
            Input::SetPrincipal(..) => 38,
            Input::EndResponse(_) => 39,
            Input::MarkEventName => 40,
            Input::ResumeStream(..) => 41,
            Input::HearLog(..) => 42,
            Input::MarkApart => 43,
            Input::EnableTasks(..) => 45,
            Input::CancelCall(_) => 46,
            Input::StopCalls(_) => 47,
        }
    }

    /// Inputs of each variant, and their text.
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn samples() -> Vec<(Input, &'static str)> {
        const CALL: &str = r#"{"jsonrpc":"2.0","id":7,"method":"a"}"#;
        let call = || Message::parse(Bytes::from(CALL));
        let mut scan = Scan::default();
        scan.feed(CALL.as_bytes());
        let (first, third) = (StreamId(0), StreamId(3));
        let (up, own) = (Origin::Stream(upstream_stream(70)), Origin::Stream(third));
        let revision = Some(Revision::V2025_06_18);
        let client = |name, version| Client::new(name, version).map(Arc::new);
        let (exchange, paced) = (StreamKind::Exchange, StreamPacing::ByCall);
        let left_out = r#"{"jsonrpc":"2.0","id":7,"params":{"bytes left out":9}}"#;
        vec![
            (Input::Begin(FilterScope::Open), "begins open"),
            (Input::Begin(FilterScope::Shared(None)), "begins shared"),
            (
                Input::Begin(FilterScope::Shared(Some(NameKey::new([1; 16])))),
                "begins shared 01010101010101010101010101010101",
            ),
            (Input::Begin(FilterScope::Exchange(None)), "begins exchange"),
            (Input::Begin(FilterScope::Request(revision)), "begins request 2025-06-18"),
            (Input::Begin(FilterScope::Session), "begins session"),
            (Input::ClientMessage(first, call()), "> {CALL}"),
            (Input::ClientMessage(third, call()), ">3 {CALL}"),
            (Input::ClientMessage(StreamId::NOWHERE, call()), ">- {CALL}"),
            (
                Input::ClientLarge(third, scan),
                "large\n>3 {\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"a\",\"params\":{\"bytes left out\":0}}",
            ),
            (Input::Refuse(call()), "refused\n> {CALL}"),
            (Input::ServerMessage(Origin::Shared, call()), "< {CALL}"),
            (Input::ServerMessage(up, call()), "<70 {CALL}"),
            (Input::ServerProgress(third, Bytes::from(CALL)), "<@3 {CALL}"),
            (Input::HandleLast(None), "here"),
            (Input::HandleLast(Some((own, call()))), "here"),
            (Input::HandleForeign(own, call()), "moved\n<@3 {CALL}"),
            (Input::ServerLarge(up, Bytes::from(left_out), None), "large\n<70 {LEFT}"),
            (
                Input::ServerLarge(own, Bytes::from(left_out), Some("it broke off".into())),
                "large broken it broke off\n<@3 {LEFT}",
            ),
            (Input::NoteDelivery(None, call()), "settled\n< {CALL}"),
            (Input::NoteDelivery(Some(third), call()), "settled\n<@3 {CALL}"),
            (Input::HearLog(own, call()), "hears\n<@3 {CALL}"),
            (Input::FindStream(own, call()), "whose\n<@3 {CALL}"),
            (Input::LearnToken(own, call()), "learns\n<@3 {CALL}"),
            (Input::ForwardLast(None), "passes"),
            (Input::Stderr("50% done".into()), "2 50% done"),
            (Input::Pair(Some((first, call())), upstream_stream(2)), "on 2"),
            (
                Input::SpoolAnswer(Key::Text(Bytes::from("a b")), Repairs::default()),
                "apart \"a b\"",
            ),
            (
                Input::SpoolAnswer(Key::Integer(7), [Repair::BareResult].into_iter().collect()),
                "apart bare-result 7",
            ),
            (Input::OpenStream(third, StreamKind::Shared, StreamPacing::Immediate), "opens 3 shared"),
            (Input::OpenStream(third, exchange, paced), "opens 3 exchange paced"),
            (Input::OpenReplay(third, StreamKind::Shared), "opens 3 replay"),
            (Input::OpenReplay(third, exchange), "opens 3 replay exchange"),
            (Input::ResumeStream(first, third, None), "resumes 0 on 3"),
            (Input::ResumeStream(first, third, Some(2.5)), "resumes 0 on 3 behind 2.5"),
            (Input::SetPrincipal(third, 5), "principal 3 5"),
            (Input::CloseStream(third, false), "closes 3"),
            (Input::CloseStream(first, true), "closes 0 cancels"),
            (
                Input::CancelCall(Arc::new(OperatorCancel {
                    call: CallId(7),
                    by: "local".into(),
                    reason: "it hangs".into(),
                })),
                "cancels 7 local it hangs",
            ),
            (Input::SettleStream(first), "settles 0"),
            (Input::MarkWritten(first), "written"),
            (Input::MarkWritten(third), "written 3"),
            (Input::MarkUnread(third), "waits 3"),
            (Input::PollInVain(first), "looks"),
            (Input::Expire, "expires"),
            (Input::SetKeptRoom(70_000), "keeps 70000"),
            (Input::SetClientSlow(true), "slow"),
            (Input::SetClientSlow(false), "quick"),
            (Input::CloseClients, "left"),
            (Input::CloseServer("the server has exited".into()), "gone the server has exited"),
            (Input::FailCalls(Some(502), "no server".into()), "fails 502 no server"),
            (Input::FailCalls(None, "no server".into()), "fails - no server"),
            (Input::StopCalls("the proxy stops".into()), "stops the proxy stops"),
            (Input::StopHeartbeats, "ending"),
            (Input::Flush, "flush"),
            (Input::Settings("hold=0s".into(), None), "settings hold=0s"),
            (Input::Settings("".into(), None), "settings"),
            (Input::OutOfPlace(Reason::Late), "out of place late"),
            (Input::MarkIncomplete, "knows not all"),
            (Input::SetClient(client("a \"b\"", "1.0")), r#"client ["a \"b\"","1.0"]"#),
            (Input::SetClient(None), r#"client ["",""]"#),
            (
                Input::MarkElsewhere(vec![Key::Integer(1), Key::Text(Bytes::from("a"))]),
                r#"elsewhere [1,"a"]"#,
            ),
            (Input::MarkEventName, "event renamed"),
            (Input::MarkApart, "array divided"),
            (Input::EndResponse(third), "response ends @3"),
            (Input::EndResponse(upstream_stream(70)), "response ends 70"),
            (Input::EndTasks, "tasks over"),
            (
                Input::EnableTasks(NameKey::new([1; 16]), 1_764_073_496_007),
                "tasks of 01010101010101010101010101010101 from 1764073496007",
            ),
            (Input::TakeOver(4, None), "takes over from 4"),
            (Input::TakeOver(4, Some(third)), "takes over from 4 on 3"),
            (Input::FailOpen, "failed"),
            (Input::End, "ends"),
        ]
        .into_iter()
        .map(|(input, text)| {
            let text = text.replace("{CALL}", CALL).replace("{LEFT}", left_out);
            (input, &*text.leak())
        })
        .collect()
    }

    #[test]
    fn every_input_is_read_as_it_is_written() {
        let samples = samples();
        for (input, text) in &samples {
            assert_eq!(input.to_string(), *text);
            assert_eq!(text.parse::<Input>().unwrap().to_string(), *text, "{input:?}");
            let words = input.words().unwrap_or_default();
            assert_eq!(
                Input::announces_message(&words),
                !words.is_empty() && input.message_line().is_some(),
                "{input:?}"
            );
        }
        let places: std::collections::BTreeSet<usize> =
            samples.iter().map(|(input, _)| place(input)).collect();
        assert_eq!(places, (0..=47).collect());
    }
}
