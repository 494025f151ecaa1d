//! The event ids that this process has written on the streams of a session. A client that resumes sends one of them, or
//! an id that another process has written.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

use crate::progress::{StreamId, StreamKind};

/// Limit of the event ids that a session remembers. Beyond it the stream with the most ids forgets its oldest id, so
/// that a busy stream does not displace the ids of a quiet one. A client that resumes with a forgotten id is treated as
/// a client of another process.
const IDS_MAX: usize = 1024;

struct WrittenId {
    hash: u64,
    /// The last progress value that the client of the stream had received before this event.
    before: Option<f64>,
}

/// The newest event ids of a stream, oldest first.
struct StreamIds {
    /// The kind of the stream; for a stream that continues another stream, the kind of that stream.
    kind: StreamKind,
    ids: VecDeque<WrittenId>,
}

/// The newest event ids of the streams of a session.
#[derive(Default)]
pub(crate) struct WrittenIds {
    hasher: RandomState,
    streams: BTreeMap<StreamId, StreamIds>,
    /// The number of ids of all streams.
    count: usize,
}

impl WrittenIds {
    /// Notes that an event with this id is written on `stream`. `before`: the last progress value that its client had
    /// received before the event.
    pub(crate) fn insert(
        &mut self,
        id: &[u8],
        stream: StreamId,
        kind: StreamKind,
        before: Option<f64>,
    ) {
        // An empty id resets the client's last id (HTML, 9.2.6), so no client can resume after it.
        if id.is_empty() {
            return;
        }
        // Only a hash is kept, because ids may be long and the client sends the id again.
        let hash = self.hasher.hash_one(id);
        self.of(stream, kind).ids.push_back(WrittenId { hash, before });
        self.count += 1;
        if self.count > IDS_MAX {
            self.forget_one(stream);
        }
    }

    /// Returns the ids of a stream; a stream that is new here gets this kind.
    fn of(&mut self, stream: StreamId, kind: StreamKind) -> &mut StreamIds {
        self.streams.entry(stream).or_insert_with(|| StreamIds { kind, ids: VecDeque::new() })
    }

    /// Forgets the oldest id of the stream with the most ids. `newest` is the stream of the latest id.
    fn forget_one(&mut self, newest: StreamId) {
        let share = IDS_MAX / self.streams.len().max(1);
        let is_loud = self.streams.get(&newest).is_some_and(|written| written.ids.len() > share);
        let loudest = if is_loud {
            // The usual case needs no search: the stream of the latest id has more than its share.
            Some(newest)
        } else {
            self.streams
                .iter()
                .max_by_key(|(_, written)| written.ids.len())
                .map(|(stream, _)| *stream)
        };
        let Some(stream) = loudest else { return };
        if let Some(written) = self.streams.get_mut(&stream) {
            written.ids.pop_front();
            self.count -= 1;
            if written.ids.is_empty() {
                self.streams.remove(&stream);
            }
        }
    }

    /// Returns the streams on which this id was written, each once.
    pub(crate) fn streams_of(&self, id: &[u8]) -> Vec<StreamId> {
        let hash = self.hasher.hash_one(id);
        let has_it = |written: &StreamIds| written.ids.iter().any(|id| id.hash == hash);
        let found = self.streams.iter().filter(|(_, written)| has_it(written));
        found.map(|(stream, _)| *stream).collect()
    }

    /// Returns the kind of stream on which a client gets the messages after an id of one of these streams.
    pub(crate) fn kind_of(&self, streams: &[StreamId]) -> StreamKind {
        let is_exchange = |stream| {
            self.streams.get(stream).is_some_and(|written| written.kind == StreamKind::Exchange)
        };
        let all = !streams.is_empty() && streams.iter().all(is_exchange);
        if all { StreamKind::Exchange } else { StreamKind::Shared }
    }

    /// Moves the ids of the stream `old` to the stream `new`, on which its client has reconnected.
    pub(crate) fn move_ids(&mut self, old: StreamId, new: StreamId) {
        if let Some(written) = self.streams.remove(&old) {
            self.of(new, written.kind).ids.extend(written.ids);
        }
    }

    /// Returns the last value that the client of `stream` had received when the event after this id was written; `None`
    /// if no event followed.
    pub(crate) fn value_behind(&self, id: &[u8], stream: StreamId) -> Option<Option<f64>> {
        let hash = self.hasher.hash_one(id);
        // Newest first: if a server uses an id twice, the client means the last event.
        let mut next = None;
        self.streams.get(&stream)?.ids.iter().rev().find_map(|written| {
            let behind = next.replace(written.before);
            (written.hash == hash).then_some(behind)
        })?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_its_streams_and_the_value_behind_it() {
        let mut ids = WrittenIds::default();
        let [one, two] = [StreamId(1), StreamId(2)];
        let (of_session, of_request) = (StreamKind::Shared, StreamKind::Exchange);
        ids.insert(b"a", one, of_request, None);
        ids.insert(b"x", two, of_session, Some(9.0));
        ids.insert(b"b", one, of_request, Some(1.0));
        ids.insert(b"c", one, of_request, Some(2.0));
        ids.insert(b"", one, of_request, Some(3.0));
        assert_eq!(ids.streams_of(b"a"), [one]);
        assert_eq!([ids.kind_of(&[one]), ids.kind_of(&[two])], [of_request, of_session]);
        assert_eq!([ids.kind_of(&[one, two]), ids.kind_of(&[])], [of_session; 2]);
        assert_eq!(ids.value_behind(b"a", one), Some(Some(1.0)));
        assert_eq!(ids.value_behind(b"b", one), Some(Some(2.0)));
        assert_eq!(ids.value_behind(b"c", one), None, "nothing has come behind it");
        assert_eq!(ids.value_behind(b"x", one), None);
        assert!(ids.streams_of(b"other").is_empty() && ids.streams_of(b"").is_empty());
        ids.insert(b"a", two, of_session, None);
        assert_eq!(ids.streams_of(b"a"), [one, two]);
        for _ in 0..2 * IDS_MAX {
            ids.insert(b"new", two, of_session, None);
        }
        assert_eq!(
            ids.streams_of(b"a"),
            [one],
            "a loud stream does not push out the ids of a quiet one"
        );
        assert_eq!(ids.streams_of(b"x"), [], "the oldest of the loud stream are forgotten");
        assert_eq!(ids.count, IDS_MAX);
        assert_eq!(ids.streams.values().map(|written| written.ids.len()).sum::<usize>(), IDS_MAX);
        for stream in 0..IDS_MAX as u64 {
            ids.insert(b"one of many", StreamId(10 + stream), of_session, None);
        }
        assert_eq!(ids.count, IDS_MAX, "however many streams");
    }
}
