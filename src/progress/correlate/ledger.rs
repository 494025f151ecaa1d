//! The active requests, and their names.
//!
//! ```text
//!  request ──> active ──answer reaches the gate──> gone, its names kept as tombstones
//!                 │ └──cancelled, timed out, server gone──> gone (a late answer is known for one)
//!                 └──answer is CreateTaskResult (2025-11-25)──> task ──terminal status, ttl──> gone
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use crate::progress::correlate::call::Call;
use crate::progress::ids::{CallId, MappedId, StreamId};
use crate::protocol::jsonrpc::Key;

/// Open requests of one connection that can get progress. Further requests are forwarded as always,
/// but without progress.
pub const CALLS_MAX: usize = 1024;

/// Foreign tokens remembered for one call. Some servers invent a token for each notification.
const ALIASES_MAX: usize = 64;

/// The longest id or token, in bytes, that is remembered after its message. Real names are UUIDs at
/// most.
const KEY_MAX: usize = 1 << 10;

/// Names of ended calls that are remembered, so that late progress is not attributed to the next
/// call. The oldest is forgotten first.
const TOMBSTONES_MAX: usize = 4096;

/// Stands for every stream of the one client that there is.
const ANY_STREAM: StreamId = StreamId(0);

/// The kind of a name of an ended call, and how the call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tombstone {
    /// The id of a request that was answered.
    Answered,
    /// The id of a request that was cancelled or timed out.
    Cancelled,
    /// The id of a subscription that the server has ended. It may answer it as well.
    Ended,
    /// A token that the client gave.
    Token,
    /// A token that the server invented.
    Alias,
}

/// The tombstone of a name.
#[derive(Debug, Clone, Copy)]
struct EndedName {
    tombstone: Tombstone,
    /// The settings of the call leave a further answer unchanged.
    passes_answers: bool,
}

#[derive(Debug, Default)]
struct Tombstones {
    names: BTreeMap<(bool, Key), EndedName>,
    order: VecDeque<(bool, Key)>,
}

impl Tombstones {
    fn add(&mut self, key: Key, tombstone: Tombstone) {
        self.add_name(key, EndedName { tombstone, passes_answers: false });
    }

