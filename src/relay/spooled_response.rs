//! Responses too large for memory, in a file, and their reading back for the client of the request.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{Future, Stream, StreamExt};
use tokio::time::{Sleep, sleep_until};

use crate::progress::{
    LargeRepairs, Origin, Payload, Repair, Repairs, SpooledAnswer, StreamId, Transmit, TransmitKind,
};
use crate::protocol::jsonrpc::{Key, Message, Scan, own_error};
use crate::protocol::unicode::{ReadablePiece, ReadablePieces, TextEnd};
use crate::transport::byte_budget::ByteRoom;
use crate::transport::spill::{Spill, SpillError};

/// A message in a file, and its share of the bytes of all such messages.
pub(super) struct SpooledBytes {
    pub(super) spill: Spill,
    pub(super) room: ByteRoom,
}

impl SpooledBytes {
    pub(super) async fn push(&mut self, piece: Bytes) -> Result<(), SpoolError> {
        // Counted before the write, so that the budget also limits the bytes in files.
        self.room.hold(piece.len()).map_err(|_| SpoolError::NoRoom)?;
        Ok(self.spill.push(piece).await?)
    }
}

/// The reason why a message is not kept.
#[derive(Debug, thiserror::Error)]
pub(super) enum SpoolError {
    #[error(transparent)]
    Spill(#[from] SpillError),
    #[error("all answers in files would have more bytes than `server.max_spilled_bytes`")]
    NoRoom,
}

/// The facts about a large message that are collected while it is written to a file.
#[derive(Default)]
pub(super) struct SpooledScan {
    /// The ids and the kind.
    pub(super) envelope: Scan,
    /// Finds characters that JSON does not allow.
    characters: ReadablePieces,
}

impl SpooledScan {
    /// Reads the next piece.
    pub(super) fn feed(&mut self, piece: &[u8]) {
        self.envelope.feed(piece);
        let _ = self.characters.feed(piece, TextEnd::Open);
    }

    /// The message is over.
    pub(super) fn end(&mut self) {
        let _ = self.characters.feed(&[], TextEnd::Here);
    }
}

/// A complete response in a file, and the result of scanning it.
pub struct SpooledResponse {
    scan: Scan,
    /// Every client can read its characters.
    is_readable: bool,
    kept: SpooledBytes,
    /// The id of the client's request that continues the answered request.
    renamed: Option<Key>,
}

impl SpooledResponse {
    /// A response of which `scan` has read all, in a file.
    pub(super) fn new(scan: SpooledScan, kept: SpooledBytes) -> Self {
        let SpooledScan { envelope: scan, characters } = scan;
        Self { scan, is_readable: !characters.is_changed(), kept, renamed: None }
    }

    /// The id that it answers, as the server knows it.
    pub(crate) fn id(&self) -> Option<Key> {
        self.renamed.clone().or_else(|| self.scan.id())
    }

    /// The response answers the request of this id.
    pub(crate) fn rename(&mut self, id: Key) {
        self.renamed = Some(id);
    }

    /// The repairs that it needs, if its request allows them.
    pub(crate) fn needed_repairs(&self) -> Repairs {
        let unicode = (!self.is_readable).then_some(Repair::Unicode);
        LargeRepairs::needed(&self.scan).iter().chain(unicode).collect()
    }

    /// Bytes of the response.
    pub(super) fn size(&self) -> u64 {
        self.kept.spill.size()
    }

    /// Prepares reading the response into memory, for a call that continues without its client.
    pub(super) fn into_late_reader(self) -> LateReader {
        let SpooledBytes { spill, room } = self.kept;
        LateReader {
            id: self.renamed,
            rest: spill.into_reader().boxed(),
            text: Vec::new(),
            _room: room,
        }
    }

