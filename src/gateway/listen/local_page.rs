//! The live page of `milepost wrap`: a listener on loopback whose link contains the token.

use std::convert::Infallible;
use std::future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::admin::{self, AdminApi};
use super::connection::boxed;
use super::handler::{Admitted, Handler};
use super::listener::{ConnectionTerms, HttpListener, ListenPhase};
use crate::config::routes::{Admin, Secret, Server};
use crate::gateway::refusals::no_route;
use crate::observe::calls::Table;
use crate::observe::metrics::Traffic;
use crate::transport::http::body::Body;
use crate::transport::http::via::Via;
use crate::transport::random::random_id;

/// The calls of one process, without routes.
struct CallsOnly {
    calls: Arc<Table>,
}

impl Handler for CallsOnly {
    type Body = Body;

    fn handle(
        self: &Arc<Self>,
        _: Request<Incoming>,
        _: Admitted,
    ) -> impl Future<Output = Response<Body>> + Send + use<> {
        future::ready(no_route())
    }

    fn calls(&self) -> Option<&Arc<Table>> {
        Some(&self.calls)
    }

    async fn end_streams(&self) {}
}

/// The live page of one process, on loopback.
pub struct LocalPage {
    listener: HttpListener,
    api: Arc<AdminApi<CallsOnly>>,
    link: String,
}

impl LocalPage {
    /// Binds a free port on loopback, and makes a token.
    ///
    /// # Errors
    ///
    /// If there is no free port, or the system has no random bytes.
    pub async fn bind(calls: Arc<Table>) -> io::Result<Self> {
        let token = random_id().ok_or(io::ErrorKind::Unsupported)?;
        let via = Via::random().map_err(io::Error::other)?;
        let socket = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
        let address = socket.local_addr()?;
        let limits = (admin::CONNECTIONS_MAX, admin::HEAD_BYTES_MAX);
        let terms = ConnectionTerms::new(None, limits, Traffic::default());
        let listener = HttpListener::new(socket, terms).for_operators();
        let listener = listener.closing_silent(|| ());
        let link = format!("http://{address}/#token={token}");
        let admin =
            Admin { listen: Some(address), bearer: Some(Secret::new(token)), ..Admin::default() };
        let handler = Arc::new(CallsOnly { calls });
        let api = Arc::new(AdminApi::new(&Server::default(), &admin, None, via, handler));
        Ok(Self { listener, api, link })
    }

    /// Returns the address of the page, with the token after `#`.
    pub fn link(&self) -> &str {
        &self.link
    }

    /// Serves the page for as long as the future is polled.
    pub async fn serve(self) -> Infallible {
        // The phase never changes, because the process ends first.
        let (_phase, follow) = watch::channel(ListenPhase::Serving);
        let api = self.api;
        let answer = move |client, request| {
            let api = Arc::clone(&api);
            boxed(async move { api.answer(client, ListenPhase::Serving, request).await })
        };
        self.listener.serve(Arc::new(answer), follow).await;
        future::pending().await
    }
}
