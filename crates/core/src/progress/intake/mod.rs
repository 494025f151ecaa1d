//! Handles arriving messages: client messages, server messages, and text that a server writes in addition to messages.

pub(crate) mod batch;
pub(crate) mod client;
pub(crate) mod fast_log;
pub(crate) mod fast_path;
pub(crate) mod fast_repair;
pub(crate) mod large_answer;
pub(crate) mod large_message;
pub(crate) mod log_template;
pub(crate) mod observe_mode;
pub(crate) mod request_members;
pub(crate) mod scale;
pub(crate) mod server;
pub(crate) mod split_line;
pub(crate) mod state;
pub(crate) mod template;
mod text;
pub(crate) mod text_source;
