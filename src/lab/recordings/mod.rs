//! Recordings for the commands that read them: reads the file, plays it with new filters, and collects its calls.

pub mod calls;
pub(super) mod collect;
pub(super) mod differences;
pub(super) mod player;
pub(super) mod tracks;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use litemap::LiteMap;

use crate::config::values::byte_size_text;
use crate::observe::transcript::{SAME, TranscriptLine, settings};
use crate::progress::Policy;
use crate::progress::input::Input;

/// Maximum number of bytes of a file that is read as a recording. No recording is longer.
const FILE_MAX: u64 = 256 << 20;

/// The beginning of the first line; the version follows.
const HEAD: &str = "# recorded by milepost ";

/// The reason why a file cannot be used as a recording.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file cannot be read.
    #[error("{}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file is too long.
    #[error("{}: longer than {}, and no recording is", .0.display(), byte_size_text(FILE_MAX as usize))]
    TooLong(PathBuf),
    /// The file is not a recording.
    #[error("{}:{line}: {expected}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The expected content.
        expected: String,
    },
}

/// The content of a recording.
pub(super) struct Recorded<'a> {
    /// The words of the settings, each with its line.
    pub(super) settings: Vec<(usize, &'a str)>,
    /// The events, each with the number of its line. A message that repeats another message shares its text in memory.
    pub(super) lines: Vec<(usize, TranscriptLine<'a>)>,
    /// Remarks about what the recording lacks, which limit the result of a replay.
    pub(super) remarks: Vec<&'a str>,
}

impl Recorded<'_> {
    /// Returns the settings of the file.
    ///
    /// # Errors
    /// The line of an unknown setting, and what is expected instead.
    pub(super) fn policy(&self) -> Result<Policy, (usize, String)> {
        let mut policy = Policy::default();
        for (number, said) in &self.settings {
            settings::read(&mut policy, said).map_err(|expected| (*number, expected))?;
        }
        Ok(policy)
    }
}

/// Returns the error for a line. Says if the recording is from a newer Milepost, whose lines this version may not know.
pub(super) fn at_line(
    path: &Path,
    text: &str,
    (line, mut expected): (usize, String),
) -> RecordingError {
    let own = env!("CARGO_PKG_VERSION");
    if let Some(version) = version(text).filter(|version| is_newer(version, own)) {
        expected += &format!(
            " (milepost {version} wrote this recording, and this is milepost {own}: a newer one can read it)"
        );
    }
    RecordingError::Line { path: path.to_owned(), line, expected }
}

/// Returns the version of Milepost that wrote a recording; `None` for a transcript that was written by hand.
pub(super) fn version(text: &str) -> Option<&str> {
    let rest = text.lines().next()?.strip_prefix(HEAD)?;
    Some(rest.split([';', ' ']).next().unwrap_or_default())
}

/// Whether a version is newer than another. Text after the numbers is ignored.
pub(super) fn is_newer(version: &str, than: &str) -> bool {
    let numbers = |text: &str| -> Vec<u64> {
        let plain = text.split(['-', '+']).next().unwrap_or_default();
        plain.split('.').map_while(|part| part.parse().ok()).collect()
    };
    numbers(version) > numbers(than)
}

/// Reads the text of a file.
///
/// # Errors
/// If the file cannot be read, is too long, or is not text.
pub(super) fn read(path: &Path) -> Result<String, RecordingError> {
    let mut bytes = Vec::new();
    let file = File::open(path).and_then(|file| file.take(FILE_MAX + 1).read_to_end(&mut bytes));
    file.map_err(|source| RecordingError::Read { path: path.to_owned(), source })?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(RecordingError::TooLong(path.to_owned()));
    }
    String::from_utf8(bytes).map_err(|error| {
        let before = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        RecordingError::Line {
            path: path.to_owned(),
            line: before.iter().filter(|byte| **byte == b'\n').count() + 1,
            expected: "text is expected (UTF-8)".to_owned(),
        }
    })
}

/// Checks that the last line of a recording is complete.
///
/// # Errors
/// The last line, if it has no line ending.
pub(super) fn not_cut(text: &str) -> Result<(), (usize, String)> {
    if text.is_empty() || text.ends_with('\n') {
        return Ok(());
    }
    let expected = "the end of the line is expected; the recording breaks off here";
    Err((text.lines().count(), expected.to_owned()))
}

/// Reads the lines of a recording.
///
/// # Errors
/// The line that cannot be read, and what is expected instead.
pub(super) fn parse(text: &str) -> Result<Recorded<'_>, (usize, String)> {
    let mut recorded = Recorded { settings: Vec::new(), lines: Vec::new(), remarks: Vec::new() };
    let mut failed: BTreeSet<u64> = BTreeSet::new();
    let mut last: LiteMap<_, _> = LiteMap::new();
    for (number, text) in (1..).zip(text.lines()) {
        if let Some(remark) = text.strip_prefix("# ") {
            recorded.remarks.extend(limits(remark));
        }
        let Some(mut line) = TranscriptLine::read(text).map_err(|expected| (number, expected))?
        else {
            continue;
        };
        if b"><".contains(&line.sign) {
            if line.text == SAME {
                let said = last.get(&line.sign).copied();
                line.text =
                    said.ok_or_else(|| (number, "an earlier message is expected".to_owned()))?;
            }
            last.insert(line.sign, line.text);
        }
        let is_setting = line.sign == b'!' && line.text.split(' ').all(|word| word.contains('='));
        if is_setting && !recorded.lines.is_empty() {
            return Err((number, "settings are expected before the first message".to_owned()));
        }
        if is_setting {
            recorded.settings.push((number, line.text));
        } else if matches!(tracks::input_of(&line), Some(Input::FailOpen)) {
            recorded.remarks.push("a filter failed, and nothing of it was recorded from there on");
            failed.insert(line.part);
        } else if !failed.contains(&line.part) {
            recorded.lines.push((number, line));
        }
    }
    if recorded.lines.is_empty() {
        return Err((1, "a conversation is expected; this file has no message".to_owned()));
    }
    Ok(recorded)
}

/// The beginning of the remark that names the settings which a recording cannot contain.
pub const SETTINGS_NEEDED: &str = "a replay needs flags or --config for: ";

/// Returns a remark if it says that something is missing in the recording.
fn limits(remark: &str) -> Option<&str> {
    if remark.contains(" lines are missing") {
        return Some("lines are missing from the recording");
    }
    let said = [
        SETTINGS_NEEDED,
        "calls of another recording",
        "the recording is as long as",
        "the recordings are as long together",
    ];
    said.iter().any(|said| remark.starts_with(said)).then_some(remark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        for (one, other, newer) in [
            ("0.2.0", "0.1.9", true),
            ("0.10.0", "0.9.0", true),
            ("1.0.0-rc.1", "1.0.0", false),
            ("0.1.0", "0.1.0", false),
            ("nonsense", "0.1.0", false),
        ] {
            assert_eq!(is_newer(one, other), newer, "{one} {other}");
        }
    }
}
