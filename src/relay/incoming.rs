//! Messages from either side of a relay, on their way to the filter and to the other side.

use std::io;
use std::time::Instant;

use bytes::Bytes;

use super::legs::{ClientHeaders, ClientLeg, FromClient, FromServer, MessagePart, ServerLeg};
use super::{Relay, RelayStep};
use crate::progress::input::Input;
use crate::progress::{Disposition, Fragment, Payload, StreamId, Transmit};
use crate::protocol::jsonrpc::{Kind, Message, Scan};
use crate::relay::spooled_response::SpooledResponse;
use crate::relay::states::{RelayMode, ServerOutput};
use crate::transport::clock::now;
use crate::transport::http::shutdown::SHUTTING_DOWN;

impl<C: ClientLeg, S: ServerLeg> Relay<C, S> {
    /// Handles all client messages that have arrived.
    pub(crate) fn receive_from_clients(&mut self, received: FromClient) -> RelayStep {
        let mut next = Some(received);
        while let Some(received) = next {
            match received {
                FromClient::Done => {
                    self.stop_reading_clients();
                    self.filter.apply(now(), Input::CloseClients);
                    // Send the requests that the filter still holds before the server's input is closed.
                    self.send_released(now());
                    return RelayStep::ClientDone;
                }
                FromClient::Gone => {
                    self.filter.apply(now(), Input::CloseClients);
                    return self.clients_gone();
                }
                FromClient::Over => {
                    // The leg writes the error to the client. Here the calls end, before the end of the server does it.
                    self.stop_calls(SHUTTING_DOWN);
                    return self.clients_gone();
                }
                FromClient::Settings(policy) => self.set_policy(&policy),
                FromClient::Raw(bytes) => self.server.send_part(MessagePart::Raw(bytes), &None),
                FromClient::Opened(stream, kind, pacing) => self.open(stream, kind, pacing),
                FromClient::Principal(stream, principal) => {
                    self.filter.apply(now(), Input::SetPrincipal(stream, principal));
                }
                FromClient::Closed(stream, cancels) => {
                    self.exchanges.remove(&stream);
                    // Drop an answer that is being read from a file for this client.
                    self.spooled.retain(|reader| reader.stream != stream);
                    self.filter.apply(now(), Input::CloseStream(stream, cancels));
                }
                FromClient::Message(stream, message, headers) => {
                    self.client_message(stream, &message, &headers);
                }
                FromClient::Start(stream, piece, headers) => {
                    if let Some(headers) = &headers {
                        self.filter.try_with(|filter| {
                            filter.calls_mut().streams_mut().set_origin(stream, headers.origin())
                        });
                    }
                    let mut scan = Scan::default();
                    scan.feed(&piece);
                    self.large_message = Some((stream, scan));
                    self.server.send_part(MessagePart::Start(piece), &headers);
                }
                FromClient::Piece(piece) => {
                    if let Some((_, scan)) = &mut self.large_message {
                        scan.feed(&piece);
                    }
                    self.server.send_part(MessagePart::Piece(piece), &None);
                }
                FromClient::End => {
                    // Send the end first, so that the filter's messages come after the complete message.
                    self.server.send_part(MessagePart::End, &None);
                    if let Some((stream, scan)) = self.large_message.take() {
                        self.filter.apply(now(), Input::ClientLarge(stream, scan));
                    }
                }
            }
            next = self.clients.try_receive();
        }
        RelayStep::Moved
    }

    fn client_message(&mut self, stream: StreamId, message: &Message, headers: &ClientHeaders) {
        if matches!(message.kind(), Kind::Request | Kind::Batch) {
            // First read what the server wrote to standard error so far, which cannot be about this request.
            self.diagnostics.catch_up();
            self.read_stderr_lines();
        }
        if let Some(headers) = headers {
            self.filter.try_with(|filter| {
                filter.calls_mut().streams_mut().set_origin(stream, headers.origin())
            });
        }
        let payload = self.filter.client_message(now(), stream, message);
        // The message may have opened a call: other sessions must know its token before progress comes.
        if let Some(tokens) = &mut self.tokens {
            tokens.renew(&mut self.filter);
        }
        if payload.is_empty() {
            return self.note_held(stream, message, headers);
        }
        if let Some(upstream) = self.server.send(Some(message), payload, headers) {
            self.filter.pair(now(), stream, message, upstream);
        }
    }

