//! Recordings (`--record DIR`): one file for each conversation. Recording neither delays nor changes messages: events
//! go into a bounded queue, one thread writes all files, and events beyond the limit are left out.

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

/// Events waiting to be recorded: about one second of many busy servers. Further events are left
/// out, and the file says so.
const EVENTS_MAX: usize = 1 << 16;

/// Bytes of messages waiting to be recorded: more than the two longest lines that are held whole.
/// Further messages are left out, and the file says so.
const BYTES_MAX: usize = 16 << 20;

/// The time that the last events may take to be written at the end.
const PATIENCE: Duration = Duration::from_secs(2);

/// A message to the writing thread.
enum RecordJob {
    /// A filter begins.
    Begins(Box<RecordingStart>),
    /// An event.
    Happened {
        id: FilterId,
        // Boxed: thousands of entries may wait, so that an entry has to be small.
        event: Box<ObserverEvent>,
        /// The number of events of the filter that were dropped before this event.
        left_out: u64,
    },
    /// A filter has ended.
    Ends { id: FilterId, left_out: u64 },
    /// The end of the conversation.
    Close,
}

/// A filter that begins.
struct RecordingStart {
    id: FilterId,
    route: Box<str>,
    policy: Arc<Policy>,
}

/// The state shared by recorders and their thread.
#[derive(Debug, Default)]
struct RecordQueue {
    /// Events that wait.
    events: AtomicUsize,
    /// Bytes that wait.
    bytes: AtomicUsize,
    /// Events that were left out, of all conversations.
    left_out: AtomicU64,
}

impl RecordQueue {
    /// Makes room for an event, if there is any.
    fn enter(&self, bytes: usize) -> bool {
        // Both counts are added before they are compared, so that two threads cannot both take the last place.
        let events = self.events.fetch_add(1, Ordering::Relaxed);
        let waiting = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let fits = events < EVENTS_MAX && waiting.saturating_add(bytes) <= BYTES_MAX;
        if !fits {
            self.leave(bytes);
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
        fits
    }

    /// An event does not wait any more.
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
    /// The folder.
    pub folder: PathBuf,
    /// Whether secrets are masked.
    pub secrets: RecordedSecrets,
}

/// Waits for the thread that writes.
#[must_use]
#[derive(Debug)]
pub struct WriterEnd {
    over: Receiver<()>,
    entries: Sender<RecordJob>,
    shared: Arc<RecordQueue>,
}

impl WriterEnd {
    /// Waits until all events so far are written, for a limited time.
    pub fn wait(self) {
        self.wait_for(PATIENCE);
    }

    /// Waits until all events so far are written, for at most this time.
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
    /// Begins to record.
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

/// Gives every filter a recorder.
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
        // The note that a filter begins has no bytes, but takes a place in the queue like each event.
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
    /// Events that were left out since the last note in the file.
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
        // Sent even if the queue is full: otherwise the file would stay open until the process ends.
        let _ = self.entries.send(RecordJob::Ends { id, left_out });
    }
}
