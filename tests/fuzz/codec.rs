//! The parts of `tests/it/codec` that fuzzing needs, under the names that they have there.

#[path = "../it/codec/fuzz_bodies.rs"]
pub(crate) mod fuzz_bodies;
#[path = "../it/codec/fuzz_http.rs"]
pub(crate) mod fuzz_http;
#[path = "../it/codec/fuzz_messages.rs"]
pub(crate) mod fuzz_messages;
#[path = "../it/codec/fuzz_responses.rs"]
pub(crate) mod fuzz_responses;
#[path = "../it/codec/fuzz_seal.rs"]
pub(crate) mod fuzz_seal;
#[path = "../it/codec/sse_rig.rs"]
pub(crate) mod sse_rig;
