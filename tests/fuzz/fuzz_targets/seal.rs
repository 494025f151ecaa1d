//! See `fuzz_seal::seal`.
#![no_main]
#![allow(dead_code)]

#[path = "../codec.rs"]
mod codec;
#[path = "../core.rs"]
mod core;

libfuzzer_sys::fuzz_target!(|data: &[u8]| codec::fuzz_seal::seal(data));
