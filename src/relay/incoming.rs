//! What comes in from either side of a relay, and goes to its filter and to the other side.

use crate::transport::clock::now;
use std::time::Instant;

use bytes::Bytes;

use super::Relay;
use super::Step;
use super::legs::{Clients, FromClient, FromServer, Headers, Server, UPSTREAM_STREAMS, trace_of};
use crate::progress::Disposition;
use crate::progress::Filter;
use crate::progress::Fragment;
use crate::progress::Origin;
use crate::progress::StreamId;
use crate::progress::Transmit;
use crate::protocol::jsonrpc::{Kind, Message, Scan};
use crate::relay::spool::Apart;

impl<C: Clients, S: Server> Relay<C, S> {
    /// Takes what clients say, all that has come.
    pub(super) fn heard(&mut self, heard: FromClient) -> Step {
        let mut next = Some(heard);
        while let Some(heard) = next {
            match heard {
                FromClient::Done => {
                    self.stop_reading_clients();
                    let left = || "left".to_owned();
                    self.filter.happens(Some(now()), left, Filter::client_left);
                    return Step::ClientDone;
                }
                FromClient::Gone => return self.clients_gone(),
                FromClient::Settings(policy) => self.take(&policy),
                FromClient::Raw(bytes) => self.server.pass(bytes),
                FromClient::Opened(stream, kind, pacing) => self.open(stream, kind, pacing),
                FromClient::Closed(stream, cancels) => {
                    self.exchanges.remove(&stream);
                    self.apart.retain(|pieces| pieces.stream != stream);
                    self.filter.close_stream(now(), stream, cancels);
                }
                FromClient::Message(stream, message, headers) => {
                    self.client_message(stream, &message, &headers);
                }
                FromClient::Start(stream, piece, headers) => {
                    if let Some(headers) = &headers {
                        self.filter.try_with(|filter| filter.traced(stream, trace_of(headers)));
                    }
                    let mut scan = Scan::default();
                    scan.feed(&piece);
                    self.passing = Some((stream, scan));
                    self.server.say_start(piece, &headers);
                }
                FromClient::Piece(piece) => {
                    if let Some((_, scan)) = &mut self.passing {
                        scan.feed(&piece);
                    }
                    self.server.say_piece(piece);
                }
                FromClient::End => {
                    self.server.say_end();
                    if let Some((stream, scan)) = self.passing.take() {
                        self.filter.client_passed(now(), stream, &scan);
                    }
                }
            }
            next = self.clients.heard();
        }
        Step::Moved
    }

    fn client_message(&mut self, stream: StreamId, message: &Message, headers: &Headers) {
        if matches!(message.kind(), Kind::Request | Kind::Batch) {
            // What the server has written before is not about this.
            self.aside.catch_up();
            self.overhear();
        }
        if let Some(headers) = headers {
            self.filter.try_with(|filter| filter.traced(stream, trace_of(headers)));
        }
        let payload = self.filter.client_message(now(), stream, message);
        if payload.is_empty() {
            return;
        }
        if let Some(upstream) = self.server.say(message, payload, headers) {
            let on = || format!("on {}", upstream.0.saturating_sub(UPSTREAM_STREAMS) + 1);
            self.filter.happens(None, on, |filter| filter.pair(stream, message, upstream));
        }
    }

    /// Takes what the server says, all that has come.
    pub(super) fn said(&mut self, said: FromServer) -> Step {
        let now = now();
        let mut next = Some(said);
        while let Some(said) = next {
            let fate = match said {
                FromServer::Done => {
                    self.reads_server = false;
                    return Step::ServerDone;
                }
                FromServer::Deaf => return self.server_written(false),
                FromServer::Raw(bytes) => {
                    self.clients.pass(bytes);
                    Disposition::Consumed
                }
                FromServer::Noise(text) => Disposition::NotAMessage(text),
                FromServer::Message(origin, message) => {
                    self.filter.server_message(now, origin, &message)
                }
                FromServer::Start(origin, piece) => {
                    let text = 0..piece.len();
                    self.filter.server_passing(now, origin, piece, text)
                }
                FromServer::Piece(origin, piece) => {
                    let text = 0..piece.len();
                    self.filter.server_piece(now, origin, piece, text)
                }
                FromServer::End(origin, whole) => self.passed(now, origin, whole),
                FromServer::Apart(apart) => self.answered_apart(now, *apart),
            };
            if let Disposition::NotAMessage(text) = fate
                && !self.passes
            {
                self.aside.put(text);
            }
            next = self.server.said();
        }
        Step::Moved
    }

    fn passed(&mut self, now: Instant, origin: Origin, whole: bool) -> Disposition {
        if whole {
            self.filter.server_passed(now, origin);
        } else {
            let why = "the server's message broke off before its end";
            self.filter.server_broke_off(now, origin, why);
        }
        Disposition::Consumed
    }

    fn answered_apart(&mut self, now: Instant, apart: Apart) -> Disposition {
        let answered = apart.id().and_then(|id| {
            let command = || format!("apart {}", String::from_utf8_lossy(&id.to_json()));
            let question = |filter: &mut Filter| filter.answered_apart(now, &id);
            self.filter.happens(Some(now), command, question).flatten()
        });
        if let Some((stream, id)) = answered {
            // What waits of its progress goes first.
            self.apart.push(apart.into_pieces(stream, id));
        }
        Disposition::Consumed
    }

    pub(super) fn piece_apart(&mut self, stream: StreamId, piece: Option<Bytes>) -> Step {
        let part = if piece.is_some() { Fragment::Piece } else { Fragment::End };
        if piece.is_none()
            && let Some(over) = self.apart.iter().position(|pieces| pieces.stream == stream)
        {
            self.apart.remove(over);
        }
        let payload = piece.unwrap_or_default().into();
        self.clients.give(stream, Transmit { payload, part });
        Step::Moved
    }
}
