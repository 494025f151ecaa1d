//! Limits the child starts of one client: a number per minute, and a growing pause for a client that goes on starting.

use std::time::{Duration, Instant};

use crate::transport::clock::growing_pause;

/// The time in which child starts are counted.
const WINDOW: Duration = Duration::from_secs(60);

/// The pause after a client has reached its number of starts. Each further pause is twice as long.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest pause for a client.
const PAUSE_MAX: Duration = WINDOW;

/// The recent starts of one client, as a leaky bucket that empties in a minute.
#[derive(Debug, Default)]
pub(super) struct StartRate {
    /// The level of the bucket, in starts, at the time `counted`.
    level: f64,
    counted: Option<Instant>,
    /// Number of pauses since the bucket was last empty.
    pauses: u32,
    paused_until: Option<Instant>,
}

impl StartRate {
    /// Whether recent starts or pauses still affect the next start.
    pub(super) fn is_needed(&self, now: Instant) -> bool {
        let is_recent = |at| now.saturating_duration_since(at) < WINDOW;
        self.counted.is_some_and(is_recent) || self.paused_until.is_some_and(|until| now < until)
    }

    /// Counts a start, of which `max` per minute are allowed.
    pub(super) fn start(&mut self, max: usize, now: Instant) -> Result<(), Duration> {
        if let Some(until) = self.paused_until.filter(|until| now < *until) {
            return Err(until - now);
        }
        let max = max as f64;
        let since = self.counted.map_or(WINDOW, |counted| now.saturating_duration_since(counted));
        self.level = (self.level - max * since.as_secs_f64() / WINDOW.as_secs_f64()).max(0.0);
        self.counted = Some(now);
        if self.level + 1.0 > max {
            let pause = growing_pause(PAUSE, PAUSE_MAX, self.pauses);
            self.pauses += 1;
            self.paused_until = Some(now + pause);
            return Err(pause);
        }
        if self.level <= 0.0 {
            self.pauses = 0;
        }
        self.level += 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_starts_so_many_in_a_minute_and_waits_longer_the_longer_it_goes_on() {
        let (mut rate, start) = (StartRate::default(), Instant::now());
        for _ in 0..60 {
            rate.start(60, start).unwrap();
        }
        let (mut now, mut started, mut pauses) = (start, 0, Vec::new());
        while pauses.len() < 8 {
            match rate.start(60, now) {
                Ok(()) => started += 1,
                Err(pause) => {
                    pauses.push(pause.as_secs());
                    // A request during the pause does not make the pause longer.
                    assert_eq!(rate.start(60, now), Err(pause));
                    now += pause;
                }
            }
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 1]);
        // One start was allowed for each that drained away in the meantime.
        assert!((122..=124).contains(&started), "{started}");
    }

    #[test]
    fn a_client_that_waits_begins_anew_and_is_forgotten() {
        let (mut rate, start) = (StartRate::default(), Instant::now());
        rate.start(1, start).unwrap();
        assert_eq!(rate.start(1, start), Err(PAUSE));
        assert!(rate.is_needed(start + WINDOW / 2));
        assert!(!rate.is_needed(start + WINDOW));
        rate.start(1, start + WINDOW).unwrap();
        assert_eq!(rate.start(1, start + WINDOW), Err(PAUSE));
    }
}
