//! Paths of files written as TOML.

use std::path::Path;

pub(crate) use crate::policy_file::toml_text::{ShowText, key, list, plain, table};

/// The path of a file as a TOML string, correct from every folder.
pub(crate) fn path(file: &Path) -> String {
    let whole = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    // `${` would be read as a variable when the printed file is loaded.
    plain(&whole.to_string_lossy().replace("${", "$${"))
}
