//! Everything that reaches a [`Filter`] as one type, and its words in a recording.
//!
//! [`Filter::handle`] applies an input. `Display` writes an input as the lines of a recording, `FromStr`
//! reads these lines: first the words behind `!`, if the input has any, then its message, if it has one.
//! Bytes that are no text are lost in `Display`; a recording escapes the message itself.

mod words;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::progress::clients::Client;
use crate::progress::dialect::TextSource;
use crate::progress::{
    Disposition, Filter, Origin, Pacing, Payload, Policy, Reason, StreamId, StreamKind,
};
use crate::protocol::jsonrpc::{Key, Message, Scan};
use crate::protocol::mcp::Revision;

/// The first number of upstream streams; a recording numbers them from 1 on.
pub const UPSTREAM_STREAMS: u64 = 1 << 63;

/// The only stream of a filter that begins with [`Beginning::Exchange`] or [`Beginning::Request`].
const ONLY: StreamId = StreamId(0);

/// Words that a recording may have behind `!`.
const EXPECTED: &str = "one of left, gone, settings, fails, ending, flush, slow, quick, large, on, apart, opens, closes, \
                        settles, settled, whose, learns, moved, here, passes, out of place, refused, \
                        knows not all, client, leaves, tasks over, looks, waits, written is expected";

/// The conversation that a filter is responsible for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beginning {
    /// Clients of one server that open their streams themselves.
    Open,
    /// The same for clients that are strangers to each other.
    Shared,
    /// One POST without a session, and the revision that it names.
    Exchange(Option<Revision>),
    /// One POST of a session.
    Request(Option<Revision>),
    /// The state that the streams of a session share.
    Session,
}

/// Everything that reaches a filter.
#[derive(Debug, Clone)]
pub enum Input {
    /// The filter begins.
    Begins(Beginning),
    /// A client sends a message.
    ClientMessage(StreamId, Message),
    /// A client has sent a message of which only the envelope was read.
    ClientLarge(StreamId, Scan),
    /// The server has refused this message of a client.
    Refused(Message),
    /// The server sends a message.
    ServerMessage(Origin, Message),
    /// The server sends compliant progress on the stream of its request. The envelope is not read
    /// ([`Filter::fast_path`]).
    ServerProgress(StreamId, Bytes),
    /// The message that came last is judged by this filter after all. A recording does not repeat the message.
    Here(Option<(Origin, Message)>),
    /// The server has sent this message to another filter, which gave it to this one.
    Moved(Origin, Message),
    /// The server has sent a message in pieces: a small one in its place, and why it broke off if it did.
    ServerLarge(Origin, Bytes, Option<Box<str>>),
    /// The message has reached its client through another filter.
    Settled(Message),
    /// The filter is asked which stream a message is for ([`Output::Stream`]).
    Whose(Origin, Message),
    /// The filter learns a token from a message that another filter handles.
    Learns(Origin, Message),
    /// The message that came last goes to its client as it is, behind everything that was sent before. The
    /// filter has no part in it.
    Passes(Option<(StreamId, Message)>),
    /// The server writes a line on its standard error.
    Stderr(Box<str>),
    /// The server answers requests of this message on this upstream stream. A recording does not repeat the
    /// message: a client sent it last.
    Pairs(Option<(StreamId, Message)>, StreamId),
    /// The answer to this id is kept apart, because it is too large ([`Output::Apart`]).
    Apart(Key),
    /// A client stream opens.
    Opens(StreamId, StreamKind, Pacing),
    /// A client stream opens on which the server repeats earlier messages.
    Replays(StreamId),
    /// A client stream closes; whether that cancels its requests.
    Closes(StreamId, bool),
    /// All requests of a stream are over.
    Settles(StreamId),
    /// A client has read everything that was sent on its stream.
    Written(StreamId),
    /// A client has not read yet: the next input comes before [`Input::Written`]. Nothing follows in the filter.
    Waits(StreamId),
    /// A stream was asked for messages that are due, and had none ([`Filter::poll_transmit`]).
    Looks(StreamId),
    /// Clients read too slowly, or no longer do.
    Slow(bool),
    /// Clients send no more.
    Left,
    /// The server is gone, and why.
    Gone(Box<str>),
    /// All requests fail with this HTTP status, and why.
    Fails(Option<u16>, Box<str>),
    /// The server is about to end: no more heartbeats.
    Ending,
    /// The connection is about to end: no message waits any longer.
    Flush,
    /// Calls that open from now on go by this policy, which a recording has in these words. They are all that
    /// can be read back.
    Settings(Box<str>, Option<Arc<Policy>>),
    /// A message counts as withheld for this reason.
    OutOfPlace(Reason),
    /// The filter has not seen every request.
    KnowsNotAll,
    /// The name that the client gave to another filter.
    Client(Option<Arc<Client>>),
    /// Another stream sends the progress of these tokens.
    Leaves(Vec<Key>),
    /// All tasks are over.
    TasksOver,
    /// Calls of another filter of the conversation, which has this number, go on here ([`Filter::hand_over`]).
    TakesOver(u64),
    /// The filter has failed. Nothing is recorded from here on.
    Failed,
    /// The filter ends, and was recorded to its end.
    Ends,
}

