//! The active requests, and their names.
//!
//! ```text
//!  request ──> active ──answer reaches the gate──> gone, its names kept as tombstones
//!                 │ └──cancelled, timed out, server gone──> gone (a late answer is known for one)
//!                 └──answer is CreateTaskResult (2025-11-25)──> task ──terminal status, ttl──> gone
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use smallvec::SmallVec;

use crate::progress::correlate::call::Call;
use crate::progress::correlate::tombstones::{Tombstone, Tombstones};
use crate::progress::few_map::FewMap;
use crate::progress::ids::{CallId, MappedId, StreamId};
use crate::protocol::jsonrpc::Key;

/// Open requests of one connection that can get progress. Further requests are forwarded as always,
/// but without progress.
pub const CALLS_MAX: usize = 1024;

/// Foreign tokens remembered for one call. Some servers invent a token for each notification.
const ALIASES_MAX: usize = 64;

/// The longest id or token, in bytes, that is remembered after its message. Real names are UUIDs at
/// most.
pub(super) const KEY_MAX: usize = 1 << 10;

/// The key in the place of a stream where one client has all streams.
const ANY_STREAM: StreamId = StreamId(0);

/// Calls of one name or stream, oldest first: nearly always one.
pub(crate) type CallIds = SmallVec<[CallId; 2]>;

/// Calls by a name that the server knows, oldest first.
#[derive(Debug, Default)]
struct NameIndex {
    calls: FewMap<Key, CallIds>,
    /// The numbers among the names by [`Key::class`].
    classes: FewMap<(u64, Key), ()>,
}

impl NameIndex {
    fn insert(&mut self, key: &Key, id: CallId) {
        if let Some(class) = key.class() {
            self.classes.insert((class, key.clone()), ());
        }
        self.calls.or_default(key.clone()).push(id);
    }

    fn remove(&mut self, key: &Key, id: CallId) {
        forget(&mut self.calls, key, id);
        if let Some(class) = key.class()
            && !self.calls.contains_key(key)
        {
            self.classes.remove(&(class, key.clone()));
        }
    }

    fn get(&self, key: &Key) -> &[CallId] {
        self.calls.get(key).map_or(&[], |ids| ids)
    }

    /// The only call whose name is `key` in another spelling, and the name.
    fn in_other_spelling(&self, key: &Key) -> Option<(CallId, Key)> {
        let other = key.in_other_type();
        // Two large numbers may be one double, but only one of them has just these digits.
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

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Boxed, because a node of the map has space for eleven values.
    calls: FewMap<CallId, Box<Call>>,
    by_id: NameIndex,
    by_token: NameIndex,
    /// Calls by the client's id, where the server knows the proxy's id: where ids are mapped, a client's id means
    /// something on its own stream only.
    by_client_id: FewMap<(StreamId, Key), CallIds>,
    by_client_token: FewMap<(StreamId, Key), CallIds>,
    by_pair: FewMap<StreamId, CallIds>,
    /// Calls by the stream of their client, oldest first: a look at one stream costs nothing for the others.
    by_stream: FewMap<StreamId, CallIds>,
    by_alias: BTreeMap<Key, CallId>,
    aliases: BTreeMap<CallId, VecDeque<Key>>,
    tombstones: Tombstones,
    expiries: BTreeSet<(Instant, CallId)>,
    /// Whether some request may have no entry: answers cannot be distinguished from orphans.
    pub(crate) overflowed: bool,
    /// The server knows requests by names of Milepost's own.
    mapped: bool,
    /// The server may know tokens by other names than the client.
    renames: bool,
    /// A call may run as a task of Milepost's own.
    has_own_tasks: bool,
    next: u64,
    /// The number of changes of names so far.
    changes: u64,
}

impl Ledger {
    /// An empty ledger. `mapped`: the server knows requests by names of Milepost's own. `renames`:
    /// the server may know tokens by other names than the client.
    pub(crate) fn new(mapped: bool, renames: bool) -> Self {
        Self { mapped, renames, ..Self::default() }
    }

