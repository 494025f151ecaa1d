//! The streams of the clients of one filter, and the messages that wait on them.

pub(crate) mod stream;

use std::collections::BTreeSet;
use std::time::Instant;

use crate::progress::event::queue::EventQueue;
use crate::progress::event::request_origin::RequestOrigin;
use crate::progress::few_map::FewMap;
use crate::progress::ids::{Principal, StreamId};
use crate::progress::payload::Transmit;
use crate::progress::policy::{CallPolicy, Pacing, StreamPacing};
use crate::progress::streams::stream::{Item, QUEUE_MAX, Stream, StreamKind};
use crate::progress::topology::Topology;
use crate::progress::verdict::{Reason, Verdict};

/// The client streams of a filter, and the order of the messages that wait there. On request, changes of streams are
/// noted, so that a shell looks only at the changed streams.
#[derive(Debug)]
pub struct ClientStreams {
    streams: FewMap<StreamId, Box<Stream>>,
    changes: Option<Box<StreamChanges>>,
    /// Whether the client reads too slowly. Then compliant progress is thinned too.
    pub(crate) client_is_slow: bool,
    pub(crate) topology: Topology,
    /// The stream for messages that belong to no request.
    pub(crate) session_stream: Option<StreamId>,
    /// The last number that was given to a queued message, or from which a name for the server was made. It only rises.
    pub(crate) order: u64,
}

/// The streams that a shell has to look at.
#[derive(Debug, Default)]
struct StreamChanges {
    /// Streams that may have changed since the shell last looked at them.
    changed: BTreeSet<StreamId>,
    /// Streams that had too many waiting bytes when the shell last looked at them.
    full: BTreeSet<StreamId>,
}

impl ClientStreams {
    /// Returns an empty set of streams.
    pub(crate) fn new(topology: Topology) -> Self {
        Self {
            streams: FewMap::default(),
            changes: None,
            client_is_slow: false,
            topology,
            session_stream: None,
            order: 0,
        }
    }

    /// Adds a client stream. The first shared stream also carries messages that belong to no request.
    pub(crate) fn open(&mut self, id: StreamId, kind: StreamKind, pacing: StreamPacing) {
        match kind {
            StreamKind::Shared => drop(self.session_stream.get_or_insert(id)),
            StreamKind::Exchange => self.topology.open_exchange(),
        }
        self.insert(id, Box::new(Stream::new(kind, pacing)));
    }

    /// Opens a stream on which the server continues a stream of the kind `of`. The server repeats messages that the
    /// client may already have, so values that are not above the last sent value count as duplicates.
    pub(crate) fn open_replay(&mut self, id: StreamId, of: StreamKind) {
        self.open(id, StreamKind::Shared, StreamPacing::Immediate);
        if let Some(stream) = self.get_mut(&id) {
            stream.replays = true;
            stream.resumes_request = of == StreamKind::Exchange;
        }
    }

    /// Removes a client stream. The messages that wait there are withheld.
    pub(crate) fn close(&mut self, id: StreamId, events: &mut EventQueue) {
        if self.session_stream == Some(id) {
            self.session_stream = None;
        }
        let Some(stream) = self.remove(&id) else { return };
        // Invariant: every server message gets exactly one verdict, even if its stream closes before the message is
        // written.
        for judged in stream.queue.into_iter().flat_map(|item| item.verdicts) {
            events.push_verdict(judged.number, judged.call, Verdict::Withheld(Reason::Gone));
        }
    }

    /// Whether a client stream with this number is open.
    pub fn has_stream(&self, id: StreamId) -> bool {
        self.streams.contains_key(&id)
    }

    /// Returns the session stream; `None` if different clients share the server, because it then belongs to none of
    /// them.
    pub(crate) fn common_session_stream(&self) -> Option<StreamId> {
        self.session_stream.filter(|_| !self.topology.has_strangers())
    }

