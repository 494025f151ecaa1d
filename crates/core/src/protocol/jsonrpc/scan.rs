//! Reads the envelope of a message that is too large to be kept whole, while its pieces are forwarded.

use std::ops::Range;

use bytes::Bytes;

use super::array_scan::ArrayScan;
use super::null_scan::NullScan;
use super::version::VERSION;
use super::{Key, Kind};
use crate::protocol::json;

/// Limit of the bytes of a key or scalar in the envelope that are kept. Ids and methods are shorter.
const TOKEN_MAX: usize = 1 << 10;

/// The name of a member in the small message that represents a large message.
const LEFT_OUT: &str = "bytes left out";

/// Members that show that an object is a tool result. A tool result has at least one of them.
pub const RESULT_MEMBERS: [&str; 5] =
    ["content", "structuredContent", "task", "resultType", "toolResult"];

/// The value of `result` or `error`, as far as the value has been read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScannedBody {
    /// Whether the value belongs to `error`; otherwise it belongs to `result`.
    pub is_error: bool,
    /// The position of the value's first byte, counted over all pieces.
    pub start: u64,
    /// The first byte of the value.
    pub first: u8,
    /// The position of the brace that closes the value, if it is an object.
    pub brace: Option<u64>,
    /// The position of the comma or brace after the value.
    pub end: Option<u64>,
    /// Whether the value is an object with members.
    pub has_members: bool,
    /// Whether a member of [`RESULT_MEMBERS`] was seen.
    pub is_tool_result: bool,
    /// Whether one of the members is `error`.
    pub has_error: bool,
    /// Whether one of the members is `code`, with a number.
    pub has_code: bool,
    /// Whether one of the members is `message`, with a string.
    pub has_message: bool,
}

impl ScannedBody {
    /// Notes a member of the value, and the first byte of the member's own value.
    fn note_member(&mut self, name: &[u8], first: u8) {
        self.has_members = true;
        // In the recording of a large answer the result is left out, so it does not show whether the result was bare.
        let mut known = RESULT_MEMBERS.iter().chain([&LEFT_OUT]);
        self.is_tool_result |= known.any(|known| json::key_is(name, known));
        self.has_error |= json::key_is(name, "error");
        self.has_code |= json::key_is(name, "code") && (first == b'-' || first.is_ascii_digit());
        self.has_message |= json::key_is(name, "message") && first == b'"';
    }
}

/// A scanner of the outermost object of a JSON text that arrives in pieces.
///
/// It keeps the current key, the scalar values of `id` and `method`, and which of `result`, `error` and `params` were
/// seen. These are a few hundred bytes, whatever the length of the text.
#[derive(Debug, Clone, Default)]
pub struct Scan {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// Whether the next token at depth 1 is a value.
    after_colon: bool,
    /// The text of the token that is being read at depth 1.
    token: Vec<u8>,
    /// The range of the token that is being read, counted over all pieces.
    place: Range<u64>,
    key: Vec<u8>,
    id: Option<Bytes>,
    id_place: Range<u64>,
    method: Option<Bytes>,
    result: bool,
    error: bool,
    /// Whether the next byte begins the value of a member of the outermost object.
    awaits_value: bool,
    body: Option<ScannedBody>,
    /// The name of the latest member of the body.
    member: Vec<u8>,
    /// Whether the name of that member has been read completely.
    member_named: bool,
    /// Whether the next byte begins the value of that member.
    awaits_member: bool,
    /// Whether the outermost object has begun. A text that does not begin with an object is not a message.
    object: bool,
    closed: bool,
    nulls: NullScan,
    /// Whether a member `jsonrpc` has begun.
    has_version: bool,
    /// The range of the value of `jsonrpc`, if the value is not `"2.0"`.
    wrong_version: Option<Range<u64>>,
    /// The position of the brace that closes the outermost object.
    brace: Option<u64>,
    /// Number of bytes in the pieces before the current one.
    before: u64,
    /// Reads the elements, if the text is an array.
    array: Option<Box<ArrayScan>>,
}

impl Scan {
    /// Reads the next piece.
    pub fn feed(&mut self, piece: &[u8]) {
        if self.array.is_none() && self.depth == 0 && !self.closed {
            let is_array = piece.get(json::skip_space(piece, 0)) == Some(&b'[');
            self.array = is_array.then(Box::default);
        }
        if let Some(array) = &mut self.array {
            array.feed(piece);
        }
        self.read(piece);
        self.before += piece.len() as u64;
    }

