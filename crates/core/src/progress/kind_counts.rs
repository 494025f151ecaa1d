//! Counts of repairs or reasons by kind. Most calls have only one or two kinds.

use smallvec::SmallVec;

/// The number of occurrences of each kind, sorted by kind. Two kinds need no allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindCounts<K> {
    counts: SmallVec<[(K, u64); 2]>,
}

impl<K> Default for KindCounts<K> {
    fn default() -> Self {
        Self { counts: SmallVec::new() }
    }
}

impl<K: Ord + Copy> KindCounts<K> {
    /// Adds to the count of a kind.
    pub fn add(&mut self, kind: K, times: u64) {
        if let Some((_, count)) = self.counts.iter_mut().find(|(known, _)| *known == kind) {
            *count += times;
            return;
        }
        let place = self.counts.partition_point(|(known, _)| *known < kind);
        self.counts.insert(place, (kind, times));
    }

    /// Returns the kinds with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (K, u64)> {
        self.counts.iter().copied()
    }

    /// Returns the sum of all counts.
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_counted_in_their_order() {
        let mut counts = KindCounts::default();
        for kind in [3, 1, 2, 1] {
            counts.add(kind, 1);
        }
        counts.add(2, 4);
        assert_eq!(counts.iter().collect::<Vec<_>>(), [(1, 2), (2, 5), (3, 1)]);
        assert_eq!(counts.total(), 8);
    }
}
