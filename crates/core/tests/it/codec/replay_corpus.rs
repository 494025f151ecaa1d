//! Replays the inputs of a fuzz target.

use std::path::Path;

use super::packed_corpus::{pack, unpack};

#[track_caller]
pub(crate) fn replay(target: &str, body: fn(&[u8])) {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let home = home.ancestors().find(|folder| folder.join("tests/fuzz/corpus").is_dir()).unwrap();
    let packed =
        std::fs::read_to_string(home.join(format!("tests/fuzz/corpus/{target}.pack"))).unwrap();
    let inputs = unpack(&packed)
        .unwrap_or_else(|line| panic!("line {line} of {target}.pack is not in the form"));
    assert!(inputs.len() > 20, "{} inputs", inputs.len());
    for (index, input) in inputs.iter().enumerate() {
        let played = std::panic::catch_unwind(|| body(input));
        assert!(played.is_ok(), "in line {} of {target}.pack", index + 1);
    }
    // A merge or an edit by hand may leave unsorted or repeated lines.
    assert!(pack(&inputs) == packed, "{target}.pack has other bytes when it is packed again");
}