    fn read(&mut self, piece: &[u8]) {
        let mut at = 0;
        while at < piece.len() {
            if self.in_string && !self.escaped && self.depth > 1 && !self.reads_member() {
                // Within a nested string, only its end matters.
                match memchr::memchr2(b'"', b'\\', &piece[at..]) {
                    Some(offset) => at += offset,
                    None => return,
                }
            }
            self.byte(piece[at], self.before + at as u64);
            at += 1;
        }
    }

    fn byte(&mut self, byte: u8, at: u64) {
        if self.in_string {
            self.keep(byte, at);
            if self.reads_member() && self.member.len() < TOKEN_MAX {
                self.member.push(byte);
            }
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return;
        }
        if !json::is_space(byte) {
            self.read_body(byte, at);
        }
        match byte {
            b'"' => {
                self.in_string = true;
                self.keep(byte, at);
            }
            b'{' | b'[' => {
                if self.depth == 0 {
                    self.object = byte == b'{' && !self.closed;
                } else if self.depth == 1 {
                    self.settle();
                }
                self.depth += 1;
            }
            b'}' | b']' => {
                if self.depth == 1 {
                    self.settle();
                    self.nulls.end_member(None);
                    self.closed = true;
                    self.brace = self.brace.or(Some(at));
                }
                self.depth = self.depth.saturating_sub(1);
            }
            b':' if self.depth == 1 && !self.after_colon => {
                self.key = std::mem::take(&mut self.token);
                self.after_colon = true;
                self.awaits_value = true;
            }
            b',' if self.depth == 1 => {
                self.settle();
                self.nulls.end_member(Some(at));
                self.after_colon = false;
                self.token.clear();
            }
            _ if json::is_space(byte) => {}
            _ => self.keep(byte, at),
        }
    }

    /// Whether the name of a member of the body is being read, or is expected next.
    fn reads_member(&self) -> bool {
        let is_open = |body: &ScannedBody| body.first == b'{' && body.end.is_none();
        self.depth == 2 && !self.member_named && self.body.as_ref().is_some_and(is_open)
    }

    /// Handles a byte outside of strings that may belong to the body.
    fn read_body(&mut self, byte: u8, at: u64) {
        if self.depth == 1 && std::mem::take(&mut self.awaits_value) {
            let is_error = json::key_is(&self.key, "error");
            self.has_version |= json::key_is(&self.key, "jsonrpc");
            let is_body = is_error || json::key_is(&self.key, "result");
            // The first byte is enough, because no other JSON value begins with `n`.
            let is_null = byte == b'n';
            if !is_null {
                self.nulls.keep_member();
            }
            self.error |= is_error && !is_null;
            self.result |= is_body && !is_error;
            // Next to the member that is the body, there may be a `result` or `error` that is null.
            if is_body && !is_null && self.body.is_none() {
                self.body = Some(ScannedBody {
                    is_error,
                    start: at,
                    first: byte,
                    ..ScannedBody::default()
                });
                self.member_named = false;
            }
            return;
        }
        let Some(body) = self.body.as_mut().filter(|body| body.end.is_none()) else { return };
        match (self.depth, byte) {
            (1, b',' | b'}') => {
                body.end = Some(at);
            }
            (2, _) if body.first != b'{' => {}
            (2, b'}') => body.brace = Some(at),
            (2, b',') => self.member_named = false,
            (2, b':') if !self.member_named => {
                self.member_named = true;
                self.awaits_member = true;
            }
            (2, _) if std::mem::take(&mut self.awaits_member) => {
                body.note_member(&self.member, byte);
            }
            (2, b'"') if !self.member_named => {
                self.member.clear();
                self.member.push(byte);
            }
            _ => {}
        }
    }

    fn keep(&mut self, byte: u8, at: u64) {
        // A key beyond the limit is cut, so it does not equal any known name.
        if self.depth == 1 && self.object && !self.closed && self.token.len() < TOKEN_MAX {
            if self.token.is_empty() {
                self.place.start = at;
                if !self.after_colon {
                    self.nulls.begin_key(at);
                }
            }
            self.token.push(byte);
            self.place.end = at + 1;
        }
    }

    /// Notes the end of a scalar value at depth 1.
    fn settle(&mut self) {
        if !self.after_colon || self.token.is_empty() {
            return;
        }
        let value = Bytes::from(std::mem::take(&mut self.token));
        self.nulls.settle(&self.key, &value, self.place.end);
        if json::key_is(&self.key, "id") {
            self.id = Some(value);
            self.id_place = self.place.clone();
        } else if json::key_is(&self.key, "method") && *value != *b"null" {
            self.method = Some(value);
        } else if json::key_is(&self.key, "jsonrpc") {
            self.wrong_version = (*value != *VERSION).then(|| self.place.clone());
        }
    }

