//! `milepost serve`: listeners, admission, dispatch, shutdown.
//!
//! This module knows HTTP and the routes; the [`Handler`] knows how an admitted request is
//! answered.

mod admin;
pub mod admission;
mod connection;
mod descriptors;
mod dispatcher;
mod file_watch;
mod handler;
mod idle;
mod last_use;
mod listener;
mod listeners;
mod reload;
mod serve;
mod tls;
mod upgrades;

pub use admin::{AdminToken, ROUTES_WATCHED, TOKEN_FILE, own_address};
pub use handler::{Admitted, Handler, Peer, Routed};
pub use listeners::{Controls, Listeners, Readiness, ServeError};
pub use serve::{StartError, run, serve};
pub use tls::TlsError;

#[cfg(test)]
mod tests;
