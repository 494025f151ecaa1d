//! The other replicas: connections to them, and which of them cannot be reached.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use http::HeaderName;
use tokio::time::Instant;

use super::seal::Owner;
use crate::observe::metrics::Traffic;
use crate::transport::http::client::{Connector, InProcess};
use crate::transport::http::connection_pool::ConnectionPool;
use crate::transport::http::dialer::Dialer;
use crate::transport::http::io::Io;

/// Deadline for connecting to another replica.
const CONNECT_MAX: Duration = Duration::from_secs(1);

/// The time for which an unreachable replica is not tried again.
const DOWN_FOR: Duration = Duration::from_secs(5);

/// Limit of the other replicas that are remembered. Beyond it all are forgotten, and connections to them are made anew.
const PEERS_MAX: usize = 4096;

/// Limit of the replicas that are known to be shutting down. Beyond it all are forgotten, and the next response of each
/// reports it again.
const LEAVING_MAX: usize = 4096;

/// The header in which a replica tells the others that it will end soon, so that sessions that any replica can serve
/// continue elsewhere.
pub(crate) const LEAVING: HeaderName = HeaderName::from_static("milepost-leaving");

/// Connects to replicas inside this process, in place of the network.
pub type DialReplica = Arc<dyn Fn(SocketAddr) -> BoxFuture<'static, io::Result<Io>> + Send + Sync>;

struct KnownReplica {
    pool: Arc<ConnectionPool>,
    down_until: Option<Instant>,
}

/// The other replicas, by their addresses.
pub(crate) struct Peers {
    dial: Option<DialReplica>,
    known: Mutex<HashMap<SocketAddr, KnownReplica>>,
    leaving: Mutex<HashSet<Owner>>,
}

impl Peers {
    /// Returns a table without any replica. `dial`, if given, replaces the network.
    pub(crate) fn new(dial: Option<DialReplica>) -> Self {
        Self { dial, known: Mutex::default(), leaving: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, KnownReplica>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a replica could not be reached a short time ago.
    pub(crate) fn is_down(&self, address: SocketAddr) -> bool {
        let known = self.lock();
        let until = known.get(&address).and_then(|peer| peer.down_until);
        until.is_some_and(|until| Instant::now() < until)
    }

    /// Notes that a replica could not be reached.
    pub(crate) fn mark_down(&self, address: SocketAddr) {
        if let Some(peer) = self.lock().get_mut(&address) {
            peer.down_until = Some(Instant::now() + DOWN_FOR);
        }
    }

    /// Whether a replica has reported that it will end soon.
    pub(crate) fn is_leaving(&self, replica: Owner) -> bool {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner).contains(&replica)
    }

    /// Notes that a replica has reported that it will end soon.
    pub(crate) fn mark_leaving(&self, replica: Owner) {
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        if leaving.len() >= LEAVING_MAX {
            leaving.clear();
        }
        leaving.insert(replica);
    }

    /// Returns the connections to a replica.
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
            None => {
                let host = address.ip().to_string();
                Connector::Network(Arc::new(Dialer::new(host, address.port(), None)))
            }
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
    fn a_process_that_leaves_is_not_the_next_one_at_its_address() {
        let peers = Peers::new(None);
        let process = |boot| Owner { address: SocketAddr::from(([10, 0, 0, 1], 7334)), boot };
        assert!(!peers.is_leaving(process(1)));
        peers.mark_leaving(process(1));
        assert!(peers.is_leaving(process(1)) && !peers.is_leaving(process(2)));
        for boot in 0..=LEAVING_MAX as u64 {
            peers.mark_leaving(process(boot));
        }
        assert!(peers.leaving.lock().unwrap().len() <= LEAVING_MAX);
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