    /// Returns the stream to write to: `stream` if it is open, else the session stream.
    pub(crate) fn open_or_session_stream(&self, stream: Option<StreamId>) -> Option<StreamId> {
        stream.filter(|id| self.has_stream(*id)).or_else(|| self.common_session_stream())
    }

    /// Returns the next number in the order of everything that waits.
    pub(crate) fn next_order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    /// Puts a message on a client stream, or on the session stream if the client stream has closed.
    pub(crate) fn enqueue(
        &mut self,
        stream: Option<StreamId>,
        mut item: Item,
        events: &mut EventQueue,
    ) {
        // The number is given on arrival, so that progress that arrived earlier and is due is written first.
        item.order = self.next_order();
        let open = self.open_or_session_stream(stream);
        match open.and_then(|id| self.get_mut(&id)) {
            Some(stream) => stream.push(item),
            None => {
                for judged in item.verdicts {
                    let gone = Verdict::Withheld(Reason::Gone);
                    events.push_verdict(judged.number, judged.call, gone);
                }
            }
        }
    }

    /// Adds a message to the client's stream, for a filter that only observes.
    pub(crate) fn observe(&mut self, stream: Option<StreamId>, transmit: Transmit) -> bool {
        self.observe_part(stream, None, transmit)
    }

    /// Adds a whole message to a stream, or a piece of the large message `of`.
    pub(crate) fn observe_part(
        &mut self,
        stream: Option<StreamId>,
        of: Option<u64>,
        transmit: Transmit,
    ) -> bool {
        let open = self.open_or_session_stream(stream).and_then(|id| self.get_mut(&id));
        let Some(stream) = open else { return false };
        stream.observed.get_or_insert_default().push(of, transmit);
        true
    }

    /// Makes all messages ready to be written without waiting for a guard, because the connection is about to end.
    pub(crate) fn flush(&mut self) {
        for item in self.iter_mut().flat_map(|(_, stream)| &mut stream.queue) {
            item.guards.clear();
        }
    }

    /// Whether no bytes wait for a client.
    pub fn is_drained(&self) -> bool {
        self.streams.values().all(|stream| stream.is_drained())
    }

    /// Whether so many bytes wait on a stream that the server should not be read.
    pub fn is_full(&self) -> bool {
        self.full().next().is_some()
    }

    /// Returns the time at which a stream may have something to write if nothing happens before.
    pub fn due(&self, stream: StreamId) -> Option<Instant> {
        self.streams.get(&stream).and_then(|stream| stream.timeout())
    }

