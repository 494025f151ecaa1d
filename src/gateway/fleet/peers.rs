//! The other replicas: connections to them, and which of them cannot be reached.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::Instant;

use crate::observe::metrics::Traffic;
use crate::transport::http::client::{Connector, InProcess, Io};
use crate::transport::http::connection_pool::ConnectionPool;

/// The longest time of connecting to another replica.
const CONNECT_MAX: Duration = Duration::from_secs(1);

/// The time for which a replica that could not be reached is not tried again.
const DOWN_FOR: Duration = Duration::from_secs(5);

/// Other replicas that are kept in mind. Beyond it all are forgotten, and connections to them are made anew.
const PEERS_MAX: usize = 4096;

/// Makes connections to replicas within this process, in the place of the network.
pub type DialReplica = Arc<dyn Fn(SocketAddr) -> BoxFuture<'static, io::Result<Io>> + Send + Sync>;

struct KnownReplica {
    pool: Arc<ConnectionPool>,
    down_until: Option<Instant>,
}

/// The other replicas, by their addresses.
pub(crate) struct Peers {
    dial: Option<DialReplica>,
    known: Mutex<HashMap<SocketAddr, KnownReplica>>,
}

impl Peers {
    /// No replica is known. If there is a `dial`, it replaces the network.
    pub(crate) fn new(dial: Option<DialReplica>) -> Self {
        Self { dial, known: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, KnownReplica>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a replica could not be reached just now.
    pub(crate) fn is_down(&self, address: SocketAddr) -> bool {
        let known = self.lock();
        let until = known.get(&address).and_then(|peer| peer.down_until);
        until.is_some_and(|until| Instant::now() < until)
    }

    /// A replica could not be reached.
    pub(crate) fn mark_down(&self, address: SocketAddr) {
        if let Some(peer) = self.lock().get_mut(&address) {
            peer.down_until = Some(Instant::now() + DOWN_FOR);
        }
    }

    /// The connections to a replica.
    pub(crate) fn pool(&self, address: SocketAddr) -> Arc<ConnectionPool> {
        let mut known = self.lock();
        if known.len() >= PEERS_MAX && !known.contains_key(&address) {
            known.clear();
        }
        let peer = known.entry(address).or_insert_with(|| {
            let pool =
                ConnectionPool::new(self.connector(address), CONNECT_MAX, &Traffic::default());
            KnownReplica { pool: Arc::new(pool), down_until: None }
        });
        Arc::clone(&peer.pool)
    }

    fn connector(&self, address: SocketAddr) -> Connector {
        match &self.dial {
            Some(dial) => {
                let dial = Arc::clone(dial);
                let connect: InProcess = Arc::new(move || dial(address));
                Connector::InProcess(connect)
            }
            None => Connector::Tcp {
                host: address.ip().to_string(),
                port: address.port(),
                tls: None,
                http2: false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_replica_is_down_for_five_seconds() {
        let peers = Peers::new(None);
        let address = SocketAddr::from(([10, 0, 0, 1], 7334));
        assert!(!peers.is_down(address));
        drop(peers.pool(address));
        peers.mark_down(address);
        assert!(peers.is_down(address));
        tokio::time::advance(DOWN_FOR).await;
        assert!(!peers.is_down(address));
    }

    #[test]
    fn the_table_of_replicas_is_bounded() {
        let peers = Peers::new(None);
        for port in 0..=PEERS_MAX {
            drop(peers.pool(SocketAddr::from(([10, 0, 0, 1], u16::try_from(port).unwrap()))));
        }
        assert_eq!(peers.lock().len(), 1);
    }
}
