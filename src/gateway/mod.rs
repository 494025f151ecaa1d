//! `milepost serve`: listeners, routes, and the two paths of a request through a route (`direct`,
//! `bridge`).
pub(crate) mod bridge;
pub(crate) mod client_limits;
pub(crate) mod demo_upstream;
pub(crate) mod direct;
pub mod dispatch;
pub(crate) mod file_contents;
pub mod fleet;
pub(crate) mod launch;
pub(crate) mod limit_notices;
pub mod listen;
pub mod live_routes;
pub(crate) mod mcp_server;
pub(crate) mod observers;
pub(crate) mod refusals;
pub mod route_changes;
pub mod route_state;
pub(crate) mod server_log;
