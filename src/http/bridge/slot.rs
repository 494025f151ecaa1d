//! The places of sessions that clients of 2026-07-28 share, one for each value of `Authorization`: whether a
//! server runs there, and when another may be started after one that has died.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::session::Session;

/// The pause before a server is started again that has died; it doubles with each death.
const PAUSE_FIRST: Duration = Duration::from_millis(500);

/// The longest.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// A server that has run for so long is no longer held its earlier deaths.
const FORGIVEN_AFTER: Duration = Duration::from_secs(60);

/// Places that are kept in mind although no server runs there.
const EMPTY_MAX: usize = 1024;

#[derive(Default)]
struct State {
    session: Option<Arc<Session>>,
    begun: Option<Instant>,
    deaths: u32,
    /// The last server has died.
    died: Option<Instant>,
}

/// The place of one shared session.
#[derive(Default)]
pub(super) struct Slot {
    /// Held by who starts a server.
    pub(super) starting: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

/// What can be done with a place.
pub(super) enum Found {
    /// A server runs.
    Runs(Arc<Session>),
    /// None runs, and one may be started then.
    StartsAt(Instant),
    /// The one that ran has died, and this is the so-manieth time.
    Died,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is there. `restarts`: a server that has died is started again.
    pub(super) fn find(&self, restarts: bool) -> Found {
        let state = self.lock();
        match (&state.session, state.died) {
            (Some(session), _) => Found::Runs(Arc::clone(session)),
            (None, None) => Found::StartsAt(Instant::now()),
            (None, Some(_)) if !restarts => Found::Died,
            (None, Some(died)) => Found::StartsAt(died + pause(state.deaths)),
        }
    }

    pub(super) fn begun(&self, session: &Arc<Session>) {
        let mut state = self.lock();
        state.session = Some(Arc::clone(session));
        state.begun = Some(Instant::now());
    }

    pub(super) fn over(&self, session: &Session, by_itself: bool) {
        let mut state = self.lock();
        if state.session.as_ref().is_some_and(|found| found.id == session.id) {
            state.session = None;
            if state.begun.is_some_and(|begun| begun.elapsed() >= FORGIVEN_AFTER) {
                state.deaths = 0;
            }
            state.deaths += u32::from(by_itself);
            state.died = by_itself.then(Instant::now);
        }
    }

    fn is_empty(&self) -> bool {
        self.lock().session.is_none()
    }
}

/// The pause after so many deaths: none after the first, which may have been the end of long work.
fn pause(deaths: u32) -> Duration {
    match deaths {
        0 | 1 => Duration::ZERO,
        more => PAUSE_FIRST.saturating_mul(1 << (more - 2).min(16)).min(PAUSE_MAX),
    }
}

/// The places of a route.
#[derive(Default)]
pub(super) struct Slots(Mutex<HashMap<u64, Arc<Slot>>>);

impl Slots {
    pub(super) fn find(&self, caller: u64) -> Arc<Slot> {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.len() >= EMPTY_MAX && !slots.contains_key(&caller) {
            // Who is about to start one holds its place.
            slots.retain(|_, slot| !slot.is_empty() || Arc::strong_count(slot) > 1);
        }
        Arc::clone(slots.entry(caller).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_are_bounded() {
        let told: Vec<u128> = (0..6).map(|deaths| pause(deaths).as_millis()).collect();
        assert_eq!(told, [0, 0, 500, 1000, 2000, 4000]);
        assert_eq!(pause(u32::MAX), PAUSE_MAX);
    }
}
