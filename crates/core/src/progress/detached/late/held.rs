//! The calls that wait for the cancellation of an older call for the same work.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::progress::correlate::draft::CallDraft;
use crate::progress::ids::StreamId;
use crate::progress::payload::Payload;
use crate::protocol::jsonrpc::{Key, Message};

/// Limit of the time for which a call waits until an older call for the same work is cancelled. Claude Code sends the
/// cancellation up to 0.2 s after the call that repeats the cancelled one.
const HOLD_MAX: Duration = Duration::from_secs(1);

/// Limit of the calls of one connection that wait in this way. A further call is sent to the server immediately.
const HELD_MAX: usize = 16;

/// Limit of the length of a message, in bytes, that waits in this way. A longer call is sent to the server immediately.
const HELD_MESSAGE_MAX: usize = 128 << 10;

/// A `tools/call` that was not sent to the server yet.
#[derive(Debug)]
pub(crate) struct HeldCall {
    pub(crate) stream: StreamId,
    pub(crate) message: Message,
    pub(crate) draft: CallDraft,
    pub(crate) tool: Option<String>,
    /// The time at which the call is sent to the server.
    until: Instant,
}

/// A request of a client that was held back and is sent to the server now.
#[derive(Debug, Clone)]
pub struct ReleasedRequest {
    /// The stream that the request came on.
    pub stream: StreamId,
    /// The request as its client sent it.
    pub message: Message,
    /// The message for the server.
    pub payload: Payload,
}

/// The calls of one connection that wait for the cancellation of an older call.
#[derive(Debug, Default)]
pub(crate) struct HeldCalls {
    calls: VecDeque<HeldCall>,
    /// The requests that have to be sent to the server now.
    pub(crate) released: VecDeque<ReleasedRequest>,
}

impl HeldCalls {
    /// Whether another call with this message may wait.
    pub(crate) fn has_room(&self, message: &Message) -> bool {
        self.calls.len() < HELD_MAX && message.raw().len() <= HELD_MESSAGE_MAX
    }

    /// Holds a call back.
    pub(crate) fn hold(
        &mut self,
        now: Instant,
        stream: StreamId,
        message: &Message,
        (tool, draft): (Option<&str>, CallDraft),
    ) {
        let (message, tool) = (message.clone(), tool.map(str::to_owned));
        self.calls.push_back(HeldCall { stream, message, draft, tool, until: now + HOLD_MAX });
    }

    /// Removes and returns the oldest call for which `is_meant` is true.
    pub(crate) fn take(&mut self, is_meant: impl Fn(&HeldCall) -> bool) -> Option<HeldCall> {
        let place = self.calls.iter().position(is_meant)?;
        self.calls.remove(place)
    }

    /// Removes and returns the oldest call.
    pub(crate) fn take_first(&mut self) -> Option<HeldCall> {
        self.calls.pop_front()
    }

    /// Removes and returns the oldest call, if it has waited long enough.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<HeldCall> {
        self.calls.pop_front_if(|call| call.until <= now)
    }

    /// Returns the time at which the next call is sent to the server.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.calls.front().map(|call| call.until)
    }

    /// Returns the number of calls that wait.
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether a call from this stream waits.
    pub(crate) fn is_on(&self, stream: StreamId) -> bool {
        self.calls.iter().any(|call| call.stream == stream)
    }

    /// Whether the request with this id from this stream waits.
    pub(crate) fn has(&self, stream: StreamId, id: &Key) -> bool {
        self.calls.iter().any(|call| call.stream == stream && call.is_named(id))
    }
}

impl HeldCall {
    /// Whether the request has this id.
    pub(crate) fn is_named(&self, id: &Key) -> bool {
        self.message.id_key().as_ref() == Some(id)
    }
}
