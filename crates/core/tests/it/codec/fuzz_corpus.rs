//! Replays the engine's fuzz corpus, and tests the form of a packed corpus.

use crate::codec::packed_corpus::{pack, unpack};
use crate::codec::replay_corpus::replay;
use crate::codec::{fuzz_bodies, fuzz_messages};

#[test]
fn corpus_replays() {
    replay("core", fuzz_bodies::core);
    replay("json", fuzz_messages::json);
    replay("lines", fuzz_bodies::lines);
    replay("splice", fuzz_messages::splice);
    replay("sse", fuzz_bodies::sse);
    replay("terminal", fuzz_bodies::terminal);
    replay("text", fuzz_bodies::text);
}

#[test]
fn a_packed_corpus_keeps_every_byte() {
    let mut inputs: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    inputs.extend([
        b"".to_vec(),
        (0..=255).collect(),
        b"\\n\\x0a\"'  ".to_vec(),
        b"\r\n\r\n".to_vec(),
    ]);
    let packed = pack(&inputs);
    let mut unpacked = unpack(&packed).unwrap();
    assert_eq!(pack(&unpacked), packed);
    unpacked.sort();
    inputs.sort();
    assert_eq!(unpacked, inputs);
}

#[test]
fn a_packed_corpus_is_sorted_and_has_each_input_once() {
    let inputs =
        [b"b\n".to_vec(), b"".to_vec(), b"a \"\\".to_vec(), b"b\n".to_vec(), b"\xff ".to_vec()];
    assert_eq!(pack(&inputs), "\n\\xff\\x20\na \"\\\\\nb\\n\n");
    assert_eq!(pack(&[]), "");
    assert_eq!(unpack(""), Ok(Vec::new()));
}

#[test]
fn a_faulty_line_is_named() {
    for faulty in ["\\", "\\q", "\\x", "\\x1", "\\x+1", "\\xg0", "\t", "\u{e9}", "\u{7f}"] {
        assert_eq!(unpack(&format!("good\n{faulty}\n")), Err(2), "{faulty:?}");
    }
}
