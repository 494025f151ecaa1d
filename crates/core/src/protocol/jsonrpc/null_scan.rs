//! Null members of an answer that is too large to be held, which are left out while the answer passes.

use std::ops::Range;

use crate::protocol::json;

/// Maximum number of null members of one answer that are removed. An envelope has three at most, unless it repeats
/// some.
const NULLS_MAX: usize = 8;

/// The places of the null members of the outermost object.
#[derive(Debug, Clone, Default)]
pub(super) struct NullScan {
    /// The ranges to cut out, in order: with the comma before the member, or after it if the member is the first.
    found: Vec<Range<u64>>,
    /// A member has passed that stays.
    has_kept: bool,
    /// The position of the comma before the current member; of its key if the member is the first.
    start: Option<u64>,
    /// The end of the present value, if the value is null and the member is to be left out.
    null_end: Option<u64>,
}

impl NullScan {
    /// Notes the beginning of a key.
    pub(super) fn begin_key(&mut self, at: u64) {
        if !self.has_kept {
            self.start = Some(at);
        }
    }

    /// Notes a scalar value that ends at this position.
    pub(super) fn settle(&mut self, key: &[u8], value: &[u8], end: u64) {
        let is_left_out = ["method", "params", "error"].iter().any(|name| json::key_is(key, name));
        self.null_end = Some(end).filter(|_| is_left_out && value == b"null");
    }

    /// Notes the end of the present member: a comma at this position, or the end of the object.
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

    /// Notes that the present member has a value that is not null.
    pub(super) fn keep_member(&mut self) {
        self.start = None;
    }

    /// Returns the position of the current member, with the comma before it, while the member may be one that is
    /// removed.
    pub(super) fn unfinished(&self) -> Option<u64> {
        self.start
    }

    pub(super) fn found(&self) -> &[Range<u64>] {
        &self.found
    }
}
