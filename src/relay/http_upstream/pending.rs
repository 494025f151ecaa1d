//! Requests that were sent to the server and are unanswered.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::outgoing::{Outgoing, RequestKind, requests};
use crate::progress::StreamId;
use crate::protocol::jsonrpc::Key;

/// An unanswered request.
#[derive(Debug, Clone)]
pub(crate) struct PendingRequest {
    key: Option<Key>,
    /// The id as the client wrote it.
    pub(crate) id: Bytes,
    /// The POST that carried the request.
    pub(crate) stream: StreamId,
    pub(crate) kind: RequestKind,
}

/// All unanswered requests, oldest first.
#[derive(Debug, Default)]
pub(crate) struct PendingRequests {
    /// The requests, in the order in which they were sent.
    requests: BTreeMap<u64, PendingRequest>,
    by_key: BTreeMap<Key, BTreeSet<u64>>,
    /// The numbers of the requests in each POST.
    by_stream: BTreeMap<StreamId, BTreeSet<u64>>,
    next: u64,
}

impl PendingRequests {
    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Adds the requests of a message.
    pub(crate) fn add(&mut self, out: &Outgoing) {
        let (stream, kind) = (out.stream, out.kind());
        for request in requests(&out.message) {
            let (id, key) = (request.id().unwrap_or_default(), request.id_key());
            self.next += 1;
            if let Some(key) = &key {
                self.by_key.entry(key.clone()).or_default().insert(self.next);
            }
            self.by_stream.entry(stream).or_default().insert(self.next);
            self.requests.insert(self.next, PendingRequest { key, id, stream, kind });
        }
    }

    fn remove(&mut self, number: u64) -> Option<PendingRequest> {
        let request = self.requests.remove(&number)?;
        if let Some(key) = &request.key {
            forget(&mut self.by_key, key, number);
        }
        forget(&mut self.by_stream, &request.stream, number);
        Some(request)
    }

    /// Returns the requests with this id, oldest first.
    fn named(&self, id: &Key) -> impl Iterator<Item = (u64, &PendingRequest)> {
        let numbers = self.by_key.get(id).into_iter().flatten();
        numbers.filter_map(|number| Some((*number, self.requests.get(number)?)))
    }

    /// Removes the request with this id. If several requests have the id, the one in the POST `stream` is preferred.
    pub(crate) fn answer(&mut self, id: &Key, stream: Option<StreamId>) -> Option<PendingRequest> {
        // Two requests may have the same id: the answer's stream shows which is meant.
        let here = self.named(id).find(|(_, one)| Some(one.stream) == stream);
        let (number, _) = here.or_else(|| self.named(id).next())?;
        self.remove(number)
    }

    /// Returns the POST that carried the request with this id.
    pub(crate) fn stream_of(&self, id: &Key) -> Option<StreamId> {
        self.named(id).next().map(|(_, one)| one.stream)
    }

    /// Whether the leg itself must read the answer to a request with this id.
    pub(crate) fn is_read(&self, id: &Key) -> bool {
        self.named(id).any(|(_, one)| one.kind != RequestKind::Other)
    }

    /// Whether a POST carried a request with this id.
    pub(crate) fn has_request(&self, stream: StreamId, id: &Key) -> bool {
        self.named(id).any(|(_, one)| one.stream == stream)
    }

    /// Whether a request of this POST is unanswered.
    pub(crate) fn has(&self, stream: StreamId) -> bool {
        self.by_stream.contains_key(&stream)
    }

    /// Whether a request of this kind is unanswered.
    pub(crate) fn has_kind(&self, kind: RequestKind) -> bool {
        self.requests.values().any(|one| one.kind == kind)
    }

    /// Removes the requests of one POST.
    pub(crate) fn take(&mut self, stream: StreamId) -> Vec<PendingRequest> {
        let numbers = self.by_stream.get(&stream).cloned().unwrap_or_default();
        numbers.into_iter().filter_map(|number| self.remove(number)).collect()
    }

    /// Removes the requests of this kind.
    pub(crate) fn take_kind(&mut self, kind: RequestKind) -> Vec<PendingRequest> {
        let of_kind = self.requests.iter().filter(|(_, one)| one.kind == kind);
        let numbers: Vec<u64> = of_kind.map(|(number, _)| *number).collect();
        numbers.into_iter().filter_map(|number| self.remove(number)).collect()
    }

    /// Removes all requests.
    pub(crate) fn take_all(&mut self) -> Vec<PendingRequest> {
        std::mem::take(self).requests.into_values().collect()
    }
}

fn forget<K: Ord>(index: &mut BTreeMap<K, BTreeSet<u64>>, key: &K, number: u64) {
    if let Some(numbers) = index.get_mut(key) {
        numbers.remove(&number);
        if numbers.is_empty() {
            index.remove(key);
        }
    }
}
