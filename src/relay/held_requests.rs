//! Requests that the filter holds for a moment, with the headers of their HTTP requests.

use std::time::Instant;

use super::Relay;
use super::legs::{ClientHeaders, ClientLeg, ServerLeg};
use crate::progress::{Payload, ReleasedRequest, StreamId};
use crate::protocol::jsonrpc::Message;

/// A request that the filter holds ([`DetachedWork::is_held`](crate::progress::DetachedWork::is_held)).
#[derive(Debug)]
pub(super) struct HeldRequest {
    stream: StreamId,
    message: Message,
    headers: ClientHeaders,
}

impl<C: ClientLeg, S: ServerLeg> Relay<C, S> {
    /// Remembers a message that does not go to the server now, if the filter holds it for later.
    pub(super) fn note_held(
        &mut self,
        stream: StreamId,
        message: &Message,
        headers: &ClientHeaders,
    ) {
        if self.is_held(stream, message) == Some(true) {
            let (message, headers) = (message.clone(), headers.clone());
            self.held.push(HeldRequest { stream, message, headers });
        }
    }

    /// Sends the requests that the filter no longer holds. Forgets those that joined other work.
    pub(super) fn send_released(&mut self, now: Instant) {
        while let Some(ReleasedRequest { stream, message, payload }) = self.filter.poll_released() {
            let id = message.id();
            let place =
                self.held.iter().position(|one| one.stream == stream && one.message.id() == id);
            let headers = place.and_then(|place| self.held.remove(place).headers);
            if let Some(upstream) = self.server.send(Some(&message), payload, &headers) {
                self.filter.pair(now, stream, &message, upstream);
            }
        }
        for held in std::mem::take(&mut self.held) {
            match self.is_held(held.stream, &held.message) {
                Some(true) => self.held.push(held),
                Some(false) => {}
                // The filter has failed. If clients share the server, forward nothing more; else forward the request
                // unchanged.
                None if self.filter.policy().id_mapping => {}
                None => {
                    let payload = Payload::of(&held.message);
                    self.server.send(Some(&held.message), payload, &held.headers);
                }
            }
        }
    }

    /// Whether the filter holds this request; `None` if the filter has failed.
    fn is_held(&mut self, stream: StreamId, message: &Message) -> Option<bool> {
        let id = message.id_key();
        self.filter.try_with(|filter| id.is_some_and(|id| filter.detached().is_held(stream, &id)))
    }
}
