//! The pace of a client that reads a response: whether the client is slow or reads nothing, and when the next comment
//! is due.
//!
//! The listener's connection reports slowness, because data in buffers is old before the client reads it. While a
//! client is blocked, the server is not read for it, so that the server waits. A client that is behind for 5 s gets
//! less progress until it has kept up for a second, or for a minute if it falls behind again. Other messages are never
//! dropped.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use crate::transport::http::write_state::WriteState;

/// The time after which a client counts as behind because it has neither read the last bytes nor asked for more.
const BEHIND_AFTER: Duration = Duration::from_millis(50);

/// The time for which a client must be behind to count as slow. Until then the server waits for the client, as it would
/// without a proxy, and no progress is dropped.
const SLOW_AFTER: Duration = Duration::from_secs(5);

/// The time for which a client must keep up to count as neither behind nor slow.
const CAUGHT_UP_AFTER: Duration = Duration::from_secs(1);

/// A client that was slow and falls behind again within this time counts as slow immediately, because it can only keep
/// up with reduced progress.
const RELAPSE_WITHIN: Duration = Duration::from_secs(10);

/// The time for which a client that became slow again must keep up until it counts as fast. If it counted as fast too
/// early, it would read old messages before its slowness is noticed.
const CAUGHT_UP_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// The silence after which a stream on which a client only listens begins with a comment: some fronts delay the head of
/// a response until a byte of its body arrives.
const FIRST_COMMENT_AFTER: Duration = Duration::from_millis(100);

/// The interval of checks whether a client that reads nothing has begun to read; the server is not read in between.
const BLOCKED_FOR: Duration = Duration::from_millis(20);

/// The pace of one client.
pub(crate) struct ClientPacing {
    write_state: WriteState,
    timer: Option<Pin<Box<Sleep>>>,
    /// The time without a byte after which a comment is due.
    keep_alive: Option<Duration>,
    /// Whether the client only listens, and has got nothing yet.
    is_new_listener: bool,
    /// The time of the last write.
    written: Instant,
    /// The time when the client got bytes, if it has not asked for more since.
    waiting_since: Option<Instant>,
    /// Whether the connection has been asked once if it has taken these bytes.
    asked: bool,
    /// The first and the last time at which the client was behind.
    behind: Option<(Instant, Instant)>,
    slow: bool,
    /// The time when the client last stopped being slow.
    recovered: Option<Instant>,
    /// Whether the client was slow, kept up with reduced progress, and fell behind again.
    relapsed: bool,
    blocked_since: Option<Instant>,
}

impl ClientPacing {
    pub(crate) fn new(write_state: WriteState, keep_alive: Option<Duration>) -> Self {
        Self {
            write_state,
            timer: None,
            keep_alive,
            is_new_listener: false,
            written: Instant::now(),
            waiting_since: None,
            asked: false,
            behind: None,
            slow: false,
            recovered: None,
            relapsed: false,
            blocked_since: None,
        }
    }

    /// Whether comments are written during silence, to keep the client's connection alive.
    pub(crate) fn has_comments(&self) -> bool {
        self.keep_alive.is_some()
    }

    pub(crate) fn is_slow(&self) -> bool {
        self.slow
    }

    /// Notes that the client only listens, so that a stream that begins with silence gets its first comment soon.
    pub(crate) fn begin_listening(&mut self) {
        self.is_new_listener = true;
    }

    /// Notes that bytes are given to the client now.
    pub(crate) fn give(&mut self) {
        let now = Instant::now();
        // The head of the response is sent with these bytes, so no early comment is needed.
        self.is_new_listener = false;
        self.written = now;
        // The time of the oldest bytes: a client that takes each piece late must not look fast with every piece.
        self.waiting_since.get_or_insert(now);
        self.asked = false;
    }

    /// Returns the time when a comment is due.
    pub(crate) fn comment_due(&self) -> Option<Instant> {
        let first = if self.is_new_listener { FIRST_COMMENT_AFTER } else { Duration::MAX };
        self.keep_alive.map(|after| self.written + after.min(first))
    }

    /// Notes that a comment is written now, which ends the silence.
    pub(crate) fn comment(&mut self) {
        self.is_new_listener = false;
        self.written = Instant::now();
    }

    /// Sets the client that reads from now on, and the silence after which it gets a comment.
    pub(crate) fn set_client(&mut self, write_state: WriteState, keep_alive: Option<Duration>) {
        (self.write_state, self.keep_alive) = (write_state, keep_alive);
        // After the hand-over the client waits on a silent stream, like a new client.
        self.begin_listening();
        self.written = Instant::now();
    }

    /// Waits for a time; returns true if it has come.
    pub(crate) fn is_due(&mut self, due: Instant, cx: &mut Context<'_>) -> bool {
        // The timer is moved instead of being created again, because each silent stream has a timer for comments and
        // each byte moves it.
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
        if timer.deadline() != due {
            timer.as_mut().reset(due);
        }
        timer.as_mut().poll(cx).is_ready()
    }

