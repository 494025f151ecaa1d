//! One JSON-RPC message, of which only the envelope is read.
//!
//! A [`Message`] keeps the bytes that arrived and the places of its members in these bytes, so a forwarded message is
//! always exact. The module knows nothing of MCP, progress or transports.

mod array_scan;
mod key;
mod null_scan;
mod nulls;
mod on_one_line;
mod readings;
mod scan;
mod version;

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

use crate::protocol::json;
use crate::protocol::json::Members;

pub use array_scan::ARRAY_ANSWERS_MAX;
pub use key::Key;
pub use readings::AmbiguousMember;
pub use scan::{RESULT_MEMBERS, Scan, ScannedBody};
use version::Version;

/// The length in bytes from which on an answer is recognised by its beginning and end, instead of being scanned
/// completely.
const PEEK_MIN: usize = 4 << 10;

/// Number of bytes that are read at each end of a large answer. This is far more than the length of an envelope without
/// its result.
const WINDOW: usize = 1 << 10;

/// The JSON-RPC error code for an invalid request.
pub const INVALID_REQUEST: i32 = -32600;

/// The JSON-RPC error code for invalid parameters.
pub const INVALID_PARAMS: i32 = -32602;

/// The JSON-RPC error code for an internal error of the answering side.
pub const INTERNAL_ERROR: i32 = -32603;

/// The JSON-RPC error code for an unknown method.
pub const METHOD_NOT_FOUND: i32 = -32601;

/// The kind of a message, according to the members of its envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A message with `method` and with an `id` that is not null.
    Request,
    /// A message with `method`, and without `id` or with a null `id`.
    Notification,
    /// A message with `result` or `error`, whose `id` may be missing or null. Also a message with only `id` and
    /// `jsonrpc`, which a server means as an answer.
    Response,
    /// An array whose elements are messages (2025-03-26).
    Batch,
    /// An object that looks like a message but is none of the kinds above. It is forwarded but not understood.
    Opaque,
    /// Text that is not a message, such as a server's accidental output.
    Noise,
}

/// The framing in which a message arrived.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Framing {
    /// No frame: the message is a line or a body.
    #[default]
    Itself,
    /// An event, whose other bytes are kept here.
    Within(Bytes),
    /// An event whose name was not `message`. The bytes kept here have the name `message` instead.
    Renamed(Bytes),
    /// An element of a frame with several messages. To be sent alone it needs a frame of its own, which replaces the
    /// given frame if there is one.
    Apart(Option<Bytes>),
}

/// One message and the positions of its members. If a key is repeated, the last member counts.
#[derive(Debug, Clone)]
pub struct Message {
    raw: Bytes,
    framing: Framing,
    kind: Kind,
    id: Option<Range<usize>>,
    method: Option<Range<usize>>,
    params: Option<Range<usize>>,
    result: Option<Range<usize>>,
    error: Option<Range<usize>>,
    version: Version,
    /// Whether an envelope key is repeated, or a notification has a null id.
    odd: bool,
    /// Whether a member of the envelope is null that a message of this kind does not have.
    has_nulls: bool,
}

