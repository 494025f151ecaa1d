//! Newline-delimited framing, as on stdio: bytes in, frames out, every byte kept. The module knows
//! nothing of JSON, of streams or of time.

use std::mem;

use bytes::{Buf, Bytes, BytesMut};

use super::unicode::BOM;

/// The longest line that is kept in memory as a whole, in bytes: 4 MiB.
///
/// All that is ever changed is far shorter: a request, progress, an answer to be repaired. What is longer is a result
/// that carries an image or a file, which passes in pieces instead of being held; each direction of a connection needs
/// this much memory at worst.
pub const INSPECT_MAX: usize = 4 << 20;

// Milepost has its own line reader: existing codecs copy into strings, demand UTF-8, and either have no limit or drop
// the bytes beyond the limit.

/// The next frame of the stream.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum LineFrame {
    /// One line, including its unchanged terminator (`\n`, `\r\n`), never blank.
    Line(Bytes),
    /// The first bytes of a line that is longer than the limit, as many as the limit allows; `Chunk`s and one `End`
    /// follow. Such a line is passed on even if it is blank, because finding that out would mean to keep all of it.
    Start(Bytes),
    /// A further piece of a long line, never empty; the last piece has the terminator.
    Chunk(Bytes),
    /// The long line is over.
    End {
        /// Whether the line ended with a newline, and not with the input.
        terminated: bool,
    },
    /// The bytes after the last newline at the end of the input, never blank.
    Rest(Bytes),
}

/// Cuts a stream of bytes into lines.
///
/// A line ends at the byte `\n` and nowhere else. Blank lines vanish, and so does one byte order
/// mark at the very start. How the input is cut has no influence on the frames, except on where
/// one `Chunk` ends and the next begins.
#[derive(Debug)]
pub struct Lines {
    limit: usize,
    /// The length of the input that is known to contain no newline, so that no byte is searched twice.
    searched: usize,
    state: LineState,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum LineState {
    /// No byte has been read yet: a byte order mark may follow.
    Fresh,
    /// In a line that may still turn out short enough.
    Short,
    /// In a line longer than the limit, some of which has been given out.
    Long,
    /// The whole of a long line has been given out, but not yet its end.
    Over,
}

impl Lines {
    /// `limit` is the longest line held whole, in bytes, its `\n` not counted; at least 1.
    pub fn new(limit: usize) -> Self {
        Self { limit: limit.max(1), searched: 0, state: LineState::Fresh }
    }

    /// Takes the next frame off the front of `input`, without copying; `None` if that needs more.
    ///
    /// The caller appends what it reads to the same `input` and takes nothing off it.
    pub fn decode(&mut self, input: &mut BytesMut) -> Option<LineFrame> {
        match self.state {
            // The first read may end within a byte order mark.
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

    /// Takes the rest after the end of the input; to be called until it returns `None`.
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
            // A newline directly after `limit` bytes still ends a short line, hence `+ 1`.
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
