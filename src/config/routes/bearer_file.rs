//! Files that hold a bearer token, read again when they change.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use http::HeaderValue;

/// Limit of the bytes of a file with a bearer token. A longer file is not a token and is refused.
const TOKEN_MAX: u64 = 64 << 10;

/// Minimum time between two reports that a token file can no longer be used.
const REPORTED_EVERY: Duration = Duration::from_secs(60);

/// A token that is presented as `Authorization: Bearer`.
pub struct BearerFile {
    file: PathBuf,
    last: Mutex<LastRead>,
}

/// The reason why the file of a token cannot be used now.
#[derive(Debug)]
pub struct TokenFileFault {
    /// The reason, which names the file but shows nothing of its content.
    pub why: String,
    /// Whether the fault must be reported, because none was reported in the last minute.
    pub is_due: bool,
}

#[derive(Default)]
struct LastRead {
    /// The last valid token, with the file's modification time and length when it was read.
    token: Option<((SystemTime, u64), HeaderValue)>,
    reported: Option<Instant>,
}

impl BearerFile {
    /// Returns the token in a file. The file is read when a token is needed, and again after each change.
    pub fn in_file(file: PathBuf) -> Self {
        Self { file, last: Mutex::default() }
    }

    /// Returns the header with the current token of the file.
    ///
    /// # Errors
    /// If the file cannot be read or contains no token. The error names the file, but shows nothing of its content.
    pub fn header(&self) -> Result<HeaderValue, String> {
        self.read(&mut self.last.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the header with the token of the file, or with the last valid token if the file cannot be used now. The
    /// second value is the reason why it cannot be used.
    pub fn header_or_last(&self, now: Instant) -> (Option<HeaderValue>, Option<TokenFileFault>) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match self.read(&mut last) {
            Ok(header) => (Some(header), None),
            Err(why) => {
                let is_due = last
                    .reported
                    .is_none_or(|at| now.saturating_duration_since(at) >= REPORTED_EVERY);
                if is_due {
                    last.reported = Some(now);
                }
                let header = last.token.as_ref().map(|(_, header)| header.clone());
                (header, Some(TokenFileFault { why, is_due }))
            }
        }
    }

    fn read(&self, last: &mut LastRead) -> Result<HeaderValue, String> {
        let unreadable =
            |error| format!("cannot read the token in {}: {error}", self.file.display());
        // The call blocks the thread, which is acceptable: the file is small and local, and passing the read to another
        // thread would take as long.
        let about = fs::metadata(&self.file).map_err(unreadable)?;
        let changed = (about.modified().map_err(unreadable)?, about.len());
        // The length is compared too, because the times of some file systems are too coarse for two quick writes.
        if let Some((at, header)) = &last.token
            && *at == changed
        {
            return Ok(header.clone());
        }
        let no_token = || format!("{} holds no token", self.file.display());
        // A read of a pipe or a device would wait for another process.
        if about.len() > TOKEN_MAX || !about.is_file() {
            return Err(no_token());
        }
        let text = fs::read_to_string(&self.file).map_err(unreadable)?;
        // `last` keeps the previous valid token, which requests use while the file is being replaced.
        let header = bearer(&text).ok_or_else(no_token)?;
        last.token = Some((changed, header.clone()));
        Ok(header)
    }

    /// Returns the path of the token file.
    pub fn file(&self) -> &Path {
        &self.file
    }
}

impl PartialEq for BearerFile {
    fn eq(&self, other: &Self) -> bool {
        self.file == other.file
    }
}

impl fmt::Debug for BearerFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BearerFile").field("file", &self.file).finish_non_exhaustive()
    }
}

/// The `Authorization` header with this token; `None` if the text is not a token.
fn bearer(token: &str) -> Option<HeaderValue> {
    let token = token.trim();
    if token.is_empty() {
        return None;
    }
    let mut header = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
    header.set_sensitive(true);
    Some(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_good_token_stays_and_the_fault_is_told_once_a_minute() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, " first\n").unwrap();
        let file = BearerFile::in_file(path.clone());
        let start = Instant::now();
        let text = |(header, fault): (Option<HeaderValue>, Option<TokenFileFault>)| {
            let is_due = fault.is_some_and(|fault| fault.is_due);
            (header.map(|header| header.to_str().unwrap().to_owned()), is_due)
        };
        assert!(file.header().unwrap().is_sensitive());
        assert_eq!(text(file.header_or_last(start)), (Some("Bearer first".to_owned()), false));
        fs::write(&path, "  \n").unwrap();
        assert_eq!(text(file.header_or_last(start)), (Some("Bearer first".to_owned()), true));
        fs::remove_file(&path).unwrap();
        let later = start + Duration::from_secs(59);
        assert_eq!(text(file.header_or_last(later)), (Some("Bearer first".to_owned()), false));
        let later = start + Duration::from_secs(60);
        assert_eq!(text(file.header_or_last(later)), (Some("Bearer first".to_owned()), true));
        fs::write(&path, "second-token").unwrap();
        assert_eq!(
            text(file.header_or_last(later)),
            (Some("Bearer second-token".to_owned()), false)
        );
        assert!(file.header().is_ok());
    }
}
