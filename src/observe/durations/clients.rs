//! The habits of clients, in a separate table of the file of durations.

use std::collections::BTreeMap;
use std::sync::Arc;

use redb::{ReadableTable, ReadableTableMetadata};
use serde::{Deserialize, Serialize};

use super::file::MissingFile;
use super::store::{FileFault, RowTable, Store, StoreError, claim};
use crate::progress::client_habits::{ClientHabits, Habit};

/// Maximum number of clients of all routes in the state file. Beyond it the client unused for longest is removed.
const STORED_CLIENTS_MAX: u64 = 500;

const CLIENTS: RowTable = RowTable::new("clients");

/// The stored habits of one client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientRow {
    /// The path of the route, or the label that a conversation without a route has instead.
    pub route: String,
    /// The client as it calls itself.
    pub client: String,
    /// What was learned about the client.
    pub habits: ClientHabits,
    /// The time at which something was learned last, in seconds since 1970.
    pub seen: u64,
}

/// Events that wait to be added, by route and client, oldest first.
pub(super) type PendingHabits = BTreeMap<Arc<str>, BTreeMap<Box<str>, Vec<Habit>>>;

/// The habits of one client, in the stored form.
#[derive(Serialize, Deserialize)]
struct StoredClient {
    clock: Option<u32>,
    ages: [u32; 4],
    outlived: u8,
    told_in_vain: u8,
    left_open: u8,
    seen: u64,
}

impl StoredClient {
    fn habits(&self) -> ClientHabits {
        let Self { clock, ages, outlived, told_in_vain, left_open, .. } = *self;
        ClientHabits { clock, ages, outlived, told_in_vain, left_open }
    }

    fn of(habits: &ClientHabits, seen: u64) -> Self {
        let ClientHabits { clock, ages, outlived, told_in_vain, left_open } = *habits;
        Self { clock, ages, outlived, told_in_vain, left_open, seen }
    }
}

impl Store {
    /// Reads the habits of all clients, by route and client.
    ///
    /// # Errors
    /// As [`Store::read`].
    pub fn read_clients(&mut self) -> Result<Vec<ClientRow>, StoreError> {
        self.read_rows(CLIENTS, |route, client, kept: StoredClient| ClientRow {
            route: route.into(),
            client: client.into(),
            habits: kept.habits(),
            seen: kept.seen,
        })
    }

    /// Adds events of clients, which happened at `now`, in seconds since 1970.
    ///
    /// # Errors
    /// As [`Store::read`], and if the file cannot be created.
    pub(super) fn add_habits(&mut self, added: &PendingHabits, now: u64) -> Result<(), StoreError> {
        self.with(MissingFile::Create, |database| {
            let to = database.begin_write()?;
            claim(&to)?;
            {
                let mut stored = to.open_table(CLIENTS)?;
                for (route, clients) in added {
                    for (client, events) in clients {
                        let key = (&**route, &**client);
                        let old = stored.get(key)?.and_then(|old| {
                            serde_json::from_slice::<StoredClient>(old.value()).ok()
                        });
                        // Add the events to the stored habits, because other processes learn from the same client too.
                        let mut habits = old.map(|old| old.habits()).unwrap_or_default();
                        for event in events {
                            habits.note(*event);
                        }
                        let text = serde_json::to_vec(&StoredClient::of(&habits, now));
                        stored.insert(key, &text.unwrap_or_default()[..])?;
                    }
                }
                while stored.len()? > STORED_CLIENTS_MAX {
                    remove_oldest(&mut stored)?;
                }
            }
            to.commit()?;
            Ok(())
        })?;
        Ok(())
    }

    /// Forgets the clients of a route. Returns how many were forgotten.
    ///
    /// # Errors
    /// If the file exists and cannot be used.
    pub fn forget_clients(&mut self, route: &str) -> Result<usize, StoreError> {
        self.forget_rows(CLIENTS, |on, _| on == route)
    }
}

fn remove_oldest(
    stored: &mut redb::Table<'_, (&'static str, &'static str), &'static [u8]>,
) -> Result<(), FileFault> {
    let mut oldest: Option<(u64, String, String)> = None;
    for entry in stored.iter()? {
        let (key, value) = entry?;
        let seen =
            serde_json::from_slice::<StoredClient>(value.value()).map_or(0, |kept| kept.seen);
        if oldest.as_ref().is_none_or(|(least, ..)| seen < *least) {
            let (route, client) = key.value();
            oldest = Some((seen, route.to_owned(), client.to_owned()));
        }
    }
    if let Some((_, route, client)) = oldest {
        stored.remove((&*route, &*client))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn pending(client: &str, events: &[Habit]) -> PendingHabits {
        let clients = BTreeMap::from([(client.into(), events.to_vec())]);
        BTreeMap::from([(Arc::from("/a"), clients)])
    }

    #[test]
    fn what_several_processes_learn_adds_up() {
        let folder = TempDir::new().unwrap();
        for seen in [7, 8] {
            let mut store = Store::new(folder.path());
            store.add_habits(&pending("mcp 0.1.0", &[Habit::GivenUp(5000)]), seen).unwrap();
            store.add_habits(&pending("mcp 0.1.0", &[Habit::ToldInVain]), seen).unwrap();
        }
        let mut store = Store::new(folder.path());
        let rows = store.read_clients().unwrap();
        assert_eq!((rows.len(), rows[0].seen, rows[0].habits.clock), (1, 8, Some(5000)));
        assert!(!rows[0].habits.is_told());
        assert_eq!(store.read().unwrap(), []);
        assert_eq!(store.forget_clients("/b").unwrap(), 0);
        assert_eq!(store.forget_clients("/a").unwrap(), 1);
        assert_eq!(store.read_clients().unwrap(), []);
    }

    #[test]
    fn clients_are_bounded_and_the_oldest_goes() {
        let folder = TempDir::new().unwrap();
        let mut store = Store::new(folder.path());
        let clients =
            (0..STORED_CLIENTS_MAX).map(|n| (format!("c{n}").into(), vec![Habit::LeftOpen]));
        store.add_habits(&BTreeMap::from([(Arc::from("/a"), clients.collect())]), 9).unwrap();
        store.add_habits(&pending("c7", &[Habit::LeftOpen]), 1).unwrap();
        store.add_habits(&pending("new", &[Habit::LeftOpen]), 10).unwrap();
        let rows = store.read_clients().unwrap();
        assert_eq!(rows.len() as u64, STORED_CLIENTS_MAX);
        assert!(rows.iter().all(|row| row.client != "c7"));
    }
}
