//! Counts calls without a progress token, per client and process-wide, and remembers which clients
//! the log has already mentioned.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::progress::clients::{Client, Situation};

/// Maximum number of clients that are counted separately, by name and version. Further clients are counted as `other`,
/// because clients choose their own names and must not fill the memory.
pub const CLIENTS_MAX: usize = 64;

/// The counts of this process.
pub static UNTOKENED_CLIENTS: UntokenedClients = UntokenedClients::new();

/// Calls without a progress token, by client. `None` is a client without a name.
#[derive(Debug, Default)]
pub struct UntokenedClients {
    seen: Mutex<Situations>,
}

#[derive(Debug, Default)]
struct Situations {
    without_token: BTreeMap<Option<Arc<Client>>, u64>,
    others: u64,
    given_up: BTreeSet<Option<Arc<Client>>>,
}

impl UntokenedClients {
    /// Returns empty counts.
    pub const fn new() -> Self {
        Self {
            seen: Mutex::new(Situations {
                without_token: BTreeMap::new(),
                others: 0,
                given_up: BTreeSet::new(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Situations> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a client is in a situation. Returns true the first time, so that it is logged once.
    pub fn note(&self, client: Option<&Arc<Client>>, situation: Situation) -> bool {
        let client = client.cloned();
        let mut seen = self.lock();
        match situation {
            Situation::NoToken => {
                if let Some(count) = seen.without_token.get_mut(&client) {
                    *count = count.saturating_add(1);
                    return false;
                }
                // A client can change its name with each call, so the number of names is limited.
                if seen.without_token.len() >= CLIENTS_MAX {
                    seen.others = seen.others.saturating_add(1);
                    return false;
                }
                seen.without_token.insert(client, 1).is_none()
            }
            Situation::GivenUp => seen.given_up.len() < CLIENTS_MAX && seen.given_up.insert(client),
        }
    }

    /// Returns the number of `tools/call` without a token for each client. `unknown` stands for clients that have not
    /// sent their name, `other` for clients beyond [`CLIENTS_MAX`].
    pub fn without_token(&self) -> Vec<(String, u64)> {
        let seen = self.lock();
        let name = |client: &Option<Arc<Client>>| match client {
            Some(client) => client.to_string(),
            None => "unknown".to_owned(),
        };
        let counts = seen.without_token.iter().map(|(client, count)| (name(client), *count));
        let others = (seen.others > 0).then(|| ("other".to_owned(), seen.others));
        counts.chain(others).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: usize) -> Option<Arc<Client>> {
        Client::new(&format!("c{number:03}"), "1").map(Arc::new)
    }

    #[test]
    fn each_client_is_said_once_and_counted_each_time() {
        let census = UntokenedClients::new();
        assert!(census.note(None, Situation::NoToken));
        assert!(census.note(client(1).as_ref(), Situation::NoToken));
        assert!(!census.note(client(1).as_ref(), Situation::NoToken));
        assert!(census.note(client(1).as_ref(), Situation::GivenUp));
        assert!(!census.note(client(1).as_ref(), Situation::GivenUp));
        assert_eq!(census.without_token(), [("unknown".to_owned(), 1), ("c001 1".to_owned(), 2)]);
    }

    #[test]
    fn more_clients_than_can_be_kept_are_counted_together_and_not_said() {
        let census = UntokenedClients::new();
        for number in 0..CLIENTS_MAX + 5 {
            let first = census.note(client(number).as_ref(), Situation::NoToken);
            assert_eq!(first, number < CLIENTS_MAX);
            census.note(client(number).as_ref(), Situation::GivenUp);
        }
        let counts = census.without_token();
        assert_eq!(counts.len(), CLIENTS_MAX + 1);
        assert_eq!(counts.last(), Some(&("other".to_owned(), 5)));
        assert_eq!(census.lock().given_up.len(), CLIENTS_MAX);
    }
}
