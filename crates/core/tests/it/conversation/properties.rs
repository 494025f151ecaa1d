//! A conversation does what the bare filter does, however its bytes are cut.

use milepost_core::conversation::ConversationEvent;
use milepost_core::progress::{Fragment, StreamId};
use proptest::prelude::*;

use super::rig::Embedded;
use crate::core::properties::{AGES, policies};
use crate::core::random_talk::{Said, Step, Talk, steps};
use crate::core::rig::Rig;

/// Places at which the bytes of an input are cut.
#[derive(Debug, Clone)]
enum Cuts {
    /// Every byte comes alone.
    EveryByte,
    /// Pieces of these lengths, again and again.
    Lengths(Vec<u8>),
}

fn cuts() -> impl Strategy<Value = Cuts> {
    prop_oneof![
        Just(Cuts::EveryByte),
        prop::collection::vec(1_u8..80, 1..6).prop_map(Cuts::Lengths),
    ]
}

impl Cuts {
    fn pieces<'a>(&self, bytes: &'a [u8]) -> Vec<&'a [u8]> {
        let lengths = match self {
            Self::EveryByte => &[1][..],
            Self::Lengths(lengths) => lengths,
        };
        let (mut rest, mut pieces) = (bytes, Vec::new());
        for length in lengths.iter().cycle() {
            let (piece, more) = rest.split_at(usize::from(*length).min(rest.len()));
            pieces.push(piece);
            rest = more;
            if rest.is_empty() {
                break;
            }
        }
        pieces
    }
}

/// The bytes that a rig has told its client, in lines.
fn lines_told(rig: &mut Rig) -> Vec<u8> {
    let mut lines = Vec::new();
    for transmit in rig.told.drain(..) {
        lines.extend(transmit.payload.to_bytes());
        let is_over = transmit.part != Fragment::Piece;
        if is_over && lines.last().is_some_and(|last| *last != b'\n') {
            lines.push(b'\n');
        }
    }
    lines
}

proptest! {
    #[test]
    fn a_conversation_in_any_pieces_says_what_the_filter_says(
        policy in policies(),
        steps in steps(),
        cuts in cuts(),
    ) {
        let mut policy = policy;
        // A conversation learns from calls that end; the bare filter leaves that to its shell.
        policy.call.estimate = false;
        policy.tools.values_mut().for_each(|tool| tool.estimate = false);
        let mut rig = Rig::new(policy.clone());
        rig.gathered = true;
        let mut embedded = Embedded::new(policy);
        let mut talk = Talk::default();
        for step in &steps {
            // Standard error and slow clients are no inputs of a conversation.
            let is_input = !matches!(step, Step::Stall(_));
            let said = is_input.then(|| talk.put(step, rig.filter.is_drained())).flatten();
            match said {
                None | Some(Said::Errors(_) | Said::Stall(_)) => {}
                Some(Said::Client(text)) => {
                    let line = text.clone() + "\n";
                    let wanted = rig.client(line.as_bytes());
                    for piece in cuts.pieces(line.as_bytes()) {
                        embedded.put(|conversation, now| conversation.client(now, piece));
                    }
                    let asked = embedded.asked(StreamId(0));
                    prop_assert_eq!(asked.as_bytes(), &with_line_end(&wanted)[..]);
                }
                Some(Said::Server(text)) => {
                    let line = text + "\n";
                    rig.server(line.as_bytes());
                    for piece in cuts.pieces(line.as_bytes()) {
                        embedded.put(|conversation, now| conversation.server(now, piece));
                    }
                }
                Some(Said::ServerInPieces(pieces)) => {
                    let line = pieces.concat() + "\n";
                    rig.server(line.as_bytes());
                    for piece in cuts.pieces(line.as_bytes()) {
                        embedded.put(|conversation, now| conversation.server(now, piece));
                    }
                }
                Some(Said::Wait(time)) => {
                    rig.pass(time);
                    embedded.pass(time);
                }
            }
            let told = embedded.told(0);
            prop_assert_eq!(told, String::from_utf8(lines_told(&mut rig)).unwrap());
        }
        rig.pass(AGES);
        embedded.pass(AGES);
        prop_assert_eq!(embedded.told(0), String::from_utf8(lines_told(&mut rig)).unwrap());
        let noise: Vec<_> = embedded.events.into_iter().filter_map(|event| match event {
            ConversationEvent::Noise(text) => Some(text),
            _ => None,
        }).collect();
        prop_assert_eq!(noise, rig.noise);
    }
}

fn with_line_end(bytes: &[u8]) -> Vec<u8> {
    let mut line = bytes.to_vec();
    if line.last().is_some_and(|last| *last != b'\n') {
        line.push(b'\n');
    }
    line
}
