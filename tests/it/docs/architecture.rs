//! ARCHITECTURE.md is short, and its map names the folders and files that exist.

use crate::support::home;

const LINES_MAX: usize = 150;
const COLUMNS_MAX: usize = 100;

fn text() -> String {
    std::fs::read_to_string(home().join("ARCHITECTURE.md")).unwrap()
}

#[test]
fn the_map_is_short() {
    let text = text();
    assert!(text.lines().count() <= LINES_MAX, "{} lines", text.lines().count());
    for (index, line) in text.lines().enumerate() {
        assert!(line.chars().count() <= COLUMNS_MAX, "line {} is too long", index + 1);
    }
}

/// Paths stand in backquotes, and are relative to the repository or to `src`.
#[test]
fn the_map_names_what_exists() {
    let text = text();
    let mut seen = 0;
    for span in text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)) {
        if !span.contains('/') {
            continue;
        }
        seen += 1;
        let exists =
            [home().join(span), home().join("src").join(span)].iter().any(|path| path.exists());
        assert!(exists, "{span} does not exist");
    }
    assert!(seen > 40, "{seen}");
}

#[test]
fn every_layer_has_a_row() {
    let text = text();
    for layer in std::fs::read_dir(home().join("src")).unwrap() {
        let layer = layer.unwrap();
        if !layer.path().is_dir() {
            continue;
        }
        let name = layer.file_name().into_string().unwrap();
        assert!(text.contains(&format!("| `{name}/` |")), "{name} has no row");
    }
}
