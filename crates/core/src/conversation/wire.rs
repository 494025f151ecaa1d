//! A conversation in lines: the bytes of both sides are cut into messages, and every message that is written has a line
//! end.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use crate::progress::{Fragment, Payload, StreamId};
use crate::protocol::jsonrpc::Scan;
use crate::protocol::lines::{LineFrame, Lines};

/// The client stream of a conversation in lines.
pub(crate) const SOLE_STREAM: StreamId = StreamId(0);

/// The framing of both sides.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) from_client: WireReader,
    pub(crate) from_server: WireReader,
    pub(crate) to_client: WireWriter,
    pub(crate) to_server: WireWriter,
    /// The envelope, as far as it is read, of a client message that is too long to be kept whole.
    pub(crate) large: Scan,
}

impl Wire {
    /// Returns framing that keeps lines of up to `max` bytes whole.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            from_client: WireReader::new(max),
            from_server: WireReader::new(max),
            to_client: WireWriter::default(),
            to_server: WireWriter::default(),
            large: Scan::default(),
        }
    }
}

/// Splits bytes, which may arrive in any pieces, into lines.
#[derive(Debug)]
pub(crate) struct WireReader {
    lines: Lines,
    input: BytesMut,
}

impl WireReader {
    fn new(max: usize) -> Self {
        Self { lines: Lines::new(max), input: BytesMut::new() }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// Returns the next frame of the bytes that were pushed.
    pub(crate) fn next(&mut self) -> Option<LineFrame> {
        self.lines.decode(&mut self.input)
    }

    /// Returns the next frame after the end of the input.
    pub(crate) fn finish(&mut self) -> Option<LineFrame> {
        self.lines.finish(&mut self.input)
    }
}

/// Writes messages as lines. No other message is written between two pieces of one message.
#[derive(Debug, Default)]
pub(crate) struct WireWriter {
    /// Whether pieces of a message have been written without a line end.
    midway: bool,
    /// Whole messages that wait until the unfinished line has ended.
    waiting: Vec<(StreamId, Bytes)>,
}

impl WireWriter {
    /// Writes a message, or a part of a message, to `out`.
    pub(crate) fn put(
        &mut self,
        payload: &Payload,
        part: Fragment,
        stream: StreamId,
        out: &mut VecDeque<(StreamId, Bytes)>,
    ) {
        let bytes = payload.to_bytes();
        let is_line = bytes.last().map(|last| *last == b'\n');
        match (part, is_line) {
            (Fragment::Whole, None) => return,
            (Fragment::Whole, Some(is_line)) => {
                let line = if is_line { bytes } else { with_newline(&bytes) };
                if self.midway {
                    self.waiting.push((stream, line));
                } else {
                    out.push_back((stream, line));
                }
                return;
            }
            (Fragment::Piece | Fragment::End | Fragment::Broken, Some(is_line)) => {
                out.push_back((stream, bytes));
                self.midway = !is_line;
            }
            (Fragment::Piece | Fragment::End | Fragment::Broken, None) => {}
        }
        if part != Fragment::Piece && std::mem::take(&mut self.midway) {
            out.push_back((stream, Bytes::from_static(b"\n")));
        }
        if !self.midway {
            out.extend(self.waiting.drain(..));
        }
    }
}

fn with_newline(bytes: &[u8]) -> Bytes {
    let mut line = BytesMut::with_capacity(bytes.len() + 1);
    line.extend_from_slice(bytes);
    line.extend_from_slice(b"\n");
    line.freeze()
}
