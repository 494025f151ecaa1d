//! The intake of messages: client messages, server messages, and text that a server writes beside
//! its messages.

pub(crate) mod answer;
pub(crate) mod arrived_message;
pub(crate) mod ask_for_logs;
pub(crate) mod batch;
pub(crate) mod client;
pub(crate) mod fast_log;
pub(crate) mod fast_path;
pub(crate) mod fast_repair;
pub(crate) mod hold;
pub(crate) mod large_answer;
pub(crate) mod large_message;
pub(crate) mod log_template;
pub(crate) mod mended_body;
pub(crate) mod missing_id;
pub(crate) mod observe_mode;
pub(crate) mod readable;
pub(crate) mod reports;
pub(crate) mod request_members;
pub(crate) mod server;
pub(crate) mod set_policy;
pub(crate) mod state;
pub(crate) mod template;
pub(crate) mod text_source;
