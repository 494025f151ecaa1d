//! MCP over HTTP: headers, revisions, bodies of requests, and requests that a proxy answers itself.
pub(crate) mod content;
pub(crate) mod event_ids;
pub(crate) mod event_message;
pub(crate) mod header_mirror;
pub(crate) mod header_names;
pub(crate) mod lifecycle;
pub(crate) mod lost_session;
pub mod raw_client;
pub(crate) mod request_body;
pub(crate) mod request_head;
pub(crate) mod response_body;
pub(crate) mod response_reader;
pub(crate) mod server_words;
pub(crate) mod sse_endpoint;
pub mod target;
pub(crate) mod tool_headers;
pub(crate) mod tool_list;
