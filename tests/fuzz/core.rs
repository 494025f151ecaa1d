//! The parts of `tests/it/core` that fuzzing needs, under the names that they have there.

#[path = "../it/core/dialects.rs"]
pub(crate) mod dialects;
#[path = "../it/core/rig.rs"]
pub(crate) mod rig;
