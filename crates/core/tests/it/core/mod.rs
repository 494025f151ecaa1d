//! The filter without I/O, in virtual time: generated conversations and single cases. The transcripts are in
//! `tests/data/golden`. The tests of the proxy play them, because their settings are those of route files.

mod allocations;
pub(crate) mod checker;
pub(crate) mod dialects;
mod fast_path;
mod large_answers;
mod many_calls;
mod masks;
mod observed;
mod policy_exchange;
pub(crate) mod properties;
pub(crate) mod random_talk;
pub(crate) mod rig;
mod shared_names;
mod shared_wire;
mod text_figures;
