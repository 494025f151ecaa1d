//! `--record DIR`: conversations as they pass, one file each. Recording neither delays nor changes what
//! passes: events go into a bounded queue, one thread writes all of them, and what finds no room is left out.

mod book;
mod folder;
mod masking;
mod writer;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::progress::Policy;
use crate::witness::{Event, Lookout, Onlooker, Place, View};

pub use book::FILE_MAX;

/// Events that wait to be written: a second of a very busy server.
const EVENTS_MAX: usize = 8192;

/// Bytes of messages that wait to be written: more than the two longest lines that are held.
const BYTES_MAX: usize = 16 << 20;

/// How long the last events may take to be written at the end.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often the end is asked for while the queue is full.
const AGAIN: Duration = Duration::from_millis(10);

/// What the thread that writes is told.
enum Entry {
    /// A filter begins.
    Begins(Box<Begins>),
    /// Something has happened.
    Happened {
        place: Place,
        event: Event,
        /// Events of the filter that were left out before this one.
        left_out: u64,
    },
    /// A filter is gone.
    Ends { place: Place, left_out: u64 },
    /// Nothing more comes.
    Close,
}

/// A filter that begins.
struct Begins {
    place: Place,
    route: Box<str>,
    policy: Arc<Policy>,
    /// Its recorder, in case that it cannot tell of its end.
    recorder: Weak<()>,
}

/// What recorders and their thread share.
#[derive(Debug, Default)]
struct Shared {
    /// Bytes that wait.
    waiting: AtomicUsize,
    /// Events that were left out, of all conversations.
    left_out: AtomicU64,
}

/// Where conversations are recorded.
#[derive(Debug, Clone)]
pub struct Recording {
    /// The folder.
    pub folder: PathBuf,
    /// Secrets are kept as they are.
    pub secrets: bool,
}

/// Waits for the thread that writes.
#[must_use]
#[derive(Debug)]
pub struct Ending {
    over: Receiver<()>,
    entries: SyncSender<Entry>,
    shared: Arc<Shared>,
}

impl Ending {
    /// Waits until all is written that has happened, but not for ever.
    pub fn wait(self) {
        let begun = Instant::now();
        while let Err(TrySendError::Full(_)) = self.entries.try_send(Entry::Close) {
            if begun.elapsed() > PATIENCE {
                break;
            }
            thread::sleep(AGAIN);
        }
        if self.over.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
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
    /// If no file can be made in the folder, or no thread.
    pub fn start(&self) -> io::Result<(Records, Ending)> {
        let folder = folder::Folder::open(&self.folder)?;
        let (entries, received) = sync_channel(EVENTS_MAX);
        let (told, over) = channel();
        let shared = Arc::<Shared>::default();
        let writer = writer::Writer::new(folder, self.secrets, Arc::clone(&shared));
        thread::Builder::new().name("record".to_owned()).spawn(move || {
            writer.run(&received);
            drop(told);
        })?;
        let ending = Ending { over, entries: entries.clone(), shared: Arc::clone(&shared) };
        Ok((Records { entries, shared }, ending))
    }
}

/// Gives every filter a recorder.
#[derive(Debug)]
pub struct Records {
    entries: SyncSender<Entry>,
    shared: Arc<Shared>,
}

impl Lookout for Records {
    fn begin(
        &self,
        place: Place,
        route: &str,
        _: View,
        policy: &Arc<Policy>,
    ) -> Option<Box<dyn Onlooker>> {
        let alive = Arc::new(());
        let (route, policy, recorder) = (route.into(), Arc::clone(policy), Arc::downgrade(&alive));
        let begins = Box::new(Begins { place, route, policy, recorder });
        if self.entries.try_send(Entry::Begins(begins)).is_err() {
            self.shared.left_out.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let (entries, shared) = (self.entries.clone(), Arc::clone(&self.shared));
        Some(Box::new(Recorder { place, entries, shared, left_out: 0, _alive: alive }))
    }
}

/// Takes what passes through one filter to the thread that writes it.
#[derive(Debug)]
struct Recorder {
    place: Place,
    entries: SyncSender<Entry>,
    shared: Arc<Shared>,
    /// Events that were left out and have not been told of.
    left_out: u64,
    _alive: Arc<()>,
}

impl Onlooker for Recorder {
    fn see(&mut self, event: &Event) {
        let bytes = event.what.bytes();
        let waiting = self.shared.waiting.fetch_add(bytes, Ordering::Relaxed);
        let fits = waiting.saturating_add(bytes) <= BYTES_MAX;
        let (place, left_out) = (self.place, self.left_out);
        let happened = || Entry::Happened { place, event: event.clone(), left_out };
        if fits && self.entries.try_send(happened()).is_ok() {
            self.left_out = 0;
        } else {
            self.shared.waiting.fetch_sub(bytes, Ordering::Relaxed);
            self.shared.left_out.fetch_add(1, Ordering::Relaxed);
            self.left_out += 1;
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let (place, left_out) = (self.place, self.left_out);
        // One that is not told of is noticed when there is no room for another.
        let _ = self.entries.try_send(Entry::Ends { place, left_out });
    }
}
