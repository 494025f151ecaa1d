//! Server-sent events: every case cut at every byte, and any bytes in any pieces.

use bytes::Bytes;
use milepost::sse::{Events, Frame};

#[test]
fn smoke() {
    let input = b"\xEF\xBB\xBFdata: a\r\n\r\nevent: message\ndata: {}\nid: 5\n\n: c\n\n";
    for cut in 0..=input.len() {
        for max in [1, 10, 100] {
            let mut events = Events::new(max);
            let mut out = Vec::new();
            for piece in [&input[..cut], &input[cut..]] {
                events.push(Bytes::copy_from_slice(piece));
                while let Some(frame) = events.next() {
                    match frame {
                        Frame::Event(event) => out.extend_from_slice(&event.raw),
                        Frame::Start(piece) | Frame::Piece(piece) => {
                            out.extend_from_slice(&piece.raw)
                        }
                        Frame::End => {}
                    }
                }
            }
            out.extend_from_slice(&events.finish().unwrap_or_default());
            assert_eq!(&out[..], input, "{max} {cut}");
        }
    }
}
