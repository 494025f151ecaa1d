//! Divides the open calls of a shared child among its clients.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{ClientLimit, CountedClient, LimitedClient, OverLimit};

/// The open calls of each client on one child. An entry is removed with its last call.
#[derive(Default)]
pub(crate) struct FairShare {
    open: Arc<Mutex<HashMap<CountedClient, usize>>>,
}

impl FairShare {
    /// Counts a call of a client. Each client with open calls gets the same share of `max`, and at least one call; 0
    /// means no limit.
    ///
    /// Clients that came early keep their calls, and a new client does not wait for them, so for a moment more than
    /// `max` calls may be open.
    ///
    /// # Errors
    ///
    /// If the client has already used its share.
    pub(crate) fn take(
        &self,
        asking: &LimitedClient,
        max: usize,
    ) -> Result<Option<SharePermit>, OverLimit> {
        if max == 0 {
            return Ok(None);
        }
        let client = asking.client.clone();
        let mut open = lock(&self.open);
        let others = open.len() - usize::from(open.contains_key(&client));
        let share = (max / (others + 1)).max(1);
        if open.get(&client).is_some_and(|calls| *calls >= share) {
            return Err(asking.limits.refuse(client, ClientLimit::SharedCalls));
        }
        *open.entry(client.clone()).or_default() += 1;
        Ok(Some(SharePermit { open: Arc::clone(&self.open), client }))
    }
}

/// An open call of a client, until the permit is dropped.
pub(crate) struct SharePermit {
    open: Arc<Mutex<HashMap<CountedClient, usize>>>,
    client: CountedClient,
}

impl Drop for SharePermit {
    fn drop(&mut self) {
        let mut open = lock(&self.open);
        if let Some(calls) = open.get_mut(&self.client) {
            *calls -= 1;
            if *calls == 0 {
                open.remove(&self.client);
            }
        }
    }
}

fn lock(
    open: &Mutex<HashMap<CountedClient, usize>>,
) -> MutexGuard<'_, HashMap<CountedClient, usize>> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::ClientLimits;
    use super::*;
    use crate::observe::metrics::Metrics;

    #[test]
    fn clients_of_a_shared_child_have_equal_shares_of_its_open_calls() {
        let limits = ClientLimits::new(&Metrics::new());
        let client = |last: u8| LimitedClient {
            client: CountedClient::Address([203, 0, 113, last].into()),
            besides: None,
            limits: Arc::clone(&limits),
        };
        let shares = FairShare::default();
        let take = |last: u8, max: usize| shares.take(&client(last), max);
        let mut first: Vec<_> = (0..4).map(|_| take(1, 4).unwrap()).collect();
        let refused = take(1, 4).err().unwrap();
        assert_eq!(
            refused.to_string(),
            "this client has as many calls of a shared child as it may: see upstream.max_shared_calls"
        );
        // A new client gets its share although the first client still has all its calls.
        let second: Vec<_> = (0..2).map(|_| take(2, 4).unwrap()).collect();
        assert!(take(2, 4).is_err());
        first.truncate(2);
        assert!(take(1, 4).is_err());
        first.pop();
        let again = take(1, 4).unwrap();
        assert!(take(1, 4).is_err());
        // Each client gets at least one call, and `max` 0 means no limit.
        assert!(take(3, 1).is_ok());
        assert!((0..9).all(|_| take(1, 0).unwrap().is_none()));
        drop((first, second, again));
        assert!(lock(&shares.open).is_empty());
    }
}
