//! The open calls, with the stream of each call.
//!
//! ```text
//!  request ──> active ──answer reaches the gate──> gone, its names kept as tombstones
//!                 │ └──cancelled, timed out, server gone──> gone (a late answer is known for one)
//!                 └──answer is CreateTaskResult (2025-11-25)──> task ──terminal status, ttl──> gone
//! ```

use std::collections::BTreeSet;
use std::time::Instant;

use smallvec::SmallVec;

use crate::progress::correlate::call::{Call, Task};
use crate::progress::correlate::ledger::Ledger;
use crate::progress::correlate::name_index::{CallIds, forget};
use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::dialect::report::About;
use crate::progress::few_map::FewMap;
use crate::progress::ids::{CallId, StreamId};
use crate::progress::policy::Policy;
use crate::progress::verdict::{Reason, Repair};
use crate::protocol::jsonrpc::{Key, Kind, Message};
use crate::protocol::mcp;

/// Limit of the open requests of one connection that can get progress. Further requests are forwarded normally, but
/// without progress.
pub const CALLS_MAX: usize = 1024;

/// The call that a report is about, and the repair of the token that was needed to find the call.
pub(crate) type Attributed = (CallId, Option<Repair>);

/// The open calls of one connection: their state, their names, and the streams of their messages.
#[derive(Debug)]
pub struct OpenCalls {
    /// Boxed, because each node of the map reserves space for eleven values.
    calls: FewMap<CallId, Box<Call>>,
    pub(crate) ledger: Ledger,
    /// Calls by the upstream stream on which the server sends messages about them, oldest first.
    by_pair: FewMap<StreamId, CallIds>,
    /// Calls by their client's stream, oldest first. With this index, looking at one stream does not depend on the
    /// number of other calls.
    by_stream: FewMap<StreamId, CallIds>,
    expiries: BTreeSet<(Instant, CallId)>,
    /// Whether open requests may exist that have no entry here. An answer without an entry is then not an orphan.
    overflowed: bool,
    /// Whether a call may run as one of Milepost's own tasks.
    has_own_tasks: bool,
    next: u64,
}

impl OpenCalls {
    /// Returns an empty collection of calls.
    pub(crate) fn new(policy: &Policy) -> Self {
        // Field by field: a default value would make a second ledger for each filter, only to drop it.
        Self {
            calls: FewMap::default(),
            ledger: Ledger::new(policy),
            by_pair: FewMap::default(),
            by_stream: FewMap::default(),
            expiries: BTreeSet::new(),
            overflowed: false,
            has_own_tasks: false,
            next: 0,
        }
    }

    /// Adds a call. Returns `None` if there are too many.
    pub(crate) fn add(&mut self, mut call: Call) -> Option<CallId> {
        if self.calls.len() >= CALLS_MAX {
            // The caller forwards the request all the same: a full table withholds only progress.
            self.overflowed = true;
            return None;
        }
        let id = CallId(self.next);
        self.next += 1;
        self.ledger.enter(id, &call);
        // The client recognises progress by its token, so two requests with one token share the last value.
        let first = self.ledger.holders(&call).first().and_then(|first| self.calls.get(first));
        if let Some(first) = first {
            call.meter.raise_to(first.meter.emitted());
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
        forget(&mut self.by_stream, &call.stream, id);
        self.ledger.bury(id, &call, tombstone);
        if let Some(upstream) = call.paired {
            forget(&mut self.by_pair, &upstream, id);
        }
        if let Some(expires) = call.expires {
            self.expiries.remove(&(expires, id));
        }
        Some(call)
    }

    /// Notes that from now on the server may know tokens by other names than the client does.
    pub(crate) fn rename(&mut self) {
        self.ledger.rename(self.calls.iter().map(|(id, call)| (*id, &**call)));
    }

    /// Returns an open call.
    pub(crate) fn get(&self, id: CallId) -> Option<&Call> {
        self.calls.get(&id).map(|call| &**call)
    }

    /// Returns an open call so that its state can be changed.
    pub(crate) fn get_mut(&mut self, id: CallId) -> Option<&mut Call> {
        self.calls.get_mut(&id).map(|call| &mut **call)
    }

    /// Returns the only open call; `None` if several or none are open.
    pub(crate) fn sole_mut(&mut self) -> Option<(CallId, &mut Call)> {
        let mut calls = self.calls.iter_mut();
        let (id, call) = calls.next()?;
        calls.next().is_none().then_some((*id, &mut **call))
    }

    /// Returns the open calls, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (CallId, &Call)> {
        self.calls.iter().map(|(id, call)| (*id, &**call))
    }

