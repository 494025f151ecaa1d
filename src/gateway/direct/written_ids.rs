//! The event ids that this process has written on the streams of a session: a client that comes back names one
//! of them, or one of another process.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};

use crate::progress::StreamId;

/// Event ids of a session that are remembered, the newest. A client that comes back with an older one counts as
/// a client of another process.
const IDS_MAX: usize = 1024;

struct WrittenId {
    hash: u64,
    stream: StreamId,
    /// The value that the client of the stream had been told before.
    before: Option<f64>,
}

/// The newest event ids of a session.
#[derive(Default)]
pub(crate) struct WrittenIds {
    hasher: RandomState,
    ids: VecDeque<WrittenId>,
}

impl WrittenIds {
    /// An event with this id is written on `stream`, whose client has been told the value `before`.
    pub(crate) fn insert(&mut self, id: &[u8], stream: StreamId, before: Option<f64>) {
        if id.is_empty() {
            return;
        }
        if self.ids.len() >= IDS_MAX {
            self.ids.pop_front();
        }
        self.ids.push_back(WrittenId { hash: self.hasher.hash_one(id), stream, before });
    }

    /// The streams on which this id was written, each once.
    pub(crate) fn streams_of(&self, id: &[u8]) -> Vec<StreamId> {
        let hash = self.hasher.hash_one(id);
        let found = self.ids.iter().filter(|written| written.hash == hash);
        let mut streams: Vec<StreamId> = found.map(|written| written.stream).collect();
        streams.sort_unstable();
        streams.dedup();
        streams
    }

    /// The client of the stream `old` has come back on the stream `new`: its ids name that stream from now on.
    pub(crate) fn move_ids(&mut self, old: StreamId, new: StreamId) {
        for written in self.ids.iter_mut().filter(|written| written.stream == old) {
            written.stream = new;
        }
    }

    /// The value that the client of `stream` had been told when the next id came after this one; `None` if none
    /// has come.
    pub(crate) fn value_behind(&self, id: &[u8], stream: StreamId) -> Option<Option<f64>> {
        let hash = self.hasher.hash_one(id);
        let mut of_stream = self.ids.iter().rev().filter(|written| written.stream == stream);
        let mut next = None;
        of_stream.find_map(|written| {
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
        ids.insert(b"a", one, None);
        ids.insert(b"x", two, Some(9.0));
        ids.insert(b"b", one, Some(1.0));
        ids.insert(b"c", one, Some(2.0));
        ids.insert(b"", one, Some(3.0));
        assert_eq!(ids.streams_of(b"a"), [one]);
        assert_eq!(ids.value_behind(b"a", one), Some(Some(1.0)));
        assert_eq!(ids.value_behind(b"b", one), Some(Some(2.0)));
        assert_eq!(ids.value_behind(b"c", one), None, "nothing has come behind it");
        assert_eq!(ids.value_behind(b"x", one), None);
        assert!(ids.streams_of(b"other").is_empty() && ids.streams_of(b"").is_empty());
        ids.insert(b"a", two, None);
        assert_eq!(ids.streams_of(b"a"), [one, two]);
        for _ in 0..IDS_MAX {
            ids.insert(b"new", two, None);
        }
        assert_eq!(ids.streams_of(b"a"), [], "the oldest are forgotten");
    }
}
