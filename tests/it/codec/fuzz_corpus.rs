//! The fuzz corpus, replayed.

use std::path::Path;

use crate::codec::{fuzz_bodies, fuzz_http, fuzz_messages, fuzz_responses, fuzz_seal};

#[track_caller]
fn replay(target: &str, body: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(target);
    let mut count = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let data = std::fs::read(&path).unwrap();
        let played = std::panic::catch_unwind(|| body(&data));
        assert!(played.is_ok(), "in {}", path.display());
        count += 1;
    }
    assert!(count > 20, "{count} files");
}

#[test]
fn corpus_replays() {
    replay("core", fuzz_bodies::core);
    replay("http", fuzz_http::http);
    replay("json", fuzz_messages::json);
    replay("lines", fuzz_bodies::lines);
    replay("responses", fuzz_responses::responses);
    replay("seal", fuzz_seal::seal);
    replay("splice", fuzz_messages::splice);
    replay("sse", fuzz_bodies::sse);
    replay("terminal", fuzz_bodies::terminal);
    replay("text", fuzz_bodies::text);
}
