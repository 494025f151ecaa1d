//! `--record DIR`: conversations as they pass, one file each. Recording neither delays nor changes what
//! passes: events go into a bounded queue, a thread writes them, and what finds no room is left out.

mod folder;
mod writer;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::progress::Policy;
use crate::witness::{Event, Onlooker};

pub use writer::FILE_MAX;

/// Events that wait to be written: a second of a very busy server.
const EVENTS_MAX: usize = 8192;

/// Bytes of messages that wait to be written: more than the two longest lines that are held.
const BYTES_MAX: usize = 16 << 20;

/// How long the last events may take to be written at the end.
const PATIENCE: Duration = Duration::from_secs(2);

/// What waits to be written.
#[derive(Debug)]
struct Waiting {
    event: Event,
    /// Events that were left out before this one.
    left_out: u64,
}

/// What the recorder and its thread share.
#[derive(Debug, Default)]
struct Shared {
    /// Bytes that wait.
    waiting: AtomicUsize,
    /// Events that were left out and have not been told of.
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
pub struct Ending(Receiver<()>);

impl Ending {
    /// Waits until all is written, but not for ever. The recorder must be gone.
    pub fn wait(self) {
        if self.0.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the end of the recording is not written: the disk is too slow");
        }
    }
}

impl Recording {
    /// Begins the record of a conversation.
    ///
    /// # Errors
    /// If no file can be made.
    pub fn begin(&self, policy: &Policy) -> io::Result<(Recorder, Ending)> {
        let file = folder::begin(&self.folder)?;
        let (events, received) = sync_channel(EVENTS_MAX);
        let (over, ended) = channel();
        let shared = Arc::<Shared>::default();
        let start = Instant::now();
        let masks = (!self.secrets).then(|| policy.call.masks.clone());
        let writer = writer::Writer::new(file, masks, start, Arc::clone(&shared));
        let written = crate::transcript::settings::write(policy);
        thread::Builder::new().name("record".to_owned()).spawn(move || {
            writer.run(&written, &received);
            drop(over);
        })?;
        let recorder = Recorder { events, shared };
        Ok((recorder, Ending(ended)))
    }
}

/// Takes what passes through one filter to the thread that writes it.
#[derive(Debug)]
pub struct Recorder {
    events: SyncSender<Waiting>,
    shared: Arc<Shared>,
}

impl Onlooker for Recorder {
    fn see(&mut self, event: &Event) {
        let bytes = event.what.bytes();
        let waiting = self.shared.waiting.fetch_add(bytes, Ordering::Relaxed);
        let left_out = self.shared.left_out.swap(0, Ordering::Relaxed);
        let event = Waiting { event: event.clone(), left_out };
        if waiting.saturating_add(bytes) > BYTES_MAX || self.events.try_send(event).is_err() {
            self.shared.waiting.fetch_sub(bytes, Ordering::Relaxed);
            self.shared.left_out.fetch_add(left_out + 1, Ordering::Relaxed);
        }
    }
}
