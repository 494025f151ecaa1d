//! The idle time of a session: decides whether the session is still used, with the route's current settings.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::session::SessionKind;
use crate::config::routes::Upstream;
use crate::gateway::bridge::client_leg::SessionLeg;
use crate::gateway::route_state::RouteState;
use crate::relay::FromClient;

impl SessionLeg {
    /// Whether the session can end because its server speaks too old a revision to be shared.
    pub(crate) fn is_of_no_use(&self) -> bool {
        !self.has_work() && self.era.as_ref().is_some_and(|era| era.is_old())
    }

    /// Returns changed settings of the route, which apply to later requests.
    pub(crate) fn changed_settings(&mut self) -> Option<FromClient> {
        if !self.watch.has_changed() {
            return None;
        }
        // With the new settings the session may have to end earlier, so the check is due now.
        self.timer.as_mut().reset(Instant::now());
        let state = self.watch.state();
        let shared = self.session.kind == SessionKind::Shared;
        let policy = if shared { &state.shared_policy } else { &state.bridge_policy };
        Some(FromClient::Settings(Arc::clone(policy)))
    }

    /// Whether the route now has another server and the session has no work left.
    pub(crate) fn is_route_retired(&self) -> bool {
        !self.has_work() && self.watch.state().shared.is_retired()
    }

    pub(crate) fn begin_waiting(&mut self, requests: usize) {
        self.waiting += requests;
        self.count_work();
    }

    pub(crate) fn end_waiting(&mut self, requests: usize) {
        self.waiting -= requests;
        self.count_work();
    }

    /// Counts a session with open requests or tasks as work of the route, which waits for such work before it stops.
    pub(crate) fn count_work(&mut self) {
        if self.has_work() {
            let calls = &self.watch.state().shared.calls;
            self.call.get_or_insert_with(|| calls.open());
        } else if self.call.take().is_some() {
            self.session.touch();
        }
    }

    /// Whether a request is unanswered, or a task is known.
    pub(crate) fn has_work(&self) -> bool {
        self.waiting > 0 || self.tasks > 0
    }

    /// Whether a client uses the session. A call whose client has disconnected does not count, because its answer may
    /// never come.
    fn is_in_use(&self) -> bool {
        let is_waiting = || self.open.values().any(|buffer| buffer.is_client_waiting());
        self.tasks > 0
            || self.waiting > 0 && is_waiting()
            || self.session.listening.load(Ordering::Relaxed) > 0
    }

    /// Ready when the session has been without use for too long.
    pub(crate) fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(idle) = Self::idle(self.watch.state()) else { return Poll::Pending };
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let unused = if self.is_in_use() { Duration::ZERO } else { self.session.unused_for() };
            if unused >= idle {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(Instant::now() + (idle - unused));
        }
    }

    /// Ready when the client of the session has been disconnected for too long, and neither an open call nor a kept
    /// answer needs the session.
    pub(crate) fn poll_abandoned(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Upstream::Command(stdio) = &self.watch.state().route.upstream else {
            return Poll::Pending;
        };
        let Some(limit) = stdio.abandoned_timeout.filter(|_| self.is_abandoned()) else {
            return Poll::Pending;
        };
        let unused = self.session.unused_for();
        if unused >= limit {
            return Poll::Ready(());
        }
        let due = Instant::now() + (limit - unused);
        let timer = self.abandoned.get_or_insert_with(|| Box::pin(sleep_until(due)));
        timer.as_mut().reset(due);
        timer.as_mut().poll(cx)
    }

    fn is_abandoned(&self) -> bool {
        self.session.kind == SessionKind::Own
            && self.session.signals.has_left()
            && self.waiting == 0
            && !self.has_tasks
            && !self.session.keeps_answers()
    }

    /// Returns the time without use after which a session of a route ends.
    pub(crate) fn idle(state: &RouteState) -> Option<Duration> {
        match &state.route.upstream {
            Upstream::Command(stdio) => stdio.idle_timeout,
            _ => state.route.session_idle_timeout,
        }
    }
}
