//! Framing over HTTP, cut at every byte; the fuzz corpus of the proxy. Lines, events and terminal output are in the
//! tests of the engine, `crates/core/tests`.

#[path = "../../../crates/core/tests/it/codec/cut_input.rs"]
#[allow(dead_code)]
pub(crate) mod cut_input;
mod fuzz_corpus;
pub(crate) mod fuzz_http;
pub(crate) mod fuzz_responses;
pub(crate) mod fuzz_seal;
#[path = "../../../crates/core/tests/it/codec/packed_corpus.rs"]
pub(crate) mod packed_corpus;
#[path = "../../../crates/core/tests/it/codec/replay_corpus.rs"]
pub(crate) mod replay_corpus;
mod responses;
