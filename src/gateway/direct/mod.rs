//! Clients over HTTP before servers over HTTP: each request is a POST of its own, with its own filter.
pub(crate) mod accepted_callers;
pub(crate) mod claim;
pub(crate) mod control;
pub(crate) mod event_stream;
pub(crate) mod exchange;
pub(crate) mod held_stream;
pub(crate) mod http_sse;
pub(crate) mod listen_stream;
pub(crate) mod mailbox;
pub(crate) mod post;
pub(crate) mod response;
pub(crate) mod session;
pub(crate) mod stream_body;
