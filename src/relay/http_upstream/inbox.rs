//! Messages of the server that the relay has not taken yet.

use std::collections::VecDeque;

use crate::progress::{Origin, StreamId};
use crate::protocol::jsonrpc::{Key, Kind, Message, Scan};
use crate::relay::legs::FromServer;
use crate::transport::mcp_http::response_reader::ResponseItem;

/// The server's stream on which a message came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseStream {
    /// The response to a POST.
    Exchange(StreamId),
    /// The GET stream of the session.
    Listen,
    /// The stream of HTTP+SSE.
    HttpSse,
}

impl ResponseStream {
    fn origin(self) -> Origin {
        match self {
            Self::Exchange(stream) => Origin::Stream(stream),
            Self::Listen | Self::HttpSse => Origin::Shared,
        }
    }

    /// Returns the POST to which the stream is the response.
    pub(crate) fn exchange(self) -> Option<StreamId> {
        match self {
            Self::Exchange(stream) => Some(stream),
            Self::Listen | Self::HttpSse => None,
        }
    }
}

/// An item that the leg must handle.
pub(crate) enum InboxItem {
    /// A whole message. It is not in the inbox yet.
    Message(Message),
    /// A large answer to the request with this id has ended.
    Answered(Key),
}

/// Messages for the relay, in the order in which they came.
#[derive(Default)]
pub(crate) struct Inbox {
    ready: VecDeque<FromServer>,
    /// The stream whose large message is being forwarded. No other message may be written between its pieces.
    midway: Option<(ResponseStream, Scan)>,
}

impl Inbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    pub(crate) fn pop(&mut self) -> Option<FromServer> {
        self.ready.pop_front()
    }

    /// Returns the stream whose large message is being forwarded.
    pub(crate) fn midway(&self) -> Option<ResponseStream> {
        self.midway.as_ref().map(|(stream, _)| *stream)
    }

    /// Adds a message from a stream.
    pub(crate) fn push(&mut self, from: ResponseStream, message: Message) {
        self.push_from(from.origin(), message);
    }

    /// Adds a message made by the leg itself.
    pub(crate) fn push_from(&mut self, origin: Origin, message: Message) {
        self.ready.push_back(FromServer::Message(origin, message));
    }

    /// Handles an item from a stream. Adds pieces of large messages to the inbox immediately.
    pub(crate) fn receive(
        &mut self,
        from: ResponseStream,
        item: ResponseItem,
    ) -> Option<InboxItem> {
        let origin = from.origin();
        match item {
            ResponseItem::Message(text) => return Some(InboxItem::Message(Message::parse(text))),
            ResponseItem::Start(text) => {
                let mut scan = Scan::default();
                scan.feed(&text);
                self.midway = Some((from, scan));
                self.ready.push_back(FromServer::Start(origin, text));
            }
            ResponseItem::Piece(text) => {
                if let Some((_, scan)) = &mut self.midway {
                    scan.feed(&text);
                }
                self.ready.push_back(FromServer::Piece(origin, text));
            }
            ResponseItem::End(whole) => {
                let scan = self.midway.take().map(|(_, scan)| scan);
                self.ready.push_back(FromServer::End(origin, whole));
                // An incomplete message does not answer a request.
                let scan = scan.filter(|scan| whole && scan.kind() == Kind::Response);
                return scan.and_then(|scan| scan.id()).map(InboxItem::Answered);
            }
            // The event names an endpoint only on the stream of HTTP+SSE, and is not for the relay.
            ResponseItem::Endpoint(_) => {}
        }
        None
    }

    /// Notes that the response to a POST has ended without all answers.
    pub(crate) fn end_response(&mut self, stream: StreamId) {
        self.ready.push_back(FromServer::ResponseEnds(stream));
    }

    /// Ends the large message of a stream that is no longer read.
    pub(crate) fn close(&mut self, from: ResponseStream) {
        if self.midway() == Some(from) {
            self.midway = None;
            self.ready.push_back(FromServer::End(from.origin(), false));
        }
    }
}
