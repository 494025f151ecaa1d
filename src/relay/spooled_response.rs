//! Responses in files, because they are too large for memory, and their reading for the client of the request.

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

/// A message in a file, and its share of the limit of bytes in files.
pub(super) struct SpooledBytes {
    pub(super) spill: Spill,
    pub(super) room: ByteRoom,
}

impl SpooledBytes {
    pub(super) async fn push(&mut self, piece: Bytes) -> Result<(), SpoolError> {
        // Count before writing, so that the budget limits the bytes in files.
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

/// What is learned about a large message while it is written to a file.
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

    /// Handles the end of the message.
    pub(super) fn end(&mut self) {
        let _ = self.characters.feed(&[], TextEnd::Here);
    }
}

/// A complete response in a file, and the result of scanning it.
pub struct SpooledResponse {
    scan: Scan,
    /// Whether every client can read the characters of the response.
    is_readable: bool,
    kept: SpooledBytes,
    /// The id of the client's request that continues the answered request.
    renamed: Option<Key>,
}

impl SpooledResponse {
    /// Returns the response in a file that `scan` has read completely.
    pub(super) fn new(scan: SpooledScan, kept: SpooledBytes) -> Self {
        let SpooledScan { envelope: scan, characters } = scan;
        Self { scan, is_readable: !characters.is_changed(), kept, renamed: None }
    }

    /// Returns the id of the answered request, as the relay knows it.
    pub(crate) fn id(&self) -> Option<Key> {
        self.renamed.clone().or_else(|| self.scan.id())
    }

    /// Makes the response answer the request with this id.
    pub(crate) fn rename(&mut self, id: Key) {
        self.renamed = Some(id);
    }

    /// Returns the repairs that the response needs, if its request allows them.
    pub(crate) fn needed_repairs(&self) -> Repairs {
        let unicode = (!self.is_readable).then_some(Repair::Unicode);
        LargeRepairs::needed(&self.scan).iter().chain(unicode).collect()
    }

    /// Returns the number of bytes of the response.
    pub(super) fn size(&self) -> u64 {
        self.kept.spill.size()
    }

    /// Returns a reader that reads the response into memory, for a call that continues without its client.
    pub(super) fn into_late_reader(self) -> LateReader {
        let SpooledBytes { spill, room } = self.kept;
        LateReader {
            id: self.renamed,
            rest: spill.into_reader().boxed(),
            text: Vec::new(),
            _room: room,
        }
    }

    /// Returns a reader for a client stream, with the client's own id in place of Milepost's id.
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

/// The error for a client whose answer cannot be read from its file.
const UNREADABLE: &str = "the server's answer was stored in a temporary file, which cannot be read";

/// Reads a [`SpooledResponse`] for one client stream.
pub(crate) struct SpoolReader {
    pub(crate) stream: StreamId,
    /// The id of the answered request, as its client knows it.
    id: Bytes,
    scan: Scan,
    repairs: LargeRepairs,
    /// Repairs characters. Comes after all other repairs, which rely on positions in the original text.
    readable: Option<ReadablePieces>,
    /// The wait before the first piece may be written ([`SpooledAnswer::not_before`]).
    pause: Option<Pin<Box<Sleep>>>,
    /// The pieces of the file; `None` after the last piece.
    rest: Option<BoxStream<'static, io::Result<Bytes>>>,
    /// Whether a part of the response has been returned. From then on nothing may be written between its parts.
    pub(crate) begun: bool,
    _room: ByteRoom,
}

impl SpoolReader {
    /// Returns the next piece; `None` after the last one. An error is logged, and ends the reading.
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
                // The file has been read completely. An empty piece tells the repairs that no more text follows.
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
            // A repair may keep back the end of a piece, if a character is split there.
            if !repaired.is_empty() {
                self.begun = true;
                return Poll::Ready(Ok(Some(repaired)));
            }
        }
    }

    /// Returns the error for the client of an answer that cannot be read.
    pub(crate) fn error(&self) -> Transmit {
        let kind = TransmitKind::Answer(Key::read(&self.id));
        Transmit::whole(kind, Payload::own(own_error(&self.id, UNREADABLE, None)))
    }
}

/// An incomplete large message that may be the answer to a call that continues without its client.
pub(super) struct LateAnswer {
    pub(super) origin: Origin,
    pub(super) scan: Scan,
    pub(super) text: Vec<u8>,
}

/// Reads a [`SpooledResponse`] into memory as one message.
pub(super) struct LateReader {
    /// The id of the client's request that continues the answered request.
    id: Option<Key>,
    rest: BoxStream<'static, io::Result<Bytes>>,
    text: Vec<u8>,
    _room: ByteRoom,
}

impl LateReader {
    /// Returns the message once it has been read. If the file cannot be read, returns a message that answers nothing.
    pub(super) fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Message> {
        while let Some(piece) = ready!(Pin::new(&mut self.rest).poll_next(cx)) {
            match piece {
                Ok(piece) => self.text.extend_from_slice(&piece),
                Err(error) => {
                    tracing::error!(%error, "an answer stored in a file cannot be read; the answer is dropped");
                    // Drop the text, because a part would be taken for the whole answer.
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
