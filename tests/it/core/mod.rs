//! The filter with settings of route files: transcripts, in virtual time. Tests that need no route file are in
//! `crates/core/tests`, whose helpers are shared with these tests.

mod ask_requests;
#[path = "../../../crates/core/tests/it/core/checker.rs"]
pub(crate) mod checker;
mod extremes;
pub(crate) mod neighbours;
#[path = "../../../crates/core/tests/it/core/random_talk.rs"]
#[allow(dead_code)]
pub(crate) mod random_talk;
#[path = "../../../crates/core/tests/it/core/rig.rs"]
#[allow(dead_code)]
pub(crate) mod rig;
mod settings_per_tool;
pub(crate) mod transcripts;
