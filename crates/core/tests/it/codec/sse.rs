//! Server-sent events: every case is divided at every byte, and random bytes into random pieces.

use bytes::{Bytes, BytesMut};
use milepost_core::protocol::lines::INSPECT_MAX;
use milepost_core::protocol::sse;
use milepost_core::protocol::sse::{Events, Piece, SseEvent, SseFrame};
use proptest::prelude::*;

use crate::codec::lines::cut;
use crate::codec::sse_rig::{Played, Seen, agree, play};

/// A limit that is longer than any block of a case.
const LIMIT: usize = 1 << 10;

/// Returns the blocks that were read, one on each line: the fields of a block, or `-` if it has none.
fn told(played: &Played) -> Vec<String> {
    let mut told: Vec<String> = played.seen.iter().map(block).collect();
    if !played.rest.is_empty() {
        told.push(format!("rest {}", played.rest.escape_ascii()));
    }
    told
}

fn block(seen: &Seen) -> String {
    let mut said = Vec::new();
    let mut say = |name: &str, value: Option<&[u8]>| {
        said.extend(value.map(|value| format!("{name}={}", value.escape_ascii())));
    };
    match seen {
        Seen::Whole(event) => {
            say("event", event.name());
            say("data", event.data().as_deref());
            say("id", event.id());
            say("retry", event.retry().as_deref());
        }
        Seen::Long { data, any_data, .. } => say("long data", any_data.then_some(&data[..])),
    }
    if said.is_empty() { "-".to_owned() } else { said.join(" ") }
}

/// Checks the blocks of `input`: divided in two at every place, and byte by byte. Repeats this with every limit that is
/// too short for the blocks.
#[track_caller]
fn check(input: impl AsRef<[u8]>, expected: &[&str]) {
    let input = input.as_ref();
    for limit in (0..=input.len()).chain([LIMIT]) {
        for cut in 0..=input.len() {
            let (head, tail) = input.split_at(cut);
            let played = play(limit, [head, tail]);
            agree(limit, &played, input);
            if limit == LIMIT {
                assert_eq!(told(&played), expected, "cut at {cut}");
            }
        }
        let played = play(limit, input.chunks(1));
        agree(limit, &played, input);
        if limit == LIMIT {
            assert_eq!(told(&played), expected, "byte by byte");
        }
    }
}

#[test]
fn a_blank_line_ends_an_event() {
    check("data: a\n\ndata: b\n\n", &["data=a", "data=b"]);
    check("event: message\ndata: {}\n\n", &["event=message data={}"]);
    check("", &[]);
}

#[test]
fn lines_end_at_cr_lf_or_both_in_any_mixture() {
    check("data: a\r\n\r\ndata: b\r\n\r\n", &["data=a", "data=b"]);
    check("data: a\r\rdata: b\r\r", &["data=a", "data=b"]);
    check("data: a\r\n\ndata: b\n\r\ndata: c\r\r\n", &["data=a", "data=b", "data=c"]);
    check("data: a\n\rdata: b\r\n\rdata: c\n\n", &["data=a", "data=b", "data=c"]);
    check("data: a\rdata: b\ndata: c\r\n\r\n", &[r"data=a\nb\nc"]);
}

#[test]
fn blank_lines_are_blocks_without_fields() {
    check("\n\r\r\n\n", &["-", "-", "-", "-"]);
    check("data: a\r\n\r\n\r\n\r\n", &["data=a", "-", "-"]);
    check("data: a\n\n\ndata: b\n\n", &["data=a", "-", "data=b"]);
}

#[test]
fn only_cr_and_lf_end_a_line() {
    check("data: a\u{2028}b\u{2029}c\u{85}d\n\n", &[r"data=a\xe2\x80\xa8b\xe2\x80\xa9c\xc2\x85d"]);
    check("data: a\x0B\x0C\0b\n\n", &[r"data=a\x0b\x0c\x00b"]);
}

