//! Requests that the server has been asked and has not answered.

use bytes::Bytes;

use crate::progress::StreamId;
use crate::protocol::jsonrpc::{Key, Kind, Message};
use crate::protocol::mcp;

/// What is asked, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// A client's `initialize`.
    Initialize,
    /// A client's list of tools (2026-07-28).
    Tools,
    /// Any other request of a client.
    Other,
    /// `initialize` once more, in the client's place.
    Renewal,
    /// A list of tools that no client has asked for.
    Refresh,
}

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    key: Option<Key>,
    /// As the client wrote it.
    pub(crate) id: Bytes,
    /// The POST it went in.
    pub(crate) stream: StreamId,
    pub(crate) what: What,
}

/// All of them, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Vec<Asked>);

impl Ledger {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Enters the requests of a message.
    pub(crate) fn enter(&mut self, message: &Message, stream: StreamId, what: What) {
        for request in requests(message) {
            let id = request.id().unwrap_or_default();
            self.0.push(Asked { key: request.id_key(), id, stream, what });
        }
    }

    /// The request of this id is answered, best one of the stream on which the answer has come.
    pub(crate) fn answered(&mut self, id: &Key, stream: Option<StreamId>) -> Option<Asked> {
        let fits = |asked: &Asked| asked.key.as_ref() == Some(id);
        let here = self.0.iter().position(|asked| fits(asked) && Some(asked.stream) == stream);
        let at = here.or_else(|| self.0.iter().position(fits))?;
        Some(self.0.remove(at))
    }

    /// The client gives a request up; the POST it went in.
    pub(crate) fn find(&self, id: &Key) -> Option<StreamId> {
        self.0.iter().find(|asked| asked.key.as_ref() == Some(id)).map(|asked| asked.stream)
    }

    /// Whether this is the id of a request of this POST.
    pub(crate) fn is_for(&self, stream: StreamId, id: &Key) -> bool {
        self.0.iter().any(|asked| asked.stream == stream && asked.key.as_ref() == Some(id))
    }

    /// Whether a request of this POST waits for its answer.
    pub(crate) fn has(&self, stream: StreamId) -> bool {
        self.0.iter().any(|asked| asked.stream == stream)
    }

    /// Whether such a request waits for its answer.
    pub(crate) fn has_any(&self, what: What) -> bool {
        self.0.iter().any(|asked| asked.what == what)
    }

    /// Takes out the requests of one POST.
    pub(crate) fn take(&mut self, stream: StreamId) -> Vec<Asked> {
        self.0.extract_if(.., |asked| asked.stream == stream).collect()
    }

    /// Takes out all of them.
    pub(crate) fn take_all(&mut self) -> Vec<Asked> {
        std::mem::take(&mut self.0)
    }
}

/// The requests of a message: itself, or those of a batch.
pub(crate) fn requests(message: &Message) -> Vec<Message> {
    match message.kind() {
        Kind::Request => vec![message.clone()],
        Kind::Batch => message.elements().filter(|one| one.kind() == Kind::Request).collect(),
        _ => Vec::new(),
    }
}

/// What a client's message asks.
pub(crate) fn what(message: &Message, modern: bool) -> What {
    match message.method().as_deref() {
        Some(mcp::INITIALIZE) => What::Initialize,
        Some(mcp::TOOLS_LIST) if modern => What::Tools,
        _ => What::Other,
    }
}
