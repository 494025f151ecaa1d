//! Recordings (`--record DIR`): one file for each conversation. Recording neither delays nor changes messages: events
//! go into a bounded queue, and one thread writes all files. Events beyond the limit are left out.

mod folder;
mod transcript_file;
mod writer;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use crate::observe::events::{FilterId, Observer, ObserverEvent, ObserverFactory, Scope};
use crate::progress::Policy;

pub use transcript_file::FILE_MAX;

/// Maximum number of events that wait to be written: about one second of many busy servers. Further events are left
/// out, and the file says so.
const EVENTS_MAX: usize = 1 << 16;

/// Maximum number of bytes of messages that wait to be written: more than the two longest lines that are kept whole.
/// Further messages are left out, and the file says so.
const BYTES_MAX: usize = 16 << 20;

/// Deadline for the last events to be written at the end of the process.
const PATIENCE: Duration = Duration::from_secs(2);

/// A message to the writing thread.
enum RecordJob {
    /// A filter has begun.
    Begins(Box<RecordingStart>),
    /// An event of a filter.
    Happened {
        id: FilterId,
        // Boxed to keep the entry small, because thousands may wait.
        event: Box<ObserverEvent>,
        /// The number of the filter's events that were left out before this one.
        left_out: u64,
    },
    /// A filter has ended.
    Ends { id: FilterId, left_out: u64 },
    /// Write everything: the process ends.
    Close,
}

/// The data of a filter that has begun.
struct RecordingStart {
    id: FilterId,
    route: Box<str>,
    policy: Arc<Policy>,
}

/// The counts that recorders share with the writing thread.
#[derive(Debug, Default)]
struct RecordQueue {
    /// Number of waiting events.
    events: AtomicUsize,
    /// Number of bytes of waiting messages.
    bytes: AtomicUsize,
    /// Number of events that were left out in all conversations.
    left_out: AtomicU64,
}

impl RecordQueue {
    /// Counts an event that is to wait. Returns false if there is no room.
    fn enter(&self, bytes: usize) -> bool {
        // Add both counts before comparing, so that two threads cannot both take the last place.
        let events = self.events.fetch_add(1, Ordering::Relaxed);
        let waiting = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let fits = events < EVENTS_MAX && waiting.saturating_add(bytes) <= BYTES_MAX;
        if !fits {
            self.leave(bytes);
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
        fits
    }

    /// Notes that an event no longer waits.
    fn leave(&self, bytes: usize) {
        self.events.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The secrets in a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordedSecrets {
    /// Masks stand in their place.
    Masked,
    /// They are recorded as they are.
    Unmasked,
}

/// The recording of conversations in a folder.
#[derive(Debug, Clone)]
pub struct Recording {
    /// The directory of the recordings.
    pub folder: PathBuf,
    /// Whether secrets are masked.
    pub secrets: RecordedSecrets,
}

/// Waits for the writing thread at the end of the process.
#[must_use]
#[derive(Debug)]
pub struct WriterEnd {
    over: Receiver<()>,
    entries: Sender<RecordJob>,
    shared: Arc<RecordQueue>,
}

impl WriterEnd {
    /// Waits until all events so far are written, for `PATIENCE` at most.
    pub fn wait(self) {
        self.wait_for(PATIENCE);
    }

    /// Waits until all events so far are written, for `patience` at most.
    pub fn wait_for(self, patience: Duration) {
        let _ = self.entries.send(RecordJob::Close);
        if self.over.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the end of the recording is not written: the disk is too slow");
        }
        let left_out = self.shared.left_out.load(Ordering::Relaxed);
        if left_out > 0 {
            tracing::warn!(left_out, "lines are missing from recordings: the disk was too slow");
        }
    }
}

impl Recording {
    /// Starts the writing thread.
    ///
    /// # Errors
    /// If no file can be created in the directory, or no thread can be started.
    pub fn start(&self) -> io::Result<(Records, WriterEnd)> {
        let folder = folder::Folder::open(&self.folder)?;
        let (entries, received) = channel();
        let (done, over) = channel();
        let shared = Arc::<RecordQueue>::default();
        let writer = writer::RecordWriter::new(folder, self.secrets, Arc::clone(&shared));
        thread::Builder::new().name("record".to_owned()).spawn(move || {
            writer.run(&received);
            drop(done);
        })?;
        let ending = WriterEnd { over, entries: entries.clone(), shared: Arc::clone(&shared) };
        Ok((Records { entries, shared }, ending))
    }
}

/// Makes a recorder for each filter.
#[derive(Debug)]
pub struct Records {
    entries: Sender<RecordJob>,
    shared: Arc<RecordQueue>,
}

impl ObserverFactory for Records {
    fn begin(
        &self,
        id: FilterId,
        route: &str,
        _: Scope,
        policy: &Arc<Policy>,
    ) -> Option<Box<dyn Observer>> {
        // The start of a filter has no bytes, but takes a place in the queue like an event.
        if !self.shared.enter(0) {
            return None;
        }
        let begins = RecordingStart { id, route: route.into(), policy: Arc::clone(policy) };
        self.entries.send(RecordJob::Begins(Box::new(begins))).ok()?;
        let (entries, shared) = (self.entries.clone(), Arc::clone(&self.shared));
        Some(Box::new(Recorder { id, entries, shared, left_out: 0 }))
    }
}

/// Sends the events of one filter to the writing thread.
#[derive(Debug)]
struct Recorder {
    id: FilterId,
    entries: Sender<RecordJob>,
    shared: Arc<RecordQueue>,
    /// Number of events that were left out since the file last said so.
    left_out: u64,
}

impl Observer for Recorder {
    fn on_event(&mut self, event: &ObserverEvent) {
        if self.shared.enter(event.kind.bytes()) {
            let (id, left_out) = (self.id, std::mem::take(&mut self.left_out));
            let event = Box::new(event.clone());
            let _ = self.entries.send(RecordJob::Happened { id, event, left_out });
        } else {
            self.left_out += 1;
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let (id, left_out) = (self.id, self.left_out);
        // Sent even if the queue is full, because the file would otherwise stay open until the process ends.
        let _ = self.entries.send(RecordJob::Ends { id, left_out });
    }
}
