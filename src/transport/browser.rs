//! A link in the browser of the user's desktop. What depends on the system is in this file.

use std::env;
use std::io::{self, Write};
use std::process::{Command, Stdio};

use tempfile::NamedTempFile;

/// The program that opens a file as the desktop does.
const OPENER: &str = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };

/// A link that was opened. Its file is removed when this is dropped.
#[derive(Debug)]
pub struct OpenedLink(#[expect(dead_code, reason = "it is there to be removed")] NamedTempFile);

/// Opens a link in the browser; `None` where there is no desktop. The link may hold a secret: the browser reads the
/// link from a file that only this user can read, and not from its arguments, which every user can read.
///
/// Not to be called after [`adopt_orphans`](crate::transport::child::adopt_orphans): the browser would end with
/// this process.
///
/// # Errors
/// If the file cannot be written, or no shell starts.
pub fn open(link: &str) -> io::Result<Option<OpenedLink>> {
    let has_display = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| env::var_os(name).is_some());
    if !has_display && !cfg!(target_os = "macos") {
        return Ok(None);
    }
    let mut file = tempfile::Builder::new().prefix("milepost-").suffix(".html").tempfile()?;
    let link = link.replace('&', "&amp;").replace('"', "&quot;");
    writeln!(file, "<!doctype html><meta http-equiv=\"refresh\" content=\"0;url={link}\">")?;
    // The shell ends at once, so that the browser is no child of this process.
    Command::new("sh")
        .args(["-c", "\"$0\" \"$1\" &", OPENER])
        .arg(file.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    Ok(Some(OpenedLink(file)))
}