    /// Enters a call; `None` if there are too many.
    pub(crate) fn open(&mut self, mut call: Call) -> Option<CallId> {
        if self.calls.len() >= CALLS_MAX {
            // The caller forwards the request all the same: a full table withholds only progress.
            self.overflowed = true;
            return None;
        }
        let id = CallId(self.next);
        self.next += 1;
        self.changes += 1;
        self.by_id.insert(&call.id.server, id);
        if let Some(token) = &call.token {
            self.by_token.insert(&token.server, id);
            if let Some(name) = self.clients_token(call.stream, token) {
                self.by_client_token.or_default(name).push(id);
            }
            // The client knows progress by its token: two requests with one token share its value.
            let first = self.holders_of(&call).first().and_then(|first| self.calls.get(first));
            if let Some(first) = first {
                call.meter.raise_to(first.meter.emitted());
            }
        }
        if let Some(name) = self.clients_id(&call) {
            self.by_client_id.or_default(name).push(id);
        }
        if let Some(expires) = call.expires {
            self.expiries.insert((expires, id));
        }
        self.by_stream.or_default(call.stream).push(id);
        self.calls.insert(id, Box::new(call));
        Some(id)
    }

    /// Removes a call, and keeps its names as tombstones.
    pub(crate) fn close(&mut self, id: CallId, tombstone: Tombstone) -> Option<Box<Call>> {
        let call = self.calls.remove(&id)?;
        self.changes += 1;
        forget(&mut self.by_stream, &call.stream, id);
        // A task of Milepost's own keeps its id at the server; the id of a server's task may be a later request's.
        if self.by_id.get(&call.id.server).contains(&id) || call.is_own_task() {
            self.by_id.remove(&call.id.server, id);
            self.tombstones.add_request(&call, tombstone);
        }
        if let Some(token) = &call.token {
            self.by_token.remove(&token.server, id);
            self.tombstones.add(token.server.clone(), Tombstone::Token);
            if let Some(name) = self.clients_token(call.stream, token) {
                forget(&mut self.by_client_token, &name, id);
            }
        }
        if let Some(name) = self.clients_id(&call) {
            forget(&mut self.by_client_id, &name, id);
        }
        if let Some(upstream) = call.paired {
            forget(&mut self.by_pair, &upstream, id);
        }
        for alias in self.aliases.remove(&id).unwrap_or_default() {
            self.by_alias.remove(&alias);
            self.tombstones.add(alias, Tombstone::Alias);
        }
        if let Some(expires) = call.expires {
            self.expiries.remove(&(expires, id));
        }
        Some(call)
    }

    /// Notes that the server may know tokens by other names than the client from now on.
    pub(crate) fn rename(&mut self) {
        if std::mem::replace(&mut self.renames, true) || self.mapped {
            return;
        }
        self.changes += 1;
        let named = |(id, call): (CallId, &Call)| {
            Some((self.clients_token(call.stream, call.token.as_ref()?)?, id))
        };
        let named: Vec<_> = self.iter().filter_map(named).collect();
        for (name, id) in named {
            self.by_client_token.or_default(name).push(id);
        }
    }

    /// The client's name for a request, where the server has another name for the request.
    fn clients(&self, stream: StreamId, name: &MappedId) -> Option<(StreamId, Key)> {
        self.mapped.then(|| Key::read(&name.client)).flatten().map(|key| (stream, key))
    }

    /// The client's id of a request that the server knows by another id.
    fn clients_id(&self, call: &Call) -> Option<(StreamId, Key)> {
        let renamed = || Some((ANY_STREAM, Key::read(&call.id.client)?));
        let own = self.clients(call.stream, &call.id);
        own.or_else(|| call.id.translated.then(renamed).flatten())
    }

