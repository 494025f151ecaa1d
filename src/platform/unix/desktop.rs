//! The user's desktop.

use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, io};

/// The program that opens a file as the desktop does.
const OPENER: &str = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };

/// Whether there is a desktop.
pub fn is_there() -> bool {
    let has_display = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| env::var_os(name).is_some());
    has_display || cfg!(target_os = "macos")
}

/// Opens a file as the desktop does.
///
/// # Errors
/// If no shell starts.
pub fn open(file: &Path) -> io::Result<()> {
    // The shell ends immediately, so that the browser does not become a child of this process.
    Command::new("sh")
        .args(["-c", "\"$0\" \"$1\" &", OPENER])
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .map(drop)
}
