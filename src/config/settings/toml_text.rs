//! Writes paths of files as TOML.

use std::path::Path;

pub(crate) use crate::policy_file::toml_text::{ShowText, key, list, plain, table};

/// Returns the path of a file as a TOML string that is correct in any working directory.
pub(crate) fn path(file: &Path) -> String {
    let whole = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    // `${` would be read as a variable when the printed file is loaded.
    plain(&whole.to_string_lossy().replace("${", "$${"))
}
