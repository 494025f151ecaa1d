//! The commands that read recordings: `export`, `mock` and `diff`.

mod diff;
mod export;
mod mock;

use std::fs;
use std::path::PathBuf;
use std::process::{Output, Stdio};

use crate::support::milepost;

/// A recording that was written by hand, with its text.
pub(crate) const BUILDS: &str = "2026-01-31T09-59-59Z-0001.transcript";

/// The path of a recording in `tests/data/recordings`.
pub(crate) fn recording(name: &str) -> String {
    format!("{}/tests/data/recordings/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Exit code, standard output, standard error.
pub(crate) fn run(args: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } =
        milepost().args(args).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// A file with this text.
pub(crate) fn written(folder: &tempfile::TempDir, text: impl AsRef<[u8]>) -> PathBuf {
    let file = folder.path().join("file.transcript");
    fs::write(&file, text).unwrap();
    file
}

#[test]
fn what_is_no_whole_recording_is_said_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let newer = "# recorded by milepost 99.0.0; `milepost replay` plays it\n";
    for (text, place, expected) in [
        (&b""[..], ":1:", "this file has no message"),
        (b"> {}\nnonsense\n", ":2:", "a line that begins with one of"),
        (b"> {}\n! explode\n", ":2:", "is not known"),
        (b"> {}\n< {\"jsonrpc\":\"2", ":2:", "breaks off here"),
        (b"> {}\n+ 5\n", ":2:", "is not a time"),
        (b"> {}\n+ 99999999h\n", ":2:", "is too long"),
        (b"> {\\xZZ}\n", ":1:", "hexadecimal"),
        (b"> {}\n< \xFF\n", ":2:", "text is expected (UTF-8)"),
        (
            &[newer.as_bytes(), b"> {}\n? {}\n"].concat(),
            ":3:",
            "milepost 99.0.0 wrote this recording",
        ),
    ] {
        let file = written(&folder, text);
        let file = file.to_str().unwrap();
        let builds = recording(BUILDS);
        for args in [&["export", file][..], &["mock", file], &["diff", &builds, file]] {
            let (code, out, error) = run(args);
            assert_eq!(code, Some(2), "{args:?}: {error}");
            assert!(error.contains(&format!("{file}{place}")), "{args:?}: {error}");
            assert!(error.contains(expected), "{args:?}: {error}");
            assert_eq!(out, "");
        }
    }
    // A conversation without a request can be exported, but not served.
    let file = written(&folder, "! left\n");
    let (code, _, error) = run(&["mock", file.to_str().unwrap()]);
    assert!(code == Some(2) && error.contains(":1: a request is expected"), "{error}");
    let (code, _, error) = run(&["export", "/nowhere/file"]);
    assert!(code == Some(2) && error.contains("/nowhere/file"), "{error}");
}

#[test]
fn a_newer_recording_that_can_be_read_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(recording(BUILDS))
        .unwrap()
        .replace("milepost 0.1.0;", "milepost 99.0.0;");
    let file = written(&folder, text);
    let (code, out, _) = run(&["export", file.to_str().unwrap()]);
    assert_eq!(code, Some(0));
    assert!(out.contains("milepost 99.0.0 wrote the recording, which is newer than this"), "{out}");
}
