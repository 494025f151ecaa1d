//! The descriptors of the process: how many there may be, and how many of them client connections may use.

use tracing::warn;

use crate::config::routes::Server;
use crate::transport::child::{descriptor_limit, raise_descriptor_limit};

/// One in this many descriptors is reserved and not used for client connections. A child needs three; a call to a
/// server over HTTP/1.1, an operator, a long message and a file of recordings need one each.
const KEPT_ONE_OF: u64 = 4;

/// Raises the descriptor limit of the process if the settings say so, and warns if `max_connections` exceeds the limit.
/// Servers that start later keep the old limit.
pub(super) fn prepare(server: &Server) {
    if server.raise_descriptors
        && let Err(error) = raise_descriptor_limit()
    {
        warn!(%error, "the limit of descriptors cannot be raised");
    }
    let connections_max = connections_max(server);
    if connections_max < server.max_connections {
        warn!(
            max_connections = server.max_connections,
            served = connections_max,
            descriptors = descriptor_limit().ok(),
            "the limit of descriptors allows fewer connections: raise it (LimitNOFILE, ulimit -n), or lower \
             max_connections"
        );
    }
}

/// Returns the limit of client connections.
pub(super) fn connections_max(server: &Server) -> usize {
    // If the system does not report a limit, `max_connections` of the settings applies.
    descriptor_limit()
        .map_or(server.max_connections, |limit| server.max_connections.min(room(limit)))
}

/// Returns the number of client connections that a limit of descriptors allows; at least one.
fn room(limit: u64) -> usize {
    usize::try_from(limit - limit / KEPT_ONE_OF).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_descriptors_is_kept_from_connections() {
        let rooms = [0, 3, 256, 1024, 65_536, u64::MAX].map(room);
        assert_eq!(rooms[..5], [1, 3, 192, 768, 49_152]);
        assert!(rooms[5] > 1 << 40);
    }
}