/// A message of a recording: its sign, its stream and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageLine {
    /// `>` of a client, `<` of the server, `2` of its standard error, `=` to a client.
    pub sign: char,
    /// The stream, where one is known.
    pub stream: Option<StreamId>,
    /// The text.
    pub text: Bytes,
}

/// The direct result of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// There is none.
    Nothing,
    /// The server is to be sent this in the place of a client's message.
    ToServer(Payload),
    /// The place where a message of the server goes.
    Server(Disposition),
    /// The stream that a message is for, if one is known.
    Stream(Option<StreamId>),
    /// The stream and the id of an answer that is kept apart, if it is to be sent at all.
    Apart(Option<(StreamId, Bytes)>),
}

impl Filter {
    /// Applies an input.
    pub fn handle(&mut self, now: Instant, input: &Input) -> Output {
        match input {
            Input::ClientMessage(stream, message) => {
                return Output::ToServer(self.client_message(now, *stream, message));
            }
            Input::ServerMessage(origin, message) => {
                return Output::Server(self.server_message(now, *origin, message));
            }
            Input::ServerProgress(stream, text) => {
                if !self.fast_path(now, *stream, text) {
                    let message = Message::parse(text.clone());
                    let origin = Origin::Stream(*stream);
                    return Output::Server(self.server_message(now, origin, &message));
                }
            }
            Input::Here(Some((origin, message))) | Input::Moved(origin, message) => {
                return Output::Server(self.server_message_here(now, *origin, message));
            }
            Input::Whose(origin, message) => {
                return Output::Stream(self.stream_meant(*origin, message, false));
            }
            Input::Apart(id) => return Output::Apart(self.answer_spooled(now, id)),
            Input::ClientLarge(stream, scan) => self.finish_large_client(now, *stream, scan),
            Input::Refused(message) => self.withdrawn(now, message),
            Input::ServerLarge(origin, text, broken) => {
                self.begin_large(now, *origin, text.clone(), 0..text.len());
                match broken {
                    Some(why) => self.server_broke_off(now, *origin, why),
                    None => self.finish_large(now, *origin),
                }
            }
            Input::Settled(message) => self.settled(now, message),
            Input::Learns(origin, message) => self.learn_from(*origin, message),
            Input::Stderr(line) => self.text_line(now, TextSource::Stderr, line),
            Input::Pairs(Some((client, message)), upstream) => {
                self.pair(*client, message, *upstream);
            }
            Input::Settings(_, Some(policy)) => self.set_policy(policy),
            Input::OutOfPlace(reason) => self.out_of_place(*reason),
            Input::KnowsNotAll => self.mark_incomplete(),
            Input::Client(client) => self.set_client(client.clone()),
            Input::Leaves(tokens) => self.leave_to_others(tokens),
            Input::TasksOver => self.end_tasks(now),
            _ => self.handle_connection(now, input),
        }
        Output::Nothing
    }

