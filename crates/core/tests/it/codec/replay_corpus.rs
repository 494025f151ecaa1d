//! Plays the inputs of a fuzz target again.

use std::path::Path;

#[track_caller]
pub(crate) fn replay(target: &str, body: fn(&[u8])) {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let home = home.ancestors().find(|folder| folder.join("tests/fuzz/corpus").is_dir()).unwrap();
    let mut count = 0;
    for file in std::fs::read_dir(home.join("tests/fuzz/corpus").join(target)).unwrap() {
        let path = file.unwrap().path();
        let data = std::fs::read(&path).unwrap();
        let played = std::panic::catch_unwind(|| body(&data));
        assert!(played.is_ok(), "in {}", path.display());
        count += 1;
    }
    assert!(count > 20, "{count} files");
}
