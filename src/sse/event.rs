//! What one block of a stream says, and how blocks are written.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use super::{BOM, CR, LF, line_end};

/// The comment that keeps a stream alive: a block of its own that is no event to anyone.
pub const COMMENT: &[u8] = b": keep-alive\n\n";

/// One block: lines and the blank line that ends them. Comments alone, and a blank line alone, are
/// blocks too.
#[derive(Clone, Debug)]
pub struct Event {
    /// All bytes of the block as they came, the blank line included.
    ///
    /// Ahead of its first line there may stand the byte order mark of the stream, or the LF of a
    /// CRLF whose CR ended the block before.
    pub raw: Bytes,
    pub(super) fields: Fields,
}

/// Where in a block its fields are.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields {
    /// The first `data` value.
    data: Option<Range<usize>>,
    /// Whether there is more than one.
    several: bool,
    name: Option<Range<usize>>,
    id: Option<Range<usize>>,
    /// The whole line, without its end.
    retry: Option<Range<usize>>,
}

/// A field that means something.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Field {
    Data,
    Event,
    Id,
    Retry,
}

/// What field this line is, and where its value begins; `None` for comments and unknown fields.
#[inline]
fn field(line: &[u8]) -> Option<(Field, usize)> {
    let (field, name): (_, &[u8]) = match line.first()? {
        b'd' => (Field::Data, b"data"),
        b'e' => (Field::Event, b"event"),
        b'i' => (Field::Id, b"id"),
        b'r' => (Field::Retry, b"retry"),
        _ => return None,
    };
    match line.strip_prefix(name)? {
        [] => Some((field, name.len())),
        [b':', b' ', ..] => Some((field, name.len() + 2)),
        [b':', ..] => Some((field, name.len() + 1)),
        _ => None,
    }
}

impl Fields {
    /// Takes in one line, its end not included.
    #[inline]
    pub(super) fn read(&mut self, text: &[u8], line: Range<usize>) {
        let Some((field, value)) = field(&text[line.clone()]) else { return };
        let value = line.start + value..line.end;
        match field {
            Field::Data => match self.data {
                Some(_) => self.several = true,
                None => self.data = Some(value),
            },
            Field::Event => self.name = Some(value),
            Field::Id if memchr::memchr(0, &text[value.clone()]).is_some() => {}
            Field::Id => self.id = Some(value),
            Field::Retry if value.is_empty() => {}
            Field::Retry if !text[value].iter().all(u8::is_ascii_digit) => {}
            Field::Retry => self.retry = Some(line),
        }
    }
}

impl Event {
    /// The payload, `None` without a `data` line. Of one line it is a slice of `raw`; several are
    /// joined by LF, which takes a copy.
    pub fn data(&self) -> Option<Bytes> {
        let first = self.fields.data.clone()?;
        if !self.fields.several {
            return Some(self.raw.slice(first));
        }
        let mut joined = BytesMut::with_capacity(self.raw.len());
        joined.extend_from_slice(&self.raw[first.clone()]);
        for line in lines(&self.raw).skip_while(|line| line.start <= first.start) {
            if let Some((Field::Data, value)) = field(line.text) {
                joined.extend_from_slice(b"\n");
                joined.extend_from_slice(&line.text[value..]);
            }
        }
        Some(joined.freeze())
    }

    /// The value of the last `event` field.
    pub fn name(&self) -> Option<&[u8]> {
        self.fields.name.clone().map(|name| &self.raw[name])
    }

    /// The value of the last `id` field that holds no NUL. An empty one takes back the id that the
    /// client has.
    pub fn id(&self) -> Option<&[u8]> {
        self.fields.id.clone().map(|id| &self.raw[id])
    }

    /// Whether the client's last event id changes with this block.
    pub fn has_id(&self) -> bool {
        self.fields.id.is_some()
    }

    /// The last `retry` line whose value is digits alone, without its line end: with `\n\n` behind
    /// it, it is a block of its own.
    pub fn retry(&self) -> Option<Bytes> {
        self.fields.retry.clone().map(|line| self.raw.slice(line))
    }

    /// Whether it is called what messages are called: nothing, or `message`.
    pub fn is_message(&self) -> bool {
        self.name().is_none_or(is_message)
    }
}

