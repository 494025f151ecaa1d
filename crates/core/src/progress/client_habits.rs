//! What is learned about clients that give calls up: after which time, and whether they come back for the result.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Limit of the clients of one route whose habits are remembered. The client unused for longest is replaced.
pub const CLIENTS_MAX: usize = 64;

/// Number of ages of calls that are remembered until two are alike. With several, the calls that a person cancels in
/// between do not displace an age at which the client's own clock ran out.
const AGES: usize = 4;

/// The lowest age, in milliseconds, at which a client's own clock can run out. Younger calls are given up by people.
const CLOCK_MIN: u32 = 1000;

/// Number of calls in a row that have to outlive a client's clock before the clock is forgotten.
const OUTLIVED_ENOUGH: u8 = 3;

/// Number of times in a row that a client may fail to call again when told to, before it is told no more.
const IN_VAIN_ENOUGH: u8 = 2;

/// Number of times in a row that a client has to repeat a call which it has left open, before it counts as a client
/// that never cancels. A single repetition may come from a client that wants the work twice.
const LEFT_OPEN_ENOUGH: u8 = 2;

/// Something that a client did, or did not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Habit {
    /// The client's own clock ran out for a call of this age, in milliseconds, and the client gave the call up.
    GivenUp(u32),
    /// The client waited for an answer for this time, in milliseconds.
    Lived(u32),
    /// The client was told to call again, and did not.
    ToldInVain,
    /// The client came back for the result of a call that it had given up.
    CameBack,
    /// The client repeated a call that it had left open.
    LeftOpen,
}

/// The habits of one client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientHabits {
    /// The age in milliseconds at which the client gives calls up, if it is known.
    pub clock: Option<u32>,
    /// Ages in milliseconds at which calls were given up, the newest first; zero for none.
    pub ages: [u32; AGES],
    /// Calls in a row that lived longer than the clock.
    pub outlived: u8,
    /// Times in a row that the client was told to call again, and did not.
    pub told_in_vain: u8,
    /// Times in a row that the client repeated a call which it had left open.
    pub left_open: u8,
}

impl ClientHabits {
    /// Learns from one event. Returns whether anything was learned.
    pub fn note(&mut self, habit: Habit) -> bool {
        match habit {
            Habit::GivenUp(age) => self.note_given_up(age),
            Habit::Lived(age) => return self.note_lived(age),
            Habit::ToldInVain => self.told_in_vain = self.told_in_vain.saturating_add(1),
            Habit::CameBack => self.told_in_vain = 0,
            Habit::LeftOpen => self.left_open = self.left_open.saturating_add(1),
        }
        true
    }

    /// Combines these habits with what was learned earlier.
    pub fn precede(&mut self, older: &Self) {
        let mut all = *older;
        for age in self.ages.into_iter().rev().filter(|age| *age > 0) {
            all.note_given_up(age);
        }
        all.told_in_vain = all.told_in_vain.saturating_add(self.told_in_vain);
        all.left_open = all.left_open.saturating_add(self.left_open);
        all.clock = self.clock.or(all.clock);
        *self = all;
    }

    /// Returns the age at which the client gives calls up, if known.
    pub fn gives_up_after(&self) -> Option<Duration> {
        self.clock.map(|millis| Duration::from_millis(millis.into()))
    }

    /// Returns the age of a call at which the client has to be answered so that the answer comes before the client's
    /// clock runs out.
    pub(crate) fn told_at(&self) -> Option<Duration> {
        self.gives_up_after().map(|clock| clock * 85 / 100)
    }

    /// Whether the client is told to call again. It is not told after it has failed to do so twice in a row.
    pub fn is_told(&self) -> bool {
        self.told_in_vain < IN_VAIN_ENOUGH
    }

    /// Whether the client gives calls up without a cancellation, and repeats them.
    pub fn leaves_calls_open(&self) -> bool {
        self.left_open >= LEFT_OPEN_ENOUGH
    }

