//! A conversation has the same output as the filter alone, however its bytes are divided.

use std::time::Duration;

use milepost_core::conversation::ConversationEvent;
use milepost_core::progress::{Fragment, StreamId};
use milepost_core::protocol::jsonrpc::Scan;
use milepost_core::protocol::lines::INSPECT_MAX;
use proptest::prelude::*;

use super::rig::Embedded;
use crate::core::properties::{AGES, policies};
use crate::core::random_talk::{Said, Step, Talk, steps};
use crate::core::rig::{Rig, assert_pieces_stand_together};

/// Where the bytes of an input are divided.
#[derive(Debug, Clone)]
enum Cuts {
    /// Every byte is a piece.
    EveryByte,
    /// The pieces have these lengths, which are repeated.
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

/// The output of the filter alone for a conversation in lines. Lines of up to `line_max` bytes are kept whole.
struct Bare {
    rig: Rig,
    line_max: usize,
}

impl Bare {
    /// Passes a client's line to the filter. Returns the bytes for the server.
    fn client(&mut self, line: &str) -> Vec<u8> {
        if line.len() <= self.line_max + 1 {
            return with_line_end(&self.rig.client(line.as_bytes()));
        }
        let mut scan = Scan::default();
        scan.feed(line.as_bytes());
        let now = self.rig.now();
        self.rig.filter.intake_mut().finish_large_client(now, StreamId(0), &scan);
        self.rig.pass(Duration::ZERO);
        line.as_bytes().to_vec()
    }

    fn server(&mut self, line: &str) {
        if line.len() <= self.line_max + 1 {
            return self.rig.server(line.as_bytes());
        }
        let (head, rest) = line.as_bytes().split_at(self.line_max);
        self.rig.server_in_pieces(&[head, rest], |_| {});
    }

    /// Returns the bytes for the client since the last call, with the line ends that they need.
    fn told(&mut self) -> String {
        assert_pieces_stand_together(&self.rig.told);
        let mut lines = Vec::new();
        for transmit in self.rig.told.drain(..) {
            lines.extend(transmit.payload.to_bytes());
            if transmit.part != Fragment::Piece {
                lines = with_line_end(&lines);
            }
        }
        String::from_utf8(lines).unwrap()
    }
}

fn with_line_end(bytes: &[u8]) -> Vec<u8> {
    let mut line = bytes.to_vec();
    if line.last().is_some_and(|last| *last != b'\n') {
        line.push(b'\n');
    }
    line
}

proptest! {
    /// After every step the bytes for both sides are the same as those of the filter alone, also if lines are too long
    /// to be kept whole.
    #[test]
    fn a_conversation_in_any_pieces_says_what_the_filter_says(
        policy in policies(),
        steps in steps(),
        cuts in cuts(),
        line_max in prop_oneof![Just(INSPECT_MAX), 60_usize..300],
    ) {
        let mut policy = policy;
        // A conversation learns from calls that end, but a filter leaves this to its shell, so estimates are turned
        // off.
        policy.call.estimate = false;
        policy.tools.values_mut().for_each(|tool| tool.estimate = false);
        let mut bare = Bare { rig: Rig::new(policy.clone()), line_max };
        bare.rig.gathered = true;
        let mut embedded = Embedded::new(policy);
        embedded.conversation.hold_lines(line_max);
        let mut talk = Talk::default();
        for step in &steps {
            // A conversation has no inputs for standard error and for slow clients.
            let is_input = !matches!(step, Step::Stall(_));
            let said = is_input.then(|| talk.put(step, bare.rig.filter.calls().streams().is_drained())).flatten();
            match said {
                None | Some(Said::Errors(_) | Said::Stall(_)) => {}
                Some(Said::Client(text)) => {
                    let line = text + "\n";
                    for piece in cuts.pieces(line.as_bytes()) {
                        embedded.put(|conversation, now| conversation.client(now, piece));
                    }
                    let asked = embedded.asked(StreamId(0));
                    prop_assert_eq!(asked.as_bytes(), &bare.client(&line)[..]);
                }
                Some(said @ (Said::Server(_) | Said::ServerInPieces(_))) => {
                    let line = match said {
                        Said::Server(text) => text,
                        Said::ServerInPieces(pieces) => pieces.concat(),
                        _ => String::new(),
                    } + "\n";
                    bare.server(&line);
                    for piece in cuts.pieces(line.as_bytes()) {
                        embedded.put(|conversation, now| conversation.server(now, piece));
                    }
                }
                Some(Said::Wait(time)) => {
                    bare.rig.pass(time);
                    embedded.pass(time);
                }
            }
            prop_assert_eq!(embedded.told(0), bare.told());
        }
        bare.rig.pass(AGES);
        embedded.pass(AGES);
        prop_assert_eq!(embedded.told(0), bare.told());
        let noise = embedded.events.into_iter().filter_map(|event| match event {
            ConversationEvent::Noise(text) => Some(text),
            _ => None,
        });
        prop_assert_eq!(noise.collect::<Vec<_>>().concat(), bare.rig.noise.concat());
    }
}
