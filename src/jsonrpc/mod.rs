//! One JSON-RPC message, read no further than its envelope.
//!
//! A [`Message`] keeps the bytes that arrived and knows where its members are in them; forwarding is
//! therefore exact by construction. Knows nothing of MCP, progress or transports.

mod key;
mod scan;

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use memchr::memmem;

use crate::json::{self, Members, key_is};

pub use key::Key;
pub use scan::Scan;

/// From this length on (in bytes) an answer is recognised by its two ends instead of being scanned.
const PEEK_MIN: usize = 4 << 10;

/// What a message is, by the members of its envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `method` and `id`.
    Request,
    /// `method` without `id`.
    Notification,
    /// `result` or `error`; its `id` may be missing or null.
    Response,
    /// An array whose elements are messages (2025-03-26).
    Batch,
    /// A message by its looks that none of the above fits: forwarded, never understood.
    Opaque,
    /// No message: what a server prints by mistake.
    Noise,
}

/// One message and where its members are. Where a key is repeated the last one counts.
#[derive(Debug, Clone)]
pub struct Message {
    raw: Bytes,
    kind: Kind,
    id: Option<Range<usize>>,
    method: Option<Range<usize>>,
    params: Option<Range<usize>>,
    result: Option<Range<usize>>,
    error: Option<Range<usize>>,
    /// `jsonrpc` is there and is `"2.0"`.
    versioned: bool,
    /// An envelope key is there twice.
    repeated: bool,
}

impl Message {
    /// Reads the envelope. Never fails: what cannot be read is [`Kind::Opaque`] or [`Kind::Noise`].
    pub fn parse(raw: Bytes) -> Self {
        if raw.len() >= PEEK_MIN
            && let Some(answer) = Self::peek(&raw)
        {
            return answer;
        }
        let mut message = Self::empty(raw);
        let start = json::skip_space(&message.raw, 0);
        match message.raw.get(start) {
            Some(b'{') => message.read_object(),
            Some(b'[') if is_batch(&message.raw) => message.kind = Kind::Batch,
            _ => {}
        }
        message
    }

    fn empty(raw: Bytes) -> Self {
        Self {
            raw,
            kind: Kind::Noise,
            id: None,
            method: None,
            params: None,
            result: None,
            error: None,
            versioned: false,
            repeated: false,
        }
    }

    fn read_object(&mut self) {
        let raw = self.raw.clone();
        let mut members = Members::new(&raw);
        for member in members.by_ref() {
            self.take(&raw, &member);
        }
        let whole = members.end().is_some_and(|end| json::skip_space(&raw, end) == raw.len());
        let has_id = self.id.is_some();
        let answers = self.result.is_some() || self.error.is_some();
        self.kind = match (self.method.is_some(), has_id, answers) {
            (false, _, true) if whole && (has_id || self.versioned) => Kind::Response,
            (true, true, _) if whole => Kind::Request,
            (true, false, _) if whole => Kind::Notification,
            (true, ..) | (false, true, true) => Kind::Opaque,
            _ if self.versioned => Kind::Opaque,
            _ => Kind::Noise,
        };
    }

    fn take(&mut self, raw: &[u8], member: &json::Member) {
        let key = &raw[member.key.clone()];
        let slot = if key_is(key, "id") {
            &mut self.id
        } else if key_is(key, "method") {
            &mut self.method
        } else if key_is(key, "params") {
            &mut self.params
        } else if key_is(key, "result") {
            &mut self.result
        } else if key_is(key, "error") {
            &mut self.error
        } else {
            if key_is(key, "jsonrpc") {
                self.versioned = &raw[member.value.clone()] == b"\"2.0\"";
            }
            return;
        };
        self.repeated |= slot.is_some();
        *slot = Some(member.value.clone());
    }

    /// Recognises a large answer without reading what is in it: the first members tell that it is
    /// one, and its id stands either last (for JSON, `"id":1}` at the very end can only be a member
    /// of the outermost object) or among the first, if the text has no other place that could spell
    /// `"id"`. `None` where that is not certain.
    fn peek(raw: &Bytes) -> Option<Self> {
        let mut answer = Self::empty(raw.clone());
        let mut at = json::skip_space(raw, 0);
        if raw.get(at) != Some(&b'{') {
            return None;
        }
        let value = loop {
            at = json::skip_space(raw, at + 1);
            let head = raw.get(at..(at + 64).min(raw.len()))?;
            let key = at..at + json::skip_value(head, 0).filter(|_| head.first() == Some(&b'"'))?;
            at = json::skip_space(raw, key.end);
            if raw.get(at) != Some(&b':') {
                return None;
            }
            at = json::skip_space(raw, at + 1);
            if raw[key.clone()] == *b"\"result\"" {
                break at;
            }
            let value = at..at + json::skip_value(raw.get(at..(at + 256).min(raw.len()))?, 0)?;
            at = json::skip_space(raw, value.end);
            if raw.get(at) != Some(&b',') || answer.method.is_some() || answer.error.is_some() {
                return None;
            }
            answer.take(raw, &json::Member { key, value });
        };
        let close =
            raw.iter().rposition(|&byte| !json::is_space(byte)).filter(|&at| raw[at] == b'}')?;
        if let Some((value_end, id)) = tail_id(raw, close) {
            answer.result = Some(value..value_end);
            answer.id = Some(id);
        } else {
            answer.id.as_ref()?;
            let rest = &raw[value..];
            let hidden = |needle: &[u8]| memmem::find(rest, needle).is_some();
            if !matches!(raw[close - 1], b'}' | b']')
                || hidden(b"\"id\"")
                || hidden(b"\\u006")
                || hidden(b"\\u007")
            {
                return None;
            }
            answer.result = Some(value..close);
        }
        answer.kind = Kind::Response;
        Some(answer)
    }

