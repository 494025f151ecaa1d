//! One client stream: the messages that wait there, and when each of them may be written.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use crate::progress::event::request_origin::RequestOrigin;
use crate::progress::few_map::FewMap;
use crate::progress::ids::CallId;
use crate::progress::payload::{Form, Fragment, Payload, Transmit, TransmitKind};
use crate::progress::policy::StreamPacing;
use crate::progress::transmit_queue::TransmitQueue;
use crate::progress::verdict::{Reason, Verdict};
use crate::protocol::jsonrpc::Key;

/// Limit of the bytes that wait to be written on one stream. Beyond the limit the server is not read until the client
/// has read.
pub const QUEUE_MAX: usize = 1 << 20;

/// The kind of a client stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamKind {
    /// Carries messages of every request of its client or session, such as stdio or a GET stream.
    Shared,
    /// Carries the messages of one HTTP request, and its answer.
    Exchange,
}

/// Determines when an answer may be written: a pause after the last notification of its request.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Guard {
    /// The time when the last notification was written.
    pub(crate) last: Option<Instant>,
    /// The call whose notification was taken by the shell but is not written yet.
    pub(crate) unwritten: Option<CallId>,
    /// The order number of the request's last progress in the queue, after which the answer is written; 0 if there is
    /// none.
    pub(crate) behind: u64,
    /// The shortest time between the notification and the answer.
    pub(crate) wait: Duration,
}

impl Guard {
    /// Returns the time before which an answer outside the queue may not be written; `None` if it may be written now.
    pub(crate) fn not_before(&self, now: Instant) -> Option<Instant> {
        // A notification that is not completely written counts as written now.
        let last = if self.unwritten.is_some() { Some(now) } else { self.last };
        last.map(|last| last + self.wait).filter(|at| *at > now)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ItemKind {
    Whole(TransmitKind),
    /// The elements of an array, which is not reordered in the queue.
    Array(TransmitKind),
    /// Progress that is written before the answer to the client's request with this id.
    Progress(Key),
    /// Pieces of the large message with this number.
    Piece {
        of: u64,
        part: Fragment,
    },
}

#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) order: u64,
    pub(crate) kind: ItemKind,
    pub(crate) payload: Payload,
    pub(crate) guards: SmallVec<[Guard; 1]>,
    /// Verdicts that are reported when the item is written.
    pub(crate) verdicts: SmallVec<[MessageVerdict; 1]>,
}

impl Item {
    /// Converts the item into bytes to be written.
    pub(crate) fn into_transmit(self) -> Transmit {
        let (kind, part) = match self.kind {
            ItemKind::Whole(kind) | ItemKind::Array(kind) => (kind, Fragment::Whole),
            ItemKind::Progress(_) => (TransmitKind::Progress, Fragment::Whole),
            ItemKind::Piece { part, .. } => (TransmitKind::Other, part),
        };
        Transmit { kind, payload: self.payload, part }
    }
}

/// The verdict on one server message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MessageVerdict {
    /// The number of the message.
    pub(crate) number: u64,
    /// The call that the message is about, if known.
    pub(crate) call: Option<CallId>,
    pub(crate) verdict: Verdict,
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) kind: StreamKind,
    pub(crate) pacing: StreamPacing,
    /// Whether the client of the stream is known to need no pacing.
    pub(crate) is_orderly: bool,
    /// The number of the client, if the shell has given it one.
    pub(crate) principal: Option<u64>,
    /// The origin of the client message that is being handled.
    pub(crate) origin: RequestOrigin,
    pub(crate) queue: VecDeque<Item>,
    pub(crate) queued: usize,
    /// With `mode = "observe"`: the bytes for the client, while `queue` only serves the record. `None` before the first
    /// bytes.
    pub(crate) observed: Option<Box<TransmitQueue>>,
    /// The times at which calls of this stream have something to write.
    pub(crate) wakes: FewMap<(Instant, u64, CallId), ()>,
    /// Calls whose notifications were taken by the shell but are not written yet.
    pub(crate) unwritten: Vec<CallId>,
    /// The large message of which some pieces were taken by the shell, while more have to follow.
    pub(crate) midway: Option<u64>,
    /// Number of pieces of large messages in the queue.
    pieces: usize,
    /// Whether the server is repeating messages that the client may already have.
    pub(crate) replays: bool,
    /// Whether the stream continues the stream of one HTTP request, and so carries only messages of that request.
    pub(crate) resumes_request: bool,
    /// The order number of the last server message that was taken by the shell.
    pub(crate) passed: u64,
    /// The order number of the last progress that has left the queue.
    progress_passed: u64,
}

