//! `milepost serve`: listeners, admission, dispatch, shutdown.
//!
//! This module handles HTTP and finds the route; the [`Handler`] answers an admitted request.

mod admin;
pub mod admission;
mod connection;
mod descriptors;
mod dispatcher;
mod file_watch;
mod foreign_headers;
mod handler;
mod idle;
mod last_use;
mod lazy_poll;
mod listener;
mod listeners;
mod local;
mod local_page;
mod reload;
mod serve;
mod shortage;
mod stop;
mod tls;

pub use admin::{ADMIN_CHANGES, AdminToken, ROUTES_WATCHED, TOKEN_FILE, own_address};
pub use handler::{Admitted, Handler, Peer, Routed};
pub use listeners::{Controls, Listeners, Readiness, ServeError};
pub use local::{AboutProcess, LocalApi, PATH_OF_ABOUT};
pub use local_page::LocalPage;
pub use serve::{StartError, run, serve};
pub use stop::StopSignal;
pub use tls::TlsError;

#[cfg(test)]
mod tests;