    /// Waits until a blocked client must be checked again, because the writer gives no signal when writing continues.
    pub(crate) fn is_blocked_over(&mut self, cx: &mut Context<'_>) -> bool {
        self.is_due(Instant::now() + BLOCKED_FOR, cx)
    }

    /// Notes that the client has been behind since then. Returns true if the client is slow from now on.
    fn fall_behind(&mut self, since: Instant) -> bool {
        let now = Instant::now();
        // The two times are less than a second apart, so the client has not caught up in between.
        let still = self.behind.filter(|(_, last)| since < *last + CAUGHT_UP_AFTER);
        let first = still.map_or(since, |(first, _)| first);
        self.behind = Some((first, now));
        if self.slow {
            return false;
        }
        self.relapsed = self.recovered.is_some_and(|at| now < at + RELAPSE_WITHIN);
        self.slow = self.relapsed || now >= first + SLOW_AFTER;
        self.slow
    }

    /// Notices a client that reads too slowly, and a client that has caught up. A connection that is full only for a
    /// moment is normal. Returns whether the state has changed.
    pub(crate) fn watch(&mut self) -> bool {
        let now = Instant::now();
        // The connection asks for more now. If it asks late, the client was behind until now.
        let late = self.waiting_since.take().filter(|since| now >= *since + BEHIND_AFTER);
        self.blocked_since = match self.blocked_since {
            _ if !self.write_state.is_blocked() => None,
            None => Some(now),
            since => since,
        };
        let stuck = self.blocked_since.filter(|_| self.is_stuck());
        match late.or(stuck) {
            Some(since) => self.fall_behind(since),
            None => self.keeps_up(),
        }
    }

    /// Whether a slow client has kept up long enough to count as fast again.
    pub(crate) fn keeps_up(&mut self) -> bool {
        let now = Instant::now();
        let patience =
            if self.slow && self.relapsed { CAUGHT_UP_AGAIN_AFTER } else { CAUGHT_UP_AFTER };
        if self.behind.is_none_or(|(_, last)| now < last + patience) {
            return false;
        }
        self.behind = None;
        let was_slow = std::mem::take(&mut self.slow);
        if was_slow {
            self.recovered = Some(now);
        }
        was_slow
    }

    /// Whether the client has read nothing for a while, or is slow and has read nothing just now.
    pub(crate) fn is_stuck(&self) -> bool {
        // If a slow client's connection is full, that is more than a short delay.
        let patience = if self.is_slow() { Duration::ZERO } else { BEHIND_AFTER };
        self.blocked_since.is_some_and(|since| Instant::now() >= since + patience)
    }

    /// Finds out whether the client has taken the given bytes. Ready with `false` if nothing was given. A request for
    /// more only shows that there is room; an attempt to write shows whether the connection has taken the bytes. `slow`
    /// is called if the client becomes slow.
    pub(crate) fn poll_taken(&mut self, cx: &mut Context<'_>, slow: impl FnOnce()) -> Poll<bool> {
        let Some(waiting_since) = self.waiting_since else { return Poll::Ready(false) };
        if !std::mem::replace(&mut self.asked, true) {
            // The task wakes itself, so that hyper tries to write before the next poll reads the write state.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if Instant::now() >= waiting_since + BEHIND_AFTER && self.fall_behind(waiting_since) {
            slow();
        }
        // If the timer has already expired, it must be set again, or the stream would never be woken.
        while self.write_state.is_blocked() {
            if !self.is_blocked_over(cx) {
                return Poll::Pending;
            }
        }
        self.waiting_since = None;
        Poll::Ready(true)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    /// Checks the client every 10 ms for a time. Returns whether the client is slow at the end.
    async fn watched(
        pacing: &mut ClientPacing,
        state: &WriteState,
        is_blocked: bool,
        ms: u64,
    ) -> bool {
        state.block(is_blocked);
        for _ in 0..ms / 10 {
            advance(Duration::from_millis(10)).await;
            pacing.watch();
        }
        pacing.is_slow()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_falls_behind_again_is_slow_at_once_and_for_a_minute() {
        let state = WriteState::default();
        let mut pacing = ClientPacing::new(state.clone(), None);
        assert!(!watched(&mut pacing, &state, true, 4900).await);
        assert!(watched(&mut pacing, &state, true, 300).await);
        assert!(watched(&mut pacing, &state, false, 900).await);
        assert!(!watched(&mut pacing, &state, false, 200).await);
        assert!(watched(&mut pacing, &state, true, 100).await);
        assert!(watched(&mut pacing, &state, false, 59_000).await);
        assert!(!watched(&mut pacing, &state, false, 1200).await);
        // The client has kept up for long enough to count as fast.
        assert!(!watched(&mut pacing, &state, false, 20_000).await);
        assert!(!watched(&mut pacing, &state, true, 4900).await);
    }
}
