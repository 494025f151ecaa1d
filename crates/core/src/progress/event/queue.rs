//! The events of a filter that the shell has not taken yet. Repeated verdicts are one entry, because a flood produces
//! thousands of them.

use std::collections::VecDeque;

use crate::progress::event::FilterEvent;
use crate::progress::ids::CallId;
use crate::progress::verdict::Verdict;

/// A run of consecutive messages with the same verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerdictRun {
    /// The number of the first message. The other messages have the following numbers.
    pub first: u64,
    /// The number of messages.
    pub count: u64,
    /// The call that the messages were about, if known.
    pub call: Option<CallId>,
    /// The verdict on each message.
    pub verdict: Verdict,
}

impl VerdictRun {
    fn event(self, number: u64) -> FilterEvent {
        FilterEvent::Message { number, call: self.call, verdict: self.verdict }
    }
}

/// The events of a filter that the shell has not taken yet, oldest first.
#[derive(Debug, Default)]
pub struct EventQueue {
    events: VecDeque<QueuedEvent>,
}

#[derive(Debug)]
enum QueuedEvent {
    Run(VerdictRun),
    Other(FilterEvent),
}

impl EventQueue {
    /// Whether no event waits.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    pub(crate) fn push_back(&mut self, event: FilterEvent) {
        self.events.push_back(QueuedEvent::Other(event));
    }

    /// Adds the verdict on a message.
    pub(crate) fn push_verdict(&mut self, number: u64, call: Option<CallId>, verdict: Verdict) {
        if let Some(QueuedEvent::Run(run)) = self.events.back_mut()
            // The numbers have to be consecutive, because a run stores only the first.
            && (run.call, run.verdict, run.first + run.count) == (call, verdict, number)
        {
            run.count += 1;
            return;
        }
        self.events.push_back(QueuedEvent::Run(VerdictRun {
            first: number,
            count: 1,
            call,
            verdict,
        }));
    }

    /// Removes and returns the oldest event.
    pub(crate) fn pop_front(&mut self) -> Option<FilterEvent> {
        if let Some(QueuedEvent::Run(run)) = self.events.front_mut()
            && run.count > 1
        {
            let event = run.event(run.first);
            (run.first, run.count) = (run.first + 1, run.count - 1);
            return Some(event);
        }
        Some(match self.events.pop_front()? {
            QueuedEvent::Run(run) => run.event(run.first),
            QueuedEvent::Other(event) => event,
        })
    }

    /// Removes and returns the oldest events together, if they are equal verdicts on consecutive messages.
    pub fn take_run(&mut self) -> Option<VerdictRun> {
        let Some(QueuedEvent::Run(run)) = self.events.front() else { return None };
        let run = *run;
        self.events.pop_front();
        Some(run)
    }
}

impl Extend<FilterEvent> for EventQueue {
    fn extend<I: IntoIterator<Item = FilterEvent>>(&mut self, events: I) {
        events.into_iter().for_each(|event| self.push_back(event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::verdict::Reason;

    #[test]
    fn a_run_is_the_same_events_one_by_one() {
        let (call, late) = (Some(CallId(1)), Verdict::Withheld(Reason::Late));
        let verdicts = [
            (1, call, Verdict::Forwarded),
            (2, call, Verdict::Forwarded),
            (3, call, late),
            (4, None, late),
            (6, None, late),
            (7, None, late),
        ];
        let mut queue = EventQueue::default();
        verdicts.into_iter().for_each(|(number, call, verdict)| {
            queue.push_verdict(number, call, verdict);
        });
        let message = |(number, call, verdict)| FilterEvent::Message { number, call, verdict };
        for one in &verdicts[..4] {
            assert_eq!(queue.pop_front(), Some(message(*one)));
        }
        let run = queue.take_run();
        assert_eq!(run, Some(VerdictRun { first: 6, count: 2, call: None, verdict: late }));
        assert!(queue.is_empty() && queue.pop_front().is_none());
        queue.push_verdict(8, call, late);
        queue.push_verdict(9, call, late);
        assert_eq!(queue.pop_front(), Some(message((8, call, late))));
        queue.push_back(FilterEvent::Heartbeat(CallId(1)));
        queue.push_verdict(10, call, late);
        let rest = VerdictRun { first: 9, count: 1, call, verdict: late };
        assert_eq!(queue.take_run(), Some(rest));
        assert!(queue.take_run().is_none());
        assert_eq!(queue.pop_front(), Some(FilterEvent::Heartbeat(CallId(1))));
        assert_eq!(queue.pop_front(), Some(message((10, call, late))));
        assert!(queue.is_empty());
    }
}
