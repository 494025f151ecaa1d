//! The stdio framing: every case is divided at every byte, and random bytes into random pieces.

use bytes::{Bytes, BytesMut};
use milepost_core::protocol::lines::LineFrame::{Chunk, End, Line, Rest, Start};
use milepost_core::protocol::lines::{INSPECT_MAX, LineFrame, Lines};
use proptest::prelude::*;

/// A limit that is short enough for cases of one source line.
const LIMIT: usize = 8;

/// Returns the frames of `pieces`, with neighbouring chunks joined, because only their ends may depend on the pieces.
fn frames<'a>(limit: usize, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<LineFrame> {
    let (mut lines, mut input, mut frames) = (Lines::new(limit), BytesMut::new(), Vec::new());
    for piece in pieces {
        input.extend_from_slice(piece);
        while let Some(frame) = lines.decode(&mut input) {
            push(&mut frames, frame);
        }
    }
    while let Some(frame) = lines.finish(&mut input) {
        push(&mut frames, frame);
    }
    assert!(input.is_empty(), "left over: {input:?}");
    frames
}

fn push(frames: &mut Vec<LineFrame>, frame: LineFrame) {
    assert!(!bytes(&frame).is_empty() || matches!(frame, End { .. }), "empty {frame:?}");
    match (frames.last_mut(), frame) {
        (Some(Chunk(last)), Chunk(more)) => *last = [&last[..], &more[..]].concat().into(),
        (_, frame) => frames.push(frame),
    }
}

fn bytes(frame: &LineFrame) -> &[u8] {
    match frame {
        Line(bytes) | Start(bytes) | Chunk(bytes) | Rest(bytes) => bytes,
        End { .. } => b"",
    }
}

#[track_caller]
fn check(input: &[u8], expected: &[LineFrame]) {
    for cut in 0..=input.len() {
        let (head, tail) = input.split_at(cut);
        assert_eq!(frames(LIMIT, [head, tail]), expected, "cut at {cut}");
    }
    assert_eq!(frames(LIMIT, input.chunks(1)), expected, "byte by byte");
}

fn line(text: &'static str) -> LineFrame {
    Line(Bytes::from_static(text.as_bytes()))
}

fn start(text: &'static str) -> LineFrame {
    Start(Bytes::from_static(text.as_bytes()))
}

fn chunk(text: &'static str) -> LineFrame {
    Chunk(Bytes::from_static(text.as_bytes()))
}

fn rest(text: &'static [u8]) -> LineFrame {
    Rest(Bytes::from_static(text))
}

#[test]
fn a_line_keeps_its_terminator_as_it_came() {
    check(b"a\nb\r\nc\r\r\n", &[line("a\n"), line("b\r\n"), line("c\r\r\n")]);
}

#[test]
fn only_a_newline_ends_a_line() {
    check(b"a\rb\x0B\x0C\n\0\n", &[line("a\rb\x0B\x0C\n"), line("\0\n")]);
    check("\u{2028}\u{85}\n".as_bytes(), &[line("\u{2028}\u{85}\n")]);
}

#[test]
fn bad_utf8_passes_as_it_is() {
    check(b"\xFF\xC3\n\x80", &[Line(Bytes::from_static(b"\xFF\xC3\n")), rest(b"\x80")]);
}

#[test]
fn blank_lines_vanish() {
    check(b"", &[]);
    check(b"\n\r\n \t \n\n", &[]);
    check(b"\na\n\n  \r\n b \n", &[line("a\n"), line(" b \n")]);
}

#[test]
fn what_follows_the_last_newline_comes_at_the_end() {
    check(b"a\nb", &[line("a\n"), rest(b"b")]);
    check(b"a\n \r", &[line("a\n")]);
}

#[test]
fn one_byte_order_mark_is_stripped_at_the_very_start() {
    check(b"\xEF\xBB\xBFa\n", &[line("a\n")]);
    check(b"\xEF\xBB\xBF\n", &[]);
    check(b"\xEF\xBB\xBF", &[]);
    check(b"\xEF\xBB\xBF\xEF\xBB\xBFa\n", &[line("\u{FEFF}a\n")]);
    check(b"\n\xEF\xBB\xBFa\n", &[line("\u{FEFF}a\n")]);
}

#[test]
fn half_a_byte_order_mark_is_text() {
    check(b"\xEF\xBB", &[rest(b"\xEF\xBB")]);
    check(b"\xEF\xBBa", &[rest(b"\xEF\xBBa")]);
    check(b"\xEF\n", &[Line(Bytes::from_static(b"\xEF\n"))]);
}

#[test]
fn the_mark_does_not_count_towards_the_limit() {
    check(b"\xEF\xBB\xBF12345678\n", &[line("12345678\n")]);
}

