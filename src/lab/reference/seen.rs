//! The notes of the reference server: the messages that reached the server, as lines of a file. A proxy may start the
//! server several times; all processes write to the same file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

/// Maximum number of bytes of notes that are read.
const NOTES_BYTES_MAX: usize = 4 << 20;

/// The notes that one process writes.
#[derive(Debug, Default)]
pub struct SeenNotes {
    file: Option<Mutex<File>>,
}

impl SeenNotes {
    /// Returns notes that are not kept.
    pub const fn none() -> Self {
        Self { file: None }
    }

    /// Returns notes that are appended to a file.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn append(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file: Some(Mutex::new(file)) })
    }

    fn write(&self, note: &Value) {
        let Some(file) = &self.file else { return };
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        // Use a single write, so that lines of several processes do not mix. Ignore the error: the call continues
        // without notes.
        let _ = file.write_all(format!("{note}\n").as_bytes());
    }

    /// Notes that a call has arrived.
    pub(super) fn call(&self, key: &Value, token: Option<&Value>) {
        self.write(&json!({ "call": key, "token": token }));
    }

    /// Notes that the client has cancelled a call.
    pub(super) fn cancelled(&self, key: &Value) {
        self.write(&json!({ "cancelled": key }));
    }

    /// Notes that the client has answered a ping.
    pub(super) fn answered(&self, key: &Value) {
        self.write(&json!({ "answered": key }));
    }
}

/// The notes in a file, for a reader.
#[derive(Debug, Clone, Default)]
pub struct SeenFacts {
    notes: Vec<Value>,
}

impl SeenFacts {
    /// Reads a file of notes. Returns no notes if the file cannot be read.
    pub fn read(path: &Path) -> Self {
        let text = std::fs::read(path).unwrap_or_default();
        let text = text.get(..text.len().min(NOTES_BYTES_MAX)).unwrap_or_default();
        let text = String::from_utf8_lossy(text);
        let notes = text.lines().filter_map(|line| serde_json::from_str(line).ok());
        Self { notes: notes.collect() }
    }

    /// Returns the token of the call with this key (null if it had none); `None` if the call has not arrived.
    pub fn token(&self, key: &str) -> Option<&Value> {
        self.notes.iter().find(|note| note["call"] == key).map(|note| &note["token"])
    }

    /// Whether the call with this key was cancelled.
    pub fn is_cancelled(&self, key: &str) -> bool {
        self.notes.iter().any(|note| note["cancelled"] == key)
    }

    /// Whether the client answered the ping during the call with this key.
    pub fn is_answered(&self, key: &str) -> bool {
        self.notes.iter().any(|note| note["answered"] == key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_of_several_processes_are_read_together() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (one, other) =
            (SeenNotes::append(file.path()).unwrap(), SeenNotes::append(file.path()).unwrap());
        one.call(&json!("a"), Some(&json!(7)));
        other.call(&json!("b"), None);
        other.cancelled(&json!("a"));
        let facts = SeenFacts::read(file.path());
        assert_eq!(facts.token("a"), Some(&json!(7)));
        assert_eq!(facts.token("b"), Some(&Value::Null));
        assert!(facts.token("c").is_none() && facts.is_cancelled("a") && !facts.is_answered("a"));
    }
}