    fn add_name(&mut self, key: Key, ended: EndedName) {
        if key.len() > KEY_MAX {
            return;
        }
        let name = (matches!(ended.tombstone, Tombstone::Token | Tombstone::Alias), key);
        if self.names.insert(name.clone(), ended).is_none() {
            self.order.push_back(name);
        }
        if self.order.len() > TOMBSTONES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.names.remove(&oldest);
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// In boxes: a node of the map has room for eleven.
    calls: BTreeMap<CallId, Box<Call>>,
    by_id: BTreeMap<Key, Vec<CallId>>,
    by_token: BTreeMap<Key, Vec<CallId>>,
    /// Calls by the client's id, where the server knows the proxy's ids: a client's id means something on its
    /// own stream only.
    by_client_id: BTreeMap<(StreamId, Key), Vec<CallId>>,
    by_client_token: BTreeMap<(StreamId, Key), Vec<CallId>>,
    by_pair: BTreeMap<StreamId, Vec<CallId>>,
    by_alias: BTreeMap<Key, CallId>,
    aliases: BTreeMap<CallId, VecDeque<Key>>,
    tombstones: Tombstones,
    expiries: BTreeSet<(Instant, CallId)>,
    /// Whether a request may have been forwarded without an entry: answers can no longer be
    /// distinguished from orphans.
    pub(crate) overflowed: bool,
    /// The server knows requests by names of Milepost's own.
    mapped: bool,
    /// The server may know tokens by other names than the client.
    renames: bool,
    next: u64,
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
            self.overflowed = true;
            return None;
        }
        let id = CallId(self.next);
        self.next += 1;
        self.by_id.entry(call.id.server.clone()).or_default().push(id);
        if let Some(token) = &call.token {
            self.by_token.entry(token.server.clone()).or_default().push(id);
            if let Some(name) = self.clients_token(call.stream, token) {
                self.by_client_token.entry(name).or_default().push(id);
            }
            // The client knows progress by its token: two requests with one token share its value.
            let first = self.holders_of(&call).first().and_then(|first| self.calls.get(first));
            if let Some(first) = first {
                call.meter.raise_to(first.meter.emitted());
            }
        }
        if let Some(name) = self.clients(call.stream, &call.id) {
            self.by_client_id.entry(name).or_default().push(id);
        }
        if let Some(expires) = call.expires {
            self.expiries.insert((expires, id));
        }
        self.calls.insert(id, Box::new(call));
        Some(id)
    }

    /// Strikes a call out and keeps its names as tombstones.
    pub(crate) fn close(&mut self, id: CallId, tombstone: Tombstone) -> Option<Box<Call>> {
        let call = self.calls.remove(&id)?;
        forget(&mut self.by_id, &call.id.server, id);
        let passes_answers = !call.answer_repairs().orphan_answer;
        let ended = EndedName { tombstone, passes_answers };
        self.tombstones.add_name(call.id.server.clone(), ended);
        if let Some(token) = &call.token {
            forget(&mut self.by_token, &token.server, id);
            self.tombstones.add(token.server.clone(), Tombstone::Token);
            if let Some(name) = self.clients_token(call.stream, token) {
                forget(&mut self.by_client_token, &name, id);
            }
        }
        if let Some(name) = self.clients(call.stream, &call.id) {
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

    /// From now on the server may know tokens by other names than the client.
    pub(crate) fn rename(&mut self) {
        if std::mem::replace(&mut self.renames, true) || self.mapped {
            return;
        }
        let named = |(id, call): (CallId, &Call)| {
            Some((self.clients_token(call.stream, call.token.as_ref()?)?, id))
        };
        let named: Vec<_> = self.iter().filter_map(named).collect();
        for (name, id) in named {
            self.by_client_token.entry(name).or_default().push(id);
        }
    }

    /// The client's name for a request, where the server has another name for the request.
    fn clients(&self, stream: StreamId, name: &MappedId) -> Option<(StreamId, Key)> {
        self.mapped.then(|| Key::read(&name.client)).flatten().map(|key| (stream, key))
    }

    /// The client's text of a token. Where servers get tokens of another type, the tokens of one
    /// client may still differ in type.
    fn clients_token(&self, stream: StreamId, token: &MappedId) -> Option<(StreamId, Key)> {
        let renamed = || Some((ANY_STREAM, Key::read(&token.client)?));
        self.clients(stream, token).or_else(|| self.renames.then(renamed).flatten())
    }

    /// The server speaks of a call on this upstream stream.
    pub(crate) fn pair(&mut self, id: CallId, upstream: StreamId) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        if let Some(before) = call.paired.replace(upstream) {
            forget(&mut self.by_pair, &before, id);
        }
        self.by_pair.entry(upstream).or_default().push(id);
    }

    /// The calls of which the server speaks on this upstream stream, oldest first.
    pub(crate) fn paired_with(&self, upstream: StreamId) -> &[CallId] {
        self.by_pair.get(&upstream).map_or(&[], Vec::as_slice)
    }

    /// The unanswered requests that the client of a stream calls `key`, oldest first.
    pub(crate) fn by_client_id(&self, stream: StreamId, key: &Key) -> &[CallId] {
        let found = if self.mapped {
            self.by_client_id.get(&(stream, key.clone()))
        } else {
            self.by_id.get(key)
        };
        found.map_or(&[], Vec::as_slice)
    }

    /// The request is answered but its token lives on: its id means nothing any more.
    pub(crate) fn continue_as_task(&mut self, id: CallId, expires: Instant) {
        let name = self.calls.get(&id).and_then(|call| self.clients(call.stream, &call.id));
        if let Some(name) = name {
            forget(&mut self.by_client_id, &name, id);
        }
        let Some(call) = self.calls.get_mut(&id) else { return };
        forget(&mut self.by_id, &call.id.server, id);
        self.tombstones.add(call.id.server.clone(), Tombstone::Answered);
        if let Some(before) = call.expires.replace(expires) {
            self.expiries.remove(&(before, id));
        }
        self.expiries.insert((expires, id));
    }

    /// Remembers that the server means `id` by `alias`.
    pub(crate) fn learn(&mut self, alias: &Key, id: CallId) {
        if alias.len() > KEY_MAX {
            return;
        }
        if self.by_alias.insert(alias.clone(), id).is_some() {
            return;
        }
        let known = self.aliases.entry(id).or_default();
        known.push_back(alias.clone());
        if known.len() > ALIASES_MAX
            && let Some(oldest) = known.pop_front()
        {
            self.by_alias.remove(&oldest);
            self.tombstones.add(oldest, Tombstone::Alias);
        }
    }

    pub(crate) fn get(&self, id: CallId) -> Option<&Call> {
        self.calls.get(&id).map(|call| &**call)
    }

    pub(crate) fn get_mut(&mut self, id: CallId) -> Option<&mut Call> {
        self.calls.get_mut(&id).map(|call| &mut **call)
    }

    /// The open calls have their record elsewhere.
    pub(crate) fn forget_records(&mut self) {
        self.calls.values_mut().for_each(|call| call.is_recorded = true);
    }

    /// The only call there is.
    pub(crate) fn sole_mut(&mut self) -> Option<(CallId, &mut Call)> {
        let mut calls = self.calls.iter_mut();
        let (id, call) = calls.next()?;
        calls.next().is_none().then_some((*id, &mut **call))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (CallId, &Call)> {
        self.calls.iter().map(|(id, call)| (*id, &**call))
    }

    /// The unanswered requests with this id, oldest first.
    pub(crate) fn all_by_id(&self, key: &Key) -> &[CallId] {
        self.by_id.get(key).map_or(&[], Vec::as_slice)
    }

    /// The active requests with this token, oldest first.
    pub(crate) fn all_by_token(&self, key: &Key) -> &[CallId] {
        self.by_token.get(key).map_or(&[], Vec::as_slice)
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
        let same = self.by_id.iter().filter(|(id, _)| id.respelled(key));
        let found = sole(same.flat_map(|(_, ids)| ids.iter().copied()));
        found.filter(|_| self.was_id(key).is_none())
    }

    /// The oldest active request with this token.
    pub(crate) fn by_token(&self, key: &Key) -> Option<CallId> {
        self.all_by_token(key).first().copied()
    }

    /// Every active request to which its client gave the token of `id`, `id` among them.
    pub(crate) fn holders(&self, id: CallId) -> Vec<CallId> {
        self.calls.get(&id).map(|call| self.holders_of(call).to_vec()).unwrap_or_default()
    }

    fn holders_of(&self, call: &Call) -> &[CallId] {
        let Some(token) = &call.token else { return &[] };
        let found = match self.clients_token(call.stream, token) {
            Some(name) => self.by_client_token.get(&name),
            None => self.by_token.get(&token.server),
        };
        found.map_or(&[], Vec::as_slice)
    }

    /// The only active request whose token is `key` in another spelling. `None` if exactly `key`
    /// was the token of an ended call.
    pub(crate) fn by_token_in_other_spelling(&self, key: &Key) -> Option<CallId> {
        let same = self.by_token.iter().filter(|(token, _)| token.respelled(key));
        let found = sole(same.flat_map(|(_, ids)| ids.iter().copied()));
        found.filter(|_| self.was_token(key).is_none())
    }

    pub(crate) fn by_alias(&self, key: &Key) -> Option<CallId> {
        self.by_alias.get(key).copied()
    }

    /// The tombstone of a token, given or invented, of an ended call.
    pub(crate) fn was_token(&self, key: &Key) -> Option<Tombstone> {
        self.tombstones.names.get(&(true, key.clone())).map(|ended| ended.tombstone)
    }

    /// The tombstone of a request with this id.
    pub(crate) fn was_id(&self, key: &Key) -> Option<Tombstone> {
        self.tombstones.names.get(&(false, key.clone())).map(|ended| ended.tombstone)
    }

    /// Whether the settings of the ended request with this id leave a further answer unchanged; `None` if
    /// no ended request had this id.
    pub(crate) fn passes_answers(&self, key: &Key) -> Option<bool> {
        self.tombstones.names.get(&(false, key.clone())).map(|ended| ended.passes_answers)
    }

    /// A request that the server had ended otherwise has been answered too.
    pub(crate) fn note_late_answer(&mut self, key: &Key) {
        self.tombstones.add(key.clone(), Tombstone::Answered);
    }

    /// The tombstone of the request whose id is `key`, or of the only request whose id is `key` in
    /// another spelling.
    pub(crate) fn was_id_in_any_spelling(&self, key: &Key) -> Option<Tombstone> {
        self.was_id(key).or_else(|| {
            let is_id = |name: &&(bool, Key)| !name.0 && name.1.respelled(key);
            let name = self.tombstones.order.iter().rev().find(is_id)?;
            self.tombstones.names.get(name).map(|ended| ended.tombstone)
        })
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

/// The only one, if there is only one.
pub(crate) fn sole(mut calls: impl Iterator<Item = CallId>) -> Option<CallId> {
    let first = calls.next()?;
    calls.next().is_none().then_some(first)
}

fn forget<K: Ord>(index: &mut BTreeMap<K, Vec<CallId>>, key: &K, id: CallId) {
    if let Some(ids) = index.get_mut(key) {
        ids.retain(|known| *known != id);
        if ids.is_empty() {
            index.remove(key);
        }
    }
}
