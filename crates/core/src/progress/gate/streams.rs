//! The client streams of one filter, and the order of the messages written to them.

use std::collections::BTreeSet;
use std::ops::Deref;

use bytes::Bytes;

use crate::progress::correlate::call::Call;
use crate::progress::few_map::FewMap;
use crate::progress::gate::stream::{QUEUE_MAX, Stream, StreamKind};
use crate::progress::ids::{CallId, Principal, StreamId};
use crate::progress::policy::{Pacing, StreamPacing};
use crate::progress::value::NumberView;
use crate::protocol::json;

/// The client streams of a filter. Where a shell asks for that, each change of a stream is noted, so that the
/// shell looks at the changed streams only.
#[derive(Debug, Default)]
pub(crate) struct ClientStreams {
    streams: FewMap<StreamId, Box<Stream>>,
    changes: Option<Box<StreamChanges>>,
}

/// The streams that a shell has to look at.
#[derive(Debug, Default)]
struct StreamChanges {
    /// Streams that may have changed since the shell looked at them.
    changed: BTreeSet<StreamId>,
    /// Streams that had too many waiting bytes when the shell took their last change.
    full: BTreeSet<StreamId>,
}

impl Deref for ClientStreams {
    type Target = FewMap<StreamId, Box<Stream>>;

    fn deref(&self) -> &Self::Target {
        &self.streams
    }
}

impl ClientStreams {
    pub(crate) fn get_mut(&mut self, id: &StreamId) -> Option<&mut Box<Stream>> {
        let stream = self.streams.get_mut(id)?;
        if let Some(changes) = &mut self.changes {
            changes.changed.insert(*id);
        }
        Some(stream)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&StreamId, &mut Box<Stream>)> {
        if let Some(changes) = &mut self.changes {
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

    /// Changes are noted from now on.
    pub(crate) fn note_changes(&mut self) {
        self.changes = Some(Box::default());
        let _all = self.iter_mut();
    }

    /// Something besides the stream itself has changed that its shell looks at.
    pub(crate) fn change(&mut self, id: StreamId) {
        if let Some(changes) = self.changes.as_mut().filter(|_| self.streams.contains_key(&id)) {
            changes.changed.insert(id);
        }
    }

    pub(crate) fn next_changed(&mut self) -> Option<StreamId> {
        let id = self.changes.as_ref()?.changed.first().copied()?;
        self.settle(id);
        Some(id)
    }

    /// The shell knows the stream as it is.
    pub(crate) fn settle(&mut self, id: StreamId) {
        let Some(changes) = &mut self.changes else { return };
        changes.changed.remove(&id);
        if self.streams.get(&id).is_some_and(|stream| stream.backlog() >= QUEUE_MAX) {
            changes.full.insert(id);
        } else {
            changes.full.remove(&id);
        }
    }

    /// The streams on which too many bytes wait.
    pub(crate) fn full(&self) -> impl Iterator<Item = StreamId> {
        let (some, all) = match &self.changes {
            Some(changes) => (Some(changes.full.union(&changes.changed)), None),
            None => (None, Some(self.streams.keys())),
        };
        let ids = some.into_iter().flatten().chain(all.into_iter().flatten()).copied();
        ids.filter(|id| self.streams.get(id).is_some_and(|stream| stream.backlog() >= QUEUE_MAX))
    }
}

/// The longest text, in bytes, whose room is kept for the next notification of Milepost's own.
const REWRITTEN_KEPT_MAX: usize = 8 << 10;

/// The part of a filter that decides on the messages of each client stream, and on their times.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) streams: ClientStreams,
    /// The stream for messages that belong to no request.
    pub(crate) session_stream: Option<StreamId>,
    /// The number of the newest thing to be written, or name given to a server.
    pub(crate) order: u64,
    /// The upstream is there: silences may be broken.
    pub(crate) alive: bool,
    /// The clients send nothing more.
    pub(crate) client_left: bool,
    /// The client reads too slowly.
    pub(crate) client_is_slow: bool,
    /// The call that ends now, if another filter has delivered its answer.
    pub(crate) delivered: Option<CallId>,
    /// Calls whose server has asked the client something.
    pub(crate) asked: BTreeSet<CallId>,
    /// The last notification of Milepost's own that took the place of a report.
    pub(crate) rewritten: Vec<u8>,
}

impl Gate {
    /// A gate without streams.
    pub(crate) fn new() -> Self {
        Self {
            streams: ClientStreams::default(),
            session_stream: None,
            order: 0,
            alive: true,
            client_left: false,
            client_is_slow: false,
            delivered: None,
            asked: BTreeSet::new(),
            rewritten: Vec::new(),
        }
    }

    /// A copy of the last notification of Milepost's own. The room of a usual one is kept.
    pub(crate) fn take_rewritten(&mut self) -> Bytes {
        if self.rewritten.capacity() > REWRITTEN_KEPT_MAX {
            return std::mem::take(&mut self.rewritten).into();
        }
        Bytes::copy_from_slice(&self.rewritten)
    }

    /// Puts `text` into `rewritten`, without the member that has `total`. Without such a member the notification
    /// that is there stays.
    pub(crate) fn leave_total_out(&mut self, text: &[u8], total: Option<NumberView<'_>>) {
        let place = total.and_then(|total| {
            let start = (total.text.as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
            let end = start.checked_add(total.text.len()).filter(|end| *end <= text.len())?;
            json::member_around(text, start..end)
        });
        if let Some(place) = place {
            self.rewritten.clear();
            self.rewritten.extend_from_slice(&text[..place.start]);
            self.rewritten.extend_from_slice(&text[place.end..]);
        }
    }

    pub(crate) fn next_order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    /// The client that reads a stream.
    pub(crate) fn principal_of(&self, id: StreamId) -> Principal {
        let known = self.streams.get(&id).and_then(|stream| stream.principal);
        known.map_or(Principal::Stream(id), Principal::Known)
    }

    pub(crate) fn is_exchange(&self, id: StreamId) -> bool {
        self.streams.get(&id).is_some_and(|stream| stream.kind == StreamKind::Exchange)
    }

    /// The times at which the messages of a call may be written to its client.
    pub(crate) fn pacing_of(&self, call: &Call) -> Pacing {
        let settings = call.settings();
        let is_immediate = self.streams.get(&call.stream).is_some_and(|stream| {
            stream.pacing == StreamPacing::Immediate
                || (stream.is_orderly && settings.spare_known_clients)
        });
        if is_immediate { Pacing::IMMEDIATE } else { settings.pacing }
    }

    /// Whether no bytes wait for a client.
    pub(crate) fn is_drained(&self) -> bool {
        self.streams.values().all(|stream| stream.is_drained())
    }
}