impl Message {
    /// Reads the envelope. Never fails: unreadable text is [`Kind::Opaque`] or [`Kind::Noise`].
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
            framing: Framing::Itself,
            kind: Kind::Noise,
            id: None,
            method: None,
            params: None,
            result: None,
            error: None,
            version: Version::Missing,
            odd: false,
            has_nulls: false,
        }
    }

    fn read_object(&mut self) {
        let raw = self.raw.clone();
        let mut members = Members::new(&raw);
        for member in members.by_ref() {
            self.take(&raw, &member);
        }
        let whole = members.end().is_some_and(|end| json::skip_space(&raw, end) == raw.len());
        self.ignore_nulls();
        let null_id = self.id.clone().is_some_and(|id| raw[id] == *b"null");
        if null_id && self.method.is_some() {
            // Some serialisers that write every member produce notifications with a null id.
            self.odd = true;
        }
        let has_id = self.id.is_some() && !(null_id && self.method.is_some());
        let answers = self.result.is_some() || self.error.is_some();
        let versioned = self.version != Version::Missing;
        // An answer needs an id or a version, because `{"result":"fine"}` may be a line of a log. A message that is cut
        // off, or that has a version but fits no kind, is `Opaque`. It is forwarded, because its reader may understand
        // more.
        self.kind = match (self.method.is_some(), has_id, answers) {
            (false, _, true) if whole && (has_id || versioned) => Kind::Response,
            (false, true, false) if whole && versioned && !null_id => Kind::Response,
            (true, true, _) if whole => Kind::Request,
            (true, false, _) if whole => Kind::Notification,
            (true, ..) | (false, true, true) => Kind::Opaque,
            _ if versioned => Kind::Opaque,
            _ => Kind::Noise,
        };
    }

    fn take(&mut self, raw: &[u8], member: &json::Member) {
        let key = &raw[member.key.clone()];
        let plain = json::within_quotes(key);
        // The key is compared as it stands first: nearly no key has an escape.
        if !self.take_named(raw, plain, member)
            && json::has_backslash(plain)
            && let Some(name) = json::unescape(key)
        {
            self.take_named(raw, &name, member);
        }
    }

    /// Notes the position of a member with this name. False if it is no member of an envelope.
    fn take_named(&mut self, raw: &[u8], name: &[u8], member: &json::Member) -> bool {
        let slot = match name {
            b"id" => &mut self.id,
            b"method" => &mut self.method,
            b"params" => &mut self.params,
            b"result" => &mut self.result,
            b"error" => &mut self.error,
            b"jsonrpc" => {
                self.version = Version::of(&raw[member.value.clone()]);
                return true;
            }
            _ => return false,
        };
        self.odd |= slot.is_some();
        *slot = Some(member.value.clone());
        true
    }

    /// Recognises a large answer without reading all of it. Reads only the short members before the result, the
    /// beginning of the result, and the short members at the end. The answer is recognised exactly unless a second
    /// member is longer than [`WINDOW`], which no envelope has. `None` if the whole text has to be read.
    fn peek(raw: &Bytes) -> Option<Self> {
        let close = raw.len() - 1 - raw.iter().rev().position(|&byte| !json::is_space(byte))?;
        if raw[close] != b'}' {
            return None;
        }
        let head = &raw[..WINDOW.min(close)];
        let mut answer = Self::empty(raw.clone());
        let mut members = Members::new(head);
        for member in members.by_ref() {
            answer.take(raw, &member);
        }
        let start = members.cut_off().filter(|(key, _)| head[key.clone()] == *b"\"result\"")?.1;
        // A value that is not an object or array ends before the window, or was read separately.
        let is_container = matches!(raw[start], b'{' | b'[');
        let floor = close.saturating_sub(WINDOW).max(start + 1);
        let end = json::skip_back(raw, floor, close).filter(|_| is_container)?;
        let mut behind = Members::after(&raw[..=close], end);
        for member in behind.by_ref() {
            answer.take(raw, &member);
        }
        if answer.result.is_some() || behind.end() != Some(close + 1) {
            return None;
        }
        answer.result = Some(start..end);
        answer.ignore_nulls();
        if answer.method.is_some() || answer.error.is_some() {
            return None;
        }
        answer.kind = Kind::Response;
        (answer.id.is_some() || answer.version != Version::Missing).then_some(answer)
    }

    /// Returns the same message with another framing.
    #[must_use]
    pub fn framed(mut self, framing: Framing) -> Self {
        self.framing = framing;
        self
    }

    /// Returns the framing of the message.
    pub fn framing(&self) -> &Framing {
        &self.framing
    }

    /// Returns the JSON text, unchanged.
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// Returns the kind of the message.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the raw `id`, which may be null.
    pub fn id(&self) -> Option<Bytes> {
        self.part(&self.id)
    }

    /// Returns the range of the raw `id` in [`Message::raw`].
    pub fn id_range(&self) -> Option<Range<usize>> {
        self.id.clone()
    }

    /// Returns the id as a key that can be compared; `None` if the id is neither a string nor a number.
    pub fn id_key(&self) -> Option<Key> {
        self.id.clone().and_then(|id| Key::read(&self.raw[id]))
    }

    /// Returns the method, with its escapes read.
    pub fn method(&self) -> Option<Cow<'_, str>> {
        self.method.clone().and_then(|method| json::decode_str(&self.raw[method]))
    }

    /// Whether the method is `name`, escapes read: as a comparison with [`Message::method`], which is read for it only
    /// where it has an escape.
    pub fn is_method(&self, name: &str) -> bool {
        let method = self.method.clone().map(|method| &self.raw[method]);
        method.is_some_and(|method| method.first() == Some(&b'"') && json::key_is(method, name))
    }

    /// The raw `params`.
    pub fn params(&self) -> Option<Bytes> {
        self.part(&self.params)
    }

    /// Returns the raw `result`, which may be null.
    pub fn result(&self) -> Option<Bytes> {
        self.part(&self.result)
    }

    /// Returns the range of the raw `result` in [`Message::raw`].
    pub fn result_range(&self) -> Option<Range<usize>> {
        self.result.clone()
    }

    /// Returns the raw `error`, which may be null.
    pub fn error(&self) -> Option<Bytes> {
        self.part(&self.error)
    }

    /// Returns the code of the error, if it is readable.
    pub fn error_code(&self) -> Option<i32> {
        let code = json::member(&self.error()?, "code")?;
        std::str::from_utf8(&code).ok()?.trim().parse().ok()
    }

    /// Returns the range of the raw `error` in [`Message::raw`].
    pub fn error_range(&self) -> Option<Range<usize>> {
        self.error.clone()
    }

    /// Whether the message came in an event whose name was changed.
    pub const fn is_renamed(&self) -> bool {
        matches!(self.framing, Framing::Renamed(_))
    }

    /// Whether `jsonrpc` is `"2.0"`, no envelope key is repeated and a notification has no null members.
    pub fn is_strict(&self) -> bool {
        self.is_versioned() && !self.odd && !(self.has_nulls && self.kind == Kind::Notification)
    }

    /// Whether a key of the envelope occurs twice. JSON readers may differ in which of the two they use.
    pub fn repeats_a_key(&self) -> bool {
        self.odd
    }

    /// Returns the elements of a batch, or of several objects on one line. Each element is read only when the iterator
    /// reaches it.
    pub fn elements(&self) -> impl Iterator<Item = Self> + use<> {
        let raw = self.raw.clone();
        let found = (self.kind == Kind::Batch)
            .then(|| json::elements(&raw).map(|(found, _)| found).unwrap_or_default());
        let mut batch = found.map(Vec::into_iter);
        let mut at = 0;
        std::iter::from_fn(move || {
            if let Some(batch) = &mut batch {
                return batch.next().map(|range| Self::element(raw.slice(range)));
            }
            at = json::skip_space(&raw, at);
            let end = json::skip_value(&raw, at)?;
            let element = Self::parse(raw.slice(at..end)).framed(Framing::Apart(None));
            at = end;
            Some(element)
        })
    }

    /// Returns the messages of an array or a line as separate messages. The last message keeps the frame with its other
    /// fields.
    pub fn apart(&self) -> Vec<Self> {
        let on_one_line = self.on_one_line().map(|(messages, _)| messages);
        let mut elements = on_one_line.unwrap_or_else(|| self.elements().collect());
        if let Framing::Within(frame) | Framing::Renamed(frame) = &self.framing
            && let Some(last) = elements.last_mut()
        {
            last.framing = Framing::Apart(Some(frame.clone()));
        }
        elements
    }

    /// An array within an array is not a batch, so no recursion is needed.
    fn element(raw: Bytes) -> Self {
        let mut element = Self::parse(raw).framed(Framing::Apart(None));
        if element.kind == Kind::Batch {
            element.kind = Kind::Opaque;
        }
        element
    }

    fn part(&self, range: &Option<Range<usize>>) -> Option<Bytes> {
        range.clone().map(|range| self.raw.slice(range))
    }
}