#[test]
fn one_space_after_the_colon_is_none_of_the_value() {
    check("data:{}\n\n", &["data={}"]);
    check("data:  {} \n\n", &["data= {} "]);
    check("data:\ta\n\n", &[r"data=\ta"]);
    check("data: \n\n", &["data="]);
    check("data:\n\n", &["data="]);
    check("data::a\n\n", &["data=:a"]);
}

#[test]
fn a_line_without_a_colon_is_a_field_without_a_value() {
    check("data\n\n", &["data="]);
    check("data\ndata\n\n", &[r"data=\n"]);
    check("id\nevent\nretry\n\n", &["event= id="]);
}

#[test]
fn several_data_lines_are_joined() {
    check("data: {\ndata: }\n\n", &[r"data={\n}"]);
    check("data: {\nid: 1\ndata\n: or so\ndata:}\n\n", &[r"data={\n\n} id=1"]);
}

#[test]
fn names_are_compared_exactly() {
    check("Data: a\nDATA: a\ndata : a\n data: a\ndatas: a\ndat: a\n\n", &["-"]);
    check("x-trace: 1\ndata: a\nidx: 1\neventually: 1\n\n", &["data=a"]);
}

#[test]
fn comments_say_nothing() {
    check(": keep-alive\n\n", &["-"]);
    check(":\n:data: a\n\n", &["-"]);
    check(": data: a\ndata: b\n:\n\n", &["data=b"]);
}

#[test]
fn the_last_field_of_a_name_counts() {
    check(
        "id: 1\nevent: a\nretry: 1\nid: 2\nevent: b\nretry: 2\n\n",
        &["event=b id=2 retry=retry: 2"],
    );
    check("event: a\nevent\n\n", &["event="]);
}

#[test]
fn an_id_with_nul_is_none() {
    check("id: a\0b\n\n", &["-"]);
    check("id: 1\nid: \0\ndata: a\n\n", &["data=a id=1"]);
    check("id\n\n", &["id="]);
    check("id: \n\n", &["id="]);
}

#[test]
fn a_retry_is_digits_only() {
    check("retry: 500\n\n", &["retry=retry: 500"]);
    check("retry:0500\r\n\r\n", &["retry=retry:0500"]);
    check("retry: 1\nretry: 5s\nretry: -5\nretry:  5\nretry: 5.0\nretry:\n\n", &["retry=retry: 1"]);
    check("retry: \u{663}\n\n", &["-"]);
}

#[test]
fn bad_utf8_passes_as_it_is() {
    check(b"data: \xFF\xC3\n\n", &[r"data=\xff\xc3"]);
    check(b"\xC3data: a\n\n", &["-"]);
}

#[test]
fn an_event_without_data_may_carry_an_id() {
    check("id: p0\nretry: 500\n\n", &["id=p0 retry=retry: 500"]);
    check("id: p0\ndata: \n\n", &["data= id=p0"]);
}

#[test]
fn what_the_end_breaks_off_is_no_event() {
    check("data: a\n\ndata: b\n", &["data=a", r"rest data: b\n"]);
    check("data: b", &["rest data: b"]);
    check("data: b\r", &[r"rest data: b\r"]);
    check("data: b\r\n", &[r"rest data: b\r\n"]);
}

#[test]
fn one_byte_order_mark_is_ignored_at_the_very_start() {
    check("\u{FEFF}data: a\n\n", &["data=a"]);
    check("\u{FEFF}\n", &["-"]);
    check("\u{FEFF}: ping\r\n\r\n", &["-"]);
    check("\u{FEFF}", &[r"rest \xef\xbb\xbf"]);
    check("\u{FEFF}\u{FEFF}data: a\n\n", &["-"]);
    check("\n\u{FEFF}data: a\n\n", &["-", "-"]);
}

#[test]
fn half_a_byte_order_mark_is_text() {
    check(b"\xEF\xBB", &[r"rest \xef\xbb"]);
    check(b"\xEF\xBB\n\n", &["-"]);
    check(b"\xEFdata: a\n\n", &["-"]);
    check(b"\xEF\xBB\xBEdata: a\n\ndata: b\n\n", &["-", "data=b"]);
}

