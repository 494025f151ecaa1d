//! Framing: lines, server-sent events and terminal output, cut at every byte; the fuzz corpus.

pub(crate) mod fuzz_bodies;
mod fuzz_corpus;
pub(crate) mod fuzz_http;
pub(crate) mod fuzz_messages;
pub(crate) mod fuzz_responses;
pub(crate) mod fuzz_seal;
mod lines;
mod responses;
mod sse;
pub(crate) mod sse_rig;
mod terminal;
mod unicode;
