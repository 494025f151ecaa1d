//! HTTP without MCP: connections to servers, bodies, headers, refusals.
pub(crate) mod authority;
pub mod body;
pub mod client;
pub(crate) mod client_pacing;
pub mod collector;
pub mod cors;
pub mod endpoints;
pub(crate) mod forwarder;
pub mod headers;
pub(crate) mod in_flight;
pub(crate) mod inflate;
pub mod refusal;
pub(crate) mod request_body;
pub(crate) mod shutdown;
pub mod tls;
pub mod via;
pub mod write_state;
