//! The client streams of one filter, and the order of the messages written to them.

use std::collections::BTreeMap;

use crate::progress::correlate::call::Call;
use crate::progress::gate::stream::{Stream, StreamKind};
use crate::progress::ids::{Principal, StreamId};
use crate::progress::policy::{Pacing, StreamPacing};

/// The part of a filter that decides on the messages of each client stream, and on their times.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) streams: BTreeMap<StreamId, Box<Stream>>,
    /// The stream for messages that belong to no request.
    pub(crate) session_stream: Option<StreamId>,
    /// The number of the newest thing to be written, or name given to a server.
    pub(crate) order: u64,
    /// The upstream is there: silences may be broken.
    pub(crate) alive: bool,
    /// The clients send nothing more.
    pub(crate) client_left: bool,
    /// The client reads too slowly.
    pub(crate) client_is_slow: bool,
}

impl Gate {
    /// A gate without streams.
    pub(crate) fn new() -> Self {
        Self {
            streams: BTreeMap::new(),
            session_stream: None,
            order: 0,
            alive: true,
            client_left: false,
            client_is_slow: false,
        }
    }

    pub(crate) fn next_order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    /// The client that reads a stream.
    pub(crate) fn principal_of(&self, id: StreamId) -> Principal {
        let known = self.streams.get(&id).and_then(|stream| stream.principal);
        known.map_or(Principal::Stream(id), Principal::Known)
    }

    pub(crate) fn is_exchange(&self, id: StreamId) -> bool {
        self.streams.get(&id).is_some_and(|stream| stream.kind == StreamKind::Exchange)
    }

    /// The times at which the messages of a call may be written to its client.
    pub(crate) fn pacing_of(&self, call: &Call) -> Pacing {
        let settings = call.settings();
        let is_immediate = self.streams.get(&call.stream).is_some_and(|stream| {
            stream.pacing == StreamPacing::Immediate
                || (stream.is_orderly && settings.spare_known_clients)
        });
        if is_immediate { Pacing::IMMEDIATE } else { settings.pacing }
    }

    /// Whether no bytes wait for a client.
    pub(crate) fn is_drained(&self) -> bool {
        self.streams.values().all(|stream| stream.is_drained())
    }
}