#[test]
fn a_byte_order_mark_behind_something_of_ours_is_dropped() {
    for cut in 0..=3 {
        let input = Bytes::from("\u{FEFF}data: a\n\n");
        let mut events = Events::new(LIMIT);
        events.drop_mark();
        events.push(input.slice(..cut));
        assert!(events.next().is_none());
        events.push(input.slice(cut..));
        assert_eq!(event(&mut events).raw, "data: a\n\n");
    }
}

fn event(events: &mut Events) -> SseEvent {
    match events.next() {
        Some(SseFrame::Event(event)) => event,
        other => panic!("no event: {other:?}"),
    }
}

fn events(input: &'static str) -> Events {
    let mut events = Events::new(LIMIT);
    events.push(Bytes::from_static(input.as_bytes()));
    events
}

/// Returns the only event that our reader finds in `input`.
fn one(input: &'static str) -> SseEvent {
    event(&mut events(input))
}

#[test]
fn no_event_waits_for_the_rest_of_a_line_end() {
    let mut events = events("data: a\r\n\r");
    assert_eq!(event(&mut events).raw, "data: a\r\n\r");
    assert!(events.next().is_none() && events.at_boundary());
    events.push(Bytes::from_static(b"\n"));
    let rest = event(&mut events);
    assert_eq!((&rest.raw[..], rest.data()), (&b"\n"[..], None));
    assert!(events.at_boundary());
    events.push(Bytes::from_static(b"data: b\r\n\r\n"));
    assert_eq!(event(&mut events).raw, "data: b\r\n\r\n");
}

#[test]
fn ours_goes_only_between_events() {
    let mut events = events("data: a\n\ndata: b");
    assert!(events.at_boundary());
    assert!(events.next().is_some() && events.next().is_none());
    assert!(events.at_boundary(), "nothing of the second has been given out");
    assert_eq!(events.finish().unwrap(), "data: b");
    assert!(!events.at_boundary());
}

#[test]
fn an_event_in_one_chunk_is_a_slice_of_it() {
    let input = Bytes::from("data: a\n\ndata: b\ndata: c\n\n");
    let mut events = Events::new(LIMIT);
    events.push(input.clone());
    let (one, two) = (event(&mut events), event(&mut events));
    assert_eq!(one.raw.as_ptr(), input.as_ptr());
    assert_eq!(one.data().unwrap().as_ptr(), input[6..].as_ptr());
    assert_eq!(two.raw.as_ptr(), input[9..].as_ptr());
}

fn piece(raw: &'static str, data: Option<&str>) -> Piece {
    let at = data.map(|data| raw.find(data).unwrap()..raw.find(data).unwrap() + data.len());
    Piece { raw: Bytes::from_static(raw.as_bytes()), data: at }
}

fn pieces(events: &mut Events) -> Vec<Option<Piece>> {
    let frames = std::iter::from_fn(|| events.next());
    frames
        .map(|frame| match frame {
            SseFrame::Start(piece) | SseFrame::Piece(piece) => Some(piece),
            SseFrame::End => None,
            SseFrame::Event(event) => Some(Piece { raw: event.raw, data: None }),
        })
        .collect()
}

#[test]
fn a_longer_event_comes_line_by_line() {
    let mut events = Events::new(16);
    events.push(Bytes::from_static(b"id: 1\r\ndata:ab"));
    assert_eq!(pieces(&mut events), []);
    events.push(Bytes::from_static(b"cdef\r"));
    assert_eq!(
        pieces(&mut events),
        [
            // The first piece ends within the payload, because the payload shows the kind of the message. The lines
            // before it come with it.
            Some(piece("id: 1\r\ndata:ab", Some("ab"))),
            Some(piece("cdef\r", Some("cdef"))),
        ]
    );
    assert!(!events.at_boundary());
    events.push(Bytes::from_static(b"\ndat"));
    assert_eq!(pieces(&mut events), [Some(piece("\ndat", None))]);
    events.push(Bytes::from_static(b"a: gh\r\n\r\n: c\n\n"));
    assert_eq!(
        pieces(&mut events),
        [
            Some(piece("a: gh\r\n", Some("gh"))),
            Some(piece("\r\n", None)),
            None,
            Some(piece(": c\n\n", None)),
        ]
    );
    assert!(events.at_boundary());
}

