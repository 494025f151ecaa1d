//! Conversations as programs embed them: bytes or messages go in, bytes come out.

mod events;
mod http;
mod panics;
mod properties;
mod rig;
mod stdio;