    /// The client's text of a token. Where servers get tokens of another type, the tokens of one
    /// client may still differ in type.
    fn clients_token(&self, stream: StreamId, token: &MappedId) -> Option<(StreamId, Key)> {
        let renamed = || Some((ANY_STREAM, Key::read(&token.client)?));
        self.clients(stream, token).or_else(|| self.renames.then(renamed).flatten())
    }

    /// Notes the upstream stream on which the server sends messages about a call.
    pub(crate) fn pair(&mut self, id: CallId, upstream: StreamId) {
        self.changes += 1;
        let Some(call) = self.calls.get_mut(&id) else { return };
        if let Some(before) = call.paired.replace(upstream) {
            forget(&mut self.by_pair, &before, id);
        }
        self.by_pair.or_default(upstream).push(id);
    }

    /// The calls that this upstream stream pairs with, oldest first.
    pub(crate) fn paired_with(&self, upstream: StreamId) -> &[CallId] {
        self.by_pair.get(&upstream).map_or(&[], |ids| ids)
    }

    /// The calls whose messages go to this client stream, oldest first.
    pub(crate) fn on_stream(&self, stream: StreamId) -> &[CallId] {
        self.by_stream.get(&stream).map_or(&[], |ids| ids)
    }

    /// Sends the messages about a call to another client stream from now on.
    pub(crate) fn move_to(&mut self, id: CallId, stream: StreamId) {
        self.changes += 1;
        let Some(call) = self.calls.get_mut(&id) else { return };
        let before = std::mem::replace(&mut call.stream, stream);
        forget(&mut self.by_stream, &before, id);
        let calls = self.by_stream.or_default(stream);
        // By number, so that the list stays in the order in which the calls opened.
        let place = calls.partition_point(|known| *known < id);
        calls.insert(place, id);
    }

    /// The unanswered requests that the client of a stream calls `key`, oldest first.
    pub(crate) fn by_client_id(&self, stream: StreamId, key: &Key) -> CallIds {
        if self.mapped {
            return self.by_client_id.get(&(stream, key.clone())).cloned().unwrap_or_default();
        }
        // A name of Milepost's own is no client's, although the server knows a request by it.
        let is_own = |id: &CallId| self.calls.get(id).is_some_and(|call| !call.id.translated);
        let mut calls: CallIds = self.by_id.get(key).iter().copied().filter(is_own).collect();
        if !self.by_client_id.is_empty() {
            let renamed = self.by_client_id.get(&(ANY_STREAM, key.clone()));
            calls.extend(renamed.into_iter().flatten().copied());
            calls.sort_unstable();
        }
        calls
    }

    /// Notes that a task answers a request: its token stays valid, its id does not.
    pub(crate) fn continue_as_task(&mut self, id: CallId, expires: Instant) {
        self.changes += 1;
        if let Some(name) = self.calls.get(&id).and_then(|call| self.clients_id(call)) {
            forget(&mut self.by_client_id, &name, id);
        }
        let Some(call) = self.calls.get_mut(&id) else { return };
        self.by_id.remove(&call.id.server, id);
        self.tombstones.add_request(call, Tombstone::Answered);
        if let Some(before) = call.expires.replace(expires) {
            self.expiries.remove(&(before, id));
        }
        self.expiries.insert((expires, id));
    }

    /// Notes that calls may run as tasks of Milepost's own from now on.
    pub(crate) fn expect_own_tasks(&mut self) {
        self.has_own_tasks = true;
    }

    /// The call that runs as a task of Milepost's own, by the server's id of its request: the client has the answer to
    /// the request, and the server still knows the call by that id.
    pub(crate) fn own_task_named(&self, name: &Key) -> Option<CallId> {
        let mut own = self.iter().filter(|(_, call)| call.id.server == *name && call.is_own_task());
        if self.has_own_tasks { own.next().map(|(id, _)| id) } else { None }
    }

