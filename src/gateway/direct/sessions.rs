//! The sessions of a route, by the ids that the server gave them.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::session::{Session, SessionBeginning};
use crate::gateway::observers::Observers;
use crate::observe::events::FilterId;
use crate::progress::Policy;
use crate::protocol::order;
use crate::relay::active_tokens::{ActiveTokens, SessionTokens, TokenScope};

/// Number of parts of the session table, each with its own lock.
const SHARDS: usize = 16;

/// Limit of the bytes of a session id that is remembered, so that a client cannot fill the memory with ids. Each
/// request of a session with a longer id is handled separately.
const ID_MAX: usize = 1 << 10;

type SessionShard = HashMap<Box<[u8]>, Arc<Session>>;

/// The sessions of a route, by the id that the server gave them.
pub(crate) struct Sessions {
    /// The table, divided by a hash of the id, so that requests seldom wait for each other.
    shards: [Mutex<SessionShard>; SHARDS],
    hasher: RandomState,
    /// Limit of the sessions in each shard.
    max: AtomicUsize,
    /// The progress tokens that are active in these sessions.
    tokens: Arc<ActiveTokens>,
    audience: Arc<Observers>,
}

impl Sessions {
    pub(crate) fn new(max: usize, audience: Arc<Observers>) -> Self {
        let (shards, hasher) = (Default::default(), RandomState::new());
        let (max, tokens) = (AtomicUsize::new(max.div_ceil(SHARDS)), Arc::default());
        Self { shards, hasher, max, tokens, audience }
    }

    /// Returns the token scope of a request: that of `session`, else that of the unknown session `id`.
    pub(crate) fn scope(&self, session: Option<&Arc<Session>>, id: Option<&[u8]>) -> TokenScope {
        match (session, id) {
            (Some(session), _) => session.scope.clone(),
            // A number from the id, so that all requests of an unknown session share it.
            (None, Some(id)) => TokenScope::of_session(&self.tokens, self.hasher.hash_one(id)),
            (None, None) => TokenScope::of_request(&self.tokens),
        }
    }

    /// Returns the tokens of an HTTP+SSE stream, which is a session of its own.
    pub(crate) fn tokens_of_stream(&self) -> SessionTokens {
        SessionTokens::new(&self.tokens)
    }

    /// Sets the limit of remembered sessions.
    pub(crate) fn keep(&self, max: usize) {
        self.max.store(max.div_ceil(SHARDS), Ordering::Relaxed);
    }

    /// Returns the number of known sessions.
    pub(crate) fn len(&self) -> usize {
        let known = |shard: &Mutex<SessionShard>| {
            shard.lock().unwrap_or_else(PoisonError::into_inner).len()
        };
        self.shards.iter().map(known).sum()
    }

    fn lock(&self, id: &[u8]) -> MutexGuard<'_, SessionShard> {
        let hash = self.hasher.hash_one(id);
        let shard = usize::try_from(hash % SHARDS as u64).unwrap_or_default();
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn find(&self, id: &[u8]) -> Option<Arc<Session>> {
        self.lock(id).get(id).cloned()
    }

    /// Returns the session with this id; creates it if it is unknown.
    pub(crate) fn find_or_begin(
        &self,
        id: &[u8],
        policy: &Arc<Policy>,
        beginning: SessionBeginning,
        beside: Option<FilterId>,
    ) -> Arc<Session> {
        let mut known = self.lock(id);
        if let Some(session) = known.get(id) {
            return Arc::clone(session);
        }
        let max = self.max.load(Ordering::Relaxed);
        if known.len() >= max {
            let over = known.len() - max;
            // More entries than needed are removed, so that this search is rare.
            forget_idle(&mut known, over + max / 8 + 1);
        }
        let session = Arc::new(Session::new(
            policy,
            beginning,
            &self.audience,
            beside,
            self.scope(None, Some(id)),
        ));
        session.take_cancellations();
        // If the table is full the session is not remembered, and each of its requests is handled separately.
        if known.len() < max && id.len() <= ID_MAX {
            known.insert(id.into(), Arc::clone(&session));
        }
        session
    }

    /// Notes another id that the server gives to a known session.
    pub(crate) fn also_called(&self, id: &[u8], session: &Arc<Session>) {
        let mut known = self.lock(id);
        if known.len() < self.max.load(Ordering::Relaxed) && id.len() <= ID_MAX {
            known.entry(id.into()).or_insert_with(|| Arc::clone(session));
        }
    }

