//! Framing: lines, server-sent events and terminal output, divided at every byte. Also replays the engine's fuzz
//! corpus.

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