#[test]
fn an_event_of_just_the_limit_is_held_whole() {
    let whole = |input: &[u8]| matches!(play(9, [input]).seen[..], [Seen::Whole(_)]);
    assert!(whole(b"data: a\n\n") && whole(b"data: a\n\r\n") && whole(b"\xEF\xBB\xBFdata: a\n\n"));
    assert!(!whole(b"data: ab\n\n") && !whole(b"data: a\r\n\r\n"));
}

/// If every byte were searched again with each piece, this event would take about 10^11 steps.
#[test]
fn the_longest_event_may_come_in_small_pieces() {
    let text = "x".repeat(INSPECT_MAX - "data: \n\n".len());
    let input = format!("data: {text}\n\n");
    let played = play(INSPECT_MAX, input.as_bytes().chunks(64));
    assert!(matches!(&played.seen[..], [Seen::Whole(event)] if event.data().unwrap() == text));
    let input = format!("data: {text}x\n\n");
    let played = play(INSPECT_MAX, input.as_bytes().chunks(64));
    assert!(matches!(&played.seen[..], [Seen::Long { ended: true, .. }]));
}

/// The memory that is needed while a long event passes stays below the limit, whatever the size of the event.
#[test]
fn a_long_event_takes_no_memory() {
    let mut events = Events::new(1 << 10);
    let line = Bytes::from("x".repeat(1 << 10));
    events.push(Bytes::from_static(b"data: "));
    assert!(events.next().is_none());
    for at in 0..4 << 10 {
        events.push(line.clone());
        let mut passed = 0;
        while let Some(SseFrame::Start(piece) | SseFrame::Piece(piece)) = events.next() {
            // Bytes that arrive are returned without a copy.
            assert!(at == 0 || piece.raw.as_ptr() == line.as_ptr());
            passed += piece.raw.len();
        }
        assert_eq!(passed, if at == 0 { line.len() + 6 } else { line.len() });
    }
    assert!(events.finish().is_none() && !events.at_boundary());
}

#[test]
fn what_we_write_is_one_message() {
    assert_eq!(sse::write(b"{\"a\":1}"), "event: message\ndata: {\"a\":1}\n\n");
    assert_eq!(sse::write(b"{\r\n\"a\":\r1\n}"), "event: message\ndata: {  \"a\": 1 }\n\n");
    let (mut out, parts) = (BytesMut::from("x\n"), [Bytes::from("{"), Bytes::new(), "\n}".into()]);
    sse::append(&mut out, &parts);
    assert_eq!(out, "x\nevent: message\ndata: { }\n\n");
}

#[test]
fn the_comment_of_ours_is_no_event() {
    check(sse::COMMENT, &["-"]);
}

#[track_caller]
fn check_rewritten(block: &'static str, expected: &str) {
    assert_eq!(sse::rewrite(&one(block).raw, b"NEW"), expected);
    let mut out = BytesMut::from("before\n\n");
    sse::append_rewritten(&mut out, block.as_bytes(), [b"N", b"E", b"W"]);
    assert_eq!(out, format!("before\n\n{expected}"));
}

#[test]
fn new_data_stands_in_place_of_the_old() {
    check_rewritten("data: a\n\n", "data: NEW\n\n");
    check_rewritten("data\r\n\r\n", "data: NEW\r\n\r\n");
    check_rewritten(
        "event: message\ndata:a\nid: 5\nretry: 1\n: c\nx: y\n\n",
        "event: message\ndata: NEW\nid: 5\nretry: 1\n: c\nx: y\n\n",
    );
    check_rewritten("data: {\ndata: }\nid: 5\n\n", "data: NEW\n:\nid: 5\n\n");
}

