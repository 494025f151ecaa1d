//! The times at which client streams must be examined again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::progress::StreamId;

/// At most one time for each stream, sorted by time.
#[derive(Debug, Default)]
pub(crate) struct StreamDeadlines {
    times: BTreeMap<StreamId, Instant>,
    order: BTreeSet<(Instant, StreamId)>,
}

impl StreamDeadlines {
    /// Sets the time of a stream, and replaces an earlier time.
    pub(crate) fn set(&mut self, stream: StreamId, due: Option<Instant>) {
        let before = match due {
            Some(due) => self.times.insert(stream, due),
            None => self.times.remove(&stream),
        };
        if before == due {
            return;
        }
        self.order.extend(due.map(|due| (due, stream)));
        if let Some(before) = before {
            self.order.remove(&(before, stream));
        }
    }

    /// Returns the earliest time.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.order.first().map(|(due, _)| *due)
    }

    /// Removes and returns a stream whose time has come.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<StreamId> {
        let (due, stream) = *self.order.first()?;
        if due > now {
            return None;
        }
        self.set(stream, None);
        Some(stream)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn streams_come_in_the_order_of_their_last_times() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut deadlines = StreamDeadlines::default();
        for (stream, due) in [(1, 5), (2, 3), (3, 9), (1, 2), (3, 1), (2, 3)] {
            deadlines.set(StreamId(stream), Some(at(due)));
        }
        assert_eq!((deadlines.next(), deadlines.take_due(start)), (Some(at(1)), None));
        deadlines.set(StreamId(3), None);
        deadlines.set(StreamId(4), None);
        let due: Vec<StreamId> = std::iter::from_fn(|| deadlines.take_due(at(3))).collect();
        assert_eq!(due, [StreamId(1), StreamId(2)]);
        assert_eq!((deadlines.next(), deadlines.times.len()), (None, 0));
    }
}