fn is_message(name: &[u8]) -> bool {
    name.is_empty() || name == b"message"
}

/// A line of a block.
struct Line<'a> {
    start: usize,
    text: &'a [u8],
    /// Its end, as it came: empty where the block breaks off.
    end: &'a [u8],
}

/// The lines of a block.
fn lines(raw: &[u8]) -> impl Iterator<Item = Line<'_>> {
    let mut next = 0;
    std::iter::from_fn(move || {
        let start = next;
        if start == raw.len() {
            return None;
        }
        let (end, after) = line_end(raw, start).unwrap_or((raw.len(), raw.len()));
        next = after;
        Some(Line { start, text: &raw[start..end], end: &raw[end..after] })
    })
}

/// A new block around `data`, which is JSON: an event `message` without id or retry.
pub fn write(data: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(data.len() + 32);
    append(&mut out, [data]);
    out.freeze()
}

/// Appends what `write` gives. `data` may be cut anywhere.
pub fn append<T: AsRef<[u8]>>(out: &mut BytesMut, data: impl IntoIterator<Item = T>) {
    out.extend_from_slice(b"event: message\n");
    append_data(out, data);
    out.extend_from_slice(b"\n\n");
}

/// A `data` line without its end. Line ends in it can only be space between tokens of the JSON.
fn append_data<T: AsRef<[u8]>>(out: &mut BytesMut, data: impl IntoIterator<Item = T>) {
    out.extend_from_slice(b"data: ");
    let mut at = out.len();
    for part in data {
        out.extend_from_slice(part.as_ref());
    }
    while let Some(found) = memchr::memchr2(CR, LF, &out[at..]) {
        out[at + found] = b' ';
        at += found + 1;
    }
}

/// The block `raw` with `data`, which is JSON, in place of its `data` lines, and `message` in place
/// of another event name. The rest is kept byte for byte.
pub fn rewrite(raw: &[u8], data: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(raw.len() + data.len() + 32);
    append_rewritten(&mut out, raw, [data]);
    out.freeze()
}

/// Appends what `rewrite` gives. `data` may be cut anywhere.
pub fn append_rewritten<T: AsRef<[u8]>>(
    out: &mut BytesMut,
    raw: &[u8],
    data: impl IntoIterator<Item = T>,
) {
    // In place of the last of the `data` lines: at the first, a CR before a line that goes and the
    // LF behind it could become one line end.
    let is_data = |line: &Line<'_>| matches!(named(line), Some((Field::Data, _)));
    let at = lines(raw).filter(is_data).last().map(|line| line.start);
    let mut data = Some(data);
    for line in lines(raw) {
        let blank = line.text.is_empty() && line.start + line.end.len() == raw.len();
        if (at == Some(line.start) || at.is_none() && blank)
            && let Some(data) = data.take()
        {
            append_data(out, data);
            out.extend_from_slice(line.end);
        }
        if !is_data(&line) {
            append_renamed(out, &line);
        }
    }
}

/// The block `raw` with `message` in place of another event name; the rest is kept byte for byte.
pub fn rename(raw: &Bytes) -> Bytes {
    if !lines(raw).any(|line| is_foreign(&line)) {
        return raw.clone();
    }
    let mut out = BytesMut::with_capacity(raw.len() + 16);
    for line in lines(raw) {
        append_renamed(&mut out, &line);
    }
    out.freeze()
}

fn append_renamed(out: &mut BytesMut, line: &Line<'_>) {
    out.extend_from_slice(if is_foreign(line) { b"event: message" } else { line.text });
    out.extend_from_slice(line.end);
}

fn is_foreign(line: &Line<'_>) -> bool {
    matches!(named(line), Some((Field::Event, name)) if !is_message(name))
}

/// The field and value of a line that is to be replaced. A byte order mark ahead of it goes with
/// it: a stream needs none, and elsewhere it would only spoil the new line.
fn named<'a>(line: &Line<'a>) -> Option<(Field, &'a [u8])> {
    let text = match line.start {
        0 => line.text.strip_prefix(BOM).unwrap_or(line.text),
        _ => line.text,
    };
    field(text).map(|(field, value)| (field, &text[value..]))
}
