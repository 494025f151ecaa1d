//! Handles the requests of a session's clients, and finds the stream on which each is answered.

use std::sync::Arc;

use bytes::Bytes;

use super::SessionLeg;
use crate::gateway::bridge::replay_buffer::ReplayBuffer;
use crate::gateway::bridge::session::{SessionKind, requests};
use crate::progress::{StreamId, StreamKind, StreamPacing};
use crate::protocol::json;
use crate::protocol::jsonrpc::{Key, Kind, Message};
use crate::relay::{ClientHeaders, FromClient, SOLE_STREAM};
use crate::transport::mcp_http::request_body::cancels_in;

impl SessionLeg {
    /// Handles a message that opens no stream. In a session of a single stream the message may still be a request.
    pub(super) fn receive_one_way(
        &mut self,
        message: Message,
        headers: ClientHeaders,
    ) -> FromClient {
        if self.session.kind == SessionKind::HttpSse {
            let requests = requests(&message);
            self.begin_waiting(requests.len());
            self.session.session_buffer.expect(requests);
        }
        self.settle_cancelled(&message);
        FromClient::Message(SOLE_STREAM, message, headers)
    }

    /// Notes the requests that a client's cancellation ends, because they need no answer.
    fn settle_cancelled(&mut self, message: &Message) {
        for one in cancels_in(message) {
            let id = json::member(&one.params().unwrap_or_default(), "requestId");
            let Some(id) = id.and_then(|id| Key::read(&id)) else { continue };
            match self.sole_stream_of(&id) {
                Some(stream) => self.settle(stream, &id),
                // Several streams have a request with this id. The filter knows which one is meant and ends its stream.
                None => self.open.values().for_each(|buffer| buffer.note_cancellation(&id)),
            }
        }
    }

    pub(super) fn opened(&mut self, buffer: Arc<ReplayBuffer>, message: &Message) -> StreamId {
        let stream = buffer.id;
        if message.kind() == Kind::Batch {
            self.settle_cancelled(message);
        }
        self.listed_tools.ask(&self.session, stream, message);
        self.enter(buffer, requests(message));
        stream
    }

    pub(super) fn enter(&mut self, buffer: Arc<ReplayBuffer>, requests: Vec<(Key, Bytes)>) {
        let stream = buffer.id;
        if let Some((id, _)) = requests.last() {
            // Two consecutive requests have the same id, so later requests may need ids that Milepost makes.
            if self.last_id.as_ref() == Some(id) {
                self.session.mark_repeated_ids();
            }
            self.last_id = Some(id.clone());
        }
        self.begin_waiting(requests.len());
        buffer.expect(requests);
        self.open.insert(stream, buffer);
        let opened = FromClient::Opened(stream, StreamKind::Exchange, StreamPacing::Immediate);
        self.inputs.push_back(opened);
        if let Some(principal) = self.session.principal {
            self.inputs.push_back(FromClient::Principal(stream, principal));
        }
    }

    /// Notes that a request has its answer, or no longer needs one.
    pub(crate) fn settle(&mut self, stream: StreamId, id: &Key) {
        let Some(buffer) = self.open.get(&stream) else { return };
        let settled = buffer.settle(id);
        let answered = buffer.open() == 0;
        self.end_waiting(usize::from(settled));
        if answered && self.unanswered.remove(&stream) {
            self.close(stream);
        }
    }

    /// Returns the stream of the request with this id; `None` in a shared session, where several clients may use one
    /// id.
    pub(crate) fn stream_of_request(&self, id: &Key) -> Option<StreamId> {
        if self.session.kind == SessionKind::Shared {
            return None;
        }
        self.open.iter().find(|(_, buffer)| buffer.has_request(id)).map(|(stream, _)| *stream)
    }

    /// Returns the stream of the request with this id, if only one stream has such a request.
    fn sole_stream_of(&self, id: &Key) -> Option<StreamId> {
        let first = self.stream_of_request(id)?;
        let mut having = self.open.values().filter(|buffer| buffer.has_request(id));
        having.nth(1).is_none().then_some(first)
    }

    /// Returns the stream of the request that an answer on `stream` belongs to: `stream` itself if it has a request
    /// with this id.
    pub(crate) fn stream_of_answer(&self, stream: StreamId, id: &Key) -> StreamId {
        let is_here = self.open.get(&stream).is_some_and(|buffer| buffer.has_request(id));
        let elsewhere = if is_here { None } else { self.stream_of_request(id) };
        elsewhere.unwrap_or(stream)
    }
}
