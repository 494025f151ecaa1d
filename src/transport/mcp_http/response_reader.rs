//! Reads the body of a response, JSON or events, message by message.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderValue;
use tokio::time::{Instant, Sleep, sleep};

use crate::protocol::sse::{Events, Piece, SseEvent, SseFrame};
use crate::protocol::unicode::BOM;
use crate::transport::http::client::UpstreamError;
use crate::transport::http::inflate::PlainBody;
use crate::transport::mcp_http::content::{Content, is_whole, message_on_one_line, on_one_line};
use crate::transport::mcp_http::event_message::{UNENDED_WAIT, has_whole_message};

/// Limit of the bytes of a message that is kept as a whole; a longer message is forwarded in pieces. Every open
/// exchange may use this much memory.
const HELD_MAX: usize = 1 << 20;

/// Limit of the `retry` time that is accepted from a server.
const RETRY_MAX: Duration = Duration::from_secs(300);

/// The error for a body without a content type that is not a message.
const UNREADABLE: &str = "the answer of the server is neither JSON nor events";

/// One item of a response. Texts contain no line ends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ResponseItem {
    /// A whole message.
    Message(Bytes),
    /// The first piece of a message that is too large for memory; further pieces and an end follow.
    Start(Bytes),
    /// The next piece of a large message.
    Piece(Bytes),
    /// The end of a large message; `false`: the message broke off.
    End(bool),
    /// The address that messages are to be posted to (HTTP+SSE).
    Endpoint(Bytes),
}

/// The end of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MessageEnd {
    Whole,
    /// The message broke off.
    Cut,
}

enum BodyForm {
    Events(Box<Events>),
    /// A JSON text that is being read: the part that has arrived.
    Json(BytesMut),
    /// A JSON text that is too long for memory, which is forwarded in pieces.
    LongJson,
    /// A body without a content type that has not begun to arrive.
    Untyped,
    Over,
}

/// Reads the body of one response.
pub(crate) struct ResponseReader {
    body: PlainBody,
    form: BodyForm,
    /// Items that were read and not returned yet.
    ready: VecDeque<ResponseItem>,
    /// Whether a large message is being forwarded in pieces.
    midway: bool,
    /// The error that ended the response, until the reader has returned it.
    failure: Option<UpstreamError>,
    /// The id of the last event that had one.
    pub(crate) last_id: Option<HeaderValue>,
    /// The wait before a reconnect, from the last `retry` of the server.
    pub(crate) retry: Option<Duration>,
    /// Whether an event has arrived since the flag was taken.
    pub(crate) has_event: bool,
    /// The time when the last bytes arrived.
    pub(crate) read_at: Instant,
    /// The wait for the missing end of a complete message.
    unended: Option<Pin<Box<Sleep>>>,
}

impl ResponseReader {
    /// Returns a reader of events.
    pub(crate) fn events(body: PlainBody) -> Self {
        Self::new(body, BodyForm::Events(Box::new(Events::new(HELD_MAX))))
    }

    /// Returns a reader of JSON.
    pub(crate) fn json(body: PlainBody) -> Self {
        Self::new(body, BodyForm::Json(BytesMut::new()))
    }

    /// Returns a reader of a body without a content type, whose first bytes show the type.
    pub(crate) fn untyped(body: PlainBody) -> Self {
        Self::new(body, BodyForm::Untyped)
    }

    fn new(body: PlainBody, form: BodyForm) -> Self {
        Self {
            body,
            form,
            ready: VecDeque::new(),
            midway: false,
            failure: None,
            last_id: None,
            retry: None,
            has_event: false,
            read_at: Instant::now(),
            unended: None,
        }
    }

