//! Runs the same server behind the proxy's own filter, inside this process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use url::Url;

use super::cure::{self, Behind, Cure};
use super::findings::Examined;
use super::link::Link;
use super::negotiate::{ServerFacts, SessionStart};
use super::rules::Rule;
use super::traffic::TransportKind;
use super::{DoctorError, DoctorTarget, Inspection, SessionTerms, web_link};
use crate::config::routes::{Admin, HttpUpstream, Route, Routes, Server, Upstream};
use crate::gateway::dispatch::Proxy;
use crate::gateway::listen::{Listeners, Routed, StartError, StopSignal};
use crate::observe::durations::DurationStore;
use crate::observe::events::ObserverFactory;
use crate::observe::pointer_watch::PointerWatch;
use crate::transport::http::via::Via;
use crate::transport::tasks;

/// Deadline for the listeners to end.
const ENDS: Duration = Duration::from_secs(10);

/// Routes that are served on a temporary port.
struct TemporaryServer {
    address: SocketAddr,
    stop: mpsc::Sender<StopSignal>,
    running: JoinHandle<u8>,
    proxy: Arc<Proxy>,
}

impl TemporaryServer {
    /// Serves routes on the loopback interface.
    async fn start(
        routes: &Routes,
        observers: &[Arc<dyn ObserverFactory>],
    ) -> Result<Self, StartError> {
        let via = Via::random()?;
        // The empty store: durations that are measured here are not saved.
        let proxy = Proxy::new(routes, via.clone(), None, &DurationStore::default(), observers)?;
        let handler = Arc::new(Routed { proxy: Arc::clone(&proxy), calls: None, fleet: None });
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
        let running = tasks::spawn(listeners.serve(stopped));
        Ok(Self { address, stop, running, proxy })
    }

    /// Returns the URL of the route for a client of this transport.
    fn url(&self, path: &str, transport: TransportKind) -> Result<Url, url::ParseError> {
        let end = if transport == TransportKind::Sse { "/sse" } else { "" };
        Url::parse(&format!("http://{}{path}{end}", self.address))
    }

    /// Ends the temporary server.
    async fn end(mut self) {
        let _ = self.stop.try_send(StopSignal::Interrupt);
        self.proxy.end_streams();
        if timeout(ENDS, &mut self.running).await.is_err() {
            self.running.abort();
        }
    }
}

impl Inspection {
    /// Repeats the session behind the proxy; `before` has the findings without the proxy.
    pub(super) async fn through(
        &self,
        known: &ServerFacts,
        beginning: SessionStart,
        cure: &Cure,
        behind: &Behind,
        before: &Examined,
    ) -> Result<Examined, DoctorError> {
        self.step.show("the same through Milepost");
        let mut routes = match &self.options.configured {
            Some(configured) => configured.routes.clone(),
            None => cure::routes(cure, behind)?,
        };
        // The proxy answers `initialize` in the place of a server without a handshake, so a handshake is used here.
        let beginning = match beginning {
            SessionStart::None => SessionStart::Handshake("2025-06-18"),
            other => other,
        };
        let mut terms = SessionTerms {
            wire: known.transport,
            // If progress comes on the GET stream, open none, because only then does `own_get` have an effect.
            without_get: before.uses_get,
            ..SessionTerms::default()
        };
        let watch = PointerWatch::default();
        let observers: [Arc<dyn ObserverFactory>; 2] =
            [Arc::new(terms.added.clone()), Arc::new(watch.clone())];
        let mut again = ServerFacts { found: Vec::new(), has_no_lifecycle: false, ..known.clone() };
        let after = match &self.options.server {
            DoctorTarget::Command(program) => {
                let route = routes.find(None)?;
                let policy = routes.policy(route);
                let link = Link::start_proxied(policy.clone(), program, &observers)?;
                terms.wire = TransportKind::Stdio;
                let mut after = self.session(link, beginning, &terms, &mut again).await?;
                if before.count(Rule::DiscoverEnds) + before.count(Rule::DiscoverSilent) > 0 {
                    let link = Link::start_proxied(policy, program, &observers)?;
                    let found = self.discover_again(link).await?;
                    found.into_iter().for_each(|finding| after.add(finding));
                }
                Ok(after)
            }
            DoctorTarget::Http(route, _) => {
                if self.options.configured.is_none() {
                    routes.set_request_headers(&route.request_headers);
                }
                let path = routes.find(None)?.path.clone();
                let served = TemporaryServer::start(&routes, &observers).await?;
                let done = async {
                    let url = served.url(&path, known.transport)?;
                    let link = web_link(
                        &Route::new("/".to_owned(), Upstream::Http(HttpUpstream::new(url))),
                        known.transport,
                    )?;
                    self.session(link, beginning, &terms, &mut again).await
                };
                let done = done.await;
                served.end().await;
                done
            }
        };
        after.map(|mut after| {
            after.compare_answers(before);
            Examined { missed: watch.missed(), ..after }
        })
    }
}