impl Stream {
    pub(crate) fn new(kind: StreamKind, pacing: StreamPacing) -> Self {
        Self {
            kind,
            pacing,
            is_orderly: false,
            principal: None,
            origin: RequestOrigin::default(),
            queue: VecDeque::new(),
            queued: 0,
            observed: None,
            wakes: FewMap::default(),
            unwritten: Vec::new(),
            midway: None,
            pieces: 0,
            replays: false,
            resumes_request: false,
            passed: 0,
            progress_passed: 0,
        }
    }

    /// Whether no bytes wait to be written.
    pub(crate) fn is_drained(&self) -> bool {
        self.queue.is_empty() && self.observed.as_ref().is_none_or(|queue| queue.is_empty())
    }

    /// Whether no message waits, no timer is due now, and everything that was taken by the shell has been written.
    pub(crate) fn is_quiet(&self, now: Instant) -> bool {
        self.is_drained()
            && self.unwritten.is_empty()
            && self.wakes.first().is_none_or(|((at, ..), ())| *at > now)
    }

    /// Returns the number of bytes that wait.
    pub(crate) fn backlog(&self) -> usize {
        self.queued + self.observed.as_ref().map_or(0, |queue| queue.bytes())
    }

    pub(crate) fn push(&mut self, item: Item) {
        self.pieces += usize::from(matches!(item.kind, ItemKind::Piece { .. }));
        self.queued += item.payload.len();
        if self.queue.capacity() == 0 {
            // The answer of a request is the only message of most streams: the usual first room of a queue, for four
            // messages, is a larger piece of memory than an allocator keeps at hand.
            self.queue.reserve_exact(1);
        }
        self.queue.push_back(item);
    }

    /// Removes and returns the messages that are still to be written, in order.
    pub(crate) fn salvage(&mut self) -> TransmitQueue {
        let mut left = TransmitQueue::behind(self.midway);
        for item in self.queue.drain(..) {
            let of = match item.kind {
                ItemKind::Piece { of, .. } => Some(of),
                _ => None,
            };
            left.push(of, item.into_transmit());
        }
        left
    }

    /// Returns when an item may be written. `None`: now. `Some(None)`: as soon as the bytes taken by the shell have
    /// been written.
    fn not_before(&self, item: &Item) -> Option<Option<Instant>> {
        let mut latest = None;
        // An array has a guard for each of its answers. The latest one counts.
        for guard in &item.guards {
            if guard.unwritten.is_some() {
                return Some(None);
            }
            latest = latest.max(guard.last.map(|last| last + guard.wait));
        }
        latest.map(Some)
    }

    fn waits(&self, item: &Item, now: Instant) -> bool {
        match self.not_before(item) {
            None => false,
            Some(None) => true,
            Some(Some(at)) => at > now,
        }
    }

    /// Whether a large message is being forwarded, so that no other message may be written. A large message that still
    /// waits in the queue counts too, because it would directly follow a message that is written now.
    pub(crate) fn is_midway(&self) -> bool {
        self.midway.is_some() || self.pieces > 0
    }

    /// Returns the items that may be written next: the first item; if that is an answer, also the answers and requests
    /// after it that need not wait for it, and its progress. While a large message is written, only its next piece is
    /// returned.
    fn candidates(&self) -> impl Iterator<Item = (usize, &Item)> {
        let can_pass = |item: &Item| {
            let ItemKind::Whole(kind) = &item.kind else { return false };
            matches!(kind, TransmitKind::Answer(_) | TransmitKind::Request)
        };
        let lets_pass =
            move |item: &Item| can_pass(item) || matches!(item.kind, ItemKind::Progress(_));
        let from = self.midway.map_or(0, |number| {
            let next =
                |item: &Item| matches!(item.kind, ItemKind::Piece { of, .. } if of == number);
            self.queue.iter().position(next).unwrap_or(self.queue.len())
        });
        let items = self.queue.iter().enumerate().skip(from);
        // Evaluated lazily, because a hundred thousand items may wait here for a client that does not read, and each
        // poll would look at all of them.
        let mut may_follow = self.midway.is_none();
        let reached = items.take_while(move |(index, item)| {
            let is_reached = *index == from || may_follow && lets_pass(item);
            may_follow &= lets_pass(item);
            is_reached
        });
        reached.filter(move |(index, item)| *index == from || can_pass(item))
    }

    /// Returns the index of the item that may be written now.
    pub(crate) fn ready(&self, now: Instant) -> Option<usize> {
        self.candidates().find(|(_, item)| !self.waits(item, now)).map(|(index, _)| index)
    }

