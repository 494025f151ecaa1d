//! Conversations as programs embed them: bytes or messages in, bytes out.

mod events;
mod http;
mod panics;
mod properties;
mod rig;
mod stdio;
