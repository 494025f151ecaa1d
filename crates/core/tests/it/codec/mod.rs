//! Framing: lines, server-sent events and terminal output, cut at every byte; the fuzz corpus of the engine.

pub(crate) mod cut_input;
pub(crate) mod fuzz_bodies;
mod fuzz_corpus;
pub(crate) mod fuzz_messages;
mod lines;
pub(crate) mod packed_corpus;
pub(crate) mod replay_corpus;
mod sse;
pub(crate) mod sse_rig;
mod terminal;
mod unicode;
