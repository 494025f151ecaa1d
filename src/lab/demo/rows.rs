//! Rows of the demo's view: each server message beside the message that the client got, in the
//! order of sending.

use std::collections::VecDeque;

use bytes::Bytes;
use tokio::time::Instant;

use crate::progress::{FilterEvent, Verdict};

/// One line of the server, or one line that the proxy added, with the client's line.
#[derive(Debug)]
pub(super) struct DemoRow {
    /// The time when the server sent the message, or the proxy added it.
    pub(super) at: Instant,
    /// The server's line; `None` if the proxy added the line.
    pub(super) sent: Option<Bytes>,
    /// The decision of the proxy.
    pub(super) fate: CallFate,
    /// The message that the client got; `None` if it got none.
    pub(super) got: Option<Bytes>,
}

/// The decision about a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallFate {
    Verdict(Verdict),
    /// The proxy added the message.
    Added,
}

/// A row that is not complete yet.
#[derive(Debug)]
struct OpenRow {
    key: u64,
    /// The number of the server's message. The proxy numbers the messages in the same order.
    number: Option<u64>,
    at: Instant,
    sent: Option<Bytes>,
    fate: Option<CallFate>,
    got: Option<Bytes>,
}

/// The unfinished rows. The proxy decides in the order in which it writes, so the next line to the client belongs to
/// the oldest decision that still lacks its line.
#[derive(Debug, Default)]
pub(super) struct Rows {
    last_key: u64,
    numbers: u64,
    open: VecDeque<OpenRow>,
    /// Keys of the rows whose line the client has not received yet.
    to_come: VecDeque<u64>,
    /// Lines to the client without a decision yet.
    came: VecDeque<Bytes>,
}

impl Rows {
    /// Notes that the server sent a line.
    pub(super) fn sent(&mut self, line: Bytes) {
        self.numbers += 1;
        let number = self.numbers;
        self.push(Some(number), Some(line), None);
    }

    /// Notes a decision of the proxy.
    pub(super) fn decided(&mut self, record: &FilterEvent) {
        let key = match record {
            FilterEvent::Message { number, verdict, .. } => {
                let mut rows = self.open.iter_mut();
                let Some(row) = rows.find(|row| row.number == Some(*number)) else { return };
                row.fate = Some(CallFate::Verdict(*verdict));
                (!matches!(verdict, Verdict::Withheld(_))).then_some(row.key)
            }
            FilterEvent::Heartbeat(_) => Some(self.push(None, None, Some(CallFate::Added))),
            FilterEvent::Opened(_)
            | FilterEvent::TakenOver(_)
            | FilterEvent::Call(_)
            | FilterEvent::Late(_)
            | FilterEvent::Task(_)
            | FilterEvent::Refused(_)
            | FilterEvent::UnansweringError(_) => None,
        };
        self.to_come.extend(key);
        self.join();
    }

    /// Notes that the client got a line.
    pub(super) fn got(&mut self, line: Bytes) {
        self.came.push_back(line);
        self.join();
    }

    /// Removes and returns the oldest row if it is complete.
    pub(super) fn next(&mut self) -> Option<DemoRow> {
        let first = self.open.front()?;
        let fate = first.fate?;
        if first.got.is_none() && !matches!(fate, CallFate::Verdict(Verdict::Withheld(_))) {
            return None;
        }
        let OpenRow { at, sent, got, .. } = self.open.pop_front()?;
        Some(DemoRow { at, sent, fate, got })
    }

    /// Whether every line belongs to a finished row.
    pub(super) fn is_settled(&self) -> bool {
        self.open.is_empty() && self.came.is_empty()
    }

    fn push(&mut self, number: Option<u64>, sent: Option<Bytes>, fate: Option<CallFate>) -> u64 {
        self.last_key += 1;
        let key = self.last_key;
        self.open.push_back(OpenRow { key, number, at: Instant::now(), sent, fate, got: None });
        key
    }

    fn join(&mut self) {
        while !self.to_come.is_empty()
            && let Some(line) = self.came.pop_front()
        {
            let key = self.to_come.pop_front();
            if let Some(row) = self.open.iter_mut().find(|row| Some(row.key) == key) {
                row.got = Some(line);
            }
        }
    }
}
