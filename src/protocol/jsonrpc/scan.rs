//! The envelope of a message that is too large to be held: read while it passes.

use std::ops::Range;

use bytes::Bytes;

use super::{Key, Kind};
use crate::protocol::json;

/// Bytes of a key or scalar of the envelope that are kept. Ids and methods are shorter.
const TOKEN_MAX: usize = 1 << 10;

/// A scanner of the outermost object of a JSON text that arrives in pieces.
///
/// It keeps the current key and the scalar values of `id` and `method`, and which of `result`,
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
    /// The outermost object has begun; anything else is no message.
    object: bool,
    closed: bool,
    /// Bytes read in the pieces before this one.
    before: u64,
}

impl Scan {
    /// Reads the next piece.
    pub fn feed(&mut self, piece: &[u8]) {
        self.read(piece);
        self.before += piece.len() as u64;
    }

    fn read(&mut self, piece: &[u8]) {
        let mut at = 0;
        while at < piece.len() {
            if self.in_string && !self.escaped && self.depth > 1 {
                // Nothing inside a nested string matters but where it ends.
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
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return;
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
                    self.closed = true;
                }
                self.depth = self.depth.saturating_sub(1);
            }
            b':' if self.depth == 1 && !self.after_colon => {
                self.key = std::mem::take(&mut self.token);
                self.after_colon = true;
                self.note_member();
            }
            b',' if self.depth == 1 => {
                self.settle();
                self.after_colon = false;
                self.token.clear();
            }
            _ if json::is_space(byte) => {}
            _ => self.keep(byte, at),
        }
    }

    fn keep(&mut self, byte: u8, at: u64) {
        if self.depth == 1 && self.object && !self.closed && self.token.len() < TOKEN_MAX {
            if self.token.is_empty() {
                self.place.start = at;
            }
            self.token.push(byte);
            self.place.end = at + 1;
        }
    }

    fn note_member(&mut self) {
        self.result |= json::key_is(&self.key, "result");
        self.error |= json::key_is(&self.key, "error");
    }

    /// A scalar value at depth 1 is over.
    fn settle(&mut self) {
        if !self.after_colon || self.token.is_empty() {
            return;
        }
        let value = Bytes::from(std::mem::take(&mut self.token));
        if json::key_is(&self.key, "id") {
            self.id = Some(value);
            self.id_place = self.place.clone();
        } else if json::key_is(&self.key, "method") {
            self.method = Some(value);
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

    /// Whether the outermost object has closed.
    pub fn is_whole(&self) -> bool {
        self.closed
    }

    /// A small message with the same envelope; it names the `len` bytes that are left out.
    pub fn stand_in(&self, len: u64) -> Bytes {
        let mut members = vec![r#""jsonrpc":"2.0""#.to_owned()];
        if let Some(id) = self.id() {
            members.push(format!(r#""id":{}"#, String::from_utf8_lossy(&id.to_json())));
        }
        if let Some(method) = self.method() {
            let method = json::quote(&method);
            members.push(format!(r#""method":{}"#, String::from_utf8_lossy(&method)));
        }
        let body = if self.kind() == Kind::Response { "result" } else { "params" };
        members.push(format!(r#""{body}":{{"bytes left out":{len}}}"#));
        Bytes::from(format!("{{{}}}", members.join(",")))
    }
}