    /// Handles all server messages that have arrived.
    pub(crate) fn receive_from_server(&mut self, received: FromServer) -> RelayStep {
        let now = now();
        let mut next = Some(received);
        while let Some(received) = next {
            let fate = match received {
                FromServer::Done => {
                    self.server_output = ServerOutput::Ended;
                    return RelayStep::ServerDone;
                }
                FromServer::Deaf => return self.server_written(false),
                FromServer::Raw(bytes) => {
                    self.clients.send_raw(bytes);
                    Disposition::Consumed
                }
                FromServer::Noise(text) => Disposition::NotAMessage(text),
                FromServer::Message(origin, message) => {
                    if let Some(tokens) = &self.tokens {
                        tokens.mark(now, &mut self.filter, origin, &message);
                    }
                    self.filter.server_message(now, origin, &message)
                }
                FromServer::Start(origin, piece) => self.begin_large(now, origin, piece),
                FromServer::Piece(origin, piece) => self.large_piece(now, origin, piece),
                FromServer::End(origin, whole) => self.finish_large(now, origin, whole),
                FromServer::ResponseEnds(stream) => {
                    // Only an answer that waits for the end of the response needs this event.
                    let holds = self.filter.try_with(|filter| filter.gate().holds_answer(stream));
                    if holds == Some(true) {
                        self.filter.apply(now, Input::EndResponse(stream));
                    }
                    Disposition::Consumed
                }
                FromServer::Spooled(response) => self.deliver_spooled(now, *response),
                FromServer::InUse(open) => {
                    self.leg_tasks.open = open;
                    Disposition::Consumed
                }
                FromServer::Task(news) => {
                    self.leg_tasks.news.push_back(news);
                    Disposition::Consumed
                }
            };
            if let Disposition::NotAMessage(text) = fate
                && self.mode == RelayMode::Filtered
            {
                self.diagnostics.put(text);
            }
            next = self.server.try_receive();
        }
        RelayStep::Moved
    }

    fn deliver_spooled(&mut self, now: Instant, response: SpooledResponse) -> Disposition {
        let Some(response) = self.read_late(response) else { return Disposition::Consumed };
        let needs = response.needed_repairs();
        // Drop an answer, with its file, if no client waits for it.
        let answered = response
            .id()
            .and_then(|id| self.filter.apply(now, Input::SpoolAnswer(id, needs)).apart());
        if let Some(answered) = answered {
            // Progress that waits for the client is written before the first piece.
            self.spooled.push(response.into_reader_for(answered));
        }
        Disposition::Consumed
    }

    pub(crate) fn send_spooled_piece(
        &mut self,
        stream: StreamId,
        piece: io::Result<Option<Bytes>>,
    ) -> RelayStep {
        if let Ok(Some(piece)) = piece {
            self.clients.send(stream, Transmit::part(piece.into(), Fragment::Piece));
            return RelayStep::Moved;
        }
        let reader = self.spooled.iter().position(|reader| reader.stream == stream);
        let reader = reader.map(|place| self.spooled.remove(place));
        match (piece, reader) {
            (Err(_), Some(reader)) => {
                // A part of the answer was written already, and the client must not take it for the whole answer.
                if reader.begun {
                    self.clients.send(stream, Transmit::broken());
                }
                self.clients.send(stream, reader.error());
            }
            // An empty last piece ends the message on its stream.
            _ => self.clients.send(stream, Transmit::part(Payload::default(), Fragment::End)),
        }
        RelayStep::Moved
    }
}
