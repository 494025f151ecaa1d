//! HTTP/1.1 (RFC 9112) towards servers, forward proxies and processes of this user: one struct for each connection,
//! which the reader of its response drives.
//!
//! ```text
//! Http1Link ─┬─ RequestWriter                      head and body of the request (sections 3 and 6)
//!            └─ ResponseDecoder ── BodyDecoder     status line, headers, length of the body (4 to 6)
//!                                  └ ChunkDecoder  chunks and trailers, in place (7.1)
//! Http1Body: what the reader of a response holds; gives the connection back at its end (9.3)
//! ```
//!
//! [`response_decoder`] reads responses from bytes and does no I/O. It is stricter than hyper: if the length of a body
//! is in doubt, it refuses the response. `tests/it/codec/fuzz_responses.rs` compares its reading with that of hyper,
//! which serves clients. A connection serves another request only if both messages have ended, the server keeps it
//! open, and no unexpected bytes have arrived (9.2); `connection_pool` closes a connection that is unused for 3 s
//! (9.5).
pub(crate) mod body;
mod body_decoder;
mod chunk_decoder;
pub(crate) mod link;
pub(crate) mod link_error;
pub mod malformed;
mod read_buffer;
mod request_writer;
pub mod response_decoder;
