//! HTTP clients in front of servers on stdio, or of another HTTP transport: the sessions are the proxy's own.

mod http_servers;
mod http_sse_clients;
mod late;
mod missed_events;
mod modern_face;
mod modern_tasks;
mod owners;
mod repeated_ids;
pub(crate) mod sessions;
mod shared_isolation;
mod shared_servers;
mod tasks;
