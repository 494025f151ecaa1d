//! A sorted map that stores its first entry without an allocation. A filter is created for each request, and most
//! filters know one call on one stream.

use std::collections::BTreeMap;

/// A map whose first entry needs no allocation. With the second entry it becomes an ordinary map, and stays one until
/// all entries are removed.
#[derive(Debug, Clone)]
pub(crate) enum FewMap<K, V> {
    /// No entry, or the only one.
    // A filter has about ten such maps. With room for one entry in each, and with names of methods
    // that are not copied, the allocations of a small request went from 70 to 41. The ordinary map is made with the
    // second entry only, because dropping an empty one costs more than dropping an entry.
    Few(Option<(K, V)>),
    /// All entries, if the map had two or more since it was last empty.
    Many(BTreeMap<K, V>),
}

type FewParts<'a, K, V> = (Option<&'a (K, V)>, Option<&'a BTreeMap<K, V>>);

impl<K, V> Default for FewMap<K, V> {
    fn default() -> Self {
        Self::Few(None)
    }
}

impl<K: Ord, V> FewMap<K, V> {
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        match self {
            Self::Few(few) => {
                few.as_ref().filter(|(known, _)| known == key).map(|(_, value)| value)
            }
            Self::Many(many) => many.get(key),
        }
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        match self {
            Self::Few(few) => {
                few.as_mut().filter(|(known, _)| known == key).map(|(_, value)| value)
            }
            Self::Many(many) => many.get_mut(key),
        }
    }

    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Makes room for an entry with `key`.
    fn make_room(&mut self, key: &K) {
        match self {
            Self::Few(few) if few.as_ref().is_some_and(|(known, _)| known != key) => {
                *self = Self::Many(few.take().into_iter().collect());
            }
            Self::Many(many) if many.is_empty() => *self = Self::default(),
            _ => {}
        }
    }

    /// Sets the value of a key, and returns the previous value.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.make_room(&key);
        match self {
            Self::Few(few) => few.replace((key, value)).map(|(_, before)| before),
            Self::Many(many) => many.insert(key, value),
        }
    }

    /// Returns the value of a key. If the key is new, a default value is added first.
    pub(crate) fn or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        self.make_room(&key);
        match self {
            Self::Few(few) => &mut few.get_or_insert_with(|| (key, V::default())).1,
            Self::Many(many) => many.entry(key).or_default(),
        }
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        match self {
            Self::Few(few) => few.take_if(|(known, _)| known == key).map(|(_, value)| value),
            Self::Many(many) => many.remove(key),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Few(few) => usize::from(few.is_some()),
            Self::Many(many) => many.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the entry with the least key.
    pub(crate) fn first(&self) -> Option<(&K, &V)> {
        self.iter().next()
    }

    /// Returns the only entry, and the map of several.
    fn parts(&self) -> FewParts<'_, K, V> {
        match self {
            Self::Few(few) => (few.as_ref(), None),
            Self::Many(many) => (None, Some(many)),
        }
    }

    /// The entries in the order of their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let (few, many) = self.parts();
        few.map(|(key, value)| (key, value)).into_iter().chain(many.into_iter().flatten())
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        let (few, many) = match self {
            Self::Few(few) => (few.as_mut(), None),
            Self::Many(many) => (None, Some(many)),
        };
        few.map(|(key, value)| (&*key, value)).into_iter().chain(many.into_iter().flatten())
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// Returns the keys from `least` on, in order.
    pub(crate) fn keys_from<'a>(&'a self, least: &'a K) -> impl Iterator<Item = &'a K> {
        let (few, many) = self.parts();
        let few = few.map(|(key, _)| key).filter(|key| *key >= least);
        let many = many.into_iter().flat_map(move |many| many.range(least..));
        few.into_iter().chain(many.map(|(key, _)| key))
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
