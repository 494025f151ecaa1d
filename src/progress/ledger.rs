//! Which requests are active, and under which names.
//!
//! ```text
//!  request ──> active ──answer reaches the gate──> gone, its names kept as tombstones
//!                 │ └──cancelled, timed out, server gone──> gone (a late answer is known for one)
//!                 └──answer is CreateTaskResult (2025-11-25)──> task ──terminal status, ttl──> gone
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use super::call::{Call, CallId};
use crate::jsonrpc::Key;

/// Requests of one connection that may be open at once. A client that has more gets its messages as
/// ever, but no progress for the newcomers.
pub const CALLS_MAX: usize = 1024;

/// Foreign tokens that are remembered for one call; some servers invent one for each notification.
const ALIASES_MAX: usize = 64;

/// The longest name that is remembered after its message, in bytes. Real ones are UUIDs at most.
const KEY_MAX: usize = 1 << 10;

/// Names of ended calls that are remembered, so that what comes late is not taken for the next call.
const TOMBSTONES_MAX: usize = 4096;

/// What a name of an ended call was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tomb {
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

#[derive(Debug, Default)]
struct Tombstones {
    stones: BTreeMap<(bool, Key), Tomb>,
    order: VecDeque<(bool, Key)>,
}

impl Tombstones {
    fn add(&mut self, key: Key, tomb: Tomb) {
        if key.len() > KEY_MAX {
            return;
        }
        let name = (matches!(tomb, Tomb::Token | Tomb::Alias), key);
        if self.stones.insert(name.clone(), tomb).is_none() {
            self.order.push_back(name);
        }
        if self.order.len() > TOMBSTONES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.stones.remove(&oldest);
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// In boxes: a node of the map has room for eleven.
    calls: BTreeMap<CallId, Box<Call>>,
    by_id: BTreeMap<Key, Vec<CallId>>,
    by_token: BTreeMap<Key, Vec<CallId>>,
    by_alias: BTreeMap<Key, CallId>,
    aliases: BTreeMap<CallId, VecDeque<Key>>,
    tombs: Tombstones,
    expiries: BTreeSet<(Instant, CallId)>,
    /// A request may have been passed on without being entered: answers can no longer be told from
    /// orphans.
    pub(super) overflowed: bool,
    next: u64,
}

impl Ledger {
    /// Enters a call; `None` if there are too many.
    pub(super) fn open(&mut self, mut call: Call) -> Option<CallId> {
        if self.calls.len() >= CALLS_MAX {
            self.overflowed = true;
            return None;
        }
        let id = CallId(self.next);
        self.next += 1;
        self.by_id.entry(call.id.server.clone()).or_default().push(id);
        if let Some(token) = &call.token {
            let holders = self.by_token.entry(token.server.clone()).or_default();
            // The client knows progress by its token: two requests with one token share its figure.
            if let Some(first) = holders.first() {
                call.meter.raise_to(self.calls[first].meter.told());
            }
            holders.push(id);
        }
        if let Some(expires) = call.expires {
            self.expiries.insert((expires, id));
        }
        self.calls.insert(id, Box::new(call));
        Some(id)
    }

    /// Strikes a call out and keeps its names as tombstones.
    pub(super) fn close(&mut self, id: CallId, tomb: Tomb) -> Option<Box<Call>> {
        let call = self.calls.remove(&id)?;
        forget(&mut self.by_id, &call.id.server, id);
        self.tombs.add(call.id.server.clone(), tomb);
        if let Some(token) = &call.token {
            forget(&mut self.by_token, &token.server, id);
            self.tombs.add(token.server.clone(), Tomb::Token);
        }
        for alias in self.aliases.remove(&id).unwrap_or_default() {
            self.by_alias.remove(&alias);
            self.tombs.add(alias, Tomb::Alias);
        }
        if let Some(expires) = call.expires {
            self.expiries.remove(&(expires, id));
        }
        Some(call)
    }

    /// The request is answered but its token lives on: its id means nothing any more.
    pub(super) fn answered_by_task(&mut self, id: CallId, expires: Instant) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        forget(&mut self.by_id, &call.id.server, id);
        self.tombs.add(call.id.server.clone(), Tomb::Answered);
        if let Some(before) = call.expires.replace(expires) {
            self.expiries.remove(&(before, id));
        }
        self.expiries.insert((expires, id));
    }

