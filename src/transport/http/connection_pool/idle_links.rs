//! The unused connections to one server, and how long the server is known to keep them open.
//!
//! If the server closes a connection at the moment when a request is sent, it is unknown whether the server has read
//! the request, and a POST must not be sent twice. So a connection is reused only while the server is known to keep it
//! open. This module does no I/O.

use std::time::Duration;

use tokio::time::Instant;

use crate::transport::http::keep_alive::KeepAlive;

/// Limit of the unused connections kept open to one server.
const IDLE_MAX: usize = 64;

/// The longest time that an idle connection is kept: servers commonly close idle connections after 5 s, and a request
/// that is sent at that moment is lost.
pub(super) const IDLE_FOR: Duration = Duration::from_secs(3);

/// The time for which a connection must have stayed open while idle before connections to its server are reused without
/// a wait. Servers that close each connection after its response do so within a few milliseconds.
pub(super) const PROVEN_AFTER: Duration = Duration::from_millis(50);

/// The time after which an early close by the server is forgotten.
const REMEMBERED_FOR: Duration = Duration::from_secs(60);

/// One unused connection.
struct KeptLink<L> {
    since: Instant,
    until: Instant,
    link: L,
}

/// The unused connections to one server. The oldest are at the front.
pub(super) struct IdleLinks<L> {
    links: Vec<KeptLink<L>>,
    /// Whether a connection was still open after [`PROVEN_AFTER`], and none has been closed early since.
    is_proven: bool,
    /// Set if the server has closed a connection early: how long connections may be idle, until that moment.
    early: Option<(Duration, Instant)>,
    /// The time of the last warning about early closes.
    told: Option<Instant>,
    /// Whether a task is running that closes the connections when their time is over.
    pub(super) is_watched: bool,
}

impl<L> IdleLinks<L> {
    /// No connections, to a server that may close them at any time.
    pub(super) fn new() -> Self {
        Self { links: Vec::new(), is_proven: false, early: None, told: None, is_watched: false }
    }

    /// No connections, to a server that is known to keep them open.
    pub(super) fn proven() -> Self {
        Self { is_proven: true, ..Self::new() }
    }

    /// Returns the longest time for which a connection may be idle and still be reused.
    fn idle_max(&self, now: Instant) -> Duration {
        self.early.filter(|(_, until)| now < *until).map_or(IDLE_FOR, |(max, _)| max)
    }

    /// Keeps a connection, if it may be reused.
    pub(super) fn keep(&mut self, now: Instant, link: L, promised: &KeepAlive) {
        self.close_old(now);
        let max = self.idle_max(now).min(promised.idle_max().unwrap_or(IDLE_FOR));
        let least = if self.is_proven { Duration::ZERO } else { PROVEN_AFTER };
        if max > least && self.links.len() < IDLE_MAX {
            self.links.push(KeptLink { since: now, until: now + max, link });
        }
    }

    /// Takes a connection and returns it with the time for which it was idle. It may be reused if it is still open; the
    /// caller checks this and calls [`IdleLinks::note_open`] or [`IdleLinks::note_closed`].
    pub(super) fn take(&mut self, now: Instant) -> Option<(Duration, L)> {
        self.close_old(now);
        // If the server has not proved that it keeps connections open, the oldest one can prove it best. Otherwise the
        // newest is taken, which the server is least likely to close now.
        let place = if self.is_proven { self.links.len().checked_sub(1)? } else { 0 };
        let idle = now - self.links.get(place)?.since;
        if !self.is_proven && idle < PROVEN_AFTER {
            return None;
        }
        Some((idle, self.links.remove(place).link))
    }

    /// Notes that a connection was still open after it was idle for this time.
    pub(super) fn note_open(&mut self, idle: Duration) {
        self.is_proven |= idle >= PROVEN_AFTER;
    }

    /// Notes that the server has closed a connection that was idle for this time or less. Returns whether to warn that
    /// connections to the server are no longer reused: at most once a minute.
    pub(super) fn note_closed(&mut self, now: Instant, idle: Duration) -> bool {
        // The server has closed the connection at some time within `idle`; half of that time leaves a margin.
        let max = self.idle_max(now).min(idle / 2);
        self.early = Some((max, now + REMEMBERED_FOR));
        self.is_proven = false;
        if max > PROVEN_AFTER {
            return false;
        }
        self.links.clear();
        let is_news = self.told.is_none_or(|told| now - told >= REMEMBERED_FOR);
        if is_news {
            self.told = Some(now);
        }
        is_news
    }

    /// Closes the connections that have been idle for long enough.
    pub(super) fn close_old(&mut self, now: Instant) {
        let max = self.idle_max(now);
        self.links.retain(|one| now < one.until && now - one.since < max);
    }

    /// Returns the time of the next [`IdleLinks::close_old`]; `None` without connections.
    pub(super) fn next_close(&self) -> Option<Instant> {
        self.links.iter().map(|one| one.until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn keep(links: &mut IdleLinks<u32>, at: Instant, link: u32) {
        links.keep(at, link, &KeepAlive::default());
    }

    #[test]
    fn a_server_has_to_show_that_it_keeps_a_connection() {
        let (mut links, start) = (IdleLinks::new(), Instant::now());
        keep(&mut links, start, 1);
        keep(&mut links, start + 10 * MS, 2);
        assert_eq!(links.take(start + 49 * MS), None);
        let (idle, link) = links.take(start + 50 * MS).unwrap();
        assert_eq!((idle, link), (50 * MS, 1));
        links.note_open(idle);
        keep(&mut links, start + 51 * MS, 1);
        // From now on the newest connection is used, without a wait.
        assert_eq!(links.take(start + 51 * MS), Some((Duration::ZERO, 1)));
    }

    #[test]
    fn connections_to_a_server_that_closes_them_at_once_are_not_used_for_a_minute() {
        let (mut links, start) = (IdleLinks::new(), Instant::now());
        for link in 0..100 {
            keep(&mut links, start, link);
        }
        let (idle, _) = links.take(start + 60 * MS).unwrap();
        assert!(links.note_closed(start + 60 * MS, idle), "told once");
        assert!(!links.note_closed(start + 60 * MS, idle));
        for second in 0..60 {
            let at = start + second * 1000 * MS;
            keep(&mut links, at, 7);
            assert_eq!(links.take(at + 60 * MS), None, "{second}");
        }
        let later = start + 61_000 * MS;
        keep(&mut links, later, 8);
        assert_eq!(links.take(later), None, "it has to show it again");
        assert_eq!(links.take(later + 50 * MS), Some((50 * MS, 8)));
    }

    #[test]
    fn a_server_that_closes_connections_after_a_second_is_asked_on_younger_ones() {
        let (mut links, start) = (IdleLinks::proven(), Instant::now());
        assert!(!links.note_closed(start, 1000 * MS));
        keep(&mut links, start, 1);
        assert_eq!(links.take(start + 499 * MS), Some((499 * MS, 1)));
        keep(&mut links, start, 2);
        assert_eq!(links.take(start + 500 * MS), None);
        assert_eq!(links.next_close(), None);
    }

    #[test]
    fn no_more_connections_are_kept_than_fit() {
        let (mut links, start) = (IdleLinks::proven(), Instant::now());
        for link in 0..1000 {
            keep(&mut links, start, link);
        }
        assert_eq!(links.links.len(), IDLE_MAX);
        assert_eq!(links.next_close(), Some(start + IDLE_FOR));
    }
}
