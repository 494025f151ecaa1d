//! The data path of HTTP, in memory and in virtual time: every byte of both sides is the test's own.

mod asked;
mod bridge;
mod bridge_pairs;
mod bridge_shared;
mod bridge_shared_more;
mod bridge_streams;
mod bridge_wires;
mod chain;
mod conversations;
mod held_streams;
mod learned;
mod lifecycle;
mod logs;
mod records;
mod reload;
mod requests;
pub(crate) mod rig;
mod sizes;
mod streams;
mod transcripts;
mod upgrades;
pub(crate) mod wire;
mod wires;
mod words;
