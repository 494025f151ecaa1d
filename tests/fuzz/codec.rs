//! The bodies of the targets: the parts of both folders `codec` of tests that fuzzing needs, under the names that they
//! have there.

#[path = "../../crates/core/tests/it/codec/cut_input.rs"]
pub(crate) mod cut_input;
#[path = "../../crates/core/tests/it/codec/fuzz_bodies.rs"]
pub(crate) mod fuzz_bodies;
#[cfg(feature = "proxy")]
#[path = "../it/codec/fuzz_http.rs"]
pub(crate) mod fuzz_http;
#[path = "../../crates/core/tests/it/codec/fuzz_messages.rs"]
pub(crate) mod fuzz_messages;
#[cfg(feature = "proxy")]
#[path = "../it/codec/fuzz_responses.rs"]
pub(crate) mod fuzz_responses;
#[cfg(feature = "proxy")]
#[path = "../it/codec/fuzz_seal.rs"]
pub(crate) mod fuzz_seal;
#[path = "../../crates/core/tests/it/codec/sse_rig.rs"]
pub(crate) mod sse_rig;
