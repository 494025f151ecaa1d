//! The reports of one call that wait to be written.

use std::collections::VecDeque;
use std::time::Instant;

use smallvec::SmallVec;

use crate::progress::dialect::report::Report;
use crate::progress::payload::Payload;
use crate::progress::value::ProgressValue;
use crate::progress::verdict::Repairs;
use crate::protocol::jsonrpc::Framing;

/// Limit of the progress reports of one call that wait to be written. Beyond the limit the newest replaces the oldest,
/// because a flooding server writes faster than its client reads.
const PENDING_MAX: usize = 8192;

/// Limit of the bytes of the messages in which one call's waiting progress reports arrived. Beyond the limit the oldest
/// are dropped.
const PENDING_BYTES_MAX: usize = 4 << 20;

/// Whether waiting progress is thinned: written no sooner than `min_interval` after the last notification of its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Thinning {
    /// Progress that is not thinned.
    No,
    /// The first progress of a burst: thinned, but newer progress does not replace it.
    First,
    /// Thinned progress that newer progress may replace.
    Rest,
}

/// A progress report that waits to be written.
#[derive(Debug)]
pub(crate) struct Pending {
    /// The message that contained the report; `None` if the message already has its verdict.
    pub(crate) message: Option<u64>,
    /// The message's position in the order of everything that arrived.
    pub(crate) order: u64,
    /// The earliest time at which the progress may be written.
    pub(crate) due: Instant,
    /// The end of the report's `hold`. An answer that arrives after this time is sent after the progress.
    pub(crate) ripe: Instant,
    pub(crate) thinning: Thinning,
    /// The original message, if it may be forwarded.
    pub(crate) raw: Option<Payload>,
    /// The frame of the message.
    pub(crate) framing: Framing,
    pub(crate) report: Report,
    /// The length of the message in bytes.
    pub(crate) bytes: usize,
    /// The repairs of the message's frame. They are counted even if the message is withheld.
    pub(crate) done: Repairs,
}

impl Pending {
    /// Whether newer progress may replace this progress.
    fn gives_way(&self) -> bool {
        self.thinning == Thinning::Rest
    }

    /// Takes the place of older progress of the call. Thinned progress takes over the older value, total and text if it
    /// has none of its own; other progress is sent as the server wrote it.
    pub(crate) fn take_over(&mut self, old: &Self) {
        let stays = self.thinning == Thinning::No && self.raw.is_some();
        if !stays && self.report.take_over(&old.report) {
            self.raw = None;
        }
    }
}

/// The waiting progress of one call, oldest first.
#[derive(Debug, Default)]
pub(crate) struct PendingQueue {
    items: VecDeque<Pending>,
    bytes: usize,
}

impl PendingQueue {
    /// Adds a report. Returns the oldest reports that are dropped because of the limits.
    pub(crate) fn push(&mut self, pending: Pending) -> Vec<Pending> {
        self.bytes += pending.bytes;
        self.items.push_back(pending);
        self.trim()
    }

    /// Removes the oldest reports until the limits are met, and returns them.
    pub(crate) fn trim(&mut self) -> Vec<Pending> {
        let mut gone = Vec::new();
        // The newest report is kept even if it exceeds the limit, because it has the current state.
        while self.items.len() > 1
            && (self.items.len() > PENDING_MAX || self.bytes > PENDING_BYTES_MAX)
        {
            gone.extend(self.give_way());
        }
        gone
    }

    /// Removes the reports that are replaced by `new`, which has just arrived and takes over their values and texts.
    ///
    /// An answer is sent before progress whose `hold` has not ended yet. Of the other progress only the newest report
    /// is sent, so it must not have been replaced: among the replaceable reports, the newest ripe report and two unripe
    /// reports stay. The older of the two can then become ripe, however fast the server reports. `sent`: the value that
    /// the client has got. Progress that needs no repair must still be above it when it is written.
    pub(crate) fn make_room(
        &mut self,
        now: Instant,
        new: &mut Pending,
        sent: Option<f64>,
    ) -> SmallVec<[Pending; 1]> {
        let mut gone = SmallVec::new();
        if new.thinning == Thinning::No {
            self.remove_what_would_lift(new, sent, &mut gone);
        }
        let rest = self.items.iter().rev().take_while(|pending| pending.gives_way()).count();
        let first = self.items.len() - rest;
        // If an answer came now, only the newest of the ripe reports would be sent.
        while self.items.get(first + 1).is_some_and(|next| next.ripe <= now) {
            gone.extend(self.replace(first));
        }
        // The newer of two unripe reports is dropped, so that the older one can become ripe. If only the newest report
        // stayed, a fast server could prevent every report from becoming ripe.
        let unripe = self.items.iter().skip(first).filter(|pending| pending.ripe > now).count();
        let replaced = if new.ripe <= now { self.items.len() - first } else { unripe / 2 };
        for _ in 0..replaced {
            if let Some(old) = self.pop_back() {
                new.take_over(&old);
                gone.push(old);
            }
        }
        gone
    }

