//! An index of calls by name. It also finds names that mean the same in another spelling.

use smallvec::SmallVec;

use crate::progress::few_map::FewMap;
use crate::progress::ids::CallId;
use crate::protocol::jsonrpc::Key;

/// The calls with one name or on one stream, oldest first. Nearly always there is only one.
pub(crate) type CallIds = SmallVec<[CallId; 2]>;

/// Calls by a name that the server knows, oldest first.
#[derive(Debug, Default)]
pub(super) struct NameIndex {
    calls: FewMap<Key, CallIds>,
    /// The names that are numbers, by [`Key::class`].
    classes: FewMap<(u64, Key), ()>,
}

impl NameIndex {
    pub(super) fn insert(&mut self, key: &Key, id: CallId) {
        if let Some(class) = key.class() {
            self.classes.insert((class, key.clone()), ());
        }
        self.calls.or_default(key.clone()).push(id);
    }

    pub(super) fn remove(&mut self, key: &Key, id: CallId) {
        forget(&mut self.calls, key, id);
        if let Some(class) = key.class()
            && !self.calls.contains_key(key)
        {
            self.classes.remove(&(class, key.clone()));
        }
    }

    pub(super) fn get(&self, key: &Key) -> &[CallId] {
        self.calls.get(key).map_or(&[], |ids| ids)
    }

    /// Returns the only call whose name is `key` in another spelling, with that name.
    pub(super) fn in_other_spelling(&self, key: &Key) -> Option<(CallId, Key)> {
        let other = key.in_other_type();
        // Two large numbers may be equal as doubles although their digits differ. Only one has exactly these digits.
        let exact = other.as_ref().filter(|_| matches!(key, Key::Text(_)));
        if let Some(number) = exact
            && let [first, rest @ ..] = self.get(number)
        {
            return rest.is_empty().then(|| (*first, number.clone()));
        }
        let class = key.class_of_value();
        let least = class.map(|class| (class, Key::Integer(i64::MIN)));
        let numbers = least.iter().flat_map(|least| self.classes.keys_from(least));
        let numbers = numbers.take_while(|(of, _)| Some(*of) == class).map(|(_, name)| name);
        let names = numbers.chain(other.as_ref().filter(|_| exact.is_none()));
        let mut found = names.flat_map(|name| self.get(name).iter().map(move |id| (*id, name)));
        let first = found.next()?;
        found.next().is_none().then(|| (first.0, first.1.clone()))
    }
}

/// Removes a call from an index. A key that has no calls left is removed too.
pub(super) fn forget<K: Ord>(index: &mut FewMap<K, CallIds>, key: &K, id: CallId) {
    if let Some(ids) = index.get_mut(key) {
        ids.retain(|known| *known != id);
        if ids.is_empty() {
            index.remove(key);
        }
    }
}
