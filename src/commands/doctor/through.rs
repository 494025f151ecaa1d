//! The same server behind the proxy's own filter, inside this process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use url::Url;

use super::added::AddedProgress;
use super::cure::PATH;
use crate::config::routes::{Admin, Route, Routes, Server};
use crate::gateway::dispatch::Proxy;
use crate::gateway::listen::{Listeners, Routed, StartError};
use crate::observe::durations::DurationStore;
use crate::observe::events::ObserverFactory;
use crate::transport::http::via::Via;

/// The time that the listeners have to end.
const ENDS: Duration = Duration::from_secs(10);

/// Routes that are served on a port of their own.
pub(super) struct Served {
    address: SocketAddr,
    stop: mpsc::Sender<()>,
    running: JoinHandle<u8>,
    proxy: Arc<Proxy>,
}

impl Served {
    /// Serves routes on the loopback interface.
    pub(super) async fn start(routes: &Routes, added: &AddedProgress) -> Result<Self, StartError> {
        let via = Via::random()?;
        // What is seen here is learned by nobody.
        let observers: [Arc<dyn ObserverFactory>; 1] = [Arc::new(added.clone())];
        let proxy = Proxy::new(routes, via.clone(), None, &DurationStore::default(), &observers)?;
        let handler = Arc::new(Routed(Arc::clone(&proxy), None));
        let listed: Vec<&Route> = routes.iter().collect();
        let server = Server {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            drain: Duration::ZERO,
            ..Server::default()
        };
        let listeners =
            Listeners::bind(&server, &Admin::none(), None, listed, via, handler).await?;
        let address = listeners.address().unwrap_or(server.listen);
        let (stop, stopped) = mpsc::channel(2);
        let running = tokio::spawn(listeners.serve(stopped));
        Ok(Self { address, stop, running, proxy })
    }

    /// The URL of the route for a client of this transport.
    pub(super) fn url(&self, is_sse: bool) -> Result<Url, url::ParseError> {
        let end = if is_sse { "/sse" } else { "" };
        Url::parse(&format!("http://{}{PATH}{end}", self.address))
    }

    /// Ends the proxied server.
    pub(super) async fn end(mut self) {
        let _ = self.stop.try_send(());
        self.proxy.end_streams();
        if timeout(ENDS, &mut self.running).await.is_err() {
            self.running.abort();
        }
    }
}
