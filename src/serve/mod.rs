//! `milepost serve`: listeners, who is let in, what passes, and the way to the end.
//!
//! Knows HTTP and which routes there are; knows nothing of what is done with a request that was let
//! in. That is the [`Handler`]'s.

mod admin;
mod authority;
mod connection;
pub mod cors;
mod front;
pub mod guard;
mod handler;
pub mod headers;
mod listener;
pub mod places;
mod refusal;
mod site;
mod tls;
mod via;

use std::io;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::routes::{Admin, Route, Server};

pub use handler::{Admitted, Client, Handler};
pub use refusal::Refusal;
pub use site::{ServeError, Site};
pub use tls::TlsError;
pub use via::Via;

/// Serves routes until SIGTERM or SIGINT, and answers with the exit code: 0, or 1 if a request had
/// to be cut at the end. See [`Site::serve`] for how it ends. SIGHUP has its default meaning.
///
/// `via` is the name that `handler` uses for us too.
///
/// # Errors
/// If nothing can be served: see [`Site::bind`].
pub async fn run<'a, H: Handler>(
    server: &Server,
    admin: &Admin,
    routes: impl IntoIterator<Item = &'a Route> + Clone,
    via: Via,
    handler: Arc<H>,
) -> Result<u8, ServeError> {
    let stop = signals().map_err(ServeError::Signals)?;
    let site = Site::bind(server, admin, routes.clone(), via, handler).await?;
    site.tell(routes);
    Ok(site.serve(stop).await)
}

/// SIGTERM and SIGINT, as often as they come.
fn signals() -> io::Result<mpsc::Receiver<()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // The second one cuts everything: a third has nothing to add.
    let (sender, receiver) = mpsc::channel(2);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                () = sender.closed() => return,
            }
            let _ = sender.try_send(());
        }
    });
    Ok(receiver)
}

#[cfg(test)]
mod tests;
