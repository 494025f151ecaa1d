//! The leg towards HTTP servers, in memory and in virtual time: the messages of a stdio client, and the requests to the
//! server, byte for byte.

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
