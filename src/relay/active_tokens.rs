//! The tokens of open calls on one route, by session. Some servers send progress on the stream of the wrong session, so
//! a token that is active only in another session does not belong to a call of this session.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use smallvec::SmallVec;

use crate::progress::Origin;
use crate::progress::input::Input;
use crate::protocol::jsonrpc::{Key, Message};
use crate::relay::filter_guard::FilterGuard;

/// The sessions that use each token, with one entry for each call. The number of entries is limited, because each is
/// removed with its open response or session, and the number of these is limited.
#[derive(Debug, Default)]
pub(crate) struct ActiveTokens {
    users: Mutex<BTreeMap<Key, SmallVec<[u64; 2]>>>,
    /// The number of entries.
    entries: AtomicUsize,
    /// Number of requests without a session so far.
    alone: AtomicU64,
}

impl ActiveTokens {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, SmallVec<[u64; 2]>>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One session of a route, or one request without a session.
#[derive(Debug, Clone)]
pub(crate) struct TokenScope {
    tokens: Arc<ActiveTokens>,
    number: u64,
}

impl TokenScope {
    /// Returns the scope of the session with this number.
    pub(crate) fn of_session(tokens: &Arc<ActiveTokens>, number: u64) -> Self {
        Self { tokens: Arc::clone(tokens), number }
    }

    /// Returns the scope of a request without a session.
    pub(crate) fn of_request(tokens: &Arc<ActiveTokens>) -> Self {
        Self::of_session(tokens, tokens.alone.fetch_add(1, Ordering::Relaxed))
    }

    /// Marks tokens as active in this scope until the returned lease is dropped; returns `None` if there are no tokens.
    pub(crate) fn enter(&self, tokens: SmallVec<[Key; 1]>) -> Option<TokenLease> {
        if tokens.is_empty() {
            return None;
        }
        let mut users = self.tokens.lock();
        for token in &tokens {
            // Add an entry for each call, because two calls of a session may have the same token.
            users.entry(token.clone()).or_default().push(self.number);
        }
        drop(users);
        self.tokens.entries.fetch_add(tokens.len(), Ordering::Relaxed);
        Some(TokenLease { scope: self.clone(), tokens })
    }

    /// Tells the filter which tokens in its next message belong to calls of other sessions. Does nothing if only the
    /// tokens of `own` are active.
    pub(crate) fn mark_beside(
        &self,
        own: Option<&TokenLease>,
        now: Instant,
        filter: &mut FilterGuard,
        origin: Origin,
        message: &Message,
    ) {
        let own = own.map_or(0, |lease| lease.tokens.len());
        // Usually only this call has tokens. Then the lock of the route is not needed.
        if self.tokens.entries.load(Ordering::Relaxed) > own {
            self.mark(now, filter, origin, message);
        }
    }

    /// Whether a token is active in other sessions but not in this one. False if only the tokens of `own` are active.
    pub(crate) fn is_beside(&self, own: Option<&TokenLease>, token: &Key) -> bool {
        let own = own.map_or(0, |lease| lease.tokens.len());
        self.tokens.entries.load(Ordering::Relaxed) > own && self.is_elsewhere(token)
    }

    fn is_elsewhere(&self, token: &Key) -> bool {
        let users = self.tokens.lock();
        users.get(token).is_some_and(|users| !users.contains(&self.number))
    }

    /// Tells the filter which tokens in its next message belong to calls of other sessions.
    pub(crate) fn mark(
        &self,
        now: Instant,
        filter: &mut FilterGuard,
        origin: Origin,
        message: &Message,
    ) {
        let named = filter.try_with(|filter| filter.intake_mut().tokens_named(origin, message));
        let elsewhere = self.elsewhere(named.unwrap_or_default());
        if !elsewhere.is_empty() {
            filter.apply(now, Input::MarkElsewhere(elsewhere));
        }
    }

    /// Returns those of `tokens` that are active in other sessions but not in this one.
    fn elsewhere(&self, mut tokens: Vec<Key>) -> Vec<Key> {
        if !tokens.is_empty() {
            let users = self.tokens.lock();
            tokens.retain(|token| {
                users.get(token).is_some_and(|users| !users.contains(&self.number))
            });
        }
        tokens
    }
}

/// Tokens that are active until this value is dropped.
#[derive(Debug)]
pub(crate) struct TokenLease {
    scope: TokenScope,
    pub(crate) tokens: SmallVec<[Key; 1]>,
}

/// The tokens of one filter's open calls, as a session of their own.
#[derive(Debug)]
pub(crate) struct SessionTokens {
    scope: TokenScope,
    lease: Option<TokenLease>,
}

impl SessionTokens {
    /// Returns a new session without calls.
    pub(crate) fn new(tokens: &Arc<ActiveTokens>) -> Self {
        Self { scope: TokenScope::of_request(tokens), lease: None }
    }

    /// Updates the lease after the calls of the filter have changed.
    pub(crate) fn renew(&mut self, filter: &mut FilterGuard) {
        let tokens = filter.try_with(|filter| filter.calls().open().tokens()).unwrap_or_default();
        self.lease = self.scope.enter(tokens);
    }

    /// Tells the filter which tokens in its next message belong to calls of other sessions.
    pub(crate) fn mark(
        &self,
        now: Instant,
        filter: &mut FilterGuard,
        origin: Origin,
        message: &Message,
    ) {
        self.scope.mark_beside(self.lease.as_ref(), now, filter, origin, message);
    }
}

impl Drop for TokenLease {
    fn drop(&mut self) {
        self.scope.tokens.entries.fetch_sub(self.tokens.len(), Ordering::Relaxed);
        let mut users = self.scope.tokens.lock();
        for token in &self.tokens {
            let Some(of_token) = users.get_mut(token) else { continue };
            if let Some(own) = of_token.iter().position(|user| *user == self.scope.number) {
                of_token.swap_remove(own);
            }
            if of_token.is_empty() {
                users.remove(token);
            }
        }
    }
}
