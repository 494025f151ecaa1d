//! The reports of one call that wait to be written.

use std::collections::VecDeque;
use std::time::Instant;

use crate::progress::dialect::report::Report;
use crate::progress::payload::Payload;
use crate::progress::value::ProgressValue;
use crate::progress::verdict::Repairs;
use crate::protocol::jsonrpc::Framing;

/// Progress reports of one call that wait to be written. Beyond the limit the newest replaces the
/// oldest; a flooding server writes faster than anyone reads.
const PENDING_MAX: usize = 8192;

/// Bytes of the messages in which the waiting progress reports of one call arrived. Beyond the
/// limit the oldest are dropped.
const PENDING_BYTES_MAX: usize = 4 << 20;

/// Progress that waits to be written.
#[derive(Debug)]
pub(crate) struct Pending {
    /// The message it came in; `None` if that message has its verdict already.
    pub(crate) message: Option<u64>,
    /// The place of the message among everything that arrived.
    pub(crate) order: u64,
    /// The earliest moment at which the progress may be written.
    pub(crate) due: Instant,
    /// Newer progress may replace this one.
    pub(crate) thin: bool,
    /// The original message, if it may be forwarded.
    pub(crate) raw: Option<Payload>,
    /// The frame that the message came in.
    pub(crate) framing: Framing,
    pub(crate) report: Report,
    /// The length of its message in bytes.
    pub(crate) bytes: usize,
    /// The repairs of its frame, whatever becomes of the message.
    pub(crate) done: Repairs,
}

/// The progress of one call that waits, oldest first.
#[derive(Debug, Default)]
pub(crate) struct PendingQueue {
    items: VecDeque<Pending>,
    bytes: usize,
}

impl PendingQueue {
    /// Adds a report, and returns the oldest reports that have to make room.
    pub(crate) fn push(&mut self, pending: Pending) -> Vec<Pending> {
        self.bytes += pending.bytes;
        self.items.push_back(pending);
        self.trim()
    }

    /// Takes the oldest reports that have to make room.
    pub(crate) fn trim(&mut self) -> Vec<Pending> {
        let mut gone = Vec::new();
        while self.items.len() > 1
            && (self.items.len() > PENDING_MAX || self.bytes > PENDING_BYTES_MAX)
        {
            gone.extend(self.give_way());
        }
        gone
    }

    /// The newest, if newer progress may take its place. The message of that progress has so many `bytes`.
    pub(crate) fn last_to_replace(&mut self, bytes: usize) -> Option<&mut Pending> {
        let last = self.items.back_mut().filter(|last| last.thin)?;
        self.bytes = self.bytes - last.bytes + bytes;
        last.bytes = bytes;
        Some(last)
    }

    /// The oldest gives way to the one after it.
    pub(crate) fn give_way(&mut self) -> Option<Pending> {
        let old = self.pop_front()?;
        if let Some(next) = self.items.front_mut() {
            next.report.take_over(&old.report);
        }
        Some(old)
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

    /// The newest figure that newer progress cannot replace. Progress that needs repair gives way to it; of
    /// two neighbours one has a figure.
    pub(crate) fn last_figure(&self) -> Option<&ProgressValue> {
        let gives_way = usize::from(self.last().is_some_and(|last| last.thin));
        let stays = self.items.iter().rev().skip(gives_way);
        stays.take(2).find_map(|pending| pending.report.figure.as_ref())
    }

    /// Puts off the first one.
    pub(crate) fn delay_first(&mut self, due: Instant) {
        if let Some(first) = self.items.front_mut() {
            first.due = due;
        }
    }

    /// Puts all waiting progress behind everything else that waits to be written.
    pub(crate) fn go_last(&mut self) {
        self.items.iter_mut().for_each(|pending| pending.order = u64::MAX);
    }

    /// Everything that waits.
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
            thin: false,
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
