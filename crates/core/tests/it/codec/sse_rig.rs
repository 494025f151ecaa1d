//! The parts that the tests and the fuzzing of server-sent events share: a reader that is written directly from the
//! specification, and a function that plays a stream in pieces.

use bytes::Bytes;
use milepost_core::protocol::sse;
use milepost_core::protocol::sse::{Events, Piece, SseFrame};

/// The fields of one block.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Block {
    /// The values of the block's `data` lines.
    pub data: Vec<Vec<u8>>,
    pub name: Option<Vec<u8>>,
    pub id: Option<Vec<u8>>,
    pub retry: Option<Vec<u8>>,
    /// The number of the block's bytes that count against a limit.
    pub size: usize,
}

impl Block {
    pub(crate) fn joined(&self) -> Option<Vec<u8>> {
        (!self.data.is_empty()).then(|| self.data.join(&b'\n'))
    }
}

/// Returns the blocks of a stream, read byte by byte as the specification says. Chunks play no role here.
pub(crate) fn reference(input: &[u8]) -> Vec<Block> {
    let input = input.strip_prefix("\u{FEFF}".as_bytes()).unwrap_or(input);
    let (mut blocks, mut block, mut line) = (Vec::new(), Block::default(), Vec::new());
    let mut before = 0;
    for &byte in input {
        let rest_of_crlf = before == b'\r' && byte == b'\n';
        before = byte;
        block.size += 1;
        match byte {
            b'\n' if rest_of_crlf => block.size -= usize::from(block.size == 1),
            b'\n' | b'\r' if line.is_empty() => blocks.push(std::mem::take(&mut block)),
            b'\n' | b'\r' => {
                field(&mut block, &line);
                line.clear();
            }
            _ => line.push(byte),
        }
    }
    blocks
}

fn field(block: &mut Block, line: &[u8]) {
    let (name, value) = match line.iter().position(|&byte| byte == b':') {
        Some(0) => return,
        Some(colon) => (&line[..colon], &line[colon + 1..]),
        None => (line, &b""[..]),
    };
    let value = if value.first() == Some(&b' ') { &value[1..] } else { value };
    match name {
        b"data" => block.data.push(value.to_vec()),
        b"event" => block.name = Some(value.to_vec()),
        b"id" if !value.contains(&0) => block.id = Some(value.to_vec()),
        b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
            block.retry = Some(value.to_vec());
        }
        _ => {}
    }
}

/// One block as the reader has returned it.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    Whole(sse::SseEvent),
    Long { data: Vec<u8>, any_data: bool, ended: bool },
}

/// A stream as the reader has returned it.
#[derive(Debug, Default)]
pub(crate) struct Played {
    pub seen: Vec<Seen>,
    pub rest: Bytes,
    /// Whether Milepost could have inserted a block after the stream.
    pub boundary: bool,
}

/// Plays a stream in these pieces. Asserts that every byte is returned once and in order, that no frame is empty or
/// comes at a wrong place, and that the reader asks for input only if it needs more.
pub(crate) fn play<'a>(limit: usize, pieces: impl IntoIterator<Item = &'a [u8]>) -> Played {
    let (mut events, mut input, mut output) = (Events::new(limit), Vec::new(), Vec::new());
    let mut peeking = Events::new(limit);
    let mut played = Played::default();
    for piece in pieces {
        events.push(Bytes::copy_from_slice(piece));
        peeking.push(Bytes::copy_from_slice(piece));
        input.extend_from_slice(piece);
        while let Some(frame) = events.next() {
            let within = matches!(played.seen.last(), Some(Seen::Long { ended: false, .. }));
            let goes_on = matches!(frame, SseFrame::Piece(_) | SseFrame::End);
            assert_eq!(within, goes_on, "out of turn: {frame:?}");
            assert_eq!(events.at_boundary(), matches!(frame, SseFrame::Event(_) | SseFrame::End));
            same(&mut peeking, &frame);
            take(&mut played.seen, &mut output, frame);
        }
        assert!(peeking.peek(0).is_none() && peeking.next().is_none());
        assert!(input.len() - output.len() <= limit.saturating_add(3), "too much is held");
    }
    played.rest = events.finish().unwrap_or_default();
    assert!(events.next().is_none() && events.finish().is_none(), "more after the end");
    played.boundary = events.at_boundary();
    output.extend_from_slice(&played.rest);
    assert_eq!(output.escape_ascii().to_string(), input.escape_ascii().to_string());
    played
}

