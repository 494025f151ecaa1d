//! The filter without I/O: transcripts, generated conversations and settings, in virtual time.

mod allocations;
mod ask_requests;
pub(crate) mod checker;
pub(crate) mod dialects;
mod extremes;
mod fast_path;
mod large_answers;
mod many_calls;
mod masks;
pub(crate) mod neighbours;
mod policy_exchange;
pub(crate) mod properties;
pub(crate) mod random_talk;
pub(crate) mod rig;
mod settings_per_tool;
mod shared_names;
mod shared_wire;
mod text_figures;
pub(crate) mod transcripts;
