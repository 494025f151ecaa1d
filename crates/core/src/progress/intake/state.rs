//! The state of incoming messages: their number, and the messages that have arrived only in part.

use std::collections::BTreeMap;
use std::time::Instant;

use bytes::Bytes;

use crate::progress::dialect::Dialect;
use crate::progress::dialect::report::Report;
use crate::progress::ids::{CallId, StreamId};
use crate::progress::intake::large_answer::LargeRepairs;
use crate::progress::intake::log_template::LogTemplates;
use crate::progress::intake::template::Templates;
use crate::progress::verdict::{Reason, Repairs};
use crate::protocol::jsonrpc::{Message, Scan};
use crate::protocol::unicode::ReadablePieces;

/// A large message of the server that is passing.
#[derive(Debug)]
pub(crate) struct LargeMessage {
    pub(crate) number: u64,
    pub(crate) scan: Scan,
    pub(crate) fate: LargeDisposition,
    pub(crate) stream: Option<StreamId>,
    /// The call of the answer, if known.
    pub(crate) call: Option<CallId>,
    /// The streams and the ids of the requests that the message answers, which stay open until it is whole.
    pub(crate) answers: Vec<(StreamId, Bytes)>,
    /// Answers of an array whose calls have ended.
    pub(crate) ended: usize,
    /// Whether enough is known, so that the rest need not be read.
    pub(crate) known: bool,
    /// The repairs of an answer.
    pub(crate) repairs: LargeRepairs,
    /// Makes the text readable, unless the route leaves it as it is.
    pub(crate) readable: Option<ReadablePieces>,
}

/// An answer that fits no open request, on the stream of one.
#[derive(Debug)]
pub(crate) struct Orphan {
    pub(crate) number: u64,
    pub(crate) message: Message,
    /// The repairs that were done already.
    pub(crate) done: Repairs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LargeDisposition {
    Forward,
    Withhold(Reason),
    Noise,
}

/// What was read in a message, until the message has been handled.
#[derive(Debug)]
pub(crate) struct MessageReports {
    /// The text of the message. As long as it is held here, no other text has its place in memory.
    pub(crate) raw: Bytes,
    pub(crate) reports: Vec<(Dialect, Report)>,
}

impl MessageReports {
    pub(crate) fn is_of(&self, message: &Message) -> bool {
        let raw = message.raw();
        self.raw.as_ptr() == raw.as_ptr() && self.raw.len() == raw.len()
    }
}

/// The part of a filter that takes messages of the server.
#[derive(Debug, Default)]
pub(crate) struct Intake {
    /// The number of messages so far. Messages are numbered from 1.
    pub(crate) messages: u64,
    /// Large messages that have not come whole, by their upstream stream; without one on a single wire.
    pub(crate) large_messages: BTreeMap<Option<StreamId>, LargeMessage>,
    /// Answers that wait for the end of the response that they came in: the newest of each.
    pub(crate) orphans: BTreeMap<StreamId, Orphan>,
    /// The codes of the errors without id that an operator has been told of.
    pub(crate) told_codes: Vec<Option<i32>>,
    /// The message that is being worked on, in case the work fails.
    pub(crate) at_work: Option<(Option<StreamId>, Message)>,
    /// Repairs of what the next message came in.
    pub(crate) done: Repairs,
    /// What was read in the message that comes now.
    pub(crate) reports: Option<MessageReports>,
    /// The shapes of the last plain progress.
    pub(crate) templates: Templates,
    /// The shapes of the last log messages.
    pub(crate) log_templates: LogTemplates,
    /// The time when the last byte of the upstream arrived.
    pub(crate) received_at: Option<Instant>,
}

impl Intake {
    /// The number of a message that has just come.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.messages += 1;
        self.messages
    }

    /// The number of large messages that have begun to answer a request.
    pub(crate) fn answering(&self) -> usize {
        self.large_messages.values().filter(|large| !large.answers.is_empty()).count()
    }
}
