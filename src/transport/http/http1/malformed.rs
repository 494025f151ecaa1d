//! The reasons to refuse a response.

/// Limit of the bytes of a response's head.
pub(super) const HEAD_BYTES_MAX: usize = 64 << 10;

/// Limit of the number of headers in a response's head, and in its trailers.
pub(super) const HEADERS_MAX: usize = 100;

/// Why a response is not read further. Its connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MalformedResponse {
    /// The server closed the connection before the head was complete.
    #[error("connection closed before message completed")]
    Incomplete,
    /// The server closed the connection within the body.
    #[error("error reading a body from connection: end of file before message length reached")]
    IncompleteBody,
    /// The server closed the connection between two chunks.
    #[error("error reading a body from connection: unexpected EOF during chunk size line")]
    IncompleteChunks,
    /// The head is not HTTP.
    #[error("the head of the response is malformed: {0}")]
    Head(httparse::Error),
    /// The response begins with an empty line, which may be the rest of another response.
    #[error("the response begins with an empty line")]
    EmptyLine,
    /// The head is too long.
    #[error("the head of the response has more than {HEAD_BYTES_MAX} bytes")]
    HeadTooLong,
    /// `Content-Length` is not a number, or has several values.
    #[error("the response has a malformed Content-Length")]
    Length,
    /// `Transfer-Encoding` is something other than `chunked`.
    #[error("the response has a Transfer-Encoding other than chunked")]
    Coding,
    /// The response has both `Transfer-Encoding` and `Content-Length`.
    #[error("the response has both Transfer-Encoding and Content-Length")]
    TwoLengths,
    /// A chunk is malformed.
    #[error("the response has a malformed chunk")]
    Chunk,
    /// The extensions of chunks are too long.
    #[error("the response has too many extensions of chunks")]
    Extensions,
    /// The trailers are malformed, or too many.
    #[error("the response has malformed trailers, or too many")]
    Trailers,
}