/// Asserts that a reader which is used through `peek` and `skip` returns the same frame.
fn same(peeking: &mut Events, frame: &SseFrame) {
    let Some(block) = peeking.peek(0) else {
        let raw = |frame: &SseFrame| match frame {
            SseFrame::Event(event) => event.raw.clone(),
            SseFrame::Start(piece) | SseFrame::Piece(piece) => piece.raw.clone(),
            SseFrame::End => Bytes::new(),
        };
        return assert_eq!(peeking.next().as_ref().map(raw), Some(raw(frame)));
    };
    let SseFrame::Event(event) = frame else { unreachable!("{frame:?} is no block") };
    assert_eq!(block.raw, &event.raw[..]);
    let has_others = !event.is_message() || event.has_id() || event.retry().is_some();
    let sole = event.data().filter(|data| !has_others && !data.contains(&b'\n'));
    assert_eq!(block.sole_message(), sole.as_deref());
    assert_eq!(event.view().sole_message(), sole.as_deref());
    let next = block.raw.len();
    // `peek` also shows the block that follows.
    if let Some(behind) = peeking.peek(next).map(|behind| behind.raw.to_vec()) {
        peeking.skip(next);
        assert_eq!(peeking.peek(0).map(|block| block.raw), Some(&behind[..]));
    } else {
        peeking.skip(next);
    }
}

fn take(seen: &mut Vec<Seen>, output: &mut Vec<u8>, frame: SseFrame) {
    match frame {
        SseFrame::Event(event) => {
            assert!(!event.raw.is_empty());
            // The LF of a CRLF that was divided is not a block.
            let cut = output.last() == Some(&b'\r') && event.raw == "\n";
            output.extend_from_slice(&event.raw);
            if !cut {
                seen.push(Seen::Whole(event));
            }
        }
        SseFrame::Start(piece) => {
            seen.push(Seen::Long { data: Vec::new(), any_data: false, ended: false });
            more(seen, output, &piece);
        }
        SseFrame::Piece(piece) => more(seen, output, &piece),
        SseFrame::End => {
            let Some(Seen::Long { ended, .. }) = seen.last_mut() else { unreachable!() };
            *ended = true;
        }
    }
}

fn more(seen: &mut [Seen], output: &mut Vec<u8>, piece: &Piece) {
    assert!(!piece.raw.is_empty());
    output.extend_from_slice(&piece.raw);
    let Some(Seen::Long { data, any_data, .. }) = seen.last_mut() else { unreachable!() };
    if let Some(payload) = piece.data.clone() {
        let payload = &piece.raw[payload];
        assert!(!payload.contains(&b'\r') && !payload.contains(&b'\n'), "{piece:?}");
        data.extend_from_slice(payload);
        *any_data = true;
    }
}

/// Asserts that the played stream has the blocks that the reference reader finds.
pub(crate) fn agree(limit: usize, played: &Played, input: &[u8]) {
    let blocks = reference(input);
    let mut seen = &played.seen[..];
    if let [before @ .., Seen::Long { ended: false, .. }] = seen {
        assert!(!played.boundary && played.rest.is_empty());
        seen = before;
    }
    assert_eq!(seen.len(), blocks.len(), "{seen:?} {blocks:?}");
    for (at, (seen, block)) in seen.iter().zip(&blocks).enumerate() {
        match seen {
            Seen::Whole(event) => {
                assert!(block.size <= limit, "{event:?} is too long to be held");
                assert_eq!(event.data().map(|data| data.to_vec()), block.joined());
                assert_eq!(event.name().map(<[u8]>::to_vec), block.name);
                assert_eq!(event.id().map(<[u8]>::to_vec), block.id);
                assert_eq!(event.has_id(), block.id.is_some());
                let retry = event.retry().map(|line| [&line[..], b"\n\n"].concat());
                assert_eq!(retry.and_then(|line| reference(&line)[0].retry.clone()), block.retry);
                assert_eq!(
                    event.is_message(),
                    [None, Some(&b""[..]), Some(b"message")].contains(&block.name.as_deref())
                );
                changed(at, event, block);
            }
            Seen::Long { data, any_data, ended } => {
                assert!(block.size > limit && *ended);
                assert_eq!(*any_data, !block.data.is_empty());
                assert_eq!(*data, block.data.concat());
            }
        }
    }
}

/// Asserts that changing a block changes only what it has to change.
fn changed(at: usize, event: &sse::SseEvent, block: &Block) {
    let read = |raw: &[u8]| {
        // A byte order mark is ignored only at the start of a stream.
        let (before, skip) = if at == 0 { (&b""[..], 0) } else { (&b":\n\n"[..], 1) };
        let mut blocks = reference(&[before, raw].concat());
        assert_eq!(blocks.len(), skip + 1, "{}", raw.escape_ascii());
        // The name of a message may be empty.
        let name = blocks[skip].name.take().filter(|name| name != b"message" && !name.is_empty());
        Block { name, size: block.size, ..blocks.remove(skip) }
    };
    let renamed = sse::rename(&event.raw);
    let message = Block { name: None, ..block.clone() };
    assert_eq!(read(&renamed), message, "{}", renamed.escape_ascii());
    if event.data().is_some() {
        let rewritten = sse::rewrite(&event.raw, b"{\r\n}");
        let data = vec![b"{  }".to_vec()];
        assert_eq!(read(&rewritten), Block { data, ..message }, "{}", rewritten.escape_ascii());
    }
}
