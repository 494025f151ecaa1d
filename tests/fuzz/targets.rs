//! Every target in one program, which is built and linked once. `MILEPOST_FUZZ` names the target; libFuzzer reads
//! the command line.
#![no_main]
#![allow(dead_code)]

use std::sync::LazyLock;

mod codec;
mod core;

/// The body of a target.
type Body = fn(&[u8]);

static BODY: LazyLock<Body> = LazyLock::new(|| {
    let name = std::env::var("MILEPOST_FUZZ").unwrap_or_default();
    match &*name {
        "core" => codec::fuzz_bodies::core,
        #[cfg(feature = "proxy")]
        "http" => codec::fuzz_http::http,
        "json" => codec::fuzz_messages::json,
        "lines" => codec::fuzz_bodies::lines,
        #[cfg(feature = "proxy")]
        "responses" => codec::fuzz_responses::responses,
        #[cfg(feature = "proxy")]
        "seal" => codec::fuzz_seal::seal,
        "splice" => codec::fuzz_messages::splice,
        "sse" => codec::fuzz_bodies::sse,
        "terminal" => codec::fuzz_bodies::terminal,
        "text" => codec::fuzz_bodies::text,
        _ => panic!("MILEPOST_FUZZ names a target of tests/fuzz, and {name:?} is none"),
    }
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| BODY(data));
