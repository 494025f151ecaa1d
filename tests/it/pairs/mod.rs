//! Every pair of transports: what a client is told whose server speaks the same or another one.
//! Each test of `cells` is a cell of the table in `docs/transports.md`.

mod cells;
mod client;
mod peers;
mod server;
mod table;

use crate::http::serve::proxy::{Proxy, Start};
use client::Client;
use server::Server;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transport {
    Stdio,
    Http,
    Sse,
}

/// A server, Milepost, and who comes.
struct Pair {
    client: Transport,
    server: Server,
    proxy: Option<Proxy>,
    /// Of `wrap`.
    flags: Vec<String>,
}

impl Pair {
    fn new(client: Transport, server: Transport) -> Self {
        Self::with(client, server, "")
    }

    /// With keys for the route, where there is one.
    fn with(client: Transport, server: Transport, keys: &str) -> Self {
        let server = Server::start(server);
        let route = format!("{}\nheartbeat.enabled = false\n{keys}", server.route());
        let proxy = (client != Transport::Stdio).then(|| Proxy::with(&Start::default(), &route));
        Self { client, server, proxy, flags: Vec::new() }
    }

    /// The same transports with these keys for a route, which are these flags for `wrap`.
    fn set(&self, keys: &str, flags: &[&str]) -> Self {
        let flags = flags.iter().map(|&flag| flag.to_owned()).collect();
        Self { flags, ..Self::with(self.client, self.server.transport(), keys) }
    }

    /// A client whose session has begun.
    #[track_caller]
    fn client(&self) -> Client {
        let session = self.server.sessions();
        let address = self.proxy.as_ref().map(Proxy::address).unwrap_or_default();
        let client = match self.client {
            Transport::Http => Client::http(address, session),
            Transport::Sse => Client::sse(address, session),
            Transport::Stdio => {
                Client::stdio(&[&self.flags[..], &self.server.arguments()].concat(), session)
            }
        };
        assert_eq!(self.server.sessions(), session + 1, "a session has one begin");
        client
    }
}
