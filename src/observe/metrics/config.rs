//! Metrics about the route file.

use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Unit;

use super::Register;

/// The result of reading the route file again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    /// The new file is in effect.
    Taken,
    /// The file has not changed.
    Unchanged,
    /// The file is invalid: the previous settings stay in effect.
    Refused,
}

impl Reload {
    const ALL: [Self; 3] = [Self::Taken, Self::Unchanged, Self::Refused];

    /// Returns the name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Taken => "taken",
            Self::Unchanged => "unchanged",
            Self::Refused => "refused",
        }
    }
}

/// The counts of reloads of the route file, by result.
#[derive(Debug)]
pub struct Config {
    reloads: [Counter; 3],
    last_taken: Gauge,
    is_good: Gauge,
}

impl Config {
    pub(super) fn new(to: &mut Register) -> Self {
        let reloads = to.counters(
            "config_reloads",
            "Reloads of the route file, by outcome: taken, unchanged, refused",
        );
        let reloads = Reload::ALL.map(|outcome| {
            reloads.get_or_create_owned(&vec![("outcome", outcome.name().to_owned())])
        });
        let last_taken = Gauge::default();
        let help = "Time when the current settings were applied, in seconds since 1970";
        to.registry.register_with_unit(
            "config_last_taken_timestamp",
            help,
            Unit::Seconds,
            last_taken.clone(),
        );
        let is_good = Gauge::default();
        let help = "Result of the last reload of the route file: 1 applied or unchanged, 0 refused";
        to.registry.register("config_last_reload_successful", help, is_good.clone());
        let config = Self { reloads, last_taken, is_good };
        config.hold();
        config
    }

    /// Notes that the settings just read are now in effect.
    fn hold(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.last_taken.set(i64::try_from(now).unwrap_or(i64::MAX));
        self.is_good.set(1);
    }

    /// Counts that the route file was read again, with the result.
    pub fn record_reload(&self, outcome: Reload) {
        if let Some(counter) = self.reloads.get(outcome as usize) {
            counter.inc();
        }
        match outcome {
            Reload::Taken => self.hold(),
            Reload::Unchanged => drop(self.is_good.set(1)),
            Reload::Refused => drop(self.is_good.set(0)),
        }
    }

    /// Marks the file as valid. Called if a refused file was changed back to the settings in effect.
    pub fn mark_good(&self) {
        self.is_good.set(1);
    }
}
