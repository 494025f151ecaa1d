//! The parts of `crates/core/tests/it/core` that fuzzing needs, under the names that they have there.

#[path = "../../crates/core/tests/it/core/dialects.rs"]
pub(crate) mod dialects;
#[path = "../../crates/core/tests/it/core/rig.rs"]
pub(crate) mod rig;
