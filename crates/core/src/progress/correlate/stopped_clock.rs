//! The pauses of a call's time limits while its client has to answer a question of the server.

use std::time::{Duration, Instant};

use smallvec::SmallVec;

use crate::protocol::jsonrpc::Key;

/// Limit of the total time for which the time limits of one call are paused while the client answers questions of the
/// server. A client that never answers must not keep a call open for ever.
pub(crate) const CLOCKS_STILL_MAX: Duration = Duration::from_secs(60 * 60);

/// Limit of a server's open questions that are remembered for one call. Beyond the limit the oldest counts as answered.
const QUESTIONS_MAX: usize = 16;

/// The pauses of one call's time limits. The limits are paused while a question of the server is open.
#[derive(Debug, Clone, Default)]
pub(crate) struct StoppedClock {
    /// The ids of the server's requests that the client has not answered yet.
    open: SmallVec<[Key; 1]>,
    /// The time when the current pause began; `None` if no question is open.
    since: Option<Instant>,
    /// The total length of the earlier pauses.
    stood: Duration,
    /// The time when the last pause ended. Silence after this time is the server's, not the client's.
    pub(crate) resumed: Option<Instant>,
}

impl StoppedClock {
    /// Pauses the time limits, because the server has asked a question. Returns the longest time of the pause; `None`
    /// if the limits are already paused.
    pub(crate) fn stop(&mut self, question: Key, now: Instant) -> Option<Duration> {
        if !self.open.contains(&question) {
            if self.open.len() >= QUESTIONS_MAX {
                self.open.remove(0);
            }
            self.open.push(question);
        }
        // Another question is already open, so the time limits are paused and must not be extended twice.
        if self.since.is_some() {
            return None;
        }
        self.since = Some(now);
        Some(CLOCKS_STILL_MAX.saturating_sub(self.stood))
    }

    /// Notes an answer of the client. If no question is open any more, the time limits continue, and the unused rest of
    /// the longest pause is returned.
    pub(crate) fn go_on(&mut self, answered: &Key, now: Instant) -> Option<Duration> {
        let before = self.open.len();
        // Some clients answer the id 1 with "1".
        self.open.retain(|open| open != answered && !open.respelled(answered));
        if self.open.len() == before || !self.open.is_empty() {
            return None;
        }
        self.stood = self.stood_at(now);
        self.since = None;
        self.resumed = Some(now);
        Some(CLOCKS_STILL_MAX.saturating_sub(self.stood))
    }

    /// Returns the total length of the pauses until `at`.
    pub(crate) fn stood_at(&self, at: Instant) -> Duration {
        let open = self.since.map_or(Duration::ZERO, |since| at.saturating_duration_since(since));
        (self.stood + open).min(CLOCKS_STILL_MAX)
    }

    /// Returns the time when the current pause began; `None` if no question is open.
    pub(crate) fn asked_since(&self) -> Option<Instant> {
        self.since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_stand_still_while_a_question_is_open_and_not_for_ever() {
        let (start, seconds) = (Instant::now(), Duration::from_secs);
        let at = |after| start + seconds(after);
        let mut clock = StoppedClock::default();
        assert_eq!(clock.stop(Key::Integer(1), at(10)), Some(CLOCKS_STILL_MAX));
        assert_eq!(clock.stop(Key::Integer(2), at(20)), None);
        assert_eq!(clock.stood_at(at(30)), seconds(20));
        assert_eq!(clock.go_on(&Key::Integer(3), at(30)), None);
        assert_eq!(clock.go_on(&Key::Integer(1), at(30)), None);
        assert_eq!(clock.go_on(&Key::Integer(2), at(40)), Some(CLOCKS_STILL_MAX - seconds(30)));
        assert_eq!((clock.stood_at(at(99)), clock.asked_since()), (seconds(30), None));
        assert_eq!(clock.stop(Key::Integer(1), at(100)), Some(CLOCKS_STILL_MAX - seconds(30)));
        assert_eq!(clock.stood_at(at(100_000)), CLOCKS_STILL_MAX);
    }

    #[test]
    fn the_oldest_question_makes_room() {
        let start = Instant::now();
        let mut clock = StoppedClock::default();
        let asked = QUESTIONS_MAX as i64 + 1;
        for id in 0..asked {
            clock.stop(Key::Integer(id), start);
        }
        assert_eq!(clock.open.len(), QUESTIONS_MAX);
        for id in 1..asked {
            clock.go_on(&Key::Integer(id), start);
        }
        assert_eq!(clock.asked_since(), None);
    }
}
