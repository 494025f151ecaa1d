//! Every pair of transports: the messages of a client whose server speaks the same or another transport. Each test of
//! `cells` is a cell of the table in `docs/transports.md`.

pub(crate) mod cells;
pub(crate) mod client;
mod peers;
pub(crate) mod server;
mod table;

use std::sync::Arc;

use client::Client;
use server::Server;

use crate::http::serve::proxy::{Proxy, Start};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Stdio,
    Http,
    Sse,
}

/// A server, Milepost, and its clients.
pub(crate) struct Pair {
    pub(crate) client: Transport,
    pub(crate) server: Server,
    pub(crate) proxy: Option<Arc<Proxy>>,
    /// The path of its route.
    path: String,
    /// Of `wrap`.
    flags: Vec<String>,
    /// The environment of `wrap`.
    variables: Vec<(&'static str, String)>,
    /// The descriptors of `serve` before anybody came.
    pub(crate) descriptors: usize,
    /// The sessions that were not ended.
    pub(crate) kept: usize,
}

impl Pair {
    pub(crate) fn new(client: Transport, server: Transport) -> Self {
        Self::with(client, server, "")
    }

    /// Starts a pair with these keys for the route, if it has one.
    pub(crate) fn with(client: Transport, server: Transport, keys: &str) -> Self {
        Self::started(client, Server::start(server), keys, &Start::default())
    }

    /// Before this server, with a `serve` that is started so. `wrap` gets the variables.
    pub(crate) fn started(
        client: Transport,
        server: Server,
        keys: &str,
        start: &Start<'_>,
    ) -> Self {
        let route = format!("{}\nheartbeat.enabled = false\n{keys}", server.route());
        let proxy = (client != Transport::Stdio).then(|| Arc::new(Proxy::with(start, &route)));
        let variables = start.variables.to_vec();
        let path = "/a".to_owned();
        Self { variables, ..Self::behind(client, server, proxy, path) }
    }

    /// Returns a pair with this server, behind a `serve` that other tests use too, under this path.
    pub(crate) fn behind(
        client: Transport,
        server: Server,
        proxy: Option<Arc<Proxy>>,
        path: String,
    ) -> Self {
        let descriptors = proxy.as_ref().map_or(0, |proxy| proxy.descriptors());
        let (flags, variables) = (Vec::new(), Vec::new());
        Self { client, server, proxy, path, flags, variables, descriptors, kept: 0 }
    }

    /// Whether no other test uses its `serve`.
    pub(crate) fn is_alone(&self) -> bool {
        self.proxy.as_ref().is_none_or(|proxy| Arc::strong_count(proxy) == 1)
    }

    /// The same transports with these keys for a route, which are these flags for `wrap`.
    fn set(&self, keys: &str, flags: &[&str]) -> Self {
        let flags = flags.iter().map(|&flag| flag.to_owned()).collect();
        Self { flags, ..Self::with(self.client, self.server.transport(), keys) }
    }

    /// A client whose session has begun.
    #[track_caller]
    pub(crate) fn client(&self) -> Client {
        let session = self.server.sessions();
        let address = self.proxy.as_ref().map_or("", |proxy| proxy.address());
        let client = match self.client {
            Transport::Http => Client::http(address, &self.path, session),
            Transport::Sse => Client::sse(address, &self.path, session),
            Transport::Stdio => {
                let arguments = [&self.flags[..], &self.server.arguments()].concat();
                Client::stdio(&arguments, &self.variables, session)
            }
        };
        assert_eq!(self.server.sessions(), session + 1, "a session has one begin");
        client
    }
}
