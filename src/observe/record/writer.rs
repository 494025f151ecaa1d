//! The thread that writes all recordings.

use std::collections::BTreeMap;
use std::io::{self, BufWriter};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use litemap::LiteMap;

use super::folder::{FILES_MAX, Folder};
use super::transcript_file::TranscriptFile;
use super::{RecordJob, RecordQueue, RecordedSecrets, RecordingStart};

/// Maximum number of conversations that the recording thread knows: those with a file, and as many without a message so
/// far.
const BOOKS_MAX: usize = 2 * FILES_MAX;

/// Maximum number of open files. Beyond the limit the file unused for longest is closed; it is opened again for its
/// next event.
const OPEN_MAX: usize = 128;

/// Deadline for a line to be written to its file.
const HELD_FOR: Duration = Duration::from_millis(100);

/// Writes all recordings.
pub(super) struct RecordWriter {
    folder: Folder,
    secrets: RecordedSecrets,
    shared: Arc<RecordQueue>,
    transcripts: LiteMap<u64, TranscriptFile>,
    /// Conversations with an open file, by when they were written to.
    open: BTreeMap<u64, u64>,
    /// The number of writes so far.
    times: u64,
    /// The number of conversations that are not recorded, because of a limit or a failure of the disk.
    lost: u64,
}

impl RecordWriter {
    pub(super) fn new(folder: Folder, secrets: RecordedSecrets, shared: Arc<RecordQueue>) -> Self {
        let (transcripts, open) = (LiteMap::new(), BTreeMap::new());
        Self { folder, secrets, shared, transcripts, open, times: 0, lost: 0 }
    }

    pub(super) fn run(mut self, entries: &Receiver<RecordJob>) {
        let mut flushed = Instant::now();
        let mut is_held = false;
        loop {
            // If no text waits in memory, sleep until an event arrives instead of waking ten times a second.
            let entry = if is_held {
                entries.recv_timeout(HELD_FOR)
            } else {
                entries.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            match entry {
                Ok(RecordJob::Close) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(entry) => {
                    self.take(entry);
                    is_held = true;
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if is_held && flushed.elapsed() >= HELD_FOR {
                self.flush();
                (flushed, is_held) = (Instant::now(), false);
            }
        }
        for conversation in self.transcripts.keys().copied().collect::<Vec<_>>() {
            self.forget(conversation);
        }
        if self.lost > 1 {
            tracing::warn!(conversations = self.lost, "could not be recorded");
        }
    }

    fn take(&mut self, entry: RecordJob) {
        match entry {
            RecordJob::Begins(begins) => {
                self.shared.leave(0);
                self.begins(&begins);
            }
            RecordJob::Happened { id, event, left_out } => {
                self.shared.leave(event.kind.bytes());
                let Some(transcript) = self.transcripts.get_mut(&id.conversation) else { return };
                if transcript.is_over {
                    return;
                }
                // Catch a panic, so that it ends only this recording: recordings matter less than messages.
                let write = AssertUnwindSafe(|| {
                    transcript.left_out(left_out);
                    transcript.record_event(id.filter, *event);
                });
                let written = catch_unwind(write).map_err(|_| io::Error::other("it panicked"));
                if let Err(error) = written.and_then(|()| self.write(id.conversation)) {
                    self.lose(id.conversation, &error);
                }
            }
            RecordJob::Ends { id, left_out } => {
                let Some(transcript) = self.transcripts.get_mut(&id.conversation) else { return };
                if transcript.leave(id.filter, left_out) {
                    self.forget(id.conversation);
                }
            }
            RecordJob::Close => {}
        }
    }

    fn begins(&mut self, begins: &RecordingStart) {
        let conversation = begins.id.conversation;
        if !self.transcripts.contains_key(&conversation) {
            if self.transcripts.len() >= BOOKS_MAX {
                return self.count_lost("as many conversations are recorded as may be");
            }
            self.transcripts.insert(conversation, TranscriptFile::new(begins, self.secrets));
        }
        if let Some(transcript) = self.transcripts.get_mut(&conversation) {
            transcript.join(begins.id.filter, &begins.policy);
        }
    }

    /// Writes the waiting text of a conversation to its file.
    fn write(&mut self, conversation: u64) -> io::Result<()> {
        let Some(transcript) =
            self.transcripts.get_mut(&conversation).filter(|transcript| transcript.has_text())
        else {
            return Ok(());
        };
        if transcript.file.is_none() {
            let file = match &transcript.name {
                Some(name) => self.folder.open_again(name)?,
                None => match self.folder.begin(transcript.route())? {
                    Some((name, file)) => {
                        transcript.name = Some(name);
                        file
                    }
                    None => {
                        transcript.end();
                        let why = "as many recordings are written as a folder keeps";
                        self.count_lost(why);
                        return Ok(());
                    }
                },
            };
            transcript.file = Some(BufWriter::new(file));
        } else {
            // Remove the old place in the order of writes; a new one is added below.
            self.open.remove(&transcript.used);
        }
        self.times += 1;
        transcript.used = self.times;
        self.open.insert(transcript.used, conversation);
        let name = transcript.name.clone().unwrap_or_default();
        // Count the length before writing, because other files may have to be removed first.
        let has_room = self.folder.grow(&name, transcript.bytes());
        if !has_room {
            transcript.crowd_out();
        }
        transcript.write()?;
        if !has_room || transcript.is_full() {
            transcript.flush()?;
            self.close(conversation);
        }
        if !has_room {
            self.count_lost("all recordings together are as long as they may be");
        }
        // Close the file that was written to least recently. It is opened again when its conversation continues.
        while self.open.len() > OPEN_MAX
            && let Some((_, oldest)) = self.open.pop_first()
            && let Some(transcript) = self.transcripts.get_mut(&oldest)
        {
            let flushed = transcript.flush();
            transcript.file = None;
            if let Err(error) = flushed {
                self.lose(oldest, &error);
            }
        }
        Ok(())
    }

    /// Writes the buffered text of all files.
    fn flush(&mut self) {
        let held: Vec<u64> = self.open.values().copied().collect();
        for conversation in held {
            let flushed =
                self.transcripts.get_mut(&conversation).map_or(Ok(()), TranscriptFile::flush);
            if let Err(error) = flushed {
                self.lose(conversation, &error);
            }
        }
    }

    /// Ends a recording before its conversation ends.
    fn close(&mut self, conversation: u64) {
        let Some(transcript) = self.transcripts.get_mut(&conversation) else { return };
        self.open.remove(&transcript.used);
        if let Some(name) = &transcript.name {
            self.folder.end(name);
        }
        transcript.end();
    }

    fn lose(&mut self, conversation: u64, error: &io::Error) {
        self.close(conversation);
        self.count_lost(&format!("it cannot be written: {error}"));
    }

    /// Counts a conversation that is not recorded completely. Logs only the first one.
    fn count_lost(&mut self, why: &str) {
        self.lost += 1;
        if self.lost == 1 {
            tracing::warn!(why, "a recording cannot be written, or not to its end");
        }
    }

    /// Ends the recording of a conversation that has ended.
    fn forget(&mut self, conversation: u64) {
        let written = self.write(conversation);
        let flushed = self.transcripts.get_mut(&conversation).map_or(Ok(()), TranscriptFile::flush);
        if let Err(error) = written.and(flushed) {
            self.lose(conversation, &error);
        }
        self.close(conversation);
        self.transcripts.remove(&conversation);
    }
}
