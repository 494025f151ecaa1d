//! The events of one response, which are kept so that a client can ask for the rest.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use tokio::sync::{mpsc, watch};

use super::reply::ReplyPiece;
use crate::protocol::sse;

/// Events of a stream that are kept. A script is shorter, except for the flood.
const EVENTS_MAX: usize = 10_000;

/// The stream of one request, with its events so far.
#[derive(Debug)]
pub(super) struct EventLog {
    /// The number of the stream, which its event ids begin with.
    number: u64,
    pieces: Mutex<Vec<EventPiece>>,
    /// The number of pieces, and whether more may come.
    state: watch::Sender<(usize, bool)>,
}

/// One write.
#[derive(Debug)]
enum EventPiece {
    /// Events: the number of the first one, and the text of each.
    Events(usize, Vec<Bytes>),
    HangUp,
}

impl EventLog {
    /// The events of the pieces; the stream is over when the sender of the pieces is gone.
    pub(super) fn record(number: u64, mut pieces: mpsc::Receiver<ReplyPiece>) -> Arc<Self> {
        let (pieces_so_far, state) = (Mutex::default(), watch::channel((0, true)).0);
        let log = Arc::new(Self { number, pieces: pieces_so_far, state });
        let recorder = Arc::clone(&log);
        tokio::spawn(async move {
            let mut events = 0;
            while let Some(piece) = pieces.recv().await {
                recorder.keep(piece, &mut events);
            }
            recorder.state.send_modify(|(_, is_open)| *is_open = false);
        });
        log
    }

    fn keep(&self, piece: ReplyPiece, events: &mut usize) {
        let kept = match piece {
            ReplyPiece::HangUp => EventPiece::HangUp,
            ReplyPiece::Messages(messages) if *events + messages.len() <= EVENTS_MAX => {
                let first = *events + 1;
                *events += messages.len();
                let event = |(at, text): (usize, String)| {
                    let id = format!("id: {}_{}\n", self.number, first + at);
                    let mut event = BytesMut::from(id.as_bytes());
                    sse::append(&mut event, [text]);
                    event.freeze()
                };
                EventPiece::Events(first, messages.into_iter().enumerate().map(event).collect())
            }
            ReplyPiece::Messages(_) => return,
        };
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        pieces.push(kept);
        let count = pieces.len();
        drop(pieces);
        self.state.send_modify(|(known, _)| *known = count);
    }

    /// The stream and the event of an id of an event.
    pub(super) fn place(id: &str) -> Option<(u64, usize)> {
        let (stream, event) = id.split_once('_')?;
        Some((stream.parse().ok()?, event.parse().ok()?))
    }

    /// Reads from the beginning, or behind the event `after`.
    pub(super) fn read(self: &Arc<Self>, after: Option<usize>) -> EventReader {
        let state = self.state.subscribe();
        let is_first = after.is_none();
        EventReader { log: Arc::clone(self), next: 0, after: after.unwrap_or(0), is_first, state }
    }
}

/// One response with the events of a stream.
pub(super) struct EventReader {
    log: Arc<EventLog>,
    /// The next piece.
    next: usize,
    /// The last event that the client has.
    after: usize,
    /// Whether nobody has read the stream before.
    is_first: bool,
    state: watch::Receiver<(usize, bool)>,
}

impl EventReader {
    /// The id of the beginning.
    pub(super) fn first_id(&self) -> String {
        format!("{}_{}", self.log.number, self.after)
    }

    /// The bytes of the next write; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        loop {
            let next = self.next;
            let (count, is_open) =
                *self.state.wait_for(|(count, is_open)| *count > next || !is_open).await.ok()?;
            if next >= count {
                debug_assert!(!is_open, "waited for a piece");
                return None;
            }
            self.next += 1;
            match self.piece(next) {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => return Some(bytes),
                Err(HungUp) => return None,
            }
        }
    }

    fn piece(&self, at: usize) -> Result<Bytes, HungUp> {
        let pieces = self.log.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        match pieces.get(at) {
            Some(EventPiece::Events(first, events)) => {
                let known = (self.after + 1).saturating_sub(*first);
                Ok(Bytes::from(events.get(known..).unwrap_or_default().concat()))
            }
            // Who asks for the rest has been sent away already.
            Some(EventPiece::HangUp) if self.is_first => Err(HungUp),
            Some(EventPiece::HangUp) | None => Ok(Bytes::new()),
        }
    }
}

/// The response ends for its reader.
struct HungUp;