    /// Applies an input about streams or the connection.
    fn handle_connection(&mut self, now: Instant, input: &Input) {
        match input {
            Input::Begins(Beginning::Exchange(revision) | Beginning::Request(revision)) => {
                self.open_stream(ONLY, StreamKind::Exchange, Pacing::IMMEDIATE);
                self.set_revision(*revision);
            }
            Input::Opens(stream, kind, pacing) => self.open_stream(*stream, *kind, *pacing),
            Input::Replays(stream) => self.open_replay(*stream),
            Input::Closes(stream, cancels) => self.close_stream(now, *stream, *cancels),
            Input::Settles(stream) => self.settle_stream(now, *stream),
            Input::Written(stream) => self.written(now, *stream),
            Input::Slow(slow) => self.client_is_slow(*slow),
            Input::Left => self.client_left(),
            Input::Gone(why) => self.server_gone(now, why),
            Input::Fails(status, why) => self.fail_calls(now, why, *status),
            Input::Ending => self.stop_heartbeats(),
            Input::Flush => self.flush(),
            // Recordings say these so that a replay finds the same way; a filter learns nothing from them.
            _ => {}
        }
    }
}

impl Output {
    /// The place where a message of the server goes.
    pub fn place(self) -> Disposition {
        if let Self::Server(place) = self { place } else { Disposition::Consumed }
    }

    /// The stream and the id of an answer that is kept apart.
    pub fn apart(self) -> Option<(StreamId, Bytes)> {
        if let Self::Apart(apart) = self { apart } else { None }
    }

    /// The stream that a message is for.
    pub fn stream(self) -> Option<StreamId> {
        if let Self::Stream(stream) = self { stream } else { None }
    }
}

/// The upstream stream that a recording gives this number, from 1 on.
pub fn upstream_stream(number: u64) -> StreamId {
    StreamId(UPSTREAM_STREAMS.saturating_add(number.saturating_sub(1)))
}

