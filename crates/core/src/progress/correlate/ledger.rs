//! The names of the active requests, and of ended requests.

use std::collections::{BTreeMap, VecDeque};

use crate::progress::correlate::call::Call;
use crate::progress::correlate::name_index::{CallIds, NameIndex, forget};
use crate::progress::correlate::tombstones::{NameKind, Tombstone, Tombstones};
use crate::progress::few_map::FewMap;
use crate::progress::ids::{CallId, MappedId, StreamId};
use crate::progress::policy::Policy;
use crate::progress::verdict::Reason;
use crate::protocol::jsonrpc::Key;

/// Maximum number of foreign tokens that are remembered for one call. Some servers invent a token for each
/// notification.
const ALIASES_MAX: usize = 64;

/// The longest id or token, in bytes, that is remembered after its message. Real names are UUIDs at
/// most.
pub(super) const KEY_MAX: usize = 1 << 10;

/// The key in the place of a stream if all streams belong to one client.
const ANY_STREAM: StreamId = StreamId(0);

/// The names of the open calls, towards the server and towards the clients, and the names of calls that are over.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    by_id: NameIndex,
    by_token: NameIndex,
    /// Calls by the client's id, where the server knows the proxy's id: where ids are mapped, a client's id means
    /// something on its own stream only.
    by_client_id: FewMap<(StreamId, Key), CallIds>,
    by_client_token: FewMap<(StreamId, Key), CallIds>,
    by_alias: BTreeMap<Key, CallId>,
    aliases: BTreeMap<CallId, VecDeque<Key>>,
    tombstones: Tombstones,
    /// The server knows requests by names of Milepost's own.
    mapped: bool,
    /// The server may know tokens by other names than the client.
    renames: bool,
    /// The number of changes of calls and names so far.
    changes: u64,
}

impl Ledger {
    /// An empty ledger.
    pub(crate) fn new(policy: &Policy) -> Self {
        Self { mapped: policy.id_mapping, renames: policy.renames_tokens(), ..Self::default() }
    }

    /// Enters the names of a call that opens.
    pub(super) fn enter(&mut self, id: CallId, call: &Call) {
        self.changes += 1;
        self.by_id.insert(&call.id.server, id);
        if let Some(token) = &call.token {
            self.by_token.insert(&token.server, id);
            if let Some(name) = self.clients_token(call.stream, token) {
                self.by_client_token.or_default(name).push(id);
            }
        }
        if let Some(name) = self.clients_id(call) {
            self.by_client_id.or_default(name).push(id);
        }
    }

    /// Returns the names, at most [`ALIASES_MAX`], by which the server has meant an open call.
    pub(crate) fn learned_names(&self, id: CallId) -> Vec<Key> {
        self.aliases.get(&id).map(|names| names.iter().cloned().collect()).unwrap_or_default()
    }

    /// Keeps the names of a call that closes as tombstones.
    pub(super) fn bury(&mut self, id: CallId, call: &Call, tombstone: Tombstone) {
        self.changes += 1;
        // The server keeps the id of one of Milepost's own tasks. The id of a server's task may be used by a later
        // request.
        if self.by_id.get(&call.id.server).contains(&id) || call.is_own_task() {
            self.by_id.remove(&call.id.server, id);
            self.tombstones.add_request(call, tombstone);
        }
        if let Some(token) = &call.token {
            self.by_token.remove(&token.server, id);
            self.tombstones.add(token.server.clone(), Tombstone::Token);
            if let Some(name) = self.clients_token(call.stream, token) {
                forget(&mut self.by_client_token, &name, id);
            }
        }
        if let Some(name) = self.clients_id(call) {
            forget(&mut self.by_client_id, &name, id);
        }
        for alias in self.aliases.remove(&id).unwrap_or_default() {
            self.by_alias.remove(&alias);
            self.tombstones.add(alias, Tombstone::Alias);
        }
    }

    /// Keeps the id of a call as a tombstone: a task answers the request, and its token stays valid.
    pub(super) fn bury_id(&mut self, id: CallId, call: &Call) {
        self.changes += 1;
        if let Some(name) = self.clients_id(call) {
            forget(&mut self.by_client_id, &name, id);
        }
        self.by_id.remove(&call.id.server, id);
        self.tombstones.add_request(call, Tombstone::Answered);
    }