    /// Returns the kind of the message, according to what has been read so far.
    pub fn kind(&self) -> Kind {
        let id = self.id.as_ref().filter(|id| ***id != *b"null" || self.method.is_none());
        match (&self.method, id, self.result || self.error) {
            _ if !self.object => Kind::Noise,
            (None, _, true) => Kind::Response,
            (Some(_), Some(_), _) => Kind::Request,
            (Some(_), None, _) => Kind::Notification,
            (None, ..) => Kind::Opaque,
        }
    }

    /// Returns the id, if it has been read and is a string or a number.
    pub fn id(&self) -> Option<Key> {
        self.id.as_ref().and_then(Key::read)
    }

    /// Returns the raw id, if it has been read and is a string or a number.
    pub fn id_text(&self) -> Option<&Bytes> {
        self.id.as_ref().filter(|_| self.id().is_some())
    }

    /// Returns the position of the value of `id` or `jsonrpc`, if the value has begun and may continue in the next
    /// piece.
    pub fn unfinished_value(&self) -> Option<u64> {
        let begun = self.depth == 1 && self.after_colon && !self.token.is_empty();
        let is_short = self.token.len() < TOKEN_MAX && !self.closed;
        let is_kept = ["id", "jsonrpc"].iter().any(|name| json::key_is(&self.key, name));
        (begun && is_short && is_kept).then_some(self.place.start)
    }

    /// Whether a member `jsonrpc` has been read, at least in part.
    pub fn has_version(&self) -> bool {
        self.has_version
    }

    /// Returns the range and its replacement that give the message `"jsonrpc":"2.0"`: the range of another value, or
    /// the end of a message that has been read and lacks the member.
    pub fn missing_version(&self) -> Option<(Range<u64>, Bytes)> {
        if let Some(place) = self.wrong_version.clone() {
            return Some((place, Bytes::from_static(VERSION)));
        }
        let brace = self.brace.filter(|_| !self.has_version && self.object)?;
        Some((brace..brace, Bytes::from_static(br#","jsonrpc":"2.0""#)))
    }

    /// Returns the position of a member, with its separator, that may be removed and whose end has not arrived.
    pub fn unfinished_null(&self) -> Option<u64> {
        self.nulls
            .unfinished()
            .filter(|_| self.depth == 1 && self.token.len() < TOKEN_MAX && !self.closed)
    }

    /// Returns the ranges to remove from an answer, so that its null members are left out, as far as the answer has
    /// been read. In order.
    pub fn nulls(&self) -> &[Range<u64>] {
        self.nulls.found()
    }

    /// Returns the result or the error, as far as it has been read. If there are several, the first is returned.
    pub fn body(&self) -> Option<&ScannedBody> {
        self.body.as_ref()
    }

    /// Returns the range of the id's value, counted over all pieces. If the id is repeated, the last range is returned.
    pub fn id_place(&self) -> Option<Range<u64>> {
        self.id().map(|_| self.id_place.clone())
    }

    /// Returns the method, if it has been read.
    pub fn method(&self) -> Option<String> {
        self.method
            .as_ref()
            .and_then(|method| json::decode_str(method))
            .map(|words| words.into_owned())
    }

    /// Returns the ids of the answers in an array that have been read completely, at most the first
    /// [`ARRAY_ANSWERS_MAX`].
    ///
    /// [`ARRAY_ANSWERS_MAX`]: super::ARRAY_ANSWERS_MAX
    pub fn answers(&self) -> &[Key] {
        self.array.as_ref().map_or(&[], |array| array.answers())
    }

    /// Whether the outermost object or array has closed.
    pub fn is_whole(&self) -> bool {
        self.closed
    }

    /// Returns a small message with the same envelope. It states that `len` bytes are left out.
    pub fn stand_in(&self, len: u64) -> Bytes {
        if let Some(array) = &self.array {
            return array.stand_in(len, LEFT_OUT);
        }
        let mut members = vec![r#""jsonrpc":"2.0""#.to_owned()];
        if let Some(id) = self.id() {
            members.push(format!(r#""id":{}"#, String::from_utf8_lossy(&id.to_json())));
        }
        if let Some(method) = self.method() {
            let method = json::quote(&method);
            members.push(format!(r#""method":{}"#, String::from_utf8_lossy(&method)));
        }
        let body = if self.kind() == Kind::Response { "result" } else { "params" };
        members.push(format!(r#""{body}":{{"{LEFT_OUT}":{len}}}"#));
        Bytes::from(format!("{{{}}}", members.join(",")))
    }
}
