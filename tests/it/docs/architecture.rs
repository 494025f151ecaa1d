//! ARCHITECTURE.md is short, and its map names the folders and files that exist.

use crate::support::home;

const LINES_MAX: usize = 170;
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

/// The folders whose folders are the layers.
const PRODUCT: [&str; 2] = ["src", "crates/core/src"];

/// Paths stand in backquotes, and are relative to the repository or to a folder of [`PRODUCT`].
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
            PRODUCT.iter().chain(&["."]).any(|folder| home().join(folder).join(span).exists());
        assert!(exists, "{span} does not exist");
    }
    assert!(seen > 40, "{seen}");
}

#[test]
fn every_layer_has_a_row() {
    let text = text();
    for layer in PRODUCT.iter().flat_map(|folder| std::fs::read_dir(home().join(folder)).unwrap()) {
        let layer = layer.unwrap();
        if !layer.path().is_dir() {
            continue;
        }
        let name = layer.file_name().into_string().unwrap();
        assert!(text.contains(&format!("| `{name}/` |")), "{name} has no row");
    }
}
