//! Command lines with placeholders: a shell runs them after each placeholder is replaced by its text.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use crate::protocol::mcp::Revision;
use crate::transport::child::{self, Program};

/// Returns the command line of the reference server, for the placeholder `{server}`. `modern` is the revision without a
/// handshake that the server also supports.
pub(super) fn server_command(
    notes: Option<&Path>,
    silence: Option<Duration>,
    modern: Option<Revision>,
) -> String {
    let program = std::env::current_exe().unwrap_or_else(|_| "milepost".into());
    let mut words = vec![quoted(program.as_os_str()), "check-progress --serve".to_owned()];
    words.extend(notes.map(|file| format!("--notes {}", quoted(file.as_os_str()))));
    words.extend(silence.map(|silence| format!("--silence {}ms", silence.as_millis())));
    words.extend(modern.map(|revision| format!("--revision {}", revision.date())));
    words.join(" ")
}

/// Returns a text quoted as one word for a shell.
pub(crate) fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let is_plain = |sign: char| sign.is_ascii_alphanumeric() || "/._-+=:@%".contains(sign);
    match word.chars().all(is_plain) && !word.is_empty() {
        true => word.into_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Returns the text with each placeholder replaced.
pub(super) fn filled(template: &str, places: &[(&str, &str)]) -> String {
    let mut text = template.to_owned();
    for (place, value) in places {
        text = text.replace(place, value);
    }
    text
}

/// Returns the shell that runs a command line.
pub(super) fn program(line: &str) -> Program {
    Program { command: child::shell(line), ..Program::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_a_shell_is_one_word() {
        assert_eq!(quoted(OsStr::new("/usr/bin/milepost")), "/usr/bin/milepost");
        assert_eq!(quoted(OsStr::new("/a b/it's")), r"'/a b/it'\''s'");
        assert_eq!(filled("p {port} {port}", &[("{port}", "7")]), "p 7 7");
    }
}