    /// Returns the call that may write now, because it is due and its progress arrived before the first item of the
    /// queue. If the progress arrived later, it waits until this item is written.
    pub(crate) fn due(&self, now: Instant) -> Option<(Instant, u64, CallId)> {
        let first = self.queue.front().map_or(u64::MAX, |item| item.order);
        let due = self.wakes.keys().take_while(|(at, ..)| *at <= now && !self.is_midway());
        due.copied().find(|(_, place, _)| *place < first || self.queue.is_empty())
    }

    /// Returns the calls whose heartbeats are due and are not in the queue yet.
    pub(crate) fn due_heartbeats(&self, now: Instant) -> Vec<(Instant, CallId)> {
        let due = self.wakes.keys().take_while(|(at, ..)| *at <= now);
        due.filter(|(_, place, _)| *place == u64::MAX).map(|(at, _, call)| (*at, *call)).collect()
    }

    /// Returns the time at which everything in the queue that came before `place` may be written. `None` if the first
    /// item need not wait, or if the time of an item is unknown.
    pub(crate) fn guarded_until(&self, now: Instant, place: u64) -> Option<Instant> {
        let first = self.queue.front().filter(|first| first.order < place)?;
        self.not_before(first)?.filter(|at| *at > now)?;
        self.written_at(now, place)
    }

    /// Returns the time at which everything in the queue that came before `place` may be written; `None` if the time of
    /// an item is unknown.
    pub(crate) fn written_at(&self, now: Instant, place: u64) -> Option<Instant> {
        let mut until = now;
        for item in self.queue.iter().take_while(|item| item.order < place) {
            until = until.max(self.not_before(item).unwrap_or(Some(now))?);
        }
        Some(until)
    }

    fn remove(&mut self, index: usize) -> Option<Item> {
        let item = self.queue.remove(index)?;
        self.queued -= item.payload.len();
        Some(item)
    }

    pub(crate) fn take(&mut self, index: usize) -> Option<Item> {
        let item = self.remove(index)?;
        if let ItemKind::Piece { of, part } = item.kind {
            self.midway = (part == Fragment::Piece).then_some(of);
            self.pieces -= 1;
        }
        if let ItemKind::Progress(_) = item.kind {
            self.progress_passed = item.order;
        }
        // Milepost's own messages have no event id, so a client that resumes cannot name them.
        if *item.payload.form() != Form::Own(None) {
            self.passed = self.passed.max(item.order);
        }
        Some(item)
    }

    /// Removes the progress of the request `id`, because the client has cancelled it. This includes progress that is
    /// queued before its answer. Returns the verdicts on the removed messages.
    pub(crate) fn purge(&mut self, id: &Key) -> Vec<MessageVerdict> {
        let (mut verdicts, mut removed) = (Vec::new(), Vec::new());
        let about = ItemKind::Progress(id.clone());
        while let Some(index) = self.queue.iter().position(|item| item.kind == about) {
            let Some(item) = self.remove(index) else { break };
            removed.push(item.order);
            verdicts.extend(item.verdicts);
        }
        for guard in self.queue.iter_mut().flat_map(|item| &mut item.guards) {
            // The answer must not wait for progress that will never be written.
            if removed.contains(&guard.behind) {
                (guard.behind, guard.unwritten) = (0, None);
            }
        }
        let late = Verdict::Withheld(Reason::Late);
        verdicts
            .into_iter()
            .map(|judged: MessageVerdict| MessageVerdict { verdict: late, ..judged })
            .collect()
    }

    /// Notes that everything that was taken by the shell has been written.
    pub(crate) fn written(&mut self, now: Instant) {
        self.unwritten.clear();
        let passed = self.progress_passed;
        let guards = self.queue.iter_mut().flat_map(|item| &mut item.guards);
        // A guard whose progress is still in the queue does not end when other bytes are written.
        for guard in guards.filter(|guard| guard.behind <= passed) {
            if guard.unwritten.take().is_some() {
                (guard.last, guard.behind) = (Some(now), 0);
            }
        }
    }

    /// Returns the time at which this stream may write next, if it can write nothing now.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        let Some(first) = self.queue.front() else {
            return self.wakes.first().filter(|_| self.midway.is_none()).map(|((at, ..), ())| *at);
        };
        let mut next = None;
        for (_, item) in self.candidates() {
            let at = self.not_before(item)?;
            next = [next, at].into_iter().flatten().min();
        }
        let next = next?;
        let sooner = self.wakes.keys().take_while(|(at, ..)| *at < next && !self.is_midway());
        // A heartbeat that is due has to enter the queue first.
        let counts = |place: u64| place < first.order || place == u64::MAX;
        let sooner = sooner.filter(|(_, place, _)| counts(*place)).map(|(at, ..)| *at);
        sooner.min().or(Some(next))
    }
}