/// Returns an error response that Milepost writes, without a line ending. It names Milepost as its author, because it
/// must not look like the server's own (MCP 2026-07-28, Error Codes). It contains the HTTP status of the server's
/// response, if there was one.
pub fn own_error(id: &[u8], why: &str, status: Option<u16>) -> Bytes {
    error_answer(id, INTERNAL_ERROR, why, status)
}

/// Does the same as [`own_error`], and adds `retryAfter`: the number of seconds after which the server may be asked
/// again.
pub fn refused_error(id: &[u8], why: &str, status: u16, retry_after: Option<u64>) -> Bytes {
    let Some(seconds) = retry_after else { return own_error(id, why, Some(status)) };
    let data = format!(r#","httpStatus":{status},"retryAfter":{seconds}"#);
    error_with(id, INTERNAL_ERROR, why, &data)
}

/// Returns an error response with a code of the specification.
pub fn error_answer(id: &[u8], code: i32, why: &str, status: Option<u16>) -> Bytes {
    let data = status.map(|status| format!(r#","httpStatus":{status}"#));
    error_with(id, code, why, data.as_deref().unwrap_or_default())
}

/// Returns an error response with these members after the first member of `data`.
fn error_with(id: &[u8], code: i32, why: &str, data: &str) -> Bytes {
    let head = br#"{"jsonrpc":"2.0","id":"#;
    let code = format!(r#","error":{{"code":{code},"message":"#);
    let tail = format!(r#","data":{{"proxy":"milepost"{data}}}}}}}"#);
    Bytes::from([head, id, code.as_bytes(), &json::quote(why), tail.as_bytes()].concat())
}

/// Whether `raw` is a complete array whose first element is a message.
fn is_batch(raw: &Bytes) -> bool {
    let Some((elements, end)) = json::elements(raw) else { return false };
    json::skip_space(raw, end) == raw.len()
        && elements.first().is_some_and(|first| {
            // Only objects are parsed, because nested arrays would make the recursion as deep as their nesting.
            raw[first.start] == b'{' && Message::parse(raw.slice(first.clone())).kind != Kind::Noise
        })
}

#[cfg(test)]
mod tests;
