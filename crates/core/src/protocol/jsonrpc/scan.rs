//! The envelope of a message that is too large to be held: read while it passes.

use std::ops::Range;

use bytes::Bytes;

use super::array_scan::ArrayScan;
use super::null_scan::NullScan;
use super::version::VERSION;
use super::{Key, Kind};
use crate::protocol::json;

/// Bytes of a key or scalar of the envelope that are kept. Ids and methods are shorter.
const TOKEN_MAX: usize = 1 << 10;

/// The member of the small message that replaces a large message.
const LEFT_OUT: &str = "bytes left out";

/// Members of which a tool result has at least one.
pub const RESULT_MEMBERS: [&str; 5] =
    ["content", "structuredContent", "task", "resultType", "toolResult"];

/// The value of `result` or `error`, as far as the value has been read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScannedBody {
    /// The value is that of `error`.
    pub is_error: bool,
    /// The position of the value's first byte in all bytes read.
    pub start: u64,
    /// The first byte.
    pub first: u8,
    /// The position of the brace that closes the value, if it is an object.
    pub brace: Option<u64>,
    /// The position of the comma or brace after the value.
    pub end: Option<u64>,
    /// The value is an object with members.
    pub has_members: bool,
    /// Whether a member of [`RESULT_MEMBERS`] was seen.
    pub is_tool_result: bool,
    /// One of the members is `error`.
    pub has_error: bool,
    /// One of the members is `code`, a number.
    pub has_code: bool,
    /// One of the members is `message`, a string.
    pub has_message: bool,
}

impl ScannedBody {
    /// Notes a member and the first byte of its value.
    fn note_member(&mut self, name: &[u8], first: u8) {
        self.has_members = true;
        // The recording of a large answer does not show whether the result was bare: its text is the same before and
        // after the repair.
        let mut known = RESULT_MEMBERS.iter().chain([&LEFT_OUT]);
        self.is_tool_result |= known.any(|known| json::key_is(name, known));
        self.has_error |= json::key_is(name, "error");
        self.has_code |= json::key_is(name, "code") && (first == b'-' || first.is_ascii_digit());
        self.has_message |= json::key_is(name, "message") && first == b'"';
    }
}

/// A scanner of the outermost object of a JSON text that arrives in pieces.
///
/// The scan keeps the current key and the scalar values of `id` and `method`, and which of `result`,
/// `error`, `params` were seen: a few hundred bytes, whatever the length of the text.
#[derive(Debug, Clone, Default)]
pub struct Scan {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The next token at depth 1 is a value.
    after_colon: bool,
    /// The text of the token that is being read at depth 1.
    token: Vec<u8>,
    /// The position of the value.
    place: Range<u64>,
    key: Vec<u8>,
    id: Option<Bytes>,
    id_place: Range<u64>,
    method: Option<Bytes>,
    result: bool,
    error: bool,
    /// The next byte begins the value of a member of the outermost object.
    awaits_value: bool,
    body: Option<ScannedBody>,
    /// The name of the last member of the body.
    member: Vec<u8>,
    /// The name of that member is over.
    member_named: bool,
    /// The next byte begins its value.
    awaits_member: bool,
    /// Whether the outermost object has begun; a text that does not begin with one is not a message.
    object: bool,
    closed: bool,
    nulls: NullScan,
    /// `jsonrpc` has begun.
    has_version: bool,
    /// The place of a `jsonrpc` that is not `"2.0"`.
    wrong_version: Option<Range<u64>>,
    /// The position of the brace that closes the outermost object.
    brace: Option<u64>,
    /// Number of bytes in the pieces before the current piece.
    before: u64,
    /// The text is an array, and this reads its elements.
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

    /// Whether the name of a member of the body is read, or awaited.
    fn reads_member(&self) -> bool {
        let is_open = |body: &ScannedBody| body.first == b'{' && body.end.is_none();
        self.depth == 2 && !self.member_named && self.body.as_ref().is_some_and(is_open)
    }

    /// Reads a byte outside of strings for the sake of the body.
    fn read_body(&mut self, byte: u8, at: u64) {
        if self.depth == 1 && std::mem::take(&mut self.awaits_value) {
            let is_error = json::key_is(&self.key, "error");
            self.has_version |= json::key_is(&self.key, "jsonrpc");
            let is_body = is_error || json::key_is(&self.key, "result");
            // The first byte suffices: no other JSON value begins with it.
            let is_null = byte == b'n';
            if !is_null {
                self.nulls.keep_member();
            }
            self.error |= is_error && !is_null;
            self.result |= is_body && !is_error;
            // A null `result` or `error` may stand beside the member that has the body.
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
        // A key beyond the limit is cut, and then equals no known name.
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

    /// The kind of the message, as far as the message has been read.
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

    /// The id, if it has passed and is a string or an integer.
    pub fn id(&self) -> Option<Key> {
        self.id.as_ref().and_then(Key::read)
    }

    /// The raw id, under the same conditions.
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

    /// Whether `jsonrpc` has passed, or begun to.
    pub fn has_version(&self) -> bool {
        self.has_version
    }

    /// The place and the text that give the message its `"jsonrpc":"2.0"`, as far as the message has been read: the
    /// place of another value, or the end of a message without the member.
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

    /// The places of null members that are left out of an answer, as far as the answer has been read, in order.
    pub fn nulls(&self) -> &[Range<u64>] {
        self.nulls.found()
    }

    /// The result or the error, as far as it has been read; the first of several.
    pub fn body(&self) -> Option<&ScannedBody> {
        self.body.as_ref()
    }

    /// The position of the id's value in all bytes read; of a repeated id the last.
    pub fn id_place(&self) -> Option<Range<u64>> {
        self.id().map(|_| self.id_place.clone())
    }

    /// The method, if it has passed.
    pub fn method(&self) -> Option<String> {
        self.method
            .as_ref()
            .and_then(|method| json::decode_str(method))
            .map(|words| words.into_owned())
    }

    /// The ids of the answers in an array that have passed whole: the first [`ARRAY_ANSWERS_MAX`].
    ///
    /// [`ARRAY_ANSWERS_MAX`]: super::ARRAY_ANSWERS_MAX
    pub fn answers(&self) -> &[Key] {
        self.array.as_ref().map_or(&[], |array| array.answers())
    }

    /// Whether the outermost object or array has closed.
    pub fn is_whole(&self) -> bool {
        self.closed
    }

    /// A small message with the same envelope; it names the `len` bytes that are left out.
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