/// The stream of a message of the server; none on the only wire.
pub const fn stream_of(origin: Origin) -> Option<StreamId> {
    match origin {
        Origin::Shared => None,
        Origin::Stream(stream) => Some(stream),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The place of a variant in [`samples`]: a new variant does not compile until it has one.
    const fn place(input: &Input) -> usize {
        match input {
            Input::Begins(_) => 0,
            Input::ClientMessage(..) => 1,
            Input::ClientLarge(..) => 2,
            Input::Refused(_) => 3,
            Input::ServerMessage(..) => 4,
            Input::ServerProgress(..) => 5,
            Input::Here(_) => 6,
            Input::Moved(..) => 7,
            Input::ServerLarge(..) => 8,
            Input::Settled(_) => 9,
            Input::Whose(..) => 10,
            Input::Learns(..) => 11,
            Input::Passes(_) => 12,
            Input::Stderr(_) => 13,
            Input::Pairs(..) => 14,
            Input::Apart(_) => 15,
            Input::Opens(..) => 16,
            Input::Replays(_) => 17,
            Input::Closes(..) => 18,
            Input::Settles(_) => 19,
            Input::Written(_) => 20,
            Input::Waits(_) => 21,
            Input::Looks(_) => 22,
            Input::Slow(_) => 23,
            Input::Left => 24,
            Input::Gone(_) => 25,
            Input::Fails(..) => 26,
            Input::Ending => 27,
            Input::Flush => 28,
            Input::Settings(..) => 29,
            Input::OutOfPlace(_) => 30,
            Input::KnowsNotAll => 31,
            Input::Client(_) => 32,
            Input::Leaves(_) => 33,
            Input::TasksOver => 34,
            Input::TakesOver(_) => 35,
            Input::Failed => 36,
            Input::Ends => 37,
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
        let (exchange, paced) = (StreamKind::Exchange, Pacing::PACED);
        let left_out = r#"{"jsonrpc":"2.0","id":7,"params":{"bytes left out":9}}"#;
        vec![
            (Input::Begins(Beginning::Open), "begins open"),
            (Input::Begins(Beginning::Shared), "begins shared"),
            (Input::Begins(Beginning::Exchange(None)), "begins exchange"),
            (Input::Begins(Beginning::Request(revision)), "begins request 2025-06-18"),
            (Input::Begins(Beginning::Session), "begins session"),
            (Input::ClientMessage(first, call()), "> {CALL}"),
            (Input::ClientMessage(third, call()), ">3 {CALL}"),
            (Input::ClientMessage(StreamId::NOWHERE, call()), ">- {CALL}"),
            (
                Input::ClientLarge(third, scan),
                "large\n>3 {\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"a\",\"params\":{\"bytes left out\":0}}",
            ),
            (Input::Refused(call()), "refused\n> {CALL}"),
            (Input::ServerMessage(Origin::Shared, call()), "< {CALL}"),
            (Input::ServerMessage(up, call()), "<70 {CALL}"),
            (Input::ServerProgress(third, Bytes::from(CALL)), "<@3 {CALL}"),
            (Input::Here(None), "here"),
            (Input::Here(Some((own, call()))), "here"),
            (Input::Moved(own, call()), "moved\n<@3 {CALL}"),
            (Input::ServerLarge(up, Bytes::from(left_out), None), "large\n<70 {LEFT}"),
            (
                Input::ServerLarge(own, Bytes::from(left_out), Some("it broke off".into())),
                "large broken it broke off\n<@3 {LEFT}",
            ),
            (Input::Settled(call()), "settled\n< {CALL}"),
            (Input::Whose(own, call()), "whose\n<@3 {CALL}"),
            (Input::Learns(own, call()), "learns\n<@3 {CALL}"),
            (Input::Passes(None), "passes"),
            (Input::Stderr("50% done".into()), "2 50% done"),
            (Input::Pairs(Some((first, call())), upstream_stream(2)), "on 2"),
            (Input::Apart(Key::Text(Bytes::from("a b"))), "apart \"a b\""),
            (Input::Opens(third, StreamKind::Shared, Pacing::IMMEDIATE), "opens 3 shared"),
            (Input::Opens(third, exchange, paced), "opens 3 exchange paced"),
            (Input::Replays(third), "opens 3 replay"),
            (Input::Closes(third, false), "closes 3"),
            (Input::Closes(first, true), "closes 0 cancels"),
            (Input::Settles(first), "settles 0"),
            (Input::Written(first), "written"),
            (Input::Written(third), "written 3"),
            (Input::Waits(third), "waits 3"),
            (Input::Looks(first), "looks"),
            (Input::Slow(true), "slow"),
            (Input::Slow(false), "quick"),
            (Input::Left, "left"),
            (Input::Gone("the server has exited".into()), "gone the server has exited"),
            (Input::Fails(Some(502), "no server".into()), "fails 502 no server"),
            (Input::Fails(None, "no server".into()), "fails - no server"),
            (Input::Ending, "ending"),
            (Input::Flush, "flush"),
            (Input::Settings("hold=0s".into(), None), "settings hold=0s"),
            (Input::Settings("".into(), None), "settings"),
            (Input::OutOfPlace(Reason::Late), "out of place late"),
            (Input::KnowsNotAll, "knows not all"),
            (Input::Client(client("a \"b\"", "1.0")), r#"client ["a \"b\"","1.0"]"#),
            (Input::Client(None), r#"client ["",""]"#),
            (Input::Leaves(vec![Key::Integer(1), Key::Text(Bytes::from("a"))]), r#"leaves [1,"a"]"#),
            (Input::TasksOver, "tasks over"),
            (Input::TakesOver(4), "takes over from 4"),
            (Input::Failed, "failed"),
            (Input::Ends, "ends"),
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
        assert_eq!(places, (0..=place(&Input::Ends)).collect());
    }
}
