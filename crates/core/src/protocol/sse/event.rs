//! Reads the content of one event block, and writes blocks.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use super::{BOM, CR, LF, line_end};

/// A comment that keeps a stream alive. It is a block that readers do not treat as an event.
pub const COMMENT: &[u8] = b": keep-alive\n\n";

/// The end of an event whose message is incomplete. The last name in an event counts, and clients read only messages
/// with the name `message`. So no client takes the incomplete message for a whole one, and the stream can continue.
pub const BROKEN_OFF: &[u8] = b"\nevent: broken-off\n\n";

/// One block: lines, and the blank line that ends them. Comments without an event, or only a blank line, are blocks
/// too.
#[derive(Clone, Debug)]
pub struct SseEvent {
    /// All bytes of the block, unchanged, including the blank line. At the start of a stream they include a byte order
    /// mark.
    pub raw: Bytes,
    pub(super) fields: FieldSpans,
    /// Whether Milepost has added the blank line, because the stream ended before it.
    is_completed: bool,
}

/// The positions of the fields of a block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FieldSpans {
    /// The value of the first `data` line.
    data: Span,
    /// Whether the block has several `data` lines.
    several: bool,
    name: Span,
    id: Span,
    /// The last `retry` line, without its line end.
    retry: Span,
}

/// A range in a block. An end of 0 means that there is none, because no value of a field can end there.
///
/// Half the size of a `Range`, because events are moved more often than they are used in other ways.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    start: u32,
    end: u32,
}

impl Span {
    #[expect(clippy::cast_possible_truncation, reason = "no block is longer than `HELD_MAX`")]
    fn new(range: Range<usize>) -> Self {
        Self { start: range.start as u32, end: range.end as u32 }
    }

    fn range(self) -> Option<Range<usize>> {
        (self.end != 0).then_some(self.start as usize..self.end as usize)
    }
}

/// A field that readers use.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Field {
    Data,
    Event,
    Id,
    Retry,
}

/// Returns the field of a line, and the start of its value; `None` for comments and unknown fields.
#[inline]
fn field(line: &[u8]) -> Option<(Field, usize)> {
    let (field, rest) = if let Some(rest) = line.strip_prefix(b"data") {
        (Field::Data, rest)
    } else if let Some(rest) = line.strip_prefix(b"event") {
        (Field::Event, rest)
    } else if let Some(rest) = line.strip_prefix(b"id") {
        (Field::Id, rest)
    } else {
        (Field::Retry, line.strip_prefix(b"retry")?)
    };
    let name = line.len() - rest.len();
    match rest {
        [] => Some((field, name)),
        // WHATWG HTML, Interpreting an event stream: one space after the colon is not part of the value.
        [b':', b' ', ..] => Some((field, name + 2)),
        [b':', ..] => Some((field, name + 1)),
        _ => None,
    }
}

impl FieldSpans {
    /// Reads one line, which is given without its line end.
    #[inline]
    pub(super) fn read(&mut self, text: &[u8], line: Range<usize>) {
        let Some((field, value)) = field(&text[line.clone()]) else { return };
        let value = line.start + value..line.end;
        match field {
            Field::Data if self.data.range().is_some() => self.several = true,
            Field::Data => self.data = Span::new(value),
            Field::Event => self.name = Span::new(value),
            // WHATWG HTML, Interpreting an event stream: an id with a NUL is ignored, and so is a retry time that
            // contains anything but digits.
            Field::Id if memchr::memchr(0, &text[value.clone()]).is_some() => {}
            Field::Id => self.id = Span::new(value),
            Field::Retry if value.is_empty() => {}
            Field::Retry if !text[value].iter().all(u8::is_ascii_digit) => {}
            Field::Retry => self.retry = Span::new(line),
        }
    }
}

impl SseEvent {
    pub(super) fn new(raw: Bytes, fields: FieldSpans) -> Self {
        Self { raw, fields, is_completed: false }
    }

