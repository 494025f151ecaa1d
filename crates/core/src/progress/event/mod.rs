//! The inputs and outputs of a filter in addition to bytes: the origins of messages, decisions on messages, and events.

pub(crate) mod late;
pub(crate) mod operator_cancel;
pub(crate) mod queue;
pub(crate) mod request_origin;
pub(crate) mod summary;
pub(crate) mod task;

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::progress::event::late::LateNews;
use crate::progress::event::summary::Summary;
use crate::progress::event::task::TaskNews;
use crate::progress::ids::{CallId, StreamId};
use crate::progress::transmit_queue::TransmitQueue;
use crate::progress::verdict::Verdict;
use crate::protocol::jsonrpc::Message;

/// The stream of the server on which a message came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The server's only connection, or a stream for all requests. This stream does not tell the request of a message.
    Shared,
    /// The server's stream that pairs with this client stream, or with the requests that were paired with this number
    /// ([`Intake::pair`](crate::progress::Intake::pair)).
    Stream(StreamId),
}

/// The filter's decision on a server message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Disposition {
    /// The filter has handled the message. [`Filter::poll_transmit`](crate::progress::Filter::poll_transmit) returns
    /// the bytes for the client.
    Consumed,
    /// The text is not a message. The caller writes it to standard error.
    NotAMessage(Bytes),
    /// The message is about no call of this filter, but another filter of the session may know the call.
    /// The message is not handled yet ([`Intake::server_message_here`](crate::progress::Intake::server_message_here)).
    NotMine,
}

impl Disposition {
    /// Whether the whole text of `message` is not a message. If a line has text beside a message, the text is only a
    /// part.
    pub fn refuses_all_of(&self, message: &Message) -> bool {
        matches!(self, Self::NotAMessage(text) if text.len() == message.raw().len())
    }
}

/// An event of the filter, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterEvent {
    /// The final verdict on a message of the server. Messages are numbered from 1 in the order of their arrival.
    Message {
        /// The number of the message.
        number: u64,
        /// The call that the message was about, if known.
        call: Option<CallId>,
        /// The verdict.
        verdict: Verdict,
    },
    /// A request was forwarded and waits for its answer.
    Opened(CallId),
    /// This filter now sends the progress of a request whose stream has closed. Before, another filter sent it.
    TakenOver(CallId),
    /// A heartbeat was sent to the client.
    Heartbeat(CallId),
    /// A call has ended.
    Call(Box<Summary>),
    /// A message of a client was refused and not forwarded.
    Refused(RefusalRule),
    /// The server sent an error without an id, and no client got it. Contains the text of the error. There is one event
    /// for each error code, up to a limit.
    UnansweringError(Box<str>),
    /// An event of a call that its client gave up (`late`).
    Late(Box<LateNews>),
    /// An event of one of Milepost's own tasks (`tasks`).
    Task(Box<TaskNews>),
}

/// The rule by which a message of a client is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalRule {
    /// The message has a member that servers may read in different ways, and clients share the server.
    AmbiguousMember,
    /// The message is a cancellation of an id that its client has used for requests of several conversations.
    AmbiguousCancel,
    /// The message is an array with more elements than [`BATCH_MAX`](crate::progress::BATCH_MAX).
    LongBatch,
}

impl RefusalRule {
    /// All rules.
    pub const ALL: [Self; 3] = [Self::AmbiguousMember, Self::AmbiguousCancel, Self::LongBatch];

    /// The name of the rule in logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AmbiguousMember => "ambiguous-member",
            Self::AmbiguousCancel => "ambiguous-cancel",
            Self::LongBatch => "long-batch",
        }
    }
}

/// What is left of a filter after it has failed.
#[derive(Debug, Default)]
pub(crate) struct Salvaged {
    /// The messages that wait for each client stream.
    pub(crate) streams: BTreeMap<StreamId, TransmitQueue>,
    /// The large messages that have not arrived completely.
    pub(crate) large: Vec<SalvagedLarge>,
    /// The message that was being handled when the filter failed, and its client stream.
    pub(crate) at_work: Option<(Option<StreamId>, Message)>,
}

/// A large message that is forwarded in pieces.
#[derive(Debug, Clone)]
pub(crate) struct SalvagedLarge {
    /// The server's stream on which the message comes.
    pub(crate) origin: Origin,
    /// The number of the message in the queue of its client stream.
    pub(crate) number: u64,
    /// Whether no part of the message is sent to the client.
    pub(crate) is_withheld: bool,
}
