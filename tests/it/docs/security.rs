//! `docs/security.md`: every test that the page names is there.

use std::path::Path;

use crate::support::home;

/// The text of all code below a folder.
fn code(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            code(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            *text += &std::fs::read_to_string(path).unwrap();
        }
    }
}

#[test]
fn every_threat_has_tests_that_are_there() {
    let mut text = String::new();
    code(&home().join("src"), &mut text);
    code(&home().join("tests/it"), &mut text);
    code(&home().join("crates"), &mut text);
    let page = std::fs::read_to_string(home().join("docs/security.md")).unwrap();
    let rows: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| can try"))
        .collect();
    assert!(rows.len() >= 25, "{}", rows.len());
    for row in rows {
        let tests = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let names: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "no test: {row}");
        for name in names {
            assert!(text.contains(&format!("fn {name}(")), "there is no test {name}");
        }
    }
}