    /// Remembers that the server means `id` by `alias`.
    pub(super) fn learn(&mut self, alias: &Key, id: CallId) {
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
            self.tombs.add(oldest, Tomb::Alias);
        }
    }

    /// A call goes on without its token.
    pub(super) fn take_token(&mut self, id: CallId) {
        if let Some(token) = self.calls.get_mut(&id).and_then(|call| call.token.take()) {
            forget(&mut self.by_token, &token.server, id);
        }
    }

    pub(super) fn get(&self, id: CallId) -> Option<&Call> {
        self.calls.get(&id).map(|call| &**call)
    }

    pub(super) fn get_mut(&mut self, id: CallId) -> Option<&mut Call> {
        self.calls.get_mut(&id).map(|call| &mut **call)
    }

    /// The only call there is.
    pub(super) fn sole_mut(&mut self) -> Option<(CallId, &mut Call)> {
        let mut calls = self.calls.iter_mut();
        let (id, call) = calls.next()?;
        calls.next().is_none().then_some((*id, &mut **call))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (CallId, &Call)> {
        self.calls.iter().map(|(id, call)| (*id, &**call))
    }

    /// The oldest unanswered request with this id.
    pub(super) fn by_id(&self, key: &Key) -> Option<CallId> {
        self.by_id.get(key).and_then(|ids| ids.first()).copied()
    }

    /// The request that an answer with this id is for: the oldest with just this id, else the only
    /// one with it in another spelling, unless just this id has been answered or cancelled before.
    pub(super) fn answered_by(&self, key: &Key) -> Option<CallId> {
        if let Some(exact) = self.by_id(key) {
            return Some(exact);
        }
        let mut others = self.by_respelled_id(key).filter(|_| self.was_id(key).is_none());
        let first = others.next()?;
        others.next().is_none().then_some(first)
    }

    /// Every unanswered request whose id is `key` in another spelling.
    pub(super) fn by_respelled_id(&self, key: &Key) -> impl Iterator<Item = CallId> {
        let same = self.by_id.iter().filter(|(id, _)| id.respelled(key));
        same.flat_map(|(_, ids)| ids.iter().copied())
    }

    /// The oldest active request with this token.
    pub(super) fn by_token(&self, key: &Key) -> Option<CallId> {
        self.by_token.get(key).and_then(|ids| ids.first()).copied()
    }

    /// Every active request with the token of `id`, `id` among them.
    pub(super) fn holders(&self, id: CallId) -> Vec<CallId> {
        let token = self.calls.get(&id).and_then(|call| call.token.as_ref());
        token.and_then(|token| self.by_token.get(&token.server)).cloned().unwrap_or_default()
    }

    /// Every active request whose token is `key` in another spelling.
    pub(super) fn by_respelled_token(&self, key: &Key) -> impl Iterator<Item = CallId> {
        let same = self.by_token.iter().filter(|(token, _)| token.respelled(key));
        same.flat_map(|(_, ids)| ids.iter().copied())
    }

    pub(super) fn by_alias(&self, key: &Key) -> Option<CallId> {
        self.by_alias.get(key).copied()
    }

    /// What kind of token, given or invented, of a call that has ended `key` was.
    pub(super) fn was_token(&self, key: &Key) -> Option<Tomb> {
        self.tombs.stones.get(&(true, key.clone())).copied()
    }

    /// How the request with this id ended, if one did.
    pub(super) fn was_id(&self, key: &Key) -> Option<Tomb> {
        self.tombs.stones.get(&(false, key.clone())).copied()
    }

    /// A request that the server had ended otherwise has been answered too.
    pub(super) fn answered_after_all(&mut self, key: &Key) {
        self.tombs.add(key.clone(), Tomb::Answered);
    }

    /// How the request ended whose id is `key` or the only one that is `key` in another spelling.
    pub(super) fn was_id_in_any_spelling(&self, key: &Key) -> Option<Tomb> {
        self.was_id(key).or_else(|| {
            let is_id = |name: &&(bool, Key)| !name.0 && name.1.respelled(key);
            let name = self.tombs.order.iter().rev().find(is_id)?;
            self.tombs.stones.get(name).copied()
        })
    }

    /// How many calls end by themselves.
    pub(super) fn expiring(&self) -> usize {
        self.expiries.len()
    }

    /// The call that ends by itself next.
    pub(super) fn next_expiry(&self) -> Option<(Instant, CallId)> {
        self.expiries.first().copied()
    }
}

fn forget(index: &mut BTreeMap<Key, Vec<CallId>>, key: &Key, id: CallId) {
    if let Some(ids) = index.get_mut(key) {
        ids.retain(|known| *known != id);
        if ids.is_empty() {
            index.remove(key);
        }
    }
}