    /// Marks the event as one whose blank line Milepost has added.
    pub(super) fn completed(mut self) -> Self {
        self.is_completed = true;
        self
    }

    /// Whether the server's stream ended before the blank line of the event.
    pub fn is_completed(&self) -> bool {
        self.is_completed
    }

    /// Returns a view of the block.
    pub fn view(&self) -> BlockView<'_> {
        BlockView { raw: &self.raw, fields: self.fields }
    }

    /// Returns the payload; `None` if there is no `data` line. The payload of one line is a slice of `raw`. Several
    /// lines are copied and joined by LF.
    pub fn data(&self) -> Option<Bytes> {
        let first = self.fields.data.range()?;
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

    /// Returns the value of the last `event` field.
    pub fn name(&self) -> Option<&[u8]> {
        self.fields.name.range().map(|name| &self.raw[name])
    }

    /// Returns the value of the last `id` field without a NUL. An empty value resets the client's last id.
    pub fn id(&self) -> Option<&[u8]> {
        self.fields.id.range().map(|id| &self.raw[id])
    }

    /// Whether the client's last event id changes with this block.
    pub fn has_id(&self) -> bool {
        self.fields.id.range().is_some()
    }

    /// Returns the last `retry` line that has only digits, without its line end. If `\n\n` is appended, it is a block.
    pub fn retry(&self) -> Option<Bytes> {
        self.fields.retry.range().map(|line| self.raw.slice(line))
    }

    /// Whether the event is a message: it has no name, or the name `message`.
    pub fn is_message(&self) -> bool {
        self.name().is_none_or(is_message)
    }
}

/// A view of a block that is complete in the input.
#[derive(Clone, Copy, Debug)]
pub struct BlockView<'a> {
    /// All bytes of the block, as in [`SseEvent::raw`].
    pub raw: &'a [u8],
    pub(super) fields: FieldSpans,
}

impl<'a> BlockView<'a> {
    /// Returns the payload, if the block is a message with one `data` line, and without id and retry time.
    pub fn sole_message(&self) -> Option<&'a [u8]> {
        let FieldSpans { data, several, name, id, retry } = self.fields;
        let has_others = several || id.range().is_some() || retry.range().is_some();
        let is_message = name.range().is_none_or(|name| is_message(&self.raw[name]));
        data.range().filter(|_| !has_others && is_message).map(|data| &self.raw[data])
    }
}

fn is_message(name: &[u8]) -> bool {
    name.is_empty() || name == b"message"
}

/// A line of a block.
struct FieldLine<'a> {
    start: usize,
    text: &'a [u8],
    /// The line end, unchanged; empty if the block is cut off there.
    end: &'a [u8],
}

/// Returns the lines of a block.
fn lines(raw: &[u8]) -> impl Iterator<Item = FieldLine<'_>> {
    let mut next = 0;
    std::iter::from_fn(move || {
        let start = next;
        if start == raw.len() {
            return None;
        }
        let (end, after) = line_end(raw, start).unwrap_or((raw.len(), raw.len()));
        next = after;
        Some(FieldLine { start, text: &raw[start..end], end: &raw[end..after] })
    })
}

/// The beginning of a new event whose message is written in pieces.
pub const MESSAGE_HEAD: &[u8] = b"event: message\ndata: ";

/// The bytes that end an event after its message.
pub const EVENT_END: &[u8] = b"\n\n";

/// Returns a new block with `data`, which is JSON. The block is an event `message` without id and retry time.
pub fn write(data: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(data.len() + 32);
    append(&mut out, [data]);
    out.freeze()
}

/// Appends the same block that `write` returns. `data` may be divided anywhere.
pub fn append<T: AsRef<[u8]>>(out: &mut BytesMut, data: impl IntoIterator<Item = T>) {
    out.extend_from_slice(b"event: message\n");
    append_data(out, data);
    out.extend_from_slice(EVENT_END);
}

/// The beginning of a data line, as nearly all servers write it.
const DATA: &[u8] = b"data: ";

