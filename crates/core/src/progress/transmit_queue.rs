//! Messages that are forwarded in the order of their arrival, for observed clients and for clients of a failed filter.

use std::collections::VecDeque;

use crate::progress::payload::{Fragment, Transmit};

/// The messages for one client stream. Several large messages may arrive in pieces at the same time, on different
/// streams of the server; the client gets them one after the other.
#[derive(Debug, Default)]
pub(crate) struct TransmitQueue {
    /// The messages and pieces. A piece comes with the number of its message.
    items: VecDeque<(Option<u64>, Transmit)>,
    /// The large message of which some pieces were taken, while more have to follow.
    midway: Option<u64>,
    bytes: usize,
}

impl TransmitQueue {
    /// Returns an empty queue after a piece of the message `midway`.
    pub(crate) fn behind(midway: Option<u64>) -> Self {
        Self { midway, ..Self::default() }
    }

    /// Adds a whole message, or a piece of the message `of`.
    pub(crate) fn push(&mut self, of: Option<u64>, transmit: Transmit) {
        self.bytes += transmit.payload.len();
        self.items.push_back((of, transmit));
    }

    /// Removes and returns the next message. After a piece of a message, only the next piece of that message is
    /// returned.
    pub(crate) fn pop(&mut self) -> Option<Transmit> {
        let place = match self.midway {
            None => 0,
            // While a message is written in pieces, nothing else may be written on its stream, even if the next piece
            // has not arrived yet.
            midway => self.items.iter().position(|(of, _)| *of == midway)?,
        };
        let (of, transmit) = self.items.remove(place)?;
        self.midway = if transmit.part == Fragment::Piece { of } else { None };
        self.bytes -= transmit.payload.len();
        Some(transmit)
    }

    /// Removes the waiting pieces of the message `number`, if none of its pieces was taken.
    pub(crate) fn forget(&mut self, number: u64) {
        self.items.retain(|(of, _)| *of != Some(number));
        self.bytes = self.items.iter().map(|(_, transmit)| transmit.payload.len()).sum();
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns the number of bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::payload::TransmitKind;

    #[test]
    fn nothing_comes_between_two_pieces_of_a_message() {
        let mut queue = TransmitQueue::default();
        let piece =
            |text: &'static str, part| Transmit::part(bytes::Bytes::from(text).into(), part);
        queue.push(Some(1), piece("a1", Fragment::Piece));
        queue.push(Some(2), piece("b1", Fragment::Piece));
        queue.push(None, Transmit::whole(TransmitKind::Other, bytes::Bytes::from("w").into()));
        let mut given = vec![queue.pop().unwrap()];
        assert_eq!(queue.pop(), None, "the next piece has not come");
        queue.push(Some(1), piece("a2", Fragment::End));
        queue.push(Some(2), piece("b2", Fragment::End));
        given.extend(std::iter::from_fn(|| queue.pop()));
        let given: Vec<_> = given.iter().map(|one| one.payload.to_bytes()).collect();
        assert_eq!(given, ["a1", "a2", "b1", "b2", "w"]);
        assert_eq!(queue.bytes(), 0);
    }
}
