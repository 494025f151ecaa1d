//! The thread that writes one recording.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use super::{Shared, Waiting};

use crate::masking::Masking;
use crate::progress::mask::Masks;
use crate::progress::{Reason, Record, StreamId, Verdict};
use crate::transcript::settings::Written;
use crate::transcript::{self, escape};
use crate::witness::{APART, Event, What};

/// Bytes of one recording; it ends there.
pub const FILE_MAX: u64 = 64 << 20;

/// The first number of the streams of servers; they are written from 1 on.
const UPSTREAM: u64 = 1 << 63;

pub(super) struct Writer {
    file: BufWriter<File>,
    masking: Option<Masking>,
    shared: Arc<Shared>,
    /// The time that has been written.
    at: Instant,
    len: u64,
}

impl Writer {
    pub(super) fn new(
        file: File,
        masks: Option<Masks>,
        start: Instant,
        shared: Arc<Shared>,
    ) -> Self {
        let masking = masks.map(Masking::new);
        Self { file: BufWriter::new(file), masking, shared, at: start, len: 0 }
    }

    pub(super) fn run(mut self, settings: &Written, events: &Receiver<Waiting>) {
        if let Err(error) = self.write_all(settings, events) {
            tracing::warn!(%error, "the recording ends here");
        }
        let _ = self.file.flush();
    }

    fn write_all(&mut self, settings: &Written, events: &Receiver<Waiting>) -> io::Result<()> {
        let version = env!("CARGO_PKG_VERSION");
        self.line(&format!("# recorded by milepost {version}; `milepost replay` plays it"))?;
        if self.masking.is_none() {
            self.line("# with its secrets")?;
        }
        if !settings.words.is_empty() {
            self.line(&format!("! {}", settings.words))?;
        }
        if !settings.missing.is_empty() {
            let missing = settings.missing.join(", ");
            self.line(&format!("# a replay needs flags or --config for: {missing}"))?;
        }
        loop {
            let Waiting { event, left_out } = match events.try_recv() {
                Ok(waiting) => waiting,
                Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) => {
                    // Whoever ends us now finds all of it in the file.
                    self.file.flush()?;
                    let Ok(waiting) = events.recv() else { break };
                    waiting
                }
            };
            self.shared.waiting.fetch_sub(event.what.bytes(), Ordering::Relaxed);
            self.left_out(left_out)?;
            self.event(event)?;
            if self.len > FILE_MAX {
                return self.line("# the recording is as long as one may be, and ends here");
            }
        }
        let left_out = self.shared.left_out.swap(0, Ordering::Relaxed);
        self.left_out(left_out)
    }

    fn left_out(&mut self, events: u64) -> io::Result<()> {
        match events {
            0 => Ok(()),
            events => self.line(&format!("# {events} lines are missing: the disk was too slow")),
        }
    }

    fn event(&mut self, event: Event) -> io::Result<()> {
        let passed = event.at.saturating_duration_since(self.at);
        if passed >= APART {
            let passed = Duration::from_micros(passed.as_micros().try_into().unwrap_or(u64::MAX));
            self.at += passed;
            self.line(&format!("+ {}", transcript::time(passed)))?;
        }
        match event.what {
            What::Command(command) => {
                let command = self.masked_words(&command);
                self.line(&format!("! {}", escape(command.as_bytes())))
            }
            What::Client(stream, text) => {
                if let Some(masking) = &mut self.masking {
                    masking.meet(&text);
                }
                self.said('>', Some(stream), &text)
            }
            What::ToServer(text) if text.is_empty() => self.line("^ nothing"),
            What::ToServer(text) => self.said('^', None, &text),
            What::Server(stream, text, _) => self.said('<', stream, &text),
            What::Overheard(line) => {
                let line = self.masked_words(&line);
                self.line(&format!("2 {}", escape(line.as_bytes())))
            }
            What::Told(stream, text) => self.said('=', Some(stream), &text),
            What::Noise(text) => self.said('e', None, &text),
            What::Decided(Record::Message { verdict: Verdict::Withheld(reason), .. })
                if reason != Reason::Noise =>
            {
                self.line(&format!("x {}", reason.name()))
            }
            What::Decided(Record::Call(call)) => {
                self.line(&format!("~ {}", transcript::summary(&call)))
            }
            What::Decided(_) => Ok(()),
        }
    }

    fn masked_words(&mut self, words: &str) -> String {
        match &mut self.masking {
            Some(masking) => masking.words(words),
            None => words.to_owned(),
        }
    }

    fn said(&mut self, sign: char, stream: Option<StreamId>, text: &[u8]) -> io::Result<()> {
        let stream = match stream.map_or(0, |stream| stream.0) {
            0 => String::new(),
            upstream if upstream >= UPSTREAM => (upstream - UPSTREAM + 1).to_string(),
            client => client.to_string(),
        };
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let text = match &mut self.masking {
            Some(masking) => escape(&masking.mask(text)),
            None => escape(text),
        };
        self.line(&format!("{sign}{stream} {text}"))
    }

    fn line(&mut self, line: &str) -> io::Result<()> {
        self.len += line.len() as u64 + 1;
        writeln!(self.file, "{line}")
    }
}