/// Returns the bytes before the data of a block that has a single data line, optionally preceded by the usual name, and
/// no other line.
fn usual_head(raw: &[u8]) -> Option<&[u8]> {
    let name = if raw.starts_with(b"event: message\n") { b"event: message\n".len() } else { 0 };
    let rest = raw[name..].strip_prefix(DATA)?;
    // The first line end is the second-last byte, so the block has no other line.
    let is_usual = memchr::memchr2(CR, LF, rest) == rest.len().checked_sub(2);
    (is_usual && rest.ends_with(b"\n\n")).then(|| &raw[..name + DATA.len()])
}

/// Appends a `data` line without its line end. Line ends in `data` are only white space of the JSON, so they can be
/// replaced.
fn append_data<T: AsRef<[u8]>>(out: &mut BytesMut, data: impl IntoIterator<Item = T>) {
    out.extend_from_slice(DATA);
    let mut at = out.len();
    for part in data {
        out.extend_from_slice(part.as_ref());
    }
    while let Some(found) = memchr::memchr2(CR, LF, &out[at..]) {
        out[at + found] = b' ';
        at += found + 1;
    }
}

/// Returns the block `raw` with `data`, which is JSON, in its first `data` line. Other `data` lines become comments,
/// and another event name becomes `message`. The rest is unchanged. A block without a `data` line gets one.
pub fn rewrite(raw: &[u8], data: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(raw.len() + data.len() + 32);
    append_rewritten(&mut out, raw, [data]);
    out.freeze()
}

/// Appends the same block that `rewrite` returns. `data` may be divided anywhere.
pub fn append_rewritten<T: AsRef<[u8]>>(
    out: &mut BytesMut,
    raw: &[u8],
    data: impl IntoIterator<Item = T>,
) {
    if let Some(head) = usual_head(raw) {
        out.extend_from_slice(&head[..head.len() - DATA.len()]);
        append_data(out, data);
        return out.extend_from_slice(b"\n\n");
    }
    let mut data = Some(data);
    for line in lines(raw) {
        if !matches!(named(&line), Some((Field::Data, _))) {
            append_renamed(out, &line);
            continue;
        }
        match data.take() {
            Some(data) => append_data(out, data),
            // An empty comment is left, because a CR before the removed line and an LF after it could become one line
            // end.
            None => out.extend_from_slice(b":"),
        }
        out.extend_from_slice(line.end);
    }
}

/// Returns the block `raw` with the event name `message` instead of another name. All other bytes are unchanged.
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

/// Returns the block `raw` without its id. All other bytes are unchanged.
pub fn without_id(raw: &Bytes) -> Bytes {
    let is_id = |line: &FieldLine<'_>| matches!(named(line), Some((Field::Id, _)));
    if !lines(raw).any(|line| is_id(&line)) {
        return raw.clone();
    }
    let mut out = BytesMut::with_capacity(raw.len());
    for line in lines(raw) {
        // An empty comment is left, because a CR before the removed line and an LF after it could become one line end.
        out.extend_from_slice(if is_id(&line) { b":" } else { line.text });
        out.extend_from_slice(line.end);
    }
    out.freeze()
}

fn append_renamed(out: &mut BytesMut, line: &FieldLine<'_>) {
    out.extend_from_slice(if is_foreign(line) { b"event: message" } else { line.text });
    out.extend_from_slice(line.end);
}

fn is_foreign(line: &FieldLine<'_>) -> bool {
    matches!(named(line), Some((Field::Event, name)) if !is_message(name))
}

/// Returns the field and the value of a line that is to be replaced. A byte order mark before the line is removed too,
/// because a stream does not need it, and it would spoil the new line.
fn named<'a>(line: &FieldLine<'a>) -> Option<(Field, &'a [u8])> {
    let text = match line.start {
        0 => line.text.strip_prefix(BOM).unwrap_or(line.text),
        _ => line.text,
    };
    field(text).map(|(field, value)| (field, &text[value..]))
}
