//! The state of the gate.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::progress::correlate::correlator::Correlator;
use crate::progress::gate::orphans::Orphans;
use crate::progress::ids::{CallId, StreamId};
use crate::progress::value::NumberView;
use crate::protocol::json;

/// Limit of the length of a text, in bytes, whose memory is kept for Milepost's next notification.
const REWRITTEN_KEPT_MAX: usize = 8 << 10;

/// The part of a filter that decides which messages each client stream gets, and when.
#[derive(Debug)]
pub struct Gate {
    pub(crate) calls: Correlator,
    /// Whether the server is alive, so that heartbeats may be sent.
    pub(crate) alive: bool,
    /// Whether the clients send nothing more.
    pub(crate) client_left: bool,
    /// The call that is ending now, if another filter has delivered its answer.
    pub(crate) delivered: Option<CallId>,
    /// Calls for which the server has asked the client a question.
    pub(crate) asked: BTreeSet<CallId>,
    /// The last notification that Milepost wrote in place of a report.
    pub(crate) rewritten: Vec<u8>,
    /// Boxed, because most servers send no orphan answers, so no memory is needed for them.
    pub(crate) orphans: Option<Box<Orphans>>,
}

impl Gate {
    /// Returns a gate without streams.
    pub(crate) fn new(calls: Correlator) -> Self {
        Self {
            calls,
            orphans: None,
            alive: true,
            client_left: false,
            delivered: None,
            asked: BTreeSet::new(),
            rewritten: Vec::new(),
        }
    }

    /// Returns a copy of the last notification that Milepost wrote. The buffer is reused, unless it has grown large.
    pub(crate) fn take_rewritten(&mut self) -> Bytes {
        if self.rewritten.capacity() > REWRITTEN_KEPT_MAX {
            return std::mem::take(&mut self.rewritten).into();
        }
        Bytes::copy_from_slice(&self.rewritten)
    }

    /// Writes `text` to `rewritten`, without the member that contains `total`. If `text` has no such member,
    /// `rewritten` stays unchanged.
    pub(crate) fn leave_total_out(&mut self, text: &[u8], total: Option<NumberView<'_>>) {
        let place = total.and_then(|total| {
            // The total is usually a slice of `text`, so its position follows from the addresses. A total from
            // elsewhere is outside the bounds, and is ignored.
            let start = (total.text.as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
            let end = start.checked_add(total.text.len()).filter(|end| *end <= text.len())?;
            json::member_around(text, start..end)
        });
        if let Some(place) = place {
            self.rewritten.clear();
            self.rewritten.extend_from_slice(&text[..place.start]);
            self.rewritten.extend_from_slice(&text[place.end..]);
        }
    }

    /// Stops heartbeats, because the server is about to end.
    pub fn stop_heartbeats(&mut self) {
        self.alive = false;
    }

    /// Whether an answer waits until the response on this stream has ended.
    pub fn holds_answer(&self, on: StreamId) -> bool {
        self.orphans.as_ref().is_some_and(|orphans| orphans.waiting.contains_key(&on))
    }
}