    /// Ready with the next item; `None` at the end.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<ResponseItem, UpstreamError>>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(item)));
            }
            // Items that were read before the error have been returned.
            if matches!(self.form, BodyForm::Over) {
                return Poll::Ready(self.failure.take().map(Err));
            }
            let read = match self.body.poll_data(cx) {
                Poll::Ready(read) => read,
                Poll::Pending => {
                    // Only when no more bytes are available: the server may still send the end of the event in time.
                    ready!(self.poll_unended(cx));
                    continue;
                }
            };
            // More bytes have arrived, so the wait begins again.
            self.unended = None;
            match read {
                Some(Ok(chunk)) => {
                    self.read_at = Instant::now();
                    self.take(chunk);
                }
                Some(Err(error)) => {
                    self.failure = Some(error);
                    self.finish(MessageEnd::Cut);
                }
                None => self.finish(MessageEnd::Whole),
            }
        }
    }

    /// Waits for the end of a message that is otherwise complete, and takes it without an end if the wait is too long.
    fn poll_unended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.unended.is_none() && !self.has_unended() {
            return Poll::Pending;
        }
        let wait = self.unended.get_or_insert_with(|| Box::pin(sleep(UNENDED_WAIT)));
        ready!(wait.as_mut().poll(cx));
        self.unended = None;
        match &mut self.form {
            BodyForm::Events(events) => {
                let event = events.unfinished_event();
                // The rest of the event may still come, and must not be read as an event of its own.
                events.drop_rest();
                event.iter().for_each(|event| self.event(event));
            }
            _ => self.finish(MessageEnd::Whole),
        }
        Poll::Ready(())
    }

    /// Whether a message is complete except for its end mark.
    fn has_unended(&self) -> bool {
        match &self.form {
            BodyForm::Events(events) if !self.midway => {
                events.unfinished_event().is_some_and(|event| has_whole_message(&event))
            }
            BodyForm::Json(held) => is_whole(held),
            _ => false,
        }
    }

    fn take(&mut self, chunk: Bytes) {
        if matches!(self.form, BodyForm::Untyped) {
            self.form = match Content::by_first_bytes(&chunk) {
                Content::Json => BodyForm::Json(BytesMut::new()),
                Content::Events => BodyForm::Events(Box::new(Events::new(HELD_MAX))),
                Content::Other => {
                    self.failure = Some(UpstreamError::BrokenOff(UNREADABLE));
                    BodyForm::Over
                }
            };
        }
        match &mut self.form {
            BodyForm::Untyped => {}
            BodyForm::Over => {}
            BodyForm::LongJson => self.ready.push_back(ResponseItem::Piece(on_one_line(chunk))),
            BodyForm::Json(held) => {
                held.extend_from_slice(&chunk);
                if held.len() > HELD_MAX {
                    // Only the first piece can begin with a byte order mark.
                    let first = on_one_line(without_mark(held.split().freeze()));
                    self.ready.push_back(ResponseItem::Start(first));
                    self.form = BodyForm::LongJson;
                    self.midway = true;
                }
            }
            BodyForm::Events(events) => {
                events.push(chunk);
                while let BodyForm::Events(events) = &mut self.form
                    && let Some(frame) = events.next()
                {
                    self.frame(frame);
                }
            }
        }
    }

    fn finish(&mut self, end: MessageEnd) {
        match std::mem::replace(&mut self.form, BodyForm::Over) {
            BodyForm::Json(mut held) if end == MessageEnd::Whole => {
                let text = message_on_one_line(without_mark(held.split().freeze()));
                // An empty body is neither a message nor an error.
                if !text.is_empty() {
                    self.ready.push_back(ResponseItem::Message(text));
                }
            }
            BodyForm::LongJson => self.end(end),
            // The large message is incomplete, whether or not the connection ended properly.
            BodyForm::Events(_) if self.midway => self.end(MessageEnd::Cut),
            // An incomplete event is dropped, unless only its blank line is missing.
            BodyForm::Events(events) if end == MessageEnd::Whole => {
                let last = events.unfinished_event().filter(has_whole_message);
                last.iter().for_each(|event| self.event(event));
            }
            _ => {}
        }
    }

    fn end(&mut self, end: MessageEnd) {
        self.midway = false;
        self.ready.push_back(ResponseItem::End(end == MessageEnd::Whole));
    }

    fn frame(&mut self, frame: SseFrame) {
        match frame {
            SseFrame::Event(event) => self.event(&event),
            SseFrame::Start(piece) | SseFrame::Piece(piece) => self.piece(&piece),
            SseFrame::End if self.midway => self.end(MessageEnd::Whole),
            SseFrame::End => {}
        }
    }

    fn event(&mut self, event: &SseEvent) {
        // An empty id resets the last id (HTML, 9.2.6), so a reconnect names none.
        if event.has_id() {
            let id = event.id().filter(|id| !id.is_empty());
            self.last_id = id.and_then(|id| HeaderValue::from_bytes(id).ok());
        }
        let retry = event.retry().and_then(|line| milliseconds(&line));
        // Limited, because a server could otherwise keep its clients away with a large number.
        self.retry = retry.map(|time| time.min(RETRY_MAX)).or(self.retry);
        let data = event.data();
        // A comment alone is not a message.
        self.has_event |= data.is_some();
        // An event with empty data only has an id, as at the beginning of a stream.
        let Some(data) = data.filter(|data| !data.is_empty()) else { return };
        self.ready.push_back(if event.name() == Some(b"endpoint") {
            ResponseItem::Endpoint(data)
        } else {
            ResponseItem::Message(message_on_one_line(data))
        });
    }

    /// Handles a part of an event that is too long for memory. Its id is not read, because no client can resume in the
    /// middle of an event.
    fn piece(&mut self, piece: &Piece) {
        self.has_event = true;
        let data = piece.data.clone().map(|data| piece.raw.slice(data)).unwrap_or_default();
        // Only the name or the id of the event has arrived.
        if data.is_empty() {
            return;
        }
        let text = on_one_line(data);
        let begun = std::mem::replace(&mut self.midway, true);
        self.ready.push_back(if begun {
            ResponseItem::Piece(text)
        } else {
            ResponseItem::Start(text)
        });
    }
}

fn without_mark(mut text: Bytes) -> Bytes {
    if text.starts_with(BOM) {
        let _ = text.split_to(BOM.len());
    }
    text
}

/// Returns the time of a `retry` line.
pub(crate) fn milliseconds(line: &[u8]) -> Option<Duration> {
    let digits = line.iter().position(u8::is_ascii_digit)?;
    let text = std::str::from_utf8(line.get(digits..)?).ok()?;
    Some(Duration::from_millis(text.trim().parse().unwrap_or(u64::MAX)))
}
