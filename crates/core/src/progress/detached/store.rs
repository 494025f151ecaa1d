//! The store of work that continues without the client that asked for it: tasks, and calls that their clients gave up.
//!
//! ```text
//!  running ──answer──> answered ──its client fetches it──> fetched
//!     └───────────────────┴──── `until` is over ─────────────┴──> forgotten
//! ```

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};
use std::time::{Duration, Instant};

use crate::protocol::jsonrpc::{Key, Message};

/// Limit of the late calls of one connection; also of its tasks of 2025-11-25, and of its tasks of 2026-07-28, each
/// counted separately. Beyond the limit the oldest task whose client has had the answer is forgotten. If there is none,
/// a call that its client gives up is cancelled at the server, a request for a task gets an error, and a slow call of
/// 2026-07-28 does not become a task.
const WORK_MAX: usize = 256;

/// An answer whose size is counted while it is kept.
pub trait KeptBytes {
    /// Returns the number of bytes that the answer occupies.
    fn kept_bytes(&self) -> usize;
}

impl KeptBytes for Message {
    fn kept_bytes(&self) -> usize {
        self.raw().len()
    }
}

/// The state of some work.
#[derive(Debug)]
enum WorkState<A> {
    /// The server is working.
    Running,
    /// The answer waits for the client.
    Answered(A),
    /// The client has had the answer, and may ask for it again.
    Fetched(A),
}

/// A call whose work continues without its client. `D`: further data; `A`: the kind of answer that is kept.
#[derive(Debug)]
pub struct Work<D, A> {
    /// The id by which the server knows the call.
    pub server_id: Key,
    /// The time when the work began.
    pub began: Instant,
    /// The deadline after which the work is forgotten, and its answer can no longer be fetched.
    pub until: Instant,
    /// Further data about the work.
    pub details: D,
    state: WorkState<A>,
}

impl<D, A> Work<D, A> {
    /// Returns new work that runs from `began` to `until` at the latest.
    pub fn new(server_id: Key, began: Instant, until: Instant, details: D) -> Self {
        Self { server_id, began, until, details, state: WorkState::Running }
    }

    /// Whether the server is still working.
    pub fn is_running(&self) -> bool {
        matches!(self.state, WorkState::Running)
    }

    /// Whether the work runs, or has an answer that its client has not had.
    pub fn is_open(&self) -> bool {
        !matches!(self.state, WorkState::Fetched(_))
    }

    /// Returns the answer, once it has arrived.
    pub fn answer(&self) -> Option<&A> {
        match &self.state {
            WorkState::Running => None,
            WorkState::Answered(answer) | WorkState::Fetched(answer) => Some(answer),
        }
    }

    /// Keeps the answer of finished work.
    pub fn finish(&mut self, answer: A) {
        self.state = WorkState::Answered(answer);
    }

    /// Notes that the client has got the answer. Returns false if the client already had it, or if there is none.
    pub fn fetch(&mut self) -> bool {
        // `Running` is only a placeholder while the answer moves from one state to the other.
        match std::mem::replace(&mut self.state, WorkState::Running) {
            WorkState::Answered(answer) => {
                self.state = WorkState::Fetched(answer);
                true
            }
            state => {
                self.state = state;
                false
            }
        }
    }

    /// Returns the time since the work began.
    pub fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began)
    }

    /// Returns the time to live, counted from the beginning of the work.
    pub fn ttl(&self) -> Duration {
        self.until.saturating_duration_since(self.began)
    }
}

/// The work of one connection that continues without its clients, oldest first, at most 256 items.
#[derive(Debug)]
pub struct WorkStore<D, A> {
    works: VecDeque<Work<D, A>>,
}

impl<D, A> Default for WorkStore<D, A> {
    fn default() -> Self {
        Self { works: VecDeque::new() }
    }
}

impl<D, A: KeptBytes> WorkStore<D, A> {
    /// Whether there is room for more work.
    pub fn has_room(&self) -> bool {
        self.works.len() < WORK_MAX
    }

    /// Makes room for more work: forgets the oldest work whose client has had the answer. Returns false if there is
    /// none.
    pub fn make_room(&mut self) -> bool {
        self.has_room() || self.forget_fetched()
    }

