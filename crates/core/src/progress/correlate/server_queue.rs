//! Milepost's own messages for the server.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::progress::payload::Payload;
use crate::protocol::json;
use crate::protocol::jsonrpc::Key;

/// Milepost's own messages for the server, oldest first.
#[derive(Debug, Default)]
pub(crate) struct ServerQueue {
    messages: VecDeque<Payload>,
}

impl ServerQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub(crate) fn push(&mut self, message: Bytes) {
        self.messages.push_back(message.into());
    }

    /// Removes and returns the oldest message.
    pub(crate) fn pop(&mut self) -> Option<Payload> {
        self.messages.pop_front()
    }

    /// Tells the server to cancel the request with this id.
    pub(crate) fn cancel(&mut self, id: &Key, reason: &str) {
        let id = id.to_json();
        let reason = json::quote(reason);
        let mut text =
            br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"#
                .to_vec();
        text.extend_from_slice(&id);
        text.extend_from_slice(br#","reason":"#);
        text.extend_from_slice(&reason);
        text.extend_from_slice(b"}}");
        self.push(Bytes::from(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancellation_quotes_its_reason() {
        let mut queue = ServerQueue::default();
        queue.cancel(&Key::Integer(7), "the \"client\" left");
        let text = queue.pop().unwrap().to_bytes();
        assert_eq!(
            *text,
            *br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"reason":"the \"client\" left"}}"#
        );
        assert!(queue.is_empty());
    }
}
