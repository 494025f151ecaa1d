//! The buffer that all connections of a thread read into.

use std::cell::Cell;

use bytes::buf::Limit;
use bytes::{BufMut, Bytes, BytesMut};

/// Limit of the bytes per read. A piece of a body of at least this length counts as large.
const READ_BYTES_MAX: usize = 64 << 10;

/// Limit of the bytes per read within a large piece.
const LARGE_READ_BYTES_MAX: usize = 256 << 10;

thread_local! {
    static BUFFER: Cell<BytesMut> = Cell::new(BytesMut::new());
}

/// Calls `read` with the buffer, which is empty and large enough for one read. `piece`: bytes left in the current piece
/// of a body, or 0.
pub(super) fn with_buffer<T>(piece: u64, read: impl FnOnce(&mut Limit<BytesMut>) -> T) -> T {
    let is_large = piece >= READ_BYTES_MAX as u64;
    let limit = if is_large { LARGE_READ_BYTES_MAX } else { READ_BYTES_MAX };
    // The buffer is taken out of its cell while `read` runs, so that a nested call gets an empty buffer instead of this
    // one.
    let mut buffer = BUFFER.take();
    buffer.clear();
    buffer.reserve(limit);
    let mut buffer = buffer.limit(limit);
    let outcome = read(&mut buffer);
    BUFFER.set(buffer.into_inner());
    outcome
}

/// Returns the bytes in the buffer as a value that outlives it.
pub(super) fn take_out(buffer: &mut BytesMut) -> Bytes {
    // A nearly full buffer is passed on, because a copy would cost as much as the read. Shorter data is copied, because
    // a reader that keeps a few bytes for a long time would otherwise keep the whole buffer.
    if buffer.len() < buffer.capacity() / 4 * 3 {
        return Bytes::copy_from_slice(buffer);
    }
    std::mem::take(buffer).freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_read_has_all_of_its_room_whatever_was_taken_out_before() {
        let large = READ_BYTES_MAX as u64;
        for piece in [0, large - 1, large, 0, u64::MAX, 1] {
            let room = if piece < large { READ_BYTES_MAX } else { LARGE_READ_BYTES_MAX };
            for length in [1, room / 2, room] {
                let taken = with_buffer(piece, |buffer| {
                    assert_eq!(buffer.remaining_mut(), room);
                    buffer.put_bytes(b'x', length);
                    take_out(buffer.get_mut())
                });
                assert!(taken.len() == length && taken.iter().all(|byte| *byte == b'x'));
            }
        }
    }
}