    /// Removes the newest thinned reports if they might be written with a value that is not below the value of `new`.
    fn remove_what_would_lift(
        &mut self,
        new: &mut Pending,
        sent: Option<f64>,
        gone: &mut SmallVec<[Pending; 1]>,
    ) {
        let next = new.report.figure.as_ref().map(|figure| figure.value.value);
        // A report without a value is sent with a lift, which is less than 1 above the last value.
        let above_lift = Some(sent.unwrap_or(0.0) + 1.0);
        let is_below = |pending: &Pending| match pending.report.figure.as_ref() {
            Some(figure) => Some(figure.value.value) > sent && Some(figure.value.value) < next,
            None => next >= above_lift,
        };
        let mut at = self.items.len();
        while let Some(before) = at.checked_sub(1)
            && self.items[before].thinning != Thinning::No
        {
            at = before;
            if !is_below(&self.items[at])
                && let Some(old) = self.items.remove(at)
            {
                self.bytes -= old.bytes;
                new.take_over(&old);
                gone.push(old);
            }
        }
    }

    /// Removes and returns the report at `index`. The report after it replaces it.
    fn replace(&mut self, index: usize) -> Option<Pending> {
        let old = self.items.remove(index)?;
        self.bytes -= old.bytes;
        if let Some(next) = self.items.get_mut(index) {
            next.take_over(&old);
        }
        Some(old)
    }

    /// Removes and returns the oldest report. The report after it replaces it.
    pub(crate) fn give_way(&mut self) -> Option<Pending> {
        self.replace(0)
    }

    /// Removes and returns the oldest report, if the report after it is ripe and replaces it.
    pub(crate) fn replace_first(&mut self, now: Instant) -> Option<Pending> {
        let is_replaced = self.first().is_some_and(Pending::gives_way)
            && self.second().is_some_and(|second| second.ripe <= now);
        if is_replaced { self.give_way() } else { None }
    }

    pub(crate) fn pop_front(&mut self) -> Option<Pending> {
        self.items.pop_front().inspect(|pending| self.bytes -= pending.bytes)
    }

    pub(crate) fn pop_back(&mut self) -> Option<Pending> {
        self.items.pop_back().inspect(|pending| self.bytes -= pending.bytes)
    }

    pub(crate) fn first(&self) -> Option<&Pending> {
        self.items.front()
    }

    pub(crate) fn second(&self) -> Option<&Pending> {
        self.items.get(1)
    }

    pub(crate) fn last(&self) -> Option<&Pending> {
        self.items.back()
    }

    /// Returns the newest value among the waiting reports that compliant progress may not replace. Of two such reports
    /// in a row, at least one has a value.
    pub(crate) fn last_figure(&self) -> Option<&ProgressValue> {
        let is_thinned = |pending: &&Pending| pending.thinning != Thinning::No;
        let stays = self.items.iter().rev().skip_while(is_thinned);
        stays.take(2).find_map(|pending| pending.report.figure.as_ref())
    }

    /// Returns the time when the first report, or newer progress in its place, may be written.
    pub(crate) fn due(&self) -> Option<Instant> {
        let give_way = self.items.iter().take_while(|pending| pending.gives_way()).count();
        self.items.iter().take(give_way + 1).map(|pending| pending.due).min()
    }

    /// Postpones the first report in the queue.
    pub(crate) fn delay_first(&mut self, due: Instant) {
        if let Some(first) = self.items.front_mut() {
            first.due = due;
        }
    }

    /// Moves all waiting progress to the end of the queue.
    pub(crate) fn go_last(&mut self) {
        self.items.iter_mut().for_each(|pending| pending.order = u64::MAX);
    }

    /// Removes and returns all waiting reports.
    pub(crate) fn take(&mut self) -> VecDeque<Pending> {
        self.bytes = 0;
        std::mem::take(&mut self.items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(bytes: usize) -> Pending {
        Pending {
            message: None,
            order: 0,
            due: Instant::now(),
            ripe: Instant::now(),
            thinning: Thinning::No,
            raw: None,
            framing: Framing::default(),
            report: Report::default(),
            bytes,
            done: Repairs::default(),
        }
    }

    #[test]
    fn the_newest_stays_however_long_it_is_and_the_older_make_room() {
        let mut queue = PendingQueue::default();
        assert_eq!(queue.push(pending(PENDING_BYTES_MAX + 1)).len(), 0);
        assert_eq!(queue.push(pending(PENDING_BYTES_MAX)).len(), 1);
        assert_eq!(queue.push(pending(0)).len(), 0);
        assert_eq!(queue.push(pending(1)).len(), 1);
        for _ in 2..PENDING_MAX {
            assert_eq!(queue.push(pending(0)).len(), 0);
        }
        assert_eq!(queue.push(pending(0)).len(), 1);
    }
}