    /// Puts off the time when a call ends by itself, or brings it forward again. The time to live of a task stays.
    pub(crate) fn put_off(&mut self, id: CallId, change: impl FnOnce(Instant) -> Instant) {
        let Some(call) = self.calls.get_mut(&id).filter(|call| call.task.is_none()) else { return };
        if let Some(before) = call.expires {
            let expires = change(before);
            call.expires = Some(expires);
            self.expiries.remove(&(before, id));
            self.expiries.insert((expires, id));
        }
    }

    /// Remembers that the server means `id` by `alias`.
    pub(crate) fn learn(&mut self, alias: &Key, id: CallId) {
        if alias.len() > KEY_MAX || self.by_alias.get(alias) == Some(&id) {
            return;
        }
        self.changes += 1;
        if self.by_alias.insert(alias.clone(), id).is_some() {
            return;
        }
        let known = self.aliases.entry(id).or_default();
        known.push_back(alias.clone());
        if known.len() > ALIASES_MAX
            && let Some(oldest) = known.pop_front()
        {
            self.by_alias.remove(&oldest);
            // A forgotten alias must not be taken for a name of another call.
            self.tombstones.add(oldest, Tombstone::Alias);
        }
    }

    pub(crate) fn get(&self, id: CallId) -> Option<&Call> {
        self.calls.get(&id).map(|call| &**call)
    }

    pub(crate) fn get_mut(&mut self, id: CallId) -> Option<&mut Call> {
        self.calls.get_mut(&id).map(|call| &mut **call)
    }

    /// Notes that another filter writes the records of the open calls.
    pub(crate) fn forget_records(&mut self) {
        self.calls.iter_mut().for_each(|(_, call)| call.is_recorded = true);
    }

