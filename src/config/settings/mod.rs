//! The settings of listeners, servers and connections, each declared once in `declared.rs`. The settings of progress
//! are declared in the engine (`crates/core/src/policy_file`), because embedders read them too.

pub mod declared;
pub(crate) mod format;
mod places;
pub(crate) mod toml_text;

pub use crate::policy_file::setting::{Flag, Setting, SettingChange, SettingScope, Settings};
