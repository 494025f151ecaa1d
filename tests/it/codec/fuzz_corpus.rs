//! The fuzz corpus of the proxy, replayed.

use crate::codec::replay_corpus::replay;
use crate::codec::{fuzz_http, fuzz_responses, fuzz_seal};

#[test]
fn corpus_replays() {
    replay("http", fuzz_http::http);
    replay("responses", fuzz_responses::responses);
    replay("seal", fuzz_seal::seal);
}
