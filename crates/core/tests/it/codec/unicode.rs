//! Text that is not Unicode, in any pieces.

use milepost_core::protocol::json;
use milepost_core::protocol::jsonrpc::Message;
use milepost_core::protocol::unicode::{
    ReadablePiece, ReadablePieces, TextEnd, is_readable, is_readable_so_far, readable,
};
use proptest::prelude::*;

/// Returns the readable form of a text that arrives in pieces, and whether it was changed.
fn in_pieces<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<u8>, bool) {
    let mut reader = ReadablePieces::default();
    let mut out = Vec::new();
    let last: &[u8] = b"";
    let ended =
        pieces.into_iter().map(|piece| (piece, TextEnd::Open)).chain([(last, TextEnd::Here)]);
    for (piece, end) in ended {
        match reader.feed(piece, end) {
            ReadablePiece::AsItIs(length) => out.extend_from_slice(&piece[..length]),
            ReadablePiece::Instead(text) => out.extend(text),
        }
    }
    assert!(reader.is_empty());
    (out, reader.is_changed())
}

fn part() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        any::<Vec<u8>>(),
        any::<String>().prop_map(String::into_bytes),
        prop::sample::select(vec![
            "\\",
            "\\\\",
            "\\u",
            "\\ud83d",
            "\\uDE00",
            "\\ud83d\\ude00",
            "\\u0041",
            "\\n",
            "d83d",
            "u",
            "\u{1f600}",
            "\u{e9}",
            "plain text",
            "\"",
            "\t",
            "\r\n",
            "\u{1}",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
        prop::sample::select(vec![&b"\xe4\xb8"[..], b"\xf0\x9f\x98", b"\xff", b"\xed\xa0\xbd"])
            .prop_map(<[u8]>::to_vec),
    ]
}

proptest! {
    /// The result does not depend on the pieces, a readable text stays unchanged, and the result is always readable.
    #[test]
    fn a_text_is_readable_however_it_is_cut(
        parts in prop::collection::vec(part(), 0..12),
        length in 1_usize..40,
    ) {
        let text = parts.concat();
        let whole = readable(&text);
        let expected = whole.clone().unwrap_or_else(|| text.clone());
        prop_assert_eq!(in_pieces(text.chunks(length)), (expected.clone(), whole.is_some()));
        prop_assert_eq!(in_pieces([&text[..]]), (expected.clone(), whole.is_some()));
        prop_assert!(readable(&expected).is_none());
        prop_assert!(std::str::from_utf8(&expected).is_ok());
        if is_readable(&text) {
            prop_assert_eq!(&expected, &text);
        }
        for end in 0..=text.len() {
            prop_assert!(whole.is_some() || is_readable_so_far(&text[..end]));
        }
    }

    /// A repaired string means the same as the original string to lenient readers.
    #[test]
    fn a_string_means_the_same_as_to_lenient_readers(parts in prop::collection::vec(part(), 0..8)) {
        let text = [b"\"", &parts.concat()[..], b"\""].concat();
        let is_closed = text[1..text.len() - 1].iter().any(|byte| matches!(byte, b'"' | b'\\'));
        if is_closed && text.iter().any(|byte| *byte < b' ') {
            // Lenient readers cannot read this text either.
            return Ok(());
        }
        let before = json::decode_str(&text);
        let after = readable(&text);
        let after = json::decode_str(after.as_deref().unwrap_or(&text));
        // A lenient reader gives a lone surrogate three bytes, each of which becomes one U+FFFD.
        let short = |text: &str| text.replace("\u{fffd}\u{fffd}\u{fffd}", "\u{fffd}");
        let is_plain = !text.windows(2).any(|two| two == b"\\u");
        if is_plain {
            prop_assert_eq!(before, after);
        } else {
            prop_assert_eq!(before.is_some(), after.is_some());
            let length = |text: Option<std::borrow::Cow<'_, str>>| text.map(|text| short(&text).len());
            prop_assert!(length(after) <= length(before));
        }
    }

    /// A message without its null members is otherwise the same message.
    #[test]
    fn null_members_are_all_that_is_cut_out(
        members in prop::collection::vec(
            (
                prop::sample::select(vec!["id", "method", "params", "result", "error", "jsonrpc", "x"]),
                prop::sample::select(vec!["null", "1", "{}", "\"2.0\"", "{\"error\":null}"]),
                prop::sample::select(vec!["", " ", "\n "]),
            ),
            0..8,
        ),
    ) {
        let texts: Vec<String> = members
            .iter()
            .map(|(key, value, space)| format!("{space}\"{key}\"{space}:{space}{value}{space}"))
            .collect();
        let text = format!("{{{}}}", texts.join(","));
        let message = Message::parse(text.clone().into());
        let places = message.null_members();
        if !message.has_nulls() {
            return Ok(());
        }
        let mut left = text.clone();
        places.iter().rev().for_each(|place| left.replace_range(place.clone(), ""));
        let again = Message::parse(left.clone().into());
        prop_assert_eq!(again.kind(), message.kind(), "{}", left);
        prop_assert_eq!(again.result(), message.result());
        prop_assert_eq!(again.error(), message.error());
        prop_assert_eq!(again.method(), message.method());
        prop_assert!(places.is_empty() || !again.has_nulls(), "{}", left);
        prop_assert!(serde_json::from_str::<serde_json::Value>(&left).is_ok(), "{}", left);
    }
}
