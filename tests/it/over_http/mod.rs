//! The data path of HTTP, in memory and in virtual time: every byte of both sides is the test's own.

mod requests;
mod rig;
mod streams;
mod transcripts;
mod wire;
mod words;