    fn note_given_up(&mut self, age: u32) {
        // A client that gives a call up by a cancellation does not leave calls open.
        self.left_open = 0;
        if age < CLOCK_MIN {
            return;
        }
        match self.clock {
            Some(clock) if is_same(age, clock) => self.outlived = 0,
            _ => {
                self.note_lived(age);
                let same = self.ages.into_iter().find(|other| *other > 0 && is_same(age, *other));
                if let Some(other) = same {
                    // The smaller age is kept, because an answer that comes too early does no harm.
                    self.clock = Some(age.min(other));
                    (self.ages, self.outlived) = ([0; AGES], 0);
                    return;
                }
                self.ages.rotate_right(1);
                if let Some(first) = self.ages.first_mut() {
                    *first = age;
                }
            }
        }
    }

    fn note_lived(&mut self, age: u32) -> bool {
        let is_longer = self.clock.is_some_and(|clock| age > clock && !is_same(age, clock));
        if is_longer {
            self.outlived += 1;
            if self.outlived >= OUTLIVED_ENOUGH {
                (self.clock, self.outlived) = (None, 0);
            }
        }
        is_longer
    }
}

/// Whether two ages differ by at most 10 % of the larger one.
fn is_same(a: u32, b: u32) -> bool {
    a.abs_diff(b) <= a.max(b) / 10
}

/// A listener that gets each event from which something was learned, with the name under which the client is
/// remembered.
type HabitListener = Box<dyn Fn(&str, Habit) + Send + Sync>;

/// What was learned about the clients of one route. All filters of the route share it.
#[derive(Default)]
pub struct LearnedClients {
    clients: Mutex<BTreeMap<Box<str>, KnownClient>>,
    listener: Option<HabitListener>,
}

#[derive(Default)]
struct KnownClient {
    habits: ClientHabits,
    used: u64,
}

impl LearnedClients {
    /// Begins without clients, and reports each event to `listener`. The listener is called while messages pass, and
    /// must not wait.
    pub fn with_listener(listener: impl Fn(&str, Habit) + Send + Sync + 'static) -> Self {
        Self { clients: Mutex::default(), listener: Some(Box::new(listener)) }
    }

    /// Learns from an event.
    pub fn note(&self, client: &str, habit: Habit) {
        // A client is added with the first event that is more than an answer: clients can have any names, and names of
        // clients that never give up must not fill the table.
        let enters = !matches!(habit, Habit::Lived(_) | Habit::CameBack);
        let is_new = self.with(client, enters, |habits| habits.note(habit)).unwrap_or(false);
        if is_new && let Some(listener) = &self.listener {
            listener(client, habit);
        }
    }

    /// Adds earlier habits.
    pub fn remember(&self, client: &str, older: &ClientHabits) {
        self.with(client, true, |habits| habits.precede(older));
    }

    /// The habits of a client, as far as they are known.
    pub fn of(&self, client: &str) -> ClientHabits {
        self.lock().get(client).map(|known| known.habits).unwrap_or_default()
    }

    fn with<T>(
        &self,
        client: &str,
        enters: bool,
        change: impl FnOnce(&mut ClientHabits) -> T,
    ) -> Option<T> {
        let mut clients = self.lock();
        let used = clients.values().map(|known| known.used).max().unwrap_or_default() + 1;
        if !clients.contains_key(client) {
            if !enters {
                return None;
            }
            if clients.len() >= CLIENTS_MAX {
                let oldest = clients.iter().min_by_key(|(_, known)| known.used);
                let oldest = oldest.map(|(name, _)| name.clone());
                oldest.and_then(|name| clients.remove(&name));
            }
            clients.insert(client.into(), KnownClient::default());
        }
        let known = clients.get_mut(client)?;
        known.used = used;
        Some(change(&mut known.habits))
    }

