//! The names of ended calls, so that a late message about an ended call is not attributed to another call.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use smallvec::SmallVec;

use crate::progress::correlate::call::Call;
use crate::progress::correlate::ledger::KEY_MAX;
use crate::protocol::jsonrpc::Key;

/// Limit of the names of ended calls that are remembered, so that late progress is not attributed to the next call. The
/// oldest is forgotten first.
const TOMBSTONES_MAX: usize = 4096;

/// The number of names that are stored without allocating a map: the id and the token of one call.
const FEW: usize = 2;

/// The kind of a name of an ended call, and how the call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tombstone {
    /// The id of a request that was answered.
    Answered,
    /// The id of a request that was cancelled or timed out.
    Cancelled,
    /// The id of a subscription that the server has ended. The server may still answer the
    /// subscription.
    Ended,
    /// A token that the client gave to the server.
    Token,
    /// A token that the server invented.
    Alias,
}

/// Whether a name is a request id or a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NameKind {
    Id,
    Token,
}

type Name = (NameKind, Key);

/// A name of an ended call: what it was, and how the call ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndedName {
    pub(super) tombstone: Tombstone,
    /// The position of the name in the order in which names were added.
    number: u64,
    /// Whether the settings of the call allow a further answer to be forwarded unchanged.
    pub(super) passes_answers: bool,
}

/// The tombstones of one connection. Most filters end only one call, so few names are stored inline.
#[derive(Debug, Default)]
pub(super) struct Tombstones {
    /// All names, while there are at most [`FEW`].
    few: SmallVec<[(Name, EndedName); FEW]>,
    /// All names, once there are more than [`FEW`].
    many: Option<Box<ManyTombstones>>,
    /// The number of names added so far.
    count: u64,
}

impl Tombstones {
    pub(super) fn add(&mut self, key: Key, tombstone: Tombstone) {
        self.add_name(key, EndedName { tombstone, number: 0, passes_answers: false });
    }

    pub(super) fn add_request(&mut self, call: &Call, tombstone: Tombstone) {
        let passes_answers = call.passes_answers();
        let ended = EndedName { tombstone, number: 0, passes_answers };
        self.add_name(call.id.server.clone(), ended);
    }

    /// Adds a name, and gives it the next number.
    fn add_name(&mut self, key: Key, mut ended: EndedName) {
        if key.len() > KEY_MAX {
            return;
        }
        // The same value may be the id of one call and the token of another.
        let kind = match ended.tombstone {
            Tombstone::Token | Tombstone::Alias => NameKind::Token,
            Tombstone::Answered | Tombstone::Cancelled | Tombstone::Ended => NameKind::Id,
        };
        let name = (kind, key);
        let known = match &mut self.many {
            Some(many) => many.names.get_mut(&name),
            None => self.few.iter_mut().find(|(known, _)| *known == name).map(|(_, ended)| ended),
        };
        // The name was used by several calls. The call that ended last decides what a late message with the name means.
        if let Some(known) = known {
            (known.tombstone, known.passes_answers) = (ended.tombstone, ended.passes_answers);
            return;
        }
        self.count += 1;
        ended.number = self.count;
        if self.many.is_none() && self.few.len() < FEW {
            self.few.push((name, ended));
            return;
        }
        let many = self.many.get_or_insert_default();
        self.few.drain(..).for_each(|(name, ended)| many.add(name, ended));
        many.add(name, ended);
    }

    /// Returns the tombstone of exactly this token or id.
    pub(super) fn get(&self, kind: NameKind, key: &Key) -> Option<EndedName> {
        match &self.many {
            Some(many) => many.names.get(&(kind, key.clone())).copied(),
            None => {
                let mut few = self.few.iter();
                few.find(|((of, known), _)| *of == kind && known == key).map(|one| one.1)
            }
        }
    }

    /// Returns the newest ended token or id that is `key` in another spelling.
    pub(super) fn in_other_spelling(&self, kind: NameKind, key: &Key) -> Option<EndedName> {
        let number = key.class_of_value().and_then(|class| self.newest_of_class(kind, class));
        let other = key.in_other_type().and_then(|other| self.get(kind, &other));
        [number, other].into_iter().flatten().max_by_key(|ended| ended.number)
    }