    /// The only call there is.
    pub(crate) fn sole_mut(&mut self) -> Option<(CallId, &mut Call)> {
        let mut calls = self.calls.iter_mut();
        let (id, call) = calls.next()?;
        calls.next().is_none().then_some((*id, &mut **call))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (CallId, &Call)> {
        self.calls.iter().map(|(id, call)| (*id, &**call))
    }

    /// The unanswered requests with this id, oldest first.
    pub(crate) fn all_by_id(&self, key: &Key) -> &[CallId] {
        self.by_id.get(key)
    }

    /// The active requests with this token, oldest first.
    pub(crate) fn all_by_token(&self, key: &Key) -> &[CallId] {
        self.by_token.get(key)
    }

    /// The oldest unanswered request with this id.
    pub(crate) fn by_id(&self, key: &Key) -> Option<CallId> {
        self.all_by_id(key).first().copied()
    }

    /// The request of an answer with this id: the oldest request with exactly this id, else the
    /// only request with the id in another spelling, unless a request with exactly this id has been
    /// answered or cancelled before.
    pub(crate) fn call_of_answer(&self, key: &Key) -> Option<CallId> {
        self.by_id(key).or_else(|| self.by_id_in_other_spelling(key))
    }

    /// The only unanswered request whose id is `key` in another spelling. `None` if exactly `key`
    /// was the id of an ended request: an exact name goes before another spelling.
    pub(crate) fn by_id_in_other_spelling(&self, key: &Key) -> Option<CallId> {
        let (found, _) = self.by_id.in_other_spelling(key)?;
        self.was_id(key).is_none().then_some(found)
    }

    /// The oldest active request with this token.
    pub(crate) fn by_token(&self, key: &Key) -> Option<CallId> {
        self.all_by_token(key).first().copied()
    }

    /// Every active request to which its client gave the token of `id`, `id` among them.
    pub(crate) fn holders(&self, id: CallId) -> CallIds {
        self.calls.get(&id).map(|call| self.holders_of(call).into()).unwrap_or_default()
    }

    fn holders_of(&self, call: &Call) -> &[CallId] {
        let Some(token) = &call.token else { return &[] };
        match self.clients_token(call.stream, token) {
            Some(name) => self.by_client_token.get(&name).map_or(&[], |ids| ids),
            None => self.by_token.get(&token.server),
        }
    }

    /// The only active request whose token is `key` in another spelling. `None` if exactly `key` was a name of an
    /// ended call, or if the token of an ended call fits as well.
    pub(crate) fn by_token_in_other_spelling(&self, key: &Key) -> Option<CallId> {
        let (found, name) = self.by_token.in_other_spelling(key)?;
        let was_exact = self.was_token(key).is_some() || self.was_id_only(key);
        let is_equal = || self.tombstones.has_other_spelling(true, key, &name);
        (!was_exact && !is_equal()).then_some(found)
    }

    /// The only unanswered request whose id is `key` in another spelling, for a name in the place of a token. `None`
    /// if a name of an ended call fits as well. `are_ids`: the server puts only ids in the place of tokens.
    pub(crate) fn by_id_for_token(&self, key: &Key, are_ids: bool) -> Option<CallId> {
        let (found, name) = self.by_id.in_other_spelling(key)?;
        let ended = &self.tombstones;
        let was_named = self.was_id(key).is_some()
            || ended.has_other_spelling(false, key, &name)
            || !are_ids && ended.in_other_spelling(true, key).is_some();
        (!was_named).then_some(found)
    }

    /// Whether exactly `key` was the id of an ended request and is the id of no open one.
    fn was_id_only(&self, key: &Key) -> bool {
        self.was_id(key).is_some() && self.by_id(key).is_none()
    }

    /// Whether `key`, in any spelling, is the id, the token or a learned name of an ended call.
    pub(crate) fn was_named(&self, key: &Key) -> bool {
        [true, false].into_iter().any(|is_token| {
            self.tombstones.get(is_token, key).is_some()
                || self.tombstones.in_other_spelling(is_token, key).is_some()
        })
    }

    pub(crate) fn by_alias(&self, key: &Key) -> Option<CallId> {
        self.by_alias.get(key).copied()
    }

    /// The tombstone of a token, given or invented, of an ended call.
    pub(crate) fn was_token(&self, key: &Key) -> Option<Tombstone> {
        self.tombstones.get(true, key).map(|ended| ended.tombstone)
    }

    /// The tombstone of a request with this id.
    pub(crate) fn was_id(&self, key: &Key) -> Option<Tombstone> {
        self.tombstones.get(false, key).map(|ended| ended.tombstone)
    }

    /// Whether the settings of the ended request with this id leave a further answer unchanged; `None` if
    /// no ended request had this id.
    pub(crate) fn passes_answers(&self, key: &Key) -> Option<bool> {
        self.tombstones.get(false, key).map(|ended| ended.passes_answers)
    }

    /// Notes the answer to a request that the server had ended in another way before.
    pub(crate) fn note_late_answer(&mut self, key: &Key) {
        self.changes += 1;
        self.tombstones.add(key.clone(), Tombstone::Answered);
    }

    /// The tombstone of the request whose id is exactly `key`, or `key` in another spelling.
    pub(crate) fn was_id_in_any_spelling(&self, key: &Key) -> Option<Tombstone> {
        self.was_id(key)
            .or_else(|| self.tombstones.in_other_spelling(false, key).map(|ended| ended.tombstone))
    }

    /// The number of changes of calls and names so far. As long as it stays, names keep their
    /// meaning.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// The number of calls that end by themselves.
    pub(crate) fn expiring(&self) -> usize {
        self.expiries.len()
    }

    /// The call that ends by itself next.
    pub(crate) fn next_expiry(&self) -> Option<(Instant, CallId)> {
        self.expiries.first().copied()
    }
}

/// The only element of an iterator, if there is exactly one.
pub(crate) fn sole(mut calls: impl Iterator<Item = CallId>) -> Option<CallId> {
    let first = calls.next()?;
    calls.next().is_none().then_some(first)
}

fn forget<K: Ord>(index: &mut FewMap<K, CallIds>, key: &K, id: CallId) {
    if let Some(ids) = index.get_mut(key) {
        ids.retain(|known| *known != id);
        if ids.is_empty() {
            index.remove(key);
        }
    }
}
