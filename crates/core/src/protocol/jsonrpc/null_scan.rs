//! Finds the null members of an answer that is too large to be kept whole, so that they are removed while it is
//! forwarded.

use std::ops::Range;

use crate::protocol::json;

/// Limit of the null members of one answer that are removed. An envelope has at most three, unless it repeats members.
const NULLS_MAX: usize = 8;

/// The positions of the null members of the outermost object.
#[derive(Debug, Clone, Default)]
pub(super) struct NullScan {
    /// The ranges to remove, in order. A range includes the comma before the member, or after it if the member is the
    /// first.
    found: Vec<Range<u64>>,
    /// Whether a member that stays has been read.
    has_kept: bool,
    /// Where the current member starts: at the comma before it, or at its key if it is the first member.
    start: Option<u64>,
    /// The end of the current value, if it is null and its member is to be removed.
    null_end: Option<u64>,
}

impl NullScan {
    /// Notes the beginning of a key.
    pub(super) fn begin_key(&mut self, at: u64) {
        if !self.has_kept {
            self.start = Some(at);
        }
    }

    /// Notes that a scalar value ends at this position.
    pub(super) fn settle(&mut self, key: &[u8], value: &[u8], end: u64) {
        let is_left_out = ["method", "params", "error"].iter().any(|name| json::key_is(key, name));
        self.null_end = Some(end).filter(|_| is_left_out && value == b"null");
    }

    /// Notes that the current member has ended, with a comma at this position or at the end of the object.
    pub(super) fn end_member(&mut self, comma: Option<u64>) {
        match (self.start.take(), self.null_end.take()) {
            (Some(start), Some(end)) if self.found.len() < NULLS_MAX => {
                let behind = comma.filter(|_| !self.has_kept).map(|comma| comma + 1);
                self.found.push(start..behind.unwrap_or(end));
            }
            _ => self.has_kept = true,
        }
        self.start = comma.filter(|_| self.has_kept);
    }

    /// Notes that the current member has a value that is not null.
    pub(super) fn keep_member(&mut self) {
        self.start = None;
    }

    /// Returns the start of the current member, including the comma before it, as long as the member may have to be
    /// removed.
    pub(super) fn unfinished(&self) -> Option<u64> {
        self.start
    }

    pub(super) fn found(&self) -> &[Range<u64>] {
        &self.found
    }
}
