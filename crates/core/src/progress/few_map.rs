//! A sorted map that stores its first entry without an allocation. A filter is created for each request, and most
//! filters know one call on one stream.

use std::collections::BTreeMap;

/// A map whose first entry needs no allocation. With the second entry it becomes an ordinary map, and stays one until
/// all entries are removed.
#[derive(Debug, Clone)]
pub(crate) struct FewMap<K, V> {
    /// The only entry, while the map has exactly one.
    // A filter has about ten of these maps. Storing one entry inside each map, and not copying method names, has
    // reduced the allocations of a small request from 70 to 41.
    few: Option<(K, V)>,
    /// All entries, if the map had two or more since it was last empty.
    many: BTreeMap<K, V>,
}

impl<K, V> Default for FewMap<K, V> {
    fn default() -> Self {
        Self { few: None, many: BTreeMap::new() }
    }
}

impl<K: Ord, V> FewMap<K, V> {
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        match &self.few {
            Some((known, value)) => (known == key).then_some(value),
            None => self.many.get(key),
        }
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        match &mut self.few {
            Some((known, value)) => (known == key).then_some(value),
            None => self.many.get_mut(key),
        }
    }

    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Makes room for an entry with `key`. Returns whether the entry belongs into `few`.
    fn has_few(&mut self, key: &K) -> bool {
        if self.few.as_ref().is_some_and(|(known, _)| known != key) {
            self.many.extend(self.few.take());
        }
        self.many.is_empty()
    }

    /// Sets the value of a key, and returns the previous value.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        if self.has_few(&key) {
            self.few.replace((key, value)).map(|(_, before)| before)
        } else {
            self.many.insert(key, value)
        }
    }

    /// Returns the value of a key. If the key is new, a default value is added first.
    pub(crate) fn or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        if self.has_few(&key) {
            &mut self.few.get_or_insert_with(|| (key, V::default())).1
        } else {
            self.many.entry(key).or_default()
        }
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        match &self.few {
            Some(_) => self.few.take_if(|(known, _)| known == key).map(|(_, value)| value),
            None => self.many.remove(key),
        }
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.few.is_some()) + self.many.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.few.is_none() && self.many.is_empty()
    }

    /// Returns the entry with the least key.
    pub(crate) fn first(&self) -> Option<(&K, &V)> {
        self.iter().next()
    }

    /// Returns the entries in the order of their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.few.iter().map(|(key, value)| (key, value)).chain(&self.many)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.few.iter_mut().map(|(key, value)| (&*key, value)).chain(&mut self.many)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// Returns the keys from `least` on, in order.
    pub(crate) fn keys_from<'a>(&'a self, least: &'a K) -> impl Iterator<Item = &'a K> {
        let few = self.few.iter().map(|(key, _)| key).filter(move |key| *key >= least);
        few.chain(self.many.range(least..).map(|(key, _)| key))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_few_map_is_a_map(steps in prop::collection::vec((0_u8..4, 0_u8..4, any::<u8>()), 0..40)) {
            let (mut few, mut map) = (FewMap::default(), BTreeMap::new());
            for (step, key, value) in steps {
                match step {
                    0 => prop_assert_eq!(few.insert(key, value), map.insert(key, value)),
                    1 => prop_assert_eq!(few.remove(&key), map.remove(&key)),
                    2 => *few.or_default(key) = *map.entry(key).or_default(),
                    _ => prop_assert_eq!(few.get_mut(&key), map.get_mut(&key)),
                }
                prop_assert_eq!(few.get(&key), map.get(&key));
                prop_assert_eq!(few.len(), map.len());
                prop_assert!(few.iter().eq(map.iter()));
                prop_assert!(few.iter_mut().eq(map.iter_mut()));
                prop_assert!(few.keys_from(&key).eq(map.range(key..).map(|(key, _)| key)));
            }
        }
    }
}