    /// The message as it came.
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The raw `id`, null included.
    pub fn id(&self) -> Option<Bytes> {
        self.part(&self.id)
    }

    /// Where the raw `id` stands in [`Message::raw`].
    pub fn id_range(&self) -> Option<Range<usize>> {
        self.id.clone()
    }

    /// The id as something that can be compared; `None` if it is no string or integer.
    pub fn id_key(&self) -> Option<Key> {
        self.id().and_then(|id| Key::read(&id))
    }

    /// The method, escapes read.
    pub fn method(&self) -> Option<Cow<'_, str>> {
        self.method.clone().and_then(|method| json::words(&self.raw[method]))
    }

    /// The raw `params`.
    pub fn params(&self) -> Option<Bytes> {
        self.part(&self.params)
    }

    /// The raw `result`, null included.
    pub fn result(&self) -> Option<Bytes> {
        self.part(&self.result)
    }

    /// Where the raw `result` stands in [`Message::raw`].
    pub fn result_range(&self) -> Option<Range<usize>> {
        self.result.clone()
    }

    /// The raw `error`, null included.
    pub fn error(&self) -> Option<Bytes> {
        self.part(&self.error)
    }

    /// Where the raw `error` stands in [`Message::raw`].
    pub fn error_range(&self) -> Option<Range<usize>> {
        self.error.clone()
    }

    /// Whether `jsonrpc` is `"2.0"` and no envelope key is repeated.
    pub fn is_strict(&self) -> bool {
        self.versioned && !self.repeated
    }

    /// The elements of a batch, or of several objects on one line, each read on its own.
    pub fn elements(&self) -> Vec<Self> {
        if self.kind == Kind::Batch {
            let found = json::elements(&self.raw).map(|(found, _)| found).unwrap_or_default();
            return found.into_iter().map(|range| self.element(range)).collect();
        }
        let mut found = Vec::new();
        let mut at = 0;
        loop {
            at = json::skip_space(&self.raw, at);
            let Some(end) = json::skip_value(&self.raw, at) else { return found };
            found.push(Self::parse(self.raw.slice(at..end)));
            at = end;
        }
    }

    /// An array in an array is no batch, so that nothing needs to recurse.
    fn element(&self, range: Range<usize>) -> Self {
        let mut element = Self::parse(self.raw.slice(range));
        if element.kind == Kind::Batch {
            element.kind = Kind::Opaque;
        }
        element
    }

    fn part(&self, range: &Option<Range<usize>>) -> Option<Bytes> {
        range.clone().map(|range| self.raw.slice(range))
    }
}

/// Whether `raw` is one whole array whose first element is a message.
fn is_batch(raw: &Bytes) -> bool {
    let Some((elements, end)) = json::elements(raw) else { return false };
    json::skip_space(raw, end) == raw.len()
        && elements.first().is_some_and(|first| {
            // Only an object: reading arrays in arrays would go as deep as they do.
            raw[first.start] == b'{' && Message::parse(raw.slice(first.clone())).kind != Kind::Noise
        })
}

/// `,"id":<scalar>}` at the end of an object that closes at `close`: where the value before it ends,
/// and the id. `jsonrpc` may stand between (the order of the TypeScript SDK).
fn tail_id(raw: &Bytes, close: usize) -> Option<(usize, Range<usize>)> {
    let floor = close.saturating_sub(256);
    let tail = &raw[floor..close];
    let key = floor + memmem::rfind(tail, b"\"id\":")?;
    let id = json::skip_space(raw, key + 5)..close;
    let plain = Key::read(&raw.slice(id.clone())).is_some() && !raw[id.clone()].contains(&b'\\');
    let mut comma = key;
    while comma > 0 && json::is_space(raw[comma - 1]) {
        comma -= 1;
    }
    if !plain || comma == 0 || raw[comma - 1] != b',' {
        return None;
    }
    let before = &raw[..comma - 1];
    let version = b",\"jsonrpc\":\"2.0\"";
    Some((before.strip_suffix(version).map_or(before.len(), <[u8]>::len), id))
}

#[cfg(test)]
mod tests;