    /// Notes that the server may know tokens by other names than the client from now on. `open`: the open calls.
    pub(super) fn rename<'a>(&mut self, open: impl Iterator<Item = (CallId, &'a Call)>) {
        if std::mem::replace(&mut self.renames, true) || self.mapped {
            return;
        }
        self.changes += 1;
        for (id, call) in open {
            let name = call.token.as_ref().and_then(|token| self.clients_token(call.stream, token));
            if let Some(name) = name {
                self.by_client_token.or_default(name).push(id);
            }
        }
    }

    /// Notes a change of a call that changes the meaning of names: its stream, or the stream that it pairs with.
    pub(super) fn note_change(&mut self) {
        self.changes += 1;
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

    /// Returns the client's text of a token. If servers get tokens of another type, the tokens of one client may still
    /// differ in type.
    fn clients_token(&self, stream: StreamId, token: &MappedId) -> Option<(StreamId, Key)> {
        let renamed = || Some((ANY_STREAM, Key::read(&token.client)?));
        self.clients(stream, token).or_else(|| self.renames.then(renamed).flatten())
    }

    /// The unanswered requests that the client of a stream calls `key`, oldest first. `is_own`: whether the server
    /// knows a call by its client's own id.
    pub(super) fn by_client_id(
        &self,
        stream: StreamId,
        key: &Key,
        is_own: impl Fn(&CallId) -> bool,
    ) -> CallIds {
        if self.mapped {
            return self.by_client_id.get(&(stream, key.clone())).cloned().unwrap_or_default();
        }
        // A name that Milepost gave to the server never equals a client's name, so it is not looked up among the names
        // of clients.
        let mut calls: CallIds = self.by_id.get(key).iter().copied().filter(is_own).collect();
        if !self.by_client_id.is_empty() {
            let renamed = self.by_client_id.get(&(ANY_STREAM, key.clone()));
            calls.extend(renamed.into_iter().flatten().copied());
            calls.sort_unstable();
        }
        calls
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

    /// Returns the only unanswered request whose id is `key` in another spelling. `None` if exactly `key` was the id of
    /// an ended request, because an exact name takes precedence over another spelling.
    pub(crate) fn by_id_in_other_spelling(&self, key: &Key) -> Option<CallId> {
        let (found, _) = self.by_id.in_other_spelling(key)?;
        self.was_id(key).is_none().then_some(found)
    }

    /// The oldest active request with this token.
    pub(crate) fn by_token(&self, key: &Key) -> Option<CallId> {
        self.all_by_token(key).first().copied()
    }

    /// Every active request to which its client gave the token of `call`, oldest first.
    pub(super) fn holders(&self, call: &Call) -> &[CallId] {
        let Some(token) = &call.token else { return &[] };
        match self.clients_token(call.stream, token) {
            Some(name) => self.by_client_token.get(&name).map_or(&[], |ids| ids),
            None => self.by_token.get(&token.server),
        }
    }

    /// Returns the only active request whose token is `key` in another spelling. `None` if exactly `key` was a name of
    /// an ended call, or if the token of an ended call matches as well.
    pub(crate) fn by_token_in_other_spelling(&self, key: &Key) -> Option<CallId> {
        let (found, name) = self.by_token.in_other_spelling(key)?;
        let was_id_only = || self.was_id(key).is_some() && self.by_id(key).is_none();
        let was_exact = self.was_token(key).is_some() || was_id_only();
        let is_equal = || self.tombstones.has_other_spelling(NameKind::Token, key, &name);
        (!was_exact && !is_equal()).then_some(found)
    }

    /// Returns the only unanswered request whose id is `key` in another spelling, for an id that is sent as a token.
    /// `None` if a name of an ended call matches as well. `are_ids`: whether the server sends only ids as tokens.
    pub(crate) fn by_id_for_token(&self, key: &Key, are_ids: bool) -> Option<CallId> {
        let (found, name) = self.by_id.in_other_spelling(key)?;
        let ended = &self.tombstones;
        let was_named = self.was_id(key).is_some()
            || ended.has_other_spelling(NameKind::Id, key, &name)
            || !are_ids && ended.in_other_spelling(NameKind::Token, key).is_some();
        (!was_named).then_some(found)
    }

    /// Whether `key`, in any spelling, is the id, the token or a learned name of an ended call.
    pub(crate) fn was_named(&self, key: &Key) -> bool {
        [NameKind::Id, NameKind::Token].into_iter().any(|kind| {
            self.tombstones.get(kind, key).is_some()
                || self.tombstones.in_other_spelling(kind, key).is_some()
        })
    }

    pub(crate) fn by_alias(&self, key: &Key) -> Option<CallId> {
        self.by_alias.get(key).copied()
    }

    /// The tombstone of a token, given or invented, of an ended call.
    pub(crate) fn was_token(&self, key: &Key) -> Option<Tombstone> {
        self.tombstones.get(NameKind::Token, key).map(|ended| ended.tombstone)
    }

    /// The tombstone of a request with this id.
    pub(crate) fn was_id(&self, key: &Key) -> Option<Tombstone> {
        self.tombstones.get(NameKind::Id, key).map(|ended| ended.tombstone)
    }

    /// Whether the settings of the ended request with this id leave a further answer unchanged; `None` if
    /// no ended request had this id.
    pub(crate) fn passes_answers(&self, key: &Key) -> Option<bool> {
        self.tombstones.get(NameKind::Id, key).map(|ended| ended.passes_answers)
    }

    /// Notes the answer to a request that the server had ended in another way before.
    pub(crate) fn note_late_answer(&mut self, key: &Key) {
        self.changes += 1;
        self.tombstones.add(key.clone(), Tombstone::Answered);
    }

    /// Returns the tombstone of the request whose id is exactly `key`, or `key` in another spelling.
    pub(crate) fn was_id_in_any_spelling(&self, key: &Key) -> Option<Tombstone> {
        self.was_id(key).or_else(|| {
            self.tombstones.in_other_spelling(NameKind::Id, key).map(|ended| ended.tombstone)
        })
    }

    /// The reason for withholding an answer with this id, which belongs to no open request.
    pub(crate) fn why_orphan(&self, key: &Key) -> Reason {
        match self.was_id_in_any_spelling(key) {
            Some(Tombstone::Answered | Tombstone::Ended) => Reason::SecondAnswer,
            Some(Tombstone::Cancelled) => Reason::CancelledAnswer,
            Some(Tombstone::Token | Tombstone::Alias) | None => Reason::OrphanAnswer,
        }
    }

    /// Returns the number of changes of calls and names so far. While it stays the same, names keep their meaning.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }
}
