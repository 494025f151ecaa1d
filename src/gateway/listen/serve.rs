//! `milepost serve` as a whole: serves the routes of a file, with listeners and reload, until a signal.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::config::routes::{Admin, Fleet, Route, Routes, Server};
use crate::gateway::dispatch::Proxy;
use crate::gateway::fleet::FleetMember;
use crate::gateway::fleet::heirs::OwnerStore;
#[cfg(feature = "fleet-valkey")]
use crate::gateway::fleet::valkey::Valkey;
use crate::gateway::listen::descriptors;
use crate::gateway::listen::handler::{Handler, Routed};
use crate::gateway::listen::listeners::{Listeners, ServeError};
use crate::gateway::listen::local::{AboutProcess, LocalApi};
use crate::gateway::listen::reload::Reloading;
use crate::gateway::listen::stop::signals;
use crate::observe::calls::{Table, Watch};
use crate::observe::durations::DurationStore;
use crate::observe::events::ObserverFactory;
use crate::observe::log::MessageLog;
use crate::platform::signals::Hangups;
use crate::transport::child::adopt_orphans;
use crate::transport::http::via::Via;
use crate::transport::mcp_http::target::TargetError;
use crate::transport::tasks;

/// The reason why routes cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system gives no random bytes.
    #[error("cannot make a random name for `Via`")]
    Via(#[from] getrandom::Error),
    /// The system gives no random bytes for the boot number of this replica.
    #[error("cannot make a random number for this replica of the fleet")]
    Fleet,
    /// The address of the store is not an address of Valkey or Redis.
    #[error("`valkey` of [fleet] is not an address such as rediss://valkey:6379")]
    Store,
    /// A route's server cannot be reached with the settings of the route.
    #[error(transparent)]
    Route(#[from] TargetError),
    /// A listener cannot be opened.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// Serves the routes of a file until SIGTERM or SIGINT: see [`run`]. `memory` holds the learned durations of the
/// routes' tools. `state` is their directory and that of the operators' token (`None`: nothing is kept). `observers`
/// receive the events of every filter. `socket_folder` is the directory of the local socket that shows the calls, which
/// is only opened beside an admin listener.
///
/// # Errors
/// If a route or a listener cannot be served.
pub async fn serve(
    routes: &Routes,
    memory: &DurationStore,
    state: Option<&Path>,
    observers: &[Arc<dyn ObserverFactory>],
    socket_folder: Option<PathBuf>,
) -> Result<u8, StartError> {
    let via = Via::random()?;
    adopt_orphans();
    // `adopt_orphans` comes first, because the starter through which servers start later relies on it.
    descriptors::prepare(routes.server());
    // The table of calls is only made if there is an admin address, because only that address shows it.
    let names = || routes.iter().map(|route| &*route.path);
    let calls = routes.admin().listen.map(|_| Table::new(names()));
    let watch = calls
        .iter()
        .map(|calls| Arc::new(Watch { table: Arc::clone(calls) }) as Arc<dyn ObserverFactory>);
    // The admin address also changes the log filter.
    let messages = calls.as_ref().map(|_| MessageLog::factory()).or_else(MessageLog::factory_if_on);
    let observers: Vec<Arc<dyn ObserverFactory>> =
        watch.chain(messages).chain(observers.iter().map(Arc::clone)).collect();
    let proxy = Proxy::new(routes, via.clone(), None, memory, &observers)?;
    let fleet = match routes.fleet() {
        Some(settings) => {
            let store = owner_store(settings, &proxy)?;
            let fleet = FleetMember::join_with(settings, &proxy, None, store);
            Some(fleet.ok_or(StartError::Fleet)?)
        }
        None => None,
    };
    let handler = Arc::new(Routed { proxy: Arc::clone(&proxy), calls, fleet });
    let listed: Vec<&Route> = routes.iter().collect();
    tasks::spawn(tick());
    let hangups = Hangups::listen().map_err(ServeError::Signals)?;
    let reloading = |listeners: &Listeners<Routed>| {
        Reloading::new(routes, memory.clone(), Arc::clone(&proxy), listeners.controls())
            .run(hangups)
    };
    let local = handler.calls.clone().zip(socket_folder).map(|(calls, folder)| {
        let about = AboutProcess::this("serve", routes.server().listen.to_string());
        tasks::spawn(async move { LocalApi::new(about, calls).serve(&folder).await })
    });
    let code = run(routes.server(), routes.admin(), state, listed, via, handler, reloading).await;
    if let Some(local) = local {
        local.abort();
        // Awaited, because the socket's file is removed when this task ends.
        let _ = local.await;
    }
    let code = code?;
    // Streams to servers may still be open although every client has disconnected.
    proxy.end_streams();
    if timeout(SERVERS_LEAVE, proxy.servers_done()).await.is_err() {
        tracing::warn!("servers that do not end are killed");
    }
    // The last log line: sessions with child processes have written theirs when the child ended.
    tracing::info!(code, "stopped");
    Ok(code)
}

/// Returns the store in which replicas agree who inherits sessions, if the settings name one.
#[cfg(feature = "fleet-valkey")]
fn owner_store(settings: &Fleet, proxy: &Proxy) -> Result<Option<Arc<dyn OwnerStore>>, StartError> {
    let open = |address| Valkey::open(address, proxy.metrics().fleet_store_errors().clone());
    let store = settings.valkey.as_ref().map(open).transpose().map_err(|_| StartError::Store)?;
    Ok(store.map(|store| Arc::new(store) as Arc<dyn OwnerStore>))
}

/// Returns an error if the route file names a store, because this build includes no store.
#[cfg(not(feature = "fleet-valkey"))]
#[expect(clippy::unnecessary_wraps, reason = "the store may be refused where there is one")]
fn owner_store(_: &Fleet, _: &Proxy) -> Result<Option<Arc<dyn OwnerStore>>, StartError> {
    Ok(None)
}

/// Deadline for child processes to end at shutdown. It is the sum of the waits after the end of their input, after
/// SIGTERM, and for the processes that they leave behind.
const SERVERS_LEAVE: Duration = Duration::from_secs(15);

/// Wakes the runtime once a second. Setting a timer that is due before all others costs a system call; this timer is
/// always due before the timers of calls, which then need no system call.
async fn tick() {
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    loop {
        ticks.tick().await;
    }
}

/// Serves routes until SIGTERM or SIGINT, and returns the exit code: 0, or 1 if a request had to be cut at the end.
/// [`Listeners::serve`] describes the shutdown.
///
/// `state` is the directory of the operators' token (`None`: nothing is kept). `via` is the name of this proxy in
/// `Via`, which `handler` uses too. `beside` creates a task that runs beside the listeners until they have ended.
///
/// # Errors
/// If nothing can be served: see [`Listeners::bind`].
pub async fn run<'a, H: Handler, B: Future<Output = ()> + Send + 'static>(
    server: &Server,
    admin: &Admin,
    state: Option<&Path>,
    routes: impl IntoIterator<Item = &'a Route> + Clone,
    via: Via,
    handler: Arc<H>,
    beside: impl FnOnce(&Listeners<H>) -> B,
) -> Result<u8, ServeError> {
    let stop = signals().map_err(ServeError::Signals)?;
    let listeners = Listeners::bind(server, admin, state, routes.clone(), via, handler).await?;
    listeners.log_addresses(routes);
    let beside = tasks::spawn(beside(&listeners));
    let code = listeners.serve(stop).await;
    beside.abort();
    Ok(code)
}
