//! Messages of the server: handles some itself, and passes the others to the relay.

use super::UpstreamClient;
use crate::protocol::jsonrpc::{Key, Kind, Message};
use crate::relay::http_upstream::inbox::{InboxItem, ResponseStream};
use crate::relay::http_upstream::outgoing::RequestKind;
use crate::relay::http_upstream::pending::PendingRequest;
use crate::relay::http_upstream::session::SessionPhase;
use crate::transport::mcp_http::response_reader::ResponseItem;

impl UpstreamClient {
    /// Handles an item from a stream.
    pub(super) fn receive(&mut self, from: ResponseStream, item: ResponseItem) {
        match self.inbox.receive(from, item) {
            Some(InboxItem::Message(message)) => self.receive_message(from, message),
            Some(InboxItem::Answered(id)) => drop(self.mark_answered(from, &id)),
            None => {}
        }
    }

    /// Handles a message of the server.
    pub(super) fn receive_message(&mut self, from: ResponseStream, message: Message) {
        let message = message.behind_mark().unwrap_or(message);
        let message = if from.exchange().is_some() { message.or_bare_error() } else { message };
        if self.renews_for(from, &message) {
            return;
        }
        if let Some(exchange) = from.exchange().and_then(|stream| self.exchanges.get_mut(stream)) {
            exchange.is_heard = true;
            let id = message.id_key().filter(|_| message.kind() == Kind::Response);
            // An error without an id may be the server's only answer.
            let is_error = message.kind() == Kind::Response && message.result().is_none();
            exchange.ends_astray = match id {
                Some(id) => self.pending.stream_of(&id).is_none(),
                None => is_error,
            };
        }
        let message = match message.kind() {
            Kind::Noise => {
                tracing::debug!(
                    bytes = message.raw().len(),
                    "the server sent text that is no message"
                );
                return;
            }
            Kind::Response => match self.receive_answer(from, message) {
                Some(message) => message,
                None => return,
            },
            Kind::Batch if self.has_own_answer(&message) => {
                return message.apart().into_iter().for_each(|one| self.receive_message(from, one));
            }
            Kind::Batch => {
                let answers = message.elements().filter(|one| one.kind() == Kind::Response);
                let ids: Vec<Key> = answers.filter_map(|one| one.id_key()).collect();
                for id in &ids {
                    self.mark_answered(from, id);
                }
                message
            }
            Kind::Opaque => {
                // The line may have several messages, which the filter will separate.
                for one in message.on_one_line().into_iter().flat_map(|(messages, _)| messages) {
                    if let Some(id) = one.id_key().filter(|_| one.kind() == Kind::Response) {
                        self.mark_answered(from, &id);
                    }
                }
                message
            }
            _ => message,
        };
        self.inbox.push(from, message);
    }

    /// Whether an array contains an answer that the leg itself must read.
    fn has_own_answer(&self, array: &Message) -> bool {
        let answers = array.elements().filter(|one| one.kind() == Kind::Response);
        answers.filter_map(|one| one.id_key()).any(|id| self.pending.is_read(&id))
    }

    /// Removes the request that is answered on a stream.
    pub(super) fn mark_answered(
        &mut self,
        from: ResponseStream,
        id: &Key,
    ) -> Option<PendingRequest> {
        let request = self.pending.answer(id, from.exchange())?;
        if !self.pending.has(request.stream) {
            self.elsewhere.remove(&request.stream);
        }
        self.linger(request.stream);
        if request.kind == RequestKind::Initialize {
            self.session.phase = SessionPhase::Free;
        }
        Some(request)
    }

    /// Handles an answer. Returns the message for the client, if there is one.
    fn receive_answer(&mut self, from: ResponseStream, answer: Message) -> Option<Message> {
        let Some(request) = answer.id_key().and_then(|id| self.mark_answered(from, &id)) else {
            return Some(answer);
        };
        match request.kind {
            RequestKind::Initialize => {
                self.session.set_revision(&answer);
                Some(answer)
            }
            RequestKind::Renewal => {
                self.take_renewal(&answer);
                None
            }
            RequestKind::Refresh => {
                self.take_tools(&answer);
                None
            }
            RequestKind::Tools => Some(self.tools.filter(answer)),
            RequestKind::Other => Some(answer),
        }
    }
}
