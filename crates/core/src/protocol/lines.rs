//! Newline-delimited framing, as on stdio: turns bytes into frames, and keeps every byte. Does not depend on JSON,
//! streams or time.

use std::mem;

use bytes::{Buf, Bytes, BytesMut};

use super::unicode::BOM;

/// Limit of the length of a line that is kept in memory as a whole, in bytes: 4 MiB.
///
/// Everything that may have to be changed is far shorter: a request, progress, an answer that needs a repair. A longer
/// line is a result with an image or a file, which is forwarded in pieces instead. Each direction of a connection needs
/// at most this much memory.
pub const INSPECT_MAX: usize = 4 << 20;

// Milepost has its own line reader, because existing codecs copy into strings, require UTF-8, and either have no limit
// or drop the bytes beyond the limit.

/// The next frame of the stream.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum LineFrame {
    /// One line, including its unchanged terminator (`\n`, `\r\n`), never blank.
    Line(Bytes),
    /// The first bytes of a line that is longer than the limit, as many as the limit allows; `Chunk`s and one `End`
    /// follow. The line is forwarded even if it is blank, because it would have to be kept completely to find that out.
    Start(Bytes),
    /// A further piece of a long line, never empty; the last piece has the terminator.
    Chunk(Bytes),
    /// The end of a long line.
    End {
        /// Whether the line ended with a newline; otherwise the input has ended.
        terminated: bool,
    },
    /// The bytes after the last newline at the end of the input, never blank.
    Rest(Bytes),
}

/// Cuts a stream of bytes into lines.
///
/// A line ends only at the byte `\n`. Blank lines are dropped, and so is a byte order mark at the start of the stream.
/// The frames do not depend on the pieces in which the input arrives, except that a `Chunk` may end elsewhere.
#[derive(Debug)]
pub struct Lines {
    limit: usize,
    /// The length of the input that is known to contain no newline, so that no byte is searched twice.
    searched: usize,
    state: LineState,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum LineState {
    /// No byte has been read yet, so a byte order mark may follow.
    Fresh,
    /// Within a line that is not longer than the limit so far.
    Short,
    /// Within a line that is longer than the limit, and that was returned in part.
    Long,
    /// After a long line that was returned completely, except for its `End`.
    Over,
}

impl Lines {
    /// Returns a reader. `limit` is the length of the longest line that is kept whole, in bytes without its `\n`; at
    /// least 1.
    pub fn new(limit: usize) -> Self {
        Self { limit: limit.max(1), searched: 0, state: LineState::Fresh }
    }

    /// Takes the next frame from the beginning of `input`, without copying; `None` if more input is needed.
    ///
    /// The caller appends what it reads to the same `input`, and must not remove anything from it.
    pub fn decode(&mut self, input: &mut BytesMut) -> Option<LineFrame> {
        match self.state {
            // The first bytes may be an incomplete byte order mark.
            LineState::Fresh if BOM.starts_with(input) && input.len() < BOM.len() => return None,
            LineState::Fresh => {
                if input.starts_with(BOM) {
                    input.advance(BOM.len());
                }
                self.state = LineState::Short;
            }
            LineState::Short | LineState::Long | LineState::Over => {}
        }
        match self.state {
            LineState::Fresh | LineState::Short => self.short(input),
            LineState::Long => self.long(input),
            LineState::Over => {
                self.state = LineState::Short;
                Some(LineFrame::End { terminated: true })
            }
        }
    }

    /// Returns the frames that are left after the end of the input. Call it until it returns `None`.
    pub fn finish(&mut self, input: &mut BytesMut) -> Option<LineFrame> {
        if let Some(frame) = self.decode(input) {
            return Some(frame);
        }
        if self.state == LineState::Long {
            self.state = LineState::Short;
            return Some(LineFrame::End { terminated: false });
        }
        self.searched = 0;
        let rest = mem::take(input).freeze();
        (!is_blank(&rest)).then_some(LineFrame::Rest(rest))
    }

    fn short(&mut self, input: &mut BytesMut) -> Option<LineFrame> {
        loop {
            // `+ 1`, because a newline directly after `limit` bytes still ends a short line.
            let window = input.len().min(self.limit + 1);
            let from = self.searched.min(window);
            let Some(found) = memchr::memchr(b'\n', &input[from..window]) else { break };
            self.searched = 0;
            let line = input.split_to(from + found + 1).freeze();
            if !is_blank(&line) {
                return Some(LineFrame::Line(line));
            }
        }
        if input.len() <= self.limit {
            self.searched = input.len();
            return None;
        }
        self.searched = 0;
        self.state = LineState::Long;
        Some(LineFrame::Start(input.split_to(self.limit).freeze()))
    }

    fn long(&mut self, input: &mut BytesMut) -> Option<LineFrame> {
        let chunk = match memchr::memchr(b'\n', input) {
            Some(found) => {
                self.state = LineState::Over;
                input.split_to(found + 1)
            }
            None => input.split(),
        };
        (!chunk.is_empty()).then(|| LineFrame::Chunk(chunk.freeze()))
    }
}

fn is_blank(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}
