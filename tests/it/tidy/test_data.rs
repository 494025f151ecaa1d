//! The data of tests: few files, and section files whose sections match their headings.

use std::fs;
use std::panic::catch_unwind;
use std::path::PathBuf;

use super::root;
use crate::support::sections::{rewrite, section, section_files, sections};

/// Files in one folder of `tests/data`, at most. Small texts are sections of one file.
const FILES_MAX: usize = 30;

/// A file of sections with an empty section, empty lines around a text, and a carriage return.
const FILE: &str = "# a remark\n\n=== empty\n\n=== middle\n\nb␍\n\n\n=== last\nc\n";

#[test]
fn no_folder_of_test_data_has_many_files() {
    let mut left = vec![root().join("tests/data")];
    while let Some(folder) = left.pop() {
        let entries: Vec<PathBuf> =
            fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        let count = entries.len();
        assert!(count <= FILES_MAX, "{}: {count} files; see docs/testing.md", folder.display());
        left.extend(entries.into_iter().filter(|path| path.is_dir()));
    }
}

#[test]
fn every_transcript_route_file_and_report_is_in_a_section() {
    for folder in ["golden", "routes", "doctor", "adopt"] {
        for file in section_files(&format!("tests/data/{folder}")) {
            assert!(!sections(&file).is_empty(), "{file} has no section");
        }
    }
}

#[test]
fn a_section_is_read_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("late.txt").display().to_string();
    fs::write(&file, FILE).unwrap();
    let read = sections(&file);
    let is: Vec<_> = read.iter().map(|one| (one.line, &*one.name, &*one.text)).collect();
    assert_eq!(is, [(3, "empty", ""), (5, "middle", "\nb\r\n\n"), (10, "last", "c\n")]);
    assert_eq!(read[2].key(), "late/last");
    assert_eq!(read[2].to_string(), format!("{file}:10: last"));
    assert_eq!(section(&file, "last"), "c\n");
    assert_eq!(section(&file, "other"), "");
}

#[test]
fn a_rewritten_section_leaves_the_rest_of_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("late.txt").display().to_string();
    fs::write(&file, FILE).unwrap();
    rewrite(&file, "middle", "\nb\r\n\n");
    assert_eq!(fs::read_to_string(&file).unwrap(), FILE);
    rewrite(&file, "middle", "x\r\n");
    rewrite(&file, "new", "y\n");
    let expected = "# a remark\n\n=== empty\n\n=== middle\nx␍\n\n=== last\nc\n\n=== new\ny\n";
    assert_eq!(fs::read_to_string(&file).unwrap(), expected);
    for text in ["no end of the line", "a\n=== b\n", "␍\n"] {
        assert!(catch_unwind(|| rewrite(&file, "last", text)).is_err(), "{text:?}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), expected);
}

#[test]
fn a_faulty_file_of_sections_is_refused_with_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("late.txt").display().to_string();
    for (content, expected) in [
        ("=== a\nb", ": the last line has no end"),
        ("=== a\r\n", ": a carriage return is written as ␍"),
        ("a\n=== b\n", ":1: `=== NAME` or a remark is expected"),
        ("=== a\nb\n===c\n", ":3: `=== NAME` is expected"),
        ("=== a\nb\n=== \n", ":3: `=== NAME` is expected"),
        ("=== a\nb\n=== a\n", ":3: another section has the name a already"),
    ] {
        fs::write(&file, content).unwrap();
        let panic = catch_unwind(|| sections(&file)).unwrap_err();
        let told = panic.downcast_ref::<String>().unwrap();
        assert_eq!(*told, format!("{file}{expected}"));
    }
}