    /// Whether an ended token or id other than `known` is `key` in another spelling. `known` is the name of an open
    /// call. An ended call with the same name does not count, because clients reuse names.
    pub(super) fn has_other_spelling(&self, kind: NameKind, key: &Key, known: &Key) -> bool {
        let other = key.in_other_type().filter(|other| other != known);
        if other.is_some_and(|other| self.get(kind, &other).is_some()) {
            return true;
        }
        let Some(class) = key.class_of_value() else { return false };
        match &self.many {
            Some(many) => many.of_class(kind, class).any(|(_, _, _, name)| name != known),
            None => self
                .few
                .iter()
                .any(|((of, name), _)| *of == kind && name != known && name.class() == Some(class)),
        }
    }

    /// Returns the newest ended token or id that is a number of this [`Key::class`].
    fn newest_of_class(&self, kind: NameKind, class: u64) -> Option<EndedName> {
        if let Some(many) = &self.many {
            let newest = many.of_class(kind, class).next_back();
            return newest.and_then(|(_, _, _, key)| self.get(kind, key));
        }
        let names = self.few.iter().filter(|((of, _), _)| *of == kind);
        let of_class = names.filter(|((_, key), _)| key.class() == Some(class));
        of_class.map(|(_, ended)| *ended).max_by_key(|ended| ended.number)
    }
}

#[derive(Debug, Default)]
struct ManyTombstones {
    names: BTreeMap<Name, EndedName>,
    order: VecDeque<Name>,
    /// The names that are numbers, by [`Key::class`].
    classes: BTreeSet<ClassName>,
}

/// A name that is a number: its kind, its [`Key::class`], its position in the order of addition, and the number.
type ClassName = (NameKind, u64, u64, Key);

impl ManyTombstones {
    /// Returns the names of a class, oldest first.
    fn of_class(&self, kind: NameKind, class: u64) -> impl DoubleEndedIterator<Item = &ClassName> {
        // No key is less than `i64::MIN`, so the range contains all numbers of the class.
        let bound = |number| (kind, class, number, Key::Integer(i64::MIN));
        self.classes.range(bound(0)..bound(u64::MAX))
    }

    /// Adds a name that is not stored yet.
    fn add(&mut self, name: Name, ended: EndedName) {
        if let Some(class) = name.1.class() {
            self.classes.insert((name.0, class, ended.number, name.1.clone()));
        }
        self.order.push_back(name.clone());
        self.names.insert(name, ended);
        if self.order.len() > TOMBSTONES_MAX
            && let Some(oldest) = self.order.pop_front()
            && let Some(ended) = self.names.remove(&oldest)
            && let Some(class) = oldest.1.class()
        {
            self.classes.remove(&(oldest.0, class, ended.number, oldest.1));
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn few_and_many_names_give_the_same_answers() {
        let key = |text: &'static str| Key::read(&Bytes::from_static(text.as_bytes())).unwrap();
        let (mut few, mut many) = (Tombstones::default(), Tombstones::default());
        many.many = Some(Box::default());
        for one in [&mut few, &mut many] {
            one.add(key("9007199254740993"), Tombstone::Cancelled);
            let tombstone = Tombstone::Answered;
            let ended = EndedName { tombstone, number: 0, passes_answers: true };
            one.add_name(key("9007199254740992"), ended);
        }
        let check = |few: &Tombstones, many: &Tombstones| {
            for text in ["1", "\"9007199254740992\"", "9007199254740993", "9007199254740994", "7"] {
                for kind in [NameKind::Id, NameKind::Token] {
                    let ended = |of: &Tombstones| format!("{:?}", of.get(kind, &key(text)));
                    assert_eq!(ended(few), ended(many), "{text}");
                }
                for kind in [NameKind::Id, NameKind::Token] {
                    let spelled = |of: &Tombstones| {
                        let known = key("9007199254740992");
                        let other = of.has_other_spelling(kind, &key(text), &known);
                        format!("{:?} {other}", of.in_other_spelling(kind, &key(text)))
                    };
                    assert_eq!(spelled(few), spelled(many), "{text}");
                }
            }
        };
        check(&few, &many);
        assert!(
            few.many.is_none()
                && few.in_other_spelling(NameKind::Id, &key("9007199254740992")).is_some()
        );
        for one in [&mut few, &mut many] {
            one.add(key("9007199254740993"), Tombstone::Ended);
            one.add(key("7"), Tombstone::Alias);
        }
        check(&few, &many);
        assert!(few.many.is_some());
    }
}
