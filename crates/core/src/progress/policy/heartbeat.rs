//! The settings of heartbeats.

use std::time::Duration;

/// The value of a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HeartbeatValue {
    /// The smallest step above the last value.
    #[default]
    Lift,
    /// Seconds since the call began.
    Elapsed,
}

/// When a silent call gets heartbeats, and with which value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heartbeat {
    /// Whether calls get heartbeats.
    pub enabled: bool,
    /// The silence before the first heartbeat.
    pub after: Duration,
    /// The time between later heartbeats. It is doubled once the server has sent a message for the call.
    pub every: Duration,
    /// The age of a call at which its heartbeats end. The time in which its client was asked a question does not count.
    pub max: Duration,
    /// The value of a heartbeat.
    pub value: HeartbeatValue,
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self {
            enabled: true,
            after: Duration::from_secs(2),
            every: Duration::from_secs(5),
            max: Duration::from_secs(30 * 60),
            value: HeartbeatValue::Lift,
        }
    }
}

impl Heartbeat {
    /// The same conditions for a client that gives calls up at the age `limit`. Times that the settings leave at their
    /// defaults become at most a quarter of the limit, so that the doubled time is at most half of it.
    pub(crate) fn within(self, limit: Option<Duration>) -> Self {
        let Some(limit) = limit else { return self };
        let default = Self::default();
        let shorter = |time: Duration, default: Duration| match time == default {
            true => time.min(limit / 4),
            false => time,
        };
        Self {
            after: shorter(self.after, default.after),
            every: shorter(self.every, default.every),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_default_times_follow_the_limit_of_a_client() {
        let seconds = Duration::from_secs_f64;
        let times = |heartbeat: Heartbeat, limit: Option<f64>| {
            let within = heartbeat.within(limit.map(seconds));
            (within.after.as_secs_f64(), within.every.as_secs_f64())
        };
        let default = Heartbeat::default();
        assert_eq!(times(default, None), (2.0, 5.0));
        assert_eq!(times(default, Some(60.0)), (2.0, 5.0));
        assert_eq!(times(default, Some(10.0)), (2.0, 2.5));
        assert_eq!(times(default, Some(6.0)), (1.5, 1.5));
        let written = Heartbeat { every: seconds(8.0), ..default };
        assert_eq!(times(written, Some(6.0)), (1.5, 8.0));
    }
}
