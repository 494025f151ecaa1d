//! Requests of the server to its client, and the answers, for which calls wait that have filters of their own.

use super::SessionState;
use crate::gateway::direct::mailbox::Mail;
use crate::protocol::jsonrpc::{Kind, Message};
use crate::protocol::mcp;

impl SessionState {
    /// Passes a request of the server, or its cancellation, from a stream that belongs to no request to every open
    /// response, because a request of any of them may wait for the answer.
    pub(super) fn pass_question(&self, message: &Message) {
        let method = message.method();
        let is_question = match message.kind() {
            Kind::Request => method.as_deref() != Some(mcp::PING),
            Kind::Notification => method.as_deref() == Some(mcp::CANCELLED),
            _ => false,
        };
        if !is_question {
            return;
        }
        for (id, mailbox) in &self.streams {
            if !self.listening.contains(id) {
                mailbox.mark_asked();
                self.post(mailbox, Mail::Question(message.clone()));
            }
        }
    }

    /// Passes the client's answers to the responses whose requests may wait for them.
    pub(super) fn pass_answers(&self, message: &Message) {
        let answers = |one: &Message| one.kind() == Kind::Response;
        let is_batch = message.kind() == Kind::Batch;
        if !is_batch && !answers(message) {
            return;
        }
        for mailbox in self.streams.values().filter(|mailbox| mailbox.is_asked()) {
            if is_batch {
                for answer in message.elements().filter(answers) {
                    self.post(mailbox, Mail::Client(answer));
                }
            } else {
                self.post(mailbox, Mail::Client(message.clone()));
            }
        }
    }
}
