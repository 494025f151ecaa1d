//! The leg towards servers that are reached over HTTP, in memory and in virtual time: what a stdio client
//! is told, and what the server is asked, byte for byte.

mod answers_elsewhere;
mod ask_log_level;
mod embedded;
mod example_servers;
mod http_sse_servers;
mod late_answers;
mod listen_streams;
mod lost_sessions;
mod modern_clients;
mod modern_face;
mod responses;
mod rig;
mod session_cookies;
mod wrap_url;
