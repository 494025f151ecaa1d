//! Keeps the events of one response, so that a client can ask for the rest.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::sync::{mpsc, watch};

use crate::gateway::mcp_server::ReplyPiece;
use crate::protocol::sse;
use crate::transport::tasks;

/// Maximum number of events of a stream that are kept. Only the flood has more.
const EVENTS_MAX: usize = 10_000;

/// The stream of one request, with its events so far.
#[derive(Debug)]
pub(super) struct EventLog {
    /// The number of the stream. Its event ids begin with this number.
    number: u64,
    kept: watch::Sender<KeptPieces>,
}

/// What was written to a stream so far.
#[derive(Debug)]
struct KeptPieces {
    pieces: Vec<EventPiece>,
    /// The number of events in the pieces.
    events: usize,
    /// Whether more may come.
    is_open: bool,
}

/// The events of one write, or the end of a response.
#[derive(Debug)]
enum EventPiece {
    /// Events: the index of the first event, and the text of each.
    Events(usize, Vec<Bytes>),
    HangUp,
}

impl EventLog {
    /// Keeps the events of `pieces`. The stream is over when the sender of `pieces` is dropped.
    pub(super) fn record(number: u64, mut pieces: mpsc::Receiver<ReplyPiece>) -> Arc<Self> {
        let kept = KeptPieces { pieces: Vec::new(), events: 0, is_open: true };
        let log = Arc::new(Self { number, kept: watch::Sender::new(kept) });
        let recorder = Arc::clone(&log);
        tasks::spawn(async move {
            while let Some(piece) = pieces.recv().await {
                recorder.keep(piece);
            }
            recorder.kept.send_modify(|kept| kept.is_open = false);
        });
        log
    }

    fn keep(&self, piece: ReplyPiece) {
        self.kept.send_modify(|kept| match piece {
            ReplyPiece::HangUp => kept.pieces.push(EventPiece::HangUp),
            ReplyPiece::Messages(messages) if kept.events + messages.len() <= EVENTS_MAX => {
                let first = kept.events + 1;
                kept.events += messages.len();
                let event = |(at, text): (usize, Bytes)| {
                    let id = format!("id: {}_{}\n", self.number, first + at);
                    let mut event = BytesMut::from(id.as_bytes());
                    sse::append(&mut event, [text]);
                    event.freeze()
                };
                let events = messages.into_iter().enumerate().map(event).collect();
                kept.pieces.push(EventPiece::Events(first, events));
            }
            ReplyPiece::Messages(_) => {}
        });
    }

    /// Returns the stream and the event that an event id names.
    pub(super) fn place(id: &str) -> Option<(u64, usize)> {
        let (stream, event) = id.split_once('_')?;
        Some((stream.parse().ok()?, event.parse().ok()?))
    }

    /// Reads from the beginning, or from the event after `after`.
    pub(super) fn read(&self, after: Option<usize>) -> EventReader {
        let (kept, is_first) = (self.kept.subscribe(), after.is_none());
        EventReader { number: self.number, kept, next: 0, after: after.unwrap_or(0), is_first }
    }
}

/// One response with the events of a stream.
pub(super) struct EventReader {
    /// The number of the stream.
    number: u64,
    kept: watch::Receiver<KeptPieces>,
    /// The index of the next piece.
    next: usize,
    /// The last event that the client has.
    after: usize,
    /// Whether the stream is read for the first time.
    is_first: bool,
}

impl EventReader {
    /// Returns an event id for the beginning of this response.
    pub(super) fn first_id(&self) -> String {
        format!("{}_{}", self.number, self.after)
    }

    /// Returns the bytes of the next write; `None` at the end of the response.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        loop {
            let next = self.next;
            let has_more = |kept: &KeptPieces| kept.pieces.len() > next || !kept.is_open;
            let kept = self.kept.wait_for(has_more).await.ok()?;
            let piece = kept.pieces.get(next)?;
            self.next += 1;
            match piece {
                EventPiece::Events(first, events) => {
                    let known = (self.after + 1).saturating_sub(*first);
                    let events = events.get(known..).unwrap_or_default().concat();
                    if !events.is_empty() {
                        return Some(events.into());
                    }
                }
                EventPiece::HangUp if self.is_first => return None,
                // The first response ends here; this is a later response, so continue.
                EventPiece::HangUp => {}
            }
        }
    }
}
