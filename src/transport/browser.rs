//! Opens a link in the browser of the user's desktop.

use std::io::{self, Write};

use tempfile::NamedTempFile;

use crate::platform::desktop;

/// A link that was opened through a file. The file is removed on drop.
#[derive(Debug)]
pub struct OpenedLink(#[expect(dead_code, reason = "it is there to be removed")] NamedTempFile);

/// Opens a link in the browser; `None` if there is no desktop. The link may contain a secret, so the browser reads it
/// from a file that only this user can read, and not from its arguments, which every user can read.
///
/// Must not be called after [`adopt_orphans`](crate::transport::child::adopt_orphans), because the browser would then
/// end with this process.
///
/// # Errors
/// If the file cannot be written, or no shell starts.
pub fn open(link: &str) -> io::Result<Option<OpenedLink>> {
    if !desktop::is_there() {
        return Ok(None);
    }
    let mut file = tempfile::Builder::new().prefix("milepost-").suffix(".html").tempfile()?;
    let link = link.replace('&', "&amp;").replace('"', "&quot;");
    writeln!(file, "<!doctype html><meta http-equiv=\"refresh\" content=\"0;url={link}\">")?;
    desktop::open(file.path())?;
    Ok(Some(OpenedLink(file)))
}
