//! The settings of listeners, servers and connections, each declared once in `declared.rs`. Those of the progress are
//! declared in the engine (`crates/core/src/policy_file`), which embedders read too.

pub mod declared;
pub(crate) mod format;
mod places;
pub(crate) mod toml_text;

pub use crate::policy_file::setting::{Flag, Setting, SettingChange, SettingScope, Settings};
