//! The buffer that all connections of a thread read into.

use std::cell::Cell;

/// Bytes that one read takes at most. What a read has brought is copied out of the buffer.
const READ_BYTES_MAX: usize = 64 << 10;

thread_local! {
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Calls `read` with the buffer, whose content is of no meaning.
pub(super) fn with_buffer<T>(read: impl FnOnce(&mut [u8]) -> T) -> T {
    let mut buffer = BUFFER.take();
    buffer.resize(READ_BYTES_MAX, 0);
    let outcome = read(&mut buffer);
    BUFFER.set(buffer);
    outcome
}