    /// Returns the earliest time at which any stream may have something to write.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.streams.values().filter_map(|stream| stream.timeout()).min()
    }

    /// Sets the principal of a client stream. Streams of one principal may see each other's messages. A stream without
    /// a principal counts as a client of its own.
    pub(crate) fn set_principal(&mut self, id: StreamId, principal: u64) {
        if let Some(stream) = self.get_mut(&id) {
            stream.principal = Some(principal);
        }
    }

    /// Returns the principal whose calls may join each other's work. If clients do not share the server, all streams
    /// have the same principal.
    pub(crate) fn late_principal(&self, stream: StreamId) -> Principal {
        if self.topology.has_strangers() { self.principal_of(stream) } else { Principal::Known(0) }
    }

    /// Sets the origin of the client messages that follow on a stream. A request that names a trace itself keeps that
    /// trace.
    pub fn set_origin(&mut self, stream: StreamId, origin: RequestOrigin) {
        if let Some(stream) = self.get_mut(&stream) {
            stream.origin = origin;
        }
    }

    /// Returns the origin of client messages on a stream.
    pub(crate) fn origin_of(&self, stream: StreamId) -> RequestOrigin {
        self.streams.get(&stream).map(|stream| stream.origin.clone()).unwrap_or_default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    pub(crate) fn get(&self, id: &StreamId) -> Option<&Stream> {
        self.streams.get(id).map(|stream| &**stream)
    }

    /// Returns a client stream to be changed, and marks it as changed.
    pub(crate) fn get_mut(&mut self, id: &StreamId) -> Option<&mut Box<Stream>> {
        let stream = self.streams.get_mut(id)?;
        if let Some(changes) = &mut self.changes {
            changes.changed.insert(*id);
        }
        Some(stream)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&StreamId, &mut Box<Stream>)> {
        if let Some(changes) = &mut self.changes {
            // All streams count as changed, because the caller may change any of them.
            changes.changed.extend(self.streams.keys().copied());
        }
        self.streams.iter_mut()
    }

    pub(crate) fn insert(&mut self, id: StreamId, stream: Box<Stream>) {
        self.streams.insert(id, stream);
        self.change(id);
    }

    pub(crate) fn remove(&mut self, id: &StreamId) -> Option<Box<Stream>> {
        if let Some(changes) = &mut self.changes {
            changes.changed.remove(id);
            changes.full.remove(id);
        }
        self.streams.remove(id)
    }

    /// Starts to note which client streams change ([`ClientStreams::next_changed`]). The streams that are already open
    /// count as changed.
    pub fn note_changes(&mut self) {
        self.changes = Some(Box::default());
        let _all = self.iter_mut();
    }

    /// Returns the client that reads a stream.
    pub(crate) fn principal_of(&self, id: StreamId) -> Principal {
        let known = self.streams.get(&id).and_then(|stream| stream.principal);
        known.map_or(Principal::Stream(id), Principal::Known)
    }

    pub(crate) fn is_exchange(&self, id: StreamId) -> bool {
        self.streams.get(&id).is_some_and(|stream| stream.kind == StreamKind::Exchange)
    }

    /// Returns how long the messages of a call wait before they are written to its client.
    pub(crate) fn pacing_of(&self, stream: StreamId, settings: &CallPolicy) -> Pacing {
        let is_immediate = self.streams.get(&stream).is_some_and(|stream| {
            stream.pacing == StreamPacing::Immediate
                || (stream.is_orderly && settings.spare_known_clients)
        });
        if is_immediate { Pacing::IMMEDIATE } else { settings.pacing }
    }

    /// Notes that the shell has to look at the stream again, because of a change outside the stream itself.
    pub(crate) fn change(&mut self, id: StreamId) {
        if let Some(changes) = self.changes.as_mut().filter(|_| self.streams.contains_key(&id)) {
            changes.changed.insert(id);
        }
    }

    /// Returns a client stream that has changed since the shell last looked at it: it may have something to write,
    /// another [`ClientStreams::due`], or no requests any more ([`Filter::is_over`](crate::progress::Filter::is_over)).
    pub fn next_changed(&mut self) -> Option<StreamId> {
        // Only changed streams are examined. Otherwise, with a thousand silent calls of one server, each message would
        // cost a thousand examinations.
        let id = self.changes.as_ref()?.changed.first().copied()?;
        self.settle(id);
        Some(id)
    }

    /// Notes that the shell has looked at a stream and has taken everything that could be written.
    pub fn settle(&mut self, id: StreamId) {
        let Some(changes) = &mut self.changes else { return };
        changes.changed.remove(&id);
        if self.streams.get(&id).is_some_and(|stream| stream.backlog() >= QUEUE_MAX) {
            changes.full.insert(id);
        } else {
            changes.full.remove(&id);
        }
    }

    /// Returns the streams with so many waiting bytes that the server should not be read.
    pub fn full(&self) -> impl Iterator<Item = StreamId> {
        let (some, all) = match &self.changes {
            // A stream that was not full and has not changed since cannot be full, so quiet streams cost nothing here.
            Some(changes) => (Some(changes.full.union(&changes.changed)), None),
            None => (None, Some(self.streams.keys())),
        };
        let ids = some.into_iter().flatten().chain(all.into_iter().flatten()).copied();
        ids.filter(|id| self.streams.get(id).is_some_and(|stream| stream.backlog() >= QUEUE_MAX))
    }
}
