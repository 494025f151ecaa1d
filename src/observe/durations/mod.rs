//! The learned durations of tools and the habits of clients, in a small file that all processes of the user share.
//!
//! No call waits for the file. A thread adds ended calls to the file a moment later, and reads the
//! file at the start. Without a file, learned durations last as long as the process.

mod clients;
mod file;
mod place;
mod store;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use writer::DurationWriter;

use crate::progress::client_habits::LearnedClients;
use crate::progress::durations::LearnedDurations;

pub use clients::ClientRow;
pub use place::{
    label_of_address, label_of_command, label_of_route, path_in_label, state_dir, state_dir_warning,
};
pub use store::{FILE, Store, StoreError, ToolRow};

/// Deadline for the last write at the end of the process. A write takes a few milliseconds, but other processes may
/// write first.
const LAST_WRITE: Duration = Duration::from_millis(500);

/// Returns the current time, in seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The durations of the tools of every route. Cheap to clone.
#[derive(Clone, Default)]
pub struct DurationStore {
    writer: Option<Arc<DurationWriter>>,
    folder: Option<Arc<Path>>,
}

impl DurationStore {
    /// Opens the store in this directory, which need not exist yet. Nothing is read or created before the first call
    /// ends or a duration is requested. Without a directory nothing is stored.
    pub fn open(folder: Option<&Path>) -> Self {
        let writer = folder.and_then(|folder| DurationWriter::start(Store::new(folder)));
        Self { writer, folder: folder.map(Arc::from) }
    }

    /// Returns the directory of the durations, and of other data that outlives the process.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The durations of a route's tools that are learned from now on. [`DurationStore::load`] adds those from earlier
    /// processes.
    pub fn of(&self, route: &str) -> Arc<LearnedDurations> {
        let Some(writer) = &self.writer else { return Arc::default() };
        let (to, route): (_, Arc<str>) = (Arc::clone(writer), place::cut(route).into());
        let on = Arc::clone(&route);
        let habits_to = Arc::clone(writer);
        let clients = LearnedClients::with_listener(move |client, habit| {
            habits_to.note_habit(&on, client, habit);
        });
        let learned = LearnedDurations::with_listener(clients, move |tool, ended| {
            to.note(&route, tool, ended);
        });
        Arc::new(learned)
    }

    /// Requests the stored durations of a route, which are read soon.
    pub fn load(&self, route: &str, learned: &Arc<LearnedDurations>) {
        if let Some(writer) = &self.writer {
            writer.load(place::cut(route).into(), learned);
        }
    }

    /// Writes the remaining durations at the end of the process, but waits half a second at most.
    pub fn close(&self) {
        if let Some(writer) = &self.writer {
            writer.close(LAST_WRITE);
        }
    }
}