/// If the second `data` line were removed completely, the CR before it and the LF after it would become one line end.
#[test]
fn lines_around_one_that_goes_do_not_run_together() {
    check_rewritten("data: a\rdata: b\n\n", "data: NEW\r:\n\n");
    check_rewritten("data: a\nid: 5\rdata: b\r\n\r\n", "data: NEW\nid: 5\r:\r\n\r\n");
}

#[test]
fn an_event_without_data_is_given_none() {
    check_rewritten("id: 5\n\n", "id: 5\n\n");
    check_rewritten("\n", "\n");
}

#[test]
fn a_rewritten_event_is_a_message() {
    check_rewritten("event: mcpResponse\ndata: a\n\n", "event: message\ndata: NEW\n\n");
    check_rewritten("event\ndata: a\n\n", "event\ndata: NEW\n\n");
    check_rewritten("data: a\r\nevent:x\r\n\r\n", "data: NEW\r\nevent: message\r\n\r\n");
}

#[test]
fn a_byte_order_mark_goes_with_the_line_behind_it() {
    check_rewritten("\u{FEFF}data: a\n\n", "data: NEW\n\n");
    check_rewritten("\u{FEFF}event: x\ndata: a\n\n", "event: message\ndata: NEW\n\n");
    check_rewritten("\u{FEFF}id: 1\ndata: a\n\n", "\u{FEFF}id: 1\ndata: NEW\n\n");
}

#[track_caller]
fn check_renamed(block: &'static str, expected: &str) {
    assert_eq!(sse::rename(&one(block).raw), expected);
}

#[test]
fn another_name_becomes_message() {
    check_renamed("event: mcpResponse\ndata: a\n\n", "event: message\ndata: a\n\n");
    check_renamed(
        "id:5\r\nevent:x\r\n: c\r\ndata:a\r\ndata:b\r\n\r\n",
        "id:5\r\nevent: message\r\n: c\r\ndata:a\r\ndata:b\r\n\r\n",
    );
    check_renamed("event: a\nevent: b\n\n", "event: message\nevent: message\n\n");
}

#[test]
fn a_message_stays_as_it_is() {
    for block in ["data: a\n\n", "event: message\ndata: a\n\n", "event:message\r\r", "event\n\n"] {
        let raw = one(block).raw;
        assert_eq!(sse::rename(&raw).as_ptr(), raw.as_ptr());
    }
}

/// Changing bytes that are not a block is a misuse, but must not panic.
#[test]
fn half_a_block_can_be_changed() {
    for raw in ["", "data", "data: a\n", "event: x", "id: 5\r", "\u{FEFF}", "\n\n"] {
        let raw = Bytes::from_static(raw.as_bytes());
        sse::rewrite(&raw, b"{}");
        sse::rename(&raw);
    }
}

/// Bytes of which most have a meaning in event streams.
fn ugly() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::sample::select(vec![
        "\n", "\r", "\r\n", "\n\n", "\r\n\r\n", "data", "event", "id", "retry", ":", ": ", " ",
        "data: ", "\ndata:", "message", "x", "5", "{}", "\0", "\u{FEFF}", "\u{2028}", "da",
    ]);
    let word = prop_oneof![
        12 => words.prop_map(|word| word.as_bytes().to_vec()),
        1 => any::<u8>().prop_map(|byte| vec![byte]),
    ];
    prop::collection::vec(word, 0..40).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn any_bytes_in_any_pieces(
        limit in prop_oneof![0_usize..40, Just(LIMIT)],
        input in ugly(),
        sizes in prop::collection::vec(0_usize..12, 0..24),
    ) {
        let played = play(limit, cut(&input, &sizes));
        agree(limit, &played, &input);
        prop_assert_eq!(told(&played), told(&play(limit, [&input[..]])));
    }
}
