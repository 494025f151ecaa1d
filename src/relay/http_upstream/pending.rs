//! Requests that were sent to the server and have no answer yet.

use bytes::Bytes;

use super::outgoing::{Outgoing, RequestKind, requests};
use crate::progress::StreamId;
use crate::protocol::jsonrpc::Key;

/// One request without an answer.
#[derive(Debug, Clone)]
pub(crate) struct PendingRequest {
    key: Option<Key>,
    /// The id as the client wrote it.
    pub(crate) id: Bytes,
    /// The POST that carried the request.
    pub(crate) stream: StreamId,
    pub(crate) kind: RequestKind,
}

/// All requests without an answer, oldest first.
#[derive(Debug, Default)]
pub(crate) struct PendingRequests(Vec<PendingRequest>);

impl PendingRequests {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds the requests of a message.
    pub(crate) fn add(&mut self, out: &Outgoing) {
        let (stream, kind) = (out.stream, out.kind());
        for request in requests(&out.message) {
            let id = request.id().unwrap_or_default();
            self.0.push(PendingRequest { key: request.id_key(), id, stream, kind });
        }
    }

    /// Removes the request with this id. With several, the one whose POST is `stream` goes first.
    pub(crate) fn answer(&mut self, id: &Key, stream: Option<StreamId>) -> Option<PendingRequest> {
        let fits = |pending: &PendingRequest| pending.key.as_ref() == Some(id);
        let here = self.0.iter().position(|one| fits(one) && Some(one.stream) == stream);
        let at = here.or_else(|| self.0.iter().position(fits))?;
        Some(self.0.remove(at))
    }

    /// The POST that carried the request with this id.
    pub(crate) fn stream_of(&self, id: &Key) -> Option<StreamId> {
        self.0.iter().find(|one| one.key.as_ref() == Some(id)).map(|one| one.stream)
    }

    /// Whether a POST carried a request with this id.
    pub(crate) fn has_request(&self, stream: StreamId, id: &Key) -> bool {
        self.0.iter().any(|one| one.stream == stream && one.key.as_ref() == Some(id))
    }

    /// Whether a request of this POST waits for its answer.
    pub(crate) fn has(&self, stream: StreamId) -> bool {
        self.0.iter().any(|one| one.stream == stream)
    }

    /// Whether a request of this kind waits for its answer.
    pub(crate) fn has_kind(&self, kind: RequestKind) -> bool {
        self.0.iter().any(|one| one.kind == kind)
    }

    /// Removes the requests of one POST.
    pub(crate) fn take(&mut self, stream: StreamId) -> Vec<PendingRequest> {
        self.0.extract_if(.., |one| one.stream == stream).collect()
    }

    /// Removes the requests of this kind.
    pub(crate) fn take_kind(&mut self, kind: RequestKind) -> Vec<PendingRequest> {
        self.0.extract_if(.., |one| one.kind == kind).collect()
    }

    /// Removes all requests.
    pub(crate) fn take_all(&mut self) -> Vec<PendingRequest> {
        std::mem::take(&mut self.0)
    }
}