    /// Reads the response for a client stream, with the client's own id in place of Milepost's id.
    pub(crate) fn into_reader_for(self, answer: SpooledAnswer) -> SpoolReader {
        let SpooledAnswer { stream, id, repairs, not_before } = answer;
        let SpooledBytes { spill, room } = self.kept;
        let rest = Some(spill.into_reader().boxed());
        let is_mended = !self.is_readable && repairs.allows(Repair::Unicode);
        let readable = is_mended.then(ReadablePieces::default);
        let scan = self.scan;
        let pause = not_before.map(|at| Box::pin(sleep_until(at.into())));
        SpoolReader { stream, id, scan, repairs, readable, pause, rest, begun: false, _room: room }
    }
}

/// The error for a client whose answer cannot be read back.
const UNREADABLE: &str = "the server's answer was stored in a temporary file, which cannot be read";

/// Reads a [`SpooledResponse`] back for one client stream.
pub(crate) struct SpoolReader {
    pub(crate) stream: StreamId,
    /// The request that is answered, as its client calls it.
    id: Bytes,
    scan: Scan,
    repairs: LargeRepairs,
    /// Repairs the characters after all other repairs, which know positions in the unchanged text.
    readable: Option<ReadablePieces>,
    /// The time until the first piece may be written ([`SpooledAnswer::not_before`]).
    pause: Option<Pin<Box<Sleep>>>,
    /// `None` after the last piece.
    rest: Option<BoxStream<'static, io::Result<Bytes>>>,
    /// A part of the response has been given out: nothing may come between its parts.
    pub(crate) begun: bool,
    _room: ByteRoom,
}

impl SpoolReader {
    /// The next piece; `None` after the last. An error has been logged, and is the last.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        loop {
            let Some(rest) = &mut self.rest else { return Poll::Ready(Ok(None)) };
            let piece = match ready!(Pin::new(rest).poll_next(cx)) {
                Some(Ok(piece)) => piece,
                Some(Err(error)) => {
                    let folder = std::env::temp_dir();
                    tracing::warn!(
                        %error,
                        folder = %folder.display(),
                        stream = self.stream.0,
                        "a stored answer cannot be read back from its temporary file, and its client gets an error"
                    );
                    return Poll::Ready(Err(error));
                }
                None => Bytes::new(),
            };
            let is_last = piece.is_empty();
            if is_last {
                // The file is read to its end. An empty piece tells the repairs that no more text follows.
                self.rest = None;
            }
            let text = 0..piece.len();
            let mut repaired = self.repairs.apply(&self.scan, piece, text, is_last).to_bytes();
            if let Some(readable) = &mut self.readable {
                let end = if is_last { TextEnd::Here } else { TextEnd::Open };
                match readable.feed(&repaired, end) {
                    ReadablePiece::AsItIs(length) => repaired.truncate(length),
                    ReadablePiece::Instead(new) => repaired = new.into(),
                }
            }
            // A repair may keep the end of a piece in which a character is cut.
            if !repaired.is_empty() {
                self.begun = true;
                return Poll::Ready(Ok(Some(repaired)));
            }
        }
    }

    /// The error for the client of an answer that cannot be read.
    pub(crate) fn error(&self) -> Transmit {
        let kind = TransmitKind::Answer(Key::read(&self.id));
        Transmit::whole(kind, Payload::own(own_error(&self.id, UNREADABLE, None)))
    }
}

/// A large message that is incomplete, and may be the answer to a call that continues without its client.
pub(super) struct LateAnswer {
    pub(super) origin: Origin,
    pub(super) scan: Scan,
    pub(super) text: Vec<u8>,
}

/// Reads a [`SpooledResponse`] back as one message.
pub(super) struct LateReader {
    /// The id of the client's request that continues the answered request.
    id: Option<Key>,
    rest: BoxStream<'static, io::Result<Bytes>>,
    text: Vec<u8>,
    _room: ByteRoom,
}

impl LateReader {
    /// The message, once it has been read. A file that cannot be read gives a message that answers nothing.
    pub(super) fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Message> {
        while let Some(piece) = ready!(Pin::new(&mut self.rest).poll_next(cx)) {
            match piece {
                Ok(piece) => self.text.extend_from_slice(&piece),
                Err(error) => {
                    tracing::error!(%error, "an answer stored in a file cannot be read; the answer is dropped");
                    // A part of the answer would be taken for the whole.
                    self.text.clear();
                    break;
                }
            }
        }
        let message = Message::parse(Bytes::from(std::mem::take(&mut self.text)));
        let place = self.id.take().and_then(|id| Some((id, message.id_range()?)));
        Poll::Ready(match place {
            Some((id, place)) => {
                let renamed = Payload::splice(message.raw(), place, id.to_json());
                Message::parse(renamed.to_bytes())
            }
            None => message,
        })
    }
}