    /// Handles the answer of a server that does not know the session. It counts only if the server has accepted no
    /// other caller in the session, because a stranger gets this answer for every session.
    pub(crate) fn forget_for(&self, id: &[u8], caller: u64) {
        if !self.find(id).is_some_and(|session| session.has_served_another(caller)) {
            self.forget(id);
        }
    }

    /// Forgets a session that the server no longer knows.
    pub(crate) fn forget(&self, id: &[u8]) {
        // The lock is released before the locks of the session are taken.
        let session = self.lock(id).remove(id);
        if let Some(session) = session {
            session.release();
            session.end_waits();
        }
    }

    /// Notes that the client has ended the session, so that no answer will come on its GET stream.
    pub(crate) fn end_waits(&self, id: &[u8]) {
        if let Some(session) = self.find(id) {
            session.end_waits();
        }
    }
}

/// Forgets the sessions that were unused for longest, and closes the streams that are held for them.
fn forget_idle(known: &mut SessionShard, count: usize) {
    let idle = known.iter().filter_map(|(id, session)| Some((session.idle_since()?, id.clone())));
    let mut idle: Vec<(Instant, Box<[u8]>)> = idle.collect();
    order::sort(&mut idle);
    for (_, id) in idle.into_iter().take(count) {
        if let Some(session) = known.remove(&id) {
            session.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;
    use crate::gateway::direct::session::SessionStream;
    use crate::observe::metrics::Metrics;

    /// Returns sessions of which each shard remembers `max`, and ids that all belong to one shard.
    fn one_part(max: usize) -> (Sessions, impl Iterator<Item = String>) {
        let observers = Observers::new("/r", Metrics::new().route("/r"), &[]);
        let sessions = Sessions::new(max * SHARDS, observers);
        let hasher = sessions.hasher.clone();
        let ids = (0..).map(|n: u32| n.to_string());
        (sessions, ids.filter(move |id| hasher.hash_one(id.as_bytes()) % SHARDS as u64 == 0))
    }

    async fn begin(sessions: &Sessions, id: &str) -> Arc<Session> {
        advance(Duration::from_secs(1)).await;
        sessions.find_or_begin(
            id.as_bytes(),
            &Arc::new(Policy::default()),
            SessionBeginning::Seen,
            None,
        )
    }

    fn known<'a>(sessions: &Sessions, ids: &'a [String]) -> Vec<&'a str> {
        let is_known = |id: &&str| sessions.find(id.as_bytes()).is_some();
        ids.iter().map(String::as_str).filter(is_known).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_session_unused_for_longest_makes_room_and_one_in_use_does_not() {
        let (sessions, ids) = one_part(3);
        let ids: Vec<String> = ids.take(5).collect();
        let used = begin(&sessions, &ids[0]).await;
        let stream = used.listen(None);
        let older = begin(&sessions, &ids[1]).await;
        begin(&sessions, &ids[2]).await;
        advance(Duration::from_secs(1)).await;
        older.mark_accepted(7);
        begin(&sessions, &ids[3]).await;
        assert_eq!(known(&sessions, &ids), [&ids[0], &ids[1], &ids[3]], "the third was unused");
        begin(&sessions, &ids[4]).await;
        assert_eq!(known(&sessions, &ids), [&ids[0], &ids[3], &ids[4]]);
        let streams =
            [&ids[3], &ids[4]].map(|id| sessions.find(id.as_bytes()).unwrap().listen(None));
        begin(&sessions, &ids[1]).await;
        assert_eq!(known(&sessions, &ids), [&ids[0], &ids[3], &ids[4]], "all are in use");
        stream.stop_listening();
        advance(Duration::from_secs(1)).await;
        streams.iter().for_each(SessionStream::stop_listening);
        begin(&sessions, &ids[1]).await;
        assert_eq!(known(&sessions, &ids), [&ids[1], &ids[3], &ids[4]], "its client has left");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_milepost_holds_is_no_use_and_ends_with_its_session() {
        let (sessions, ids) = one_part(1);
        let ids: Vec<String> = ids.take(2).collect();
        let (claim, mut claims) = tokio::sync::mpsc::channel(1);
        let held = begin(&sessions, &ids[0]).await;
        assert!(held.hold(7, claim));
        let _stream = held.listen(None);
        begin(&sessions, &ids[1]).await;
        assert_eq!(known(&sessions, &ids), [&ids[1]]);
        assert!(claims.recv().await.is_none(), "its holder lets it go");
    }
}
