//! `milepost serve`: listeners, admission, dispatch, shutdown.
//!
//! This module knows HTTP and the routes; the [`Handler`] knows how an admitted request is
//! answered.

mod admin;
pub mod admission;
mod connection;
mod dispatcher;
mod handler;
mod listener;
mod listeners;
mod reload;
mod route_file;
mod tls;

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::config::routes::{Admin, Route, Routes, Server};
use crate::gateway::dispatch::Proxy;
use crate::observe::calls::{Table, Watch};
use crate::observe::durations::DurationStore;
use crate::observe::events::ObserverFactory;
use crate::transport::child::adopt_orphans;
use crate::transport::http::via::Via;
use crate::transport::mcp_http::target::TargetError;

use reload::{Hangups, Reloading};

pub use crate::gateway::listen::listeners::{Controls, Listeners, Readiness, ServeError};
pub use handler::{Admitted, Handler, Peer, Routed};
pub use tls::TlsError;

/// Why routes cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system gives no random bytes.
    #[error("no name for `Via` can be made")]
    Via(#[from] getrandom::Error),
    /// A route's server cannot be reached as the route says.
    #[error(transparent)]
    Route(#[from] TargetError),
    /// A listener cannot be opened.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// Serves the routes of a file until SIGTERM or SIGINT: see [`run`]. `memory` has and gets what is learned
/// of them; `observers` look on at every conversation.
///
/// # Errors
/// If they cannot be served.
pub async fn serve(
    routes: &Routes,
    memory: &DurationStore,
    observers: &[Arc<dyn ObserverFactory>],
) -> Result<u8, StartError> {
    let via = Via::random()?;
    adopt_orphans();
    // Where no operator can look, nobody looks on.
    let names = || routes.iter().map(|route| &*route.path);
    let calls = routes.admin().listen.map(|_| Table::new(names()));
    let watch =
        calls.iter().map(|calls| Arc::new(Watch(Arc::clone(calls))) as Arc<dyn ObserverFactory>);
    let observers: Vec<Arc<dyn ObserverFactory>> =
        watch.chain(observers.iter().map(Arc::clone)).collect();
    let proxy = Proxy::new(routes, via.clone(), None, memory, &observers)?;
    let handler = Arc::new(Routed(Arc::clone(&proxy), calls));
    let listed: Vec<&Route> = routes.iter().collect();
    tokio::spawn(tick());
    let hangups = Hangups::listen().map_err(ServeError::Signals)?;
    let reloading = |site: &Listeners<Routed>| {
        Reloading::new(routes, memory.clone(), Arc::clone(&proxy), site.controls()).run(hangups)
    };
    let code = run(routes.server(), routes.admin(), listed, via, handler, reloading).await?;
    // Also when every client had left before.
    proxy.end_streams();
    if timeout(SERVERS_LEAVE, proxy.servers_done()).await.is_err() {
        tracing::warn!("servers that do not end are killed");
    }
    Ok(code)
}

/// How long servers that we have started may take to end at the end: as long as each may after its input
/// was closed, after SIGTERM, and with those that it leaves behind.
const SERVERS_LEAVE: Duration = Duration::from_secs(15);

/// Wakes the runtime now and then. Whoever starts a timer that is due before all others has to wake
/// the runtime for that, which costs a system call; this one is always due before those of calls.
async fn tick() {
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    loop {
        ticks.tick().await;
    }
}

/// Serves routes until SIGTERM or SIGINT, and answers with the exit code: 0, or 1 if a request had
/// to be cut at the end. See [`Listeners::serve`] for how it ends.
///
/// `via` is the name that `handler` uses for us too. `beside` is what goes on while it serves, on the site
/// that it is given.
///
/// # Errors
/// If nothing can be served: see [`Listeners::bind`].
pub async fn run<'a, H: Handler, B: Future<Output = ()> + Send + 'static>(
    server: &Server,
    admin: &Admin,
    routes: impl IntoIterator<Item = &'a Route> + Clone,
    via: Via,
    handler: Arc<H>,
    beside: impl FnOnce(&Listeners<H>) -> B,
) -> Result<u8, ServeError> {
    let stop = signals().map_err(ServeError::Signals)?;
    let site = Listeners::bind(server, admin, routes.clone(), via, handler).await?;
    site.tell(routes);
    let beside = tokio::spawn(beside(&site));
    let code = site.serve(stop).await;
    beside.abort();
    Ok(code)
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