    /// Makes room for an answer of `bytes` if all answers together may have `most` bytes. Forgets work whose client has
    /// had the answer, oldest first. Returns false if that is not enough.
    pub fn make_bytes(&mut self, bytes: usize, most: usize) -> bool {
        while self.bytes() + bytes > most {
            // Only answers that their clients have fetched are forgotten. Any other answer would be lost.
            if !self.forget_fetched() {
                return false;
            }
        }
        true
    }

    /// Forgets the oldest work whose client has had the answer. Returns false if there is none.
    fn forget_fetched(&mut self) -> bool {
        self.take(|work| !work.is_open()).is_some()
    }

    /// Adds work as the newest.
    pub fn add(&mut self, work: Work<D, A>) {
        self.works.push_back(work);
    }

    /// Returns all work, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Work<D, A>> + ExactSizeIterator + Clone {
        self.works.iter()
    }

    /// Returns all work, oldest first.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Work<D, A>> {
        self.works.iter_mut()
    }

    /// Returns the running work whose call the server knows by this id.
    pub fn running(&self, id: &Key) -> Option<&Work<D, A>> {
        self.works.iter().find(|work| work.is_running() && work.server_id == *id)
    }

    /// Returns the running work whose call the server knows by this id.
    pub fn running_mut(&mut self, id: &Key) -> Option<&mut Work<D, A>> {
        self.works.iter_mut().find(|work| work.is_running() && work.server_id == *id)
    }

    /// Returns the position of the oldest work for which `is_meant` is true.
    pub fn place_of(&self, is_meant: impl FnMut(&Work<D, A>) -> bool) -> Option<usize> {
        self.works.iter().position(is_meant)
    }

    /// Removes and returns the work at a position.
    pub fn take_at(&mut self, place: usize) -> Option<Work<D, A>> {
        self.works.remove(place)
    }

    /// Removes and returns the oldest work for which `is_meant` is true.
    pub fn take(&mut self, is_meant: impl FnMut(&Work<D, A>) -> bool) -> Option<Work<D, A>> {
        self.works.remove(self.place_of(is_meant)?)
    }

    /// Removes and returns the running work whose call the server knows by this id.
    pub fn take_running(&mut self, id: &Key) -> Option<Work<D, A>> {
        self.take(|work| work.is_running() && work.server_id == *id)
    }

    /// Removes and returns all work for which `is_meant` is true.
    pub fn take_if(&mut self, is_meant: impl Fn(&Work<D, A>) -> bool) -> Vec<Work<D, A>> {
        // Usually nothing is due when this is polled. The early return avoids an allocation.
        if !self.works.iter().any(&is_meant) {
            return Vec::new();
        }
        let works = std::mem::take(&mut self.works);
        let (taken, rest): (Vec<_>, Vec<_>) = works.into_iter().partition(is_meant);
        self.works = rest.into();
        taken
    }

    /// Removes and returns the work whose deadline has passed.
    pub fn take_over(&mut self, now: Instant) -> Vec<Work<D, A>> {
        self.take_if(|work| work.until <= now)
    }

    /// Removes and returns all work.
    pub fn take_all(&mut self) -> Vec<Work<D, A>> {
        std::mem::take(&mut self.works).into()
    }

    /// Returns the number of bytes of the answers that are kept.
    pub fn bytes(&self) -> usize {
        self.works.iter().filter_map(Work::answer).map(KeptBytes::kept_bytes).sum()
    }

    /// Whether the store is empty.
    pub fn is_empty(&self) -> bool {
        self.works.is_empty()
    }

    /// Returns the time at which the next work is forgotten.
    pub fn next_due(&self) -> Option<Instant> {
        self.works.iter().map(|work| work.until).min()
    }
}

impl<D, A> Index<usize> for WorkStore<D, A> {
    type Output = Work<D, A>;

    fn index(&self, place: usize) -> &Work<D, A> {
        &self.works[place]
    }
}

impl<D, A> IndexMut<usize> for WorkStore<D, A> {
    fn index_mut(&mut self, place: usize) -> &mut Work<D, A> {
        &mut self.works[place]
    }
}
