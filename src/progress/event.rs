//! The inputs and outputs of a filter besides bytes: origins, dispositions and events.

use bytes::Bytes;

use crate::progress::correlate::summary::Summary;
use crate::progress::ids::{CallId, StreamId};
use crate::progress::payload::Transmit;
use crate::progress::verdict::Verdict;
use crate::protocol::jsonrpc::Message;

/// Where a message of the server came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The upstream's only wire, or a stream for all requests: it says nothing of the request that a
    /// message belongs to.
    Shared,
    /// The upstream stream that pairs with this client stream, or that was said to pair with requests
    /// ([`Filter::pair`]).
    Stream(StreamId),
}

/// Where a message of the server goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Disposition {
    /// The filter has it; what the client gets of it comes out of [`Filter::poll_transmit`].
    Consumed,
    /// The text is no message: it belongs on standard error.
    NotAMessage(Bytes),
    /// It speaks of no call of this filter, which is one of several of a session: another may know it.
    /// Nothing has become of it yet ([`Filter::server_message_here`]).
    NotMine,
}

/// What an operator may want to know of what has just happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterEvent {
    /// A message of the server ended in this verdict. Messages are numbered from 1 as they come.
    Message {
        /// Its number.
        number: u64,
        /// The call it was about, if that is known.
        call: Option<CallId>,
        /// What became of it.
        verdict: Verdict,
    },
    /// A request was passed on and waits for its answer.
    Opened(CallId),
    /// The client of a request whose stream has closed is told of it here now, where another filter told it
    /// before.
    TakenOver(CallId),
    /// The client was sent a heartbeat.
    Heartbeat(CallId),
    /// A call has ended.
    Call(Box<Summary>),
}

/// What is left of a filter that has failed: messages and their streams, and what it was at work on.
pub type Salvaged = (Vec<(StreamId, Transmit)>, Option<(Option<StreamId>, Message)>);
