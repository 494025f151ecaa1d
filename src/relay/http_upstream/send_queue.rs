//! Client messages that wait to be sent, in their order.

use std::collections::VecDeque;

use super::outgoing::Outgoing;
use crate::progress::QUEUE_MAX;
use crate::protocol::jsonrpc::{Key, Kind, Message};

/// Maximum number of messages that wait to be sent to one server. Beyond the limit clients are not read.
const QUEUED_MAX: usize = 1024;

/// Messages that wait to be sent.
#[derive(Default)]
pub(crate) struct SendQueue(VecDeque<Outgoing>);

impl SendQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether so many messages or bytes wait that clients should not be read.
    pub(crate) fn is_full(&self) -> bool {
        let bytes: usize = self.0.iter().map(|out| out.message.raw().len()).sum();
        self.0.len() >= QUEUED_MAX || bytes >= QUEUE_MAX
    }

    pub(crate) fn push(&mut self, out: Outgoing) {
        self.0.push_back(out);
    }

    /// Puts a message back at its old position.
    pub(crate) fn requeue(&mut self, out: Outgoing) {
        // Streams are numbered in the order in which their messages came.
        let at = self.0.partition_point(|other| other.stream < out.stream);
        self.0.insert(at, out);
    }

    /// Removes the next message that may be sent. Skips requests unless `with_requests`. `at` is the position after the
    /// requests skipped before.
    pub(crate) fn next(&mut self, at: &mut usize, with_requests: bool) -> Option<Outgoing> {
        while let Some(out) = self.0.get(*at) {
            // An open call may wait for an answer of the client, so such answers may be sent before requests.
            if with_requests || is_one_way(out) {
                return self.0.remove(*at);
            }
            *at += 1;
        }
        None
    }

    pub(crate) fn pop(&mut self) -> Option<Outgoing> {
        self.0.pop_front()
    }

    /// Removes a request that its client has cancelled. Returns whether it was in the queue.
    pub(crate) fn cancel(&mut self, id: &Key) -> bool {
        let at = self.0.iter().position(|out| is_request(&out.message, id));
        at.and_then(|at| self.0.remove(at)).is_some()
    }

    pub(crate) fn take_all(&mut self) -> VecDeque<Outgoing> {
        std::mem::take(&mut self.0)
    }
}

/// Whether a message is the request with this id.
pub(crate) fn is_request(message: &Message, id: &Key) -> bool {
    message.kind() == Kind::Request && message.id_key().as_ref() == Some(id)
}

fn is_one_way(out: &Outgoing) -> bool {
    out.message.kind() != Kind::Request && !out.has_requests()
}
