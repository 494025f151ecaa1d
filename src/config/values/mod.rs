//! Values of settings as text. Those of the settings of progress are in the engine.

pub(crate) mod compound;
pub mod ip_net;
pub(crate) mod principal_header;
pub mod proxy_url;
#[cfg(test)]
mod schemas;
pub(crate) mod text;

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

pub use crate::policy_file::values::{
    ANSWER_REPAIRS, DEFAULT_DIALECTS, OFF, Word, byte_size_text, dialects, exact_time, nearest,
    positive_time, read_switch, time, time_or_off, word,
};

/// The folder of the data that outlives the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateDir {
    /// The data is not kept.
    Off,
    /// The data is kept in this directory.
    At(PathBuf),
}

/// A folder, or `off`.
impl fmt::Display for StateDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::At(folder) => folder.display().fmt(f),
        }
    }
}

impl From<OsString> for StateDir {
    fn from(text: OsString) -> Self {
        if text == OFF { Self::Off } else { Self::At(text.into()) }
    }
}
