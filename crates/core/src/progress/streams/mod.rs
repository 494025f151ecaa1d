//! The streams of the clients of one filter, and the messages that wait on them.

pub(crate) mod stream;

use std::collections::BTreeSet;
use std::ops::Deref;

use crate::progress::few_map::FewMap;
use crate::progress::ids::{Principal, StreamId};
use crate::progress::policy::{CallPolicy, Pacing, StreamPacing};
use crate::progress::streams::stream::{QUEUE_MAX, Stream, StreamKind};

/// The client streams of a filter. Where a shell asks for that, each change of a stream is noted, so that the
/// shell looks at the changed streams only.
#[derive(Debug, Default)]
pub(crate) struct ClientStreams {
    streams: FewMap<StreamId, Box<Stream>>,
    changes: Option<Box<StreamChanges>>,
    /// The client reads too slowly.
    pub(crate) client_is_slow: bool,
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
            // The caller may change any of them.
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

    /// Notes changes from now on. Every stream that is already open counts as changed.
    pub(crate) fn note_changes(&mut self) {
        self.changes = Some(Box::default());
        let _all = self.iter_mut();
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
    pub(crate) fn pacing_of(&self, stream: StreamId, settings: &CallPolicy) -> Pacing {
        let is_immediate = self.streams.get(&stream).is_some_and(|stream| {
            stream.pacing == StreamPacing::Immediate
                || (stream.is_orderly && settings.spare_known_clients)
        });
        if is_immediate { Pacing::IMMEDIATE } else { settings.pacing }
    }

    /// Something besides the stream itself has changed that its shell looks at.
    pub(crate) fn change(&mut self, id: StreamId) {
        if let Some(changes) = self.changes.as_mut().filter(|_| self.streams.contains_key(&id)) {
            changes.changed.insert(id);
        }
    }

    pub(crate) fn next_changed(&mut self) -> Option<StreamId> {
        // Only streams that were touched are looked at: a thousand silent calls of one server would
        // otherwise cost a look at each of them for every message.
        let id = self.changes.as_ref()?.changed.first().copied()?;
        self.settle(id);
        Some(id)
    }

    /// Notes that the shell knows the present state of a stream.
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
            // A stream that is neither noted as full nor changed since cannot be full. So a session
            // with many quiet streams costs nothing here.
            Some(changes) => (Some(changes.full.union(&changes.changed)), None),
            None => (None, Some(self.streams.keys())),
        };
        let ids = some.into_iter().flatten().chain(all.into_iter().flatten()).copied();
        ids.filter(|id| self.streams.get(id).is_some_and(|stream| stream.backlog() >= QUEUE_MAX))
    }
}