    /// Locks the clients. A poisoned lock is used all the same: a panic while it was held leaves out one event at
    /// worst.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Box<str>, KnownClient>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for LearnedClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LearnedClients")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads events: `5.0` is a call given up after 5 s, `+9` a call that was answered after 9 s.
    fn learn(events: &str) -> ClientHabits {
        let mut habits = ClientHabits::default();
        for event in events.split_whitespace() {
            let millis = |text: &str| (text.parse::<f64>().unwrap() * 1e3) as u32;
            habits.note(match event {
                "vain" => Habit::ToldInVain,
                "back" => Habit::CameBack,
                "open" => Habit::LeftOpen,
                _ => match event.strip_prefix('+') {
                    Some(lived) => Habit::Lived(millis(lived)),
                    None => Habit::GivenUp(millis(event)),
                },
            });
        }
        habits
    }

    #[test]
    fn two_calls_given_up_at_the_same_age_are_a_clock() {
        for (events, clock) in [
            ("5", None),
            ("5 5.2", Some(5000)),
            ("5.2 5", Some(5000)),
            ("5 5.6", None),
            ("60 60.1", Some(60_000)),
            ("0.5 0.5", None),
            // A person cancels calls in between.
            ("5 2.3 5.1", Some(5000)),
            ("5 2.3 7 11 5.1", Some(5000)),
            ("5 2.3 7 11 17 5.1", None),
            ("5 5 2.3", Some(5000)),
            // The limit of the client was changed.
            ("5 5 30 30", Some(30_000)),
            ("30 30 5 5", Some(5000)),
        ] {
            assert_eq!(learn(events).clock, clock, "{events}");
        }
        assert_eq!(learn("5 5").told_at(), Some(Duration::from_millis(4250)));
    }

    #[test]
    fn three_calls_that_lived_longer_unlearn_a_clock() {
        for (events, clock) in [
            ("5 5 +9 +9", Some(5000)),
            ("5 5 +9 +9 +9", None),
            ("5 5 +5.4 +5.4 +5.4", Some(5000)),
            ("5 5 +1 +2 +3", Some(5000)),
            ("5 5 +9 +9 5 +9 +9", Some(5000)),
            ("5 5 +9 17 +9", None),
        ] {
            assert_eq!(learn(events).clock, clock, "{events}");
        }
    }

    #[test]
    fn a_client_that_does_not_come_back_is_told_twice() {
        for (events, is_told) in [
            ("", true),
            ("vain", true),
            ("vain vain", false),
            ("vain back vain", true),
            ("vain vain back", true),
        ] {
            assert_eq!(learn(events).is_told(), is_told, "{events}");
        }
    }

    #[test]
    fn a_client_that_cancels_does_not_leave_calls_open() {
        for (events, leaves) in
            [("", false), ("open", false), ("open open", true), ("open 5 open", false)]
        {
            assert_eq!(learn(events).leaves_calls_open(), leaves, "{events}");
        }
    }

    #[test]
    fn what_was_learned_earlier_counts() {
        for (older, newer, clock, is_told) in [
            ("5", "5", Some(5000), true),
            ("5 5", "9", Some(5000), true),
            ("5 5", "9 9", Some(9000), true),
            ("vain", "vain", None, false),
            ("vain vain", "", None, false),
        ] {
            let mut habits = learn(newer);
            habits.precede(&learn(older));
            assert_eq!((habits.clock, habits.is_told()), (clock, is_told), "{older} | {newer}");
        }
    }

    #[test]
    fn clients_are_bounded_and_the_unused_one_goes() {
        let learned = LearnedClients::default();
        for number in 0..=CLIENTS_MAX {
            learned.note(&format!("c{number}"), Habit::LeftOpen);
            learned.note("c0", Habit::CameBack);
        }
        assert_eq!((learned.of("c0").left_open, learned.of("c1").left_open), (1, 0));
        assert_eq!(learned.lock().len(), CLIENTS_MAX);
    }
}
