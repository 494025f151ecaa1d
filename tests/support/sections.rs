//! Files of sections: one text file with many small texts that tests read.
//!
//! ```text
//! # Remarks: these lines belong to no section.
//!
//! === first
//! the text of the section `first`
//!
//! === second
//! the text of the section `second`
//! ```
//!
//! - A line `=== NAME` begins a section. A name occurs once in a file.
//! - The empty line before the next section belongs to no section. All other lines are the text, byte for byte.
//! - `␍` stands for a carriage return, so that all lines of the file end in the same way.
//! - A text is UTF-8, is empty or ends with a line feed, and has no line that begins with `===`. Any other data needs a
//!   file of its own.

use std::fmt;
use std::fs;
use std::sync::{Mutex, PoisonError};

use super::home;

/// The beginning of the line before a section.
const HEADING: &str = "===";

/// The character that a file has in place of a carriage return.
const CARRIAGE_RETURN: &str = "␍";

/// Locked while a file is read or written, because with `UPDATE_EXPECT=1` concurrent tests rewrite sections of the same
/// file.
static FILES: Mutex<()> = Mutex::new(());

/// One section of a file. Its `Display` text is the place of the section: `tests/data/golden/late.txt:12: crossed`.
#[derive(Debug, Clone)]
pub(crate) struct Section {
    /// The path of the file from the root of the repository.
    pub(crate) file: String,
    /// The number of the line `=== NAME`, from 1.
    pub(crate) line: usize,
    pub(crate) name: String,
    pub(crate) text: String,
}

impl Section {
    /// The name with the stem of the file: `late/crossed` for the section `crossed` of `late.txt`.
    pub(crate) fn key(&self) -> String {
        let file = self.file.rsplit('/').next().unwrap_or_default();
        format!("{}/{}", file.trim_end_matches(".txt"), self.name)
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.name)
    }
}

/// Returns the paths of a directory's `.txt` files, relative to the root of the repository and sorted.
pub(crate) fn section_files(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(home().join(folder)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let texts = names.filter(|name| name.ends_with(".txt"));
    let mut files: Vec<String> = texts.map(|name| format!("{folder}/{name}")).collect();
    files.sort();
    files
}

/// Returns the sections of a file, in the order of the file.
pub(crate) fn sections(file: &str) -> Vec<Section> {
    let _held = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    let path = home().join(file);
    let content = fs::read_to_string(path).unwrap_or_else(|error| panic!("{file}: {error}"));
    parse(file, &content).1
}

/// Returns the text of one section of a file; empty if the file has no such section.
pub(crate) fn section(file: &str, name: &str) -> String {
    let found = sections(file).into_iter().find(|section| section.name == name);
    found.map(|section| section.text).unwrap_or_default()
}

/// Replaces the text of one section of a file, or adds the section at the end of the file.
pub(crate) fn rewrite(file: &str, name: &str, text: &str) {
    let is_complete = text.is_empty() || text.ends_with('\n');
    let is_plain =
        !text.contains(CARRIAGE_RETURN) && !text.lines().any(|line| line.starts_with(HEADING));
    assert!(is_complete && is_plain, "{file}: {name}: a section cannot hold this text:\n{text}");
    let _held = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    let path = home().join(file);
    let (head, mut sections) = parse(file, &fs::read_to_string(&path).unwrap());
    match sections.iter_mut().find(|section| section.name == name) {
        Some(section) => text.clone_into(&mut section.text),
        None => {
            let [file, name, text] = [file, name, text].map(str::to_owned);
            sections.push(Section { file, line: 0, name, text });
        }
    }
    let written: Vec<String> = sections
        .iter()
        .map(|Section { name, text, .. }| {
            format!("{HEADING} {name}\n{}", text.replace('\r', CARRIAGE_RETURN))
        })
        .collect();
    fs::write(&path, head + &written.join("\n")).unwrap();
}

/// Returns the remarks at the top of a file, and its sections.
fn parse(file: &str, content: &str) -> (String, Vec<Section>) {
    assert!(content.is_empty() || content.ends_with('\n'), "{file}: the last line has no end");
    assert!(!content.contains('\r'), "{file}: a carriage return is written as {CARRIAGE_RETURN}");
    let mut head = String::new();
    let mut sections: Vec<Section> = Vec::new();
    for (at, line) in content.split_inclusive('\n').enumerate() {
        let number = at + 1;
        if let Some(rest) = line.strip_prefix(HEADING) {
            let name = rest.strip_prefix(' ').unwrap_or_default().trim().to_owned();
            assert!(!name.is_empty(), "{file}:{number}: `{HEADING} NAME` is expected");
            let is_new = sections.iter().all(|section| section.name != name);
            assert!(is_new, "{file}:{number}: another section has the name {name} already");
            if let Some(before) = sections.last_mut() {
                drop_empty_line(&mut before.text);
            }
            let (file, text) = (file.to_owned(), String::new());
            sections.push(Section { file, line: number, name, text });
        } else if let Some(section) = sections.last_mut() {
            section.text += &line.replace(CARRIAGE_RETURN, "\r");
        } else {
            let is_remark = line == "\n" || line.starts_with('#');
            assert!(is_remark, "{file}:{number}: `{HEADING} NAME` or a remark is expected");
            head += line;
        }
    }
    (head, sections)
}

/// Removes the empty line between a text and the next section.
fn drop_empty_line(text: &mut String) {
    if text == "\n" || text.ends_with("\n\n") {
        text.pop();
    }
}
