//! The inputs and outputs of a filter besides bytes: origins, dispositions and events.

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

/// The upstream stream on which a server message came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The upstream's only wire, or a stream for all requests. Such a stream does not identify the
    /// request of a message.
    Shared,
    /// The upstream stream that pairs with this client stream, or that was said to pair with requests
    /// ([`Intake::pair`](crate::progress::Intake::pair)).
    Stream(StreamId),
}

/// The filter's decision on a server message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Disposition {
    /// The filter has taken the message;
    /// [`Filter::poll_transmit`](crate::progress::Filter::poll_transmit) returns the bytes for the
    /// client.
    Consumed,
    /// The text is not a message. It is to be written to standard error.
    NotAMessage(Bytes),
    /// The message is about no call of this filter, but another filter of the session may know the call.
    /// The message is not handled yet ([`Intake::server_message_here`](crate::progress::Intake::server_message_here)).
    NotMine,
}

impl Disposition {
    /// Whether no part of `message` is a message. Text beside a message on one line is only a part.
    pub fn refuses_all_of(&self, message: &Message) -> bool {
        matches!(self, Self::NotAMessage(text) if text.len() == message.raw().len())
    }
}

/// An event in the filter, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterEvent {
    /// A message of the server ended in this verdict. Messages are numbered from 1 as they come.
    Message {
        /// The number of the message.
        number: u64,
        /// The call that the message was about, if known.
        call: Option<CallId>,
        /// The verdict.
        verdict: Verdict,
    },
    /// A request was passed on and waits for its answer.
    Opened(CallId),
    /// This filter now sends the progress of a request whose stream has closed. Another filter sent it before.
    TakenOver(CallId),
    /// The client was sent a heartbeat.
    Heartbeat(CallId),
    /// A call has ended.
    Call(Box<Summary>),
    /// A message of a client was not passed on.
    Refused(RefusalRule),
    /// An error of the server without an id reached no client: the text of the error. One event for each error code, up
    /// to a limit.
    UnansweringError(Box<str>),
    /// An event of a call that its client gave up (`late`).
    Late(Box<LateNews>),
    /// An event of one of Milepost's own tasks (`tasks`).
    Task(Box<TaskNews>),
}

/// The rule by which a message of a client is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalRule {
    /// A member that servers may read in different ways, where clients share a server.
    AmbiguousMember,
    /// A cancellation that may mean requests of several conversations, to which their client gave one id.
    AmbiguousCancel,
    /// More elements in an array than [`BATCH_MAX`](crate::progress::BATCH_MAX).
    LongBatch,
}

impl RefusalRule {
    /// Every rule.
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

/// The rest of a filter that has failed.
#[derive(Debug, Default)]
pub(crate) struct Salvaged {
    /// The messages that wait for each client stream.
    pub(crate) streams: BTreeMap<StreamId, TransmitQueue>,
    /// The large messages of which more is to come.
    pub(crate) large: Vec<SalvagedLarge>,
    /// The message that was being handled, and its client stream.
    pub(crate) at_work: Option<(Option<StreamId>, Message)>,
}

/// A large message that is passing in pieces.
#[derive(Debug, Clone)]
pub(crate) struct SalvagedLarge {
    /// The stream of the server that the message comes on.
    pub(crate) origin: Origin,
    /// The number of the message in the queue of its client stream.
    pub(crate) number: u64,
    /// Whether the client gets none of it.
    pub(crate) is_withheld: bool,
}