#[test]
fn a_line_of_just_the_limit_is_held_whole() {
    check(b"12345678\n", &[line("12345678\n")]);
    check(b"1234567\r\n", &[line("1234567\r\n")]);
    check(b"12345678", &[rest(b"12345678")]);
}

#[test]
fn a_longer_line_comes_in_pieces() {
    let over = End { terminated: true };
    check(b"123456789\n", &[start("12345678"), chunk("9\n"), over.clone()]);
    check(b"12345678\r\n", &[start("12345678"), chunk("\r\n"), over.clone()]);
    check(
        b"a\n1234567890 and more\n\nb\n",
        &[line("a\n"), start("12345678"), chunk("90 and more\n"), over, line("b\n")],
    );
}

#[test]
fn a_long_line_may_end_with_the_input() {
    check(b"123456789", &[start("12345678"), chunk("9"), End { terminated: false }]);
}

#[test]
fn a_blank_line_too_long_to_hold_passes() {
    check(b"          \n", &[start("        "), chunk("  \n"), End { terminated: true }]);
}

#[test]
fn a_long_line_starts_as_soon_as_it_is_known_to_be_long() {
    let (mut lines, mut input) = (Lines::new(LIMIT), BytesMut::from(&b"12345678"[..]));
    assert_eq!(lines.decode(&mut input), None);
    input.extend_from_slice(b"9");
    assert_eq!(lines.decode(&mut input), Some(start("12345678")));
    assert_eq!(lines.decode(&mut input), Some(chunk("9")));
    assert_eq!(lines.decode(&mut input), None);
}

#[test]
fn a_frame_is_a_slice_of_what_was_read() {
    let (mut lines, mut input) = (Lines::new(LIMIT), BytesMut::from(&b"ab\ncd\n"[..]));
    let read = input.as_ptr();
    let Some(Line(first)) = lines.decode(&mut input) else { panic!("no line") };
    assert_eq!(first.as_ptr(), read);
}

/// If every byte were searched again with each piece, this line of 4 MiB would take about 10^11 steps.
#[test]
fn the_longest_line_may_come_in_small_pieces() {
    let text = [&vec![b'x'; INSPECT_MAX][..], b"\n"].concat();
    let frames = frames(INSPECT_MAX, text.chunks(64));
    assert!(matches!(&frames[..], [Line(line)] if line.len() == INSPECT_MAX + 1));
}

/// Returns the output that is expected for `input`: the input without its byte order mark and its blank lines.
fn kept(limit: usize, input: &[u8]) -> Vec<u8> {
    let input = input.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(input);
    let vanishes = |line: &[u8]| {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        text.len() <= limit && text.trim_ascii().is_empty()
    };
    input
        .split_inclusive(|&byte| byte == b'\n')
        .filter(|line| !vanishes(line))
        .flatten()
        .copied()
        .collect()
}

/// Bytes of which most have a meaning for a framer.
fn ugly() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        3 => Just(b'\n'), 1 => Just(b'\r'), 2 => Just(b' '), 4 => Just(b'x'),
        1 => Just(0xEF), 1 => Just(0xBB), 1 => Just(0xBF), 1 => any::<u8>(),
    ];
    let head = prop_oneof![3 => Just(&b""[..]), 1 => Just(&b"\xEF\xBB\xBF"[..])];
    (head, prop::collection::vec(byte, 0..64)).prop_map(|(head, tail)| [head, &tail].concat())
}

pub(crate) fn cut<'a>(mut input: &'a [u8], sizes: &[usize]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    for &size in sizes {
        let (piece, more) = input.split_at(size.min(input.len()));
        pieces.push(piece);
        input = more;
    }
    pieces.push(input);
    pieces
}

proptest! {
    #[test]
    fn any_bytes_in_any_pieces(
        limit in 1_usize..12,
        input in ugly(),
        sizes in prop::collection::vec(0_usize..9, 0..32),
    ) {
        let frames_cut = frames(limit, cut(&input, &sizes));
        let all: Vec<u8> = frames_cut.iter().flat_map(bytes).copied().collect();
        prop_assert_eq!(all, kept(limit, &input));
        prop_assert_eq!(&frames_cut, &frames(limit, [&input[..]]));
        for frame in &frames_cut {
            match frame {
                Line(line) => {
                    prop_assert!(line.ends_with(b"\n") && line.len() <= limit + 1);
                    prop_assert!(!line.trim_ascii().is_empty());
                }
                Start(start) => prop_assert_eq!(start.len(), limit),
                Rest(rest) => prop_assert!(rest.len() <= limit.max(2) && !rest.trim_ascii().is_empty()),
                Chunk(_) | End { .. } => {}
            }
        }
    }
}