    /// Returns the open calls for which `which` is true, oldest first.
    pub(crate) fn active(&self, which: impl Fn(&Call) -> bool) -> impl Iterator<Item = CallId> {
        self.iter().filter(move |(_, call)| which(call)).map(|(id, _)| id)
    }

    /// Whether messages of a call are forwarded unchanged while messages of other calls are repaired.
    pub(crate) fn is_observed(&self, id: CallId) -> bool {
        self.get(id).is_some_and(Call::is_observed)
    }

    /// Whether neither a request nor a task that a request has become is open.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Notes that some requests of this session are unknown here, so that answers cannot be distinguished from orphans.
    pub(crate) fn mark_incomplete(&mut self) {
        self.overflowed = true;
    }

    /// Whether answers cannot be distinguished from orphans, because some requests are unknown.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.overflowed
    }

    /// Notes that another filter writes the records of the calls that are open now.
    pub(crate) fn forget_records(&mut self) {
        self.calls.iter_mut().for_each(|(_, call)| call.is_recorded = true);
    }

    /// Notes the upstream stream on which the server sends messages about a call.
    pub(crate) fn pair(&mut self, id: CallId, upstream: StreamId) {
        self.ledger.note_change();
        let Some(call) = self.calls.get_mut(&id) else { return };
        if let Some(before) = call.paired.replace(upstream) {
            forget(&mut self.by_pair, &before, id);
        }
        self.by_pair.or_default(upstream).push(id);
    }

    /// Pairs the call of a request, which a client has just sent, with an upstream stream.
    pub(crate) fn pair_request(&mut self, client: StreamId, request: &Message, upstream: StreamId) {
        let Some(id) = request.id_key() else { return };
        // The newest request, because a careless client repeats ids.
        let known = self.by_client_id(client, &id);
        let own = |id: &&CallId| self.get(**id).is_some_and(|call| call.stream == client);
        if let Some(call) = known.iter().rev().find(own) {
            self.pair(*call, upstream);
        }
    }

    /// Returns the calls whose upstream stream is `upstream`, oldest first.
    pub(crate) fn paired_with(&self, upstream: StreamId) -> &[CallId] {
        self.by_pair.get(&upstream).map_or(&[], |ids| ids)
    }

    /// Returns the calls whose messages go to this client stream, oldest first.
    pub(crate) fn on_stream(&self, stream: StreamId) -> &[CallId] {
        self.by_stream.get(&stream).map_or(&[], |ids| ids)
    }

    /// Sends the messages about a call to another client stream from now on.
    pub(crate) fn move_to(&mut self, id: CallId, stream: StreamId) {
        self.ledger.note_change();
        let Some(call) = self.calls.get_mut(&id) else { return };
        let before = std::mem::replace(&mut call.stream, stream);
        forget(&mut self.by_stream, &before, id);
        let calls = self.by_stream.or_default(stream);
        // Inserted by number, so that the list stays in the order in which the calls were opened.
        let place = calls.partition_point(|known| *known < id);
        calls.insert(place, id);
    }

    /// Returns the unanswered requests that have the id `key` for the client of `stream`, oldest first.
    pub(crate) fn by_client_id(&self, stream: StreamId, key: &Key) -> CallIds {
        let is_own = |id: &CallId| self.get(*id).is_some_and(|call| !call.id.translated);
        self.ledger.by_client_id(stream, key, is_own)
    }

    /// Returns the open request with exactly this id on a client stream.
    pub(crate) fn asked_on(&self, stream: StreamId, id: &Key) -> Option<CallId> {
        let is_here = |id: &CallId| self.get(*id).is_some_and(|call| call.stream == stream);
        self.ledger.all_by_id(id).iter().copied().find(is_here)
    }

    /// Whether a client's cancellation of `id` may mean requests of several streams. The client does not say which
    /// stream it means, and cancelling the request of another conversation would leave that request unanswered.
    pub(crate) fn may_mean_several(&self, stream: StreamId, id: &Key) -> bool {
        let calls = self.by_client_id(stream, id);
        let streams = calls.iter().filter_map(|call| Some(self.get(*call)?.stream));
        let first = calls.first().and_then(|first| self.get(*first));
        let mut others = streams.skip_while(|on| first.is_some_and(|first| first.stream == *on));
        others.next().is_some()
    }

    /// Returns the stream of the client's open request with this id, if only one stream has such a request.
    pub fn sole_stream_of(&self, id: &Key) -> Option<StreamId> {
        let calls = self.ledger.all_by_id(id).iter();
        let mut streams = calls.filter_map(|call| Some(self.get(*call)?.stream));
        let first = streams.next()?;
        streams.all(|stream| stream == first).then_some(first)
    }

    /// Returns the stream of the client's open request with this id.
    pub fn stream_of(&self, id: &Key) -> Option<StreamId> {
        let call = self.ledger.by_id(id)?;
        self.get(call).map(|call| call.stream)
    }

    /// Returns the tokens of the open calls, as the server knows them.
    pub fn tokens(&self) -> SmallVec<[Key; 1]> {
        self.iter().filter_map(|(_, call)| Some(call.token.as_ref()?.server.clone())).collect()
    }

    /// Whether a call has exactly this token.
    pub fn has_token(&self, token: &Key) -> bool {
        self.ledger.by_token(token).is_some()
    }

    /// Remembers that the server means `call` by the token in `about`, unless the token is the id of another request.
    /// On other streams such a token means that request.
    pub(crate) fn learn(&mut self, about: &About, call: CallId) -> Attributed {
        if let Some(token) = &about.token
            && self.ledger.by_id(token).is_none_or(|other| other == call)
        {
            self.ledger.learn(token, call);
        }
        (call, Some(Repair::Token))
    }

    /// Returns the open call that a text names by its token, or else by the id of its request.
    pub(crate) fn named_in_text(&self, About { token, request, .. }: &About) -> Option<CallId> {
        let by_token = |key: &Key| {
            self.ledger.by_token(key).or_else(|| self.ledger.by_token_in_other_spelling(key))
        };
        let by_id = || self.ledger.call_of_answer(request.as_ref()?);
        token.as_ref().and_then(by_token).or_else(by_id)
    }

    /// Returns the only call that a report can be about if the report names neither a token nor a request.
    pub(crate) fn by_other_names(&self, about: &About) -> Result<CallId, Reason> {
        if let Some(id) = &about.task {
            let of_task = |call: &Call| call.task.as_ref().is_some_and(|task| task.id == *id);
            return sole(self.active(of_task)).ok_or(Reason::Unknown);
        }
        if let Some(tool) = &about.tool {
            return only(self.active(|call| call.tool.as_deref() == Some(tool)));
        }
        // A subscription is open for as long as the client listens. As a candidate it would make every guess ambiguous.
        match only(self.active(Call::is_tool_call)) {
            Err(Reason::Unknown) => only(self.active(|call| &*call.method != mcp::LISTEN)),
            found => found,
        }
    }

    /// Whether a message answers a request that has already been answered.
    pub fn is_answered(&self, message: &Message) -> bool {
        message.kind() == Kind::Response
            && message.id_key().is_some_and(|id| {
                self.ledger.call_of_answer(&id).is_none()
                    && self.ledger.was_id(&id) == Some(Tombstone::Answered)
            })
    }

    /// Returns the last value that was sent to the client of a stream, for the only request of the stream.
    pub fn value_on(&self, stream: StreamId) -> Option<f64> {
        let call = sole(self.on_stream(stream).iter().copied())?;
        self.get(call)?.meter.emitted()
    }

    /// Copies the value to all calls with the same token, because a client identifies progress by its token.
    pub(crate) fn share_value(&mut self, id: CallId) {
        let emitted = self.get(id).and_then(|call| call.meter.emitted());
        for holder in self.holders(id) {
            if let Some(call) = self.get_mut(holder) {
                call.meter.raise_to(emitted);
            }
        }
    }

    /// Returns the open requests that have the same token from their client as `id`, including `id`.
    pub(crate) fn holders(&self, id: CallId) -> CallIds {
        self.get(id).map(|call| self.ledger.holders(call).into()).unwrap_or_default()
    }

    /// Notes that a call has joined the work that an earlier call began at `began`. The server may mean this work by
    /// the learned `names`.
    pub(crate) fn join(&mut self, id: CallId, began: Instant, attempts: u32, names: &[Key]) {
        names.iter().for_each(|name| self.ledger.learn(name, id));
        if let Some(call) = self.get_mut(id) {
            (call.joined, call.opened, call.attempts) = (Some(call.opened), began, attempts);
        }
    }

    /// Notes that a task has answered a request: the token of the request stays valid, the id does not.
    pub(crate) fn continue_as_task(&mut self, id: CallId, expires: Instant) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        self.ledger.bury_id(id, call);
        if let Some(before) = call.expires.replace(expires) {
            self.expiries.remove(&(before, id));
        }
        self.expiries.insert((expires, id));
    }

    /// Lets a call continue as one of Milepost's own tasks until `expires`. The server may name the call by `alias`.
    pub(crate) fn begin_own_task(
        &mut self,
        id: CallId,
        expires: Instant,
        task: Option<Task>,
        alias: Option<&Key>,
    ) {
        self.continue_as_task(id, expires);
        if let Some(alias) = alias {
            self.ledger.learn(alias, id);
        }
        if let (Some(call), Some(task)) = (self.get_mut(id), task) {
            call.task = Some(task);
        }
        self.has_own_tasks = true;
    }

    /// Returns the call that runs as one of Milepost's own tasks and is named by its id. The client has an answer to
    /// the request, but the server still knows the call by the id of the request.
    pub(crate) fn own_task_of(&self, about: &About) -> Option<CallId> {
        let named = |name: &Key| {
            let mut own =
                self.iter().filter(|(_, call)| call.id.server == *name && call.is_own_task());
            if self.has_own_tasks { own.next().map(|(id, _)| id) } else { None }
        };
        about.request.iter().chain(&about.token).filter_map(named).next()
    }

    /// Whether a request of a client stream has become a task that is still open.
    pub fn has_tasks_on(&self, stream: StreamId) -> bool {
        let is_task = |id: &CallId| self.get(*id).is_some_and(|call| call.task.is_some());
        self.on_stream(stream).iter().any(is_task)
    }

    /// Whether a request of a client stream is still unanswered.
    pub(crate) fn has_unanswered_on(&self, stream: StreamId) -> bool {
        let is_open = |id: &CallId| self.get(*id).is_some_and(|call| call.task.is_none());
        self.on_stream(stream).iter().any(is_open)
    }

    /// Changes the deadline of a call, in either direction. The time to live of a task does not change.
    pub(crate) fn put_off(&mut self, id: CallId, change: impl FnOnce(Instant) -> Instant) {
        let Some(call) = self.calls.get_mut(&id).filter(|call| call.task.is_none()) else { return };
        if let Some(before) = call.expires {
            let expires = change(before);
            call.expires = Some(expires);
            self.expiries.remove(&(before, id));
            self.expiries.insert((expires, id));
        }
    }

    /// Returns the number of open tasks, in a filter whose calls have no time limit.
    pub fn tasks(&self) -> usize {
        self.expiries.len()
    }

    /// Returns the call whose time limit ends next.
    pub(crate) fn next_expiry(&self) -> Option<(Instant, CallId)> {
        self.expiries.first().copied()
    }

    /// Returns when the first waiting progress may be written; `None` also if a request times out before that.
    pub fn progress_due(&self) -> Option<Instant> {
        let due = self.iter().filter_map(|(_, call)| call.pending.due()).min();
        let expiry = self.next_expiry().map(|(at, _)| at);
        due.filter(|due| expiry.is_none_or(|expiry| *due < expiry))
    }
}

/// Returns the element of an iterator that has exactly one.
pub(crate) fn sole(mut calls: impl Iterator<Item = CallId>) -> Option<CallId> {
    let first = calls.next()?;
    calls.next().is_none().then_some(first)
}

/// Returns the only call, or the reason why no single call is meant.
pub(crate) fn only(mut calls: impl Iterator<Item = CallId>) -> Result<CallId, Reason> {
    let first = calls.next().ok_or(Reason::Unknown)?;
    if calls.next().is_none() { Ok(first) } else { Err(Reason::Ambiguous) }
}
