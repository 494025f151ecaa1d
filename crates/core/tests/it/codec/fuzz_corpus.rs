//! The fuzz corpus of the engine, replayed.

use crate::codec::replay_corpus::replay;
use crate::codec::{fuzz_bodies, fuzz_messages};

#[test]
fn corpus_replays() {
    replay("core", fuzz_bodies::core);
    replay("json", fuzz_messages::json);
    replay("lines", fuzz_bodies::lines);
    replay("splice", fuzz_messages::splice);
    replay("sse", fuzz_bodies::sse);
    replay("terminal", fuzz_bodies::terminal);
    replay("text", fuzz_bodies::text);
}
