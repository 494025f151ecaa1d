//! See `fuzz_bodies::terminal`.
#![no_main]
#![allow(dead_code)]

#[path = "../../it/fuzz_bodies.rs"]
mod fuzz_bodies;
#[path = "../../it/rig.rs"]
mod rig;
#[path = "../../it/sse_rig.rs"]
mod sse_rig;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::terminal(data));
