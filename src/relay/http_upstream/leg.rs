//! The relay's leg towards a server over HTTP.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::{Instant, Sleep, sleep_until};

use super::client::{Reachability, UpstreamClient};
use super::target::UpstreamTarget;
use crate::progress::{Origin, Payload, StreamId};
use crate::protocol::jsonrpc::{Kind, Message, Scan, own_error};
use crate::relay::legs::{Backlog, ClientHeaders, FromServer, LegFact, MessagePart, ServerLeg};
use crate::transport::http::client::Sending;

/// Deadline for the server to end its session after the client has disconnected. The official SDKs kill the proxy after
/// 2 s.
const CLOSE_WAIT: Duration = Duration::from_millis(1500);

/// A server over HTTP.
pub struct HttpUpstreamLeg {
    client: UpstreamClient,
    /// The received part of a large client message.
    collecting: Option<(BytesMut, Scan, ClientHeaders)>,
    timer: Pin<Box<Sleep>>,
    closing: Option<(Sending, Pin<Box<Sleep>>)>,
}

impl HttpUpstreamLeg {
    /// Returns a leg towards `target`. It connects when the first message is sent.
    pub fn new(target: UpstreamTarget) -> Self {
        Self {
            client: UpstreamClient::new(target),
            collecting: None,
            timer: Box::pin(sleep_until(Instant::now())),
            closing: None,
        }
    }

    /// Returns whether the server has ever answered. The result can be used even after the leg was dropped.
    pub fn reachability(&self) -> Reachability {
        self.client.reachability()
    }

    /// Does all possible work until everything waits. With `reads`, also reads bodies until there is a message for the
    /// relay.
    fn drive(&mut self, cx: &mut Context<'_>, reads: bool) {
        let client = &mut self.client;
        loop {
            let mut moved = client.poll_heads(cx);
            moved |= client.poll_http_sse(cx, reads && client.inbox.is_empty());
            moved |= client.pump();
            if reads && client.inbox.is_empty() {
                moved |= client.poll_items(cx);
            }
            // Check times last, so that a server whose bytes have just arrived does not count as silent.
            let moved = moved || act_on_time(client, &mut self.timer, cx, reads);
            if !moved || (reads && !client.inbox.is_empty()) {
                return;
            }
        }
    }

    /// Adds a piece of a large client message.
    fn collect(&mut self, piece: &Bytes) {
        let Some((text, scan, _)) = &mut self.collecting else { return };
        scan.feed(piece);
        // If a message is too long, only its id is still searched for.
        if text.len() <= self.client.target.message_max {
            text.extend_from_slice(piece);
        }
    }

    /// Sends a large client message that has arrived completely.
    fn send_collected(&mut self) {
        let Some((text, scan, headers)) = self.collecting.take() else { return };
        let max = self.client.target.message_max;
        let message = Message::parse(text.freeze());
        if message.raw().len() <= max {
            self.client.send(message, &headers);
            return;
        }
        let why = format!("the message is longer than {max} bytes");
        tracing::warn!(why, "a message of the client is not sent");
        if let Some(id) = scan.id().filter(|_| scan.kind() == Kind::Request) {
            let error = Message::parse(own_error(&id.to_json(), &why, Some(413)));
            self.client.inbox.push_from(Origin::Shared, error);
        }
    }
}

/// Does the work that is due, and sets the timer for the next time.
fn act_on_time(
    client: &mut UpstreamClient,
    timer: &mut Pin<Box<Sleep>>,
    cx: &mut Context<'_>,
    reads: bool,
) -> bool {
    let mut moved = false;
    // A server does not count as silent while Milepost does not read.
    let idle = client.target.idle.filter(|_| reads);
    while let Some(due) = client.next_due(idle) {
        if timer.deadline() != due {
            timer.as_mut().reset(due);
        }
        if timer.as_mut().poll(cx).is_pending() {
            break;
        }
        client.act(due, idle);
        moved = true;
    }
    moved
}

impl ServerLeg for HttpUpstreamLeg {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<FromServer> {
        if self.client.inbox.is_empty() {
            self.drive(cx, true);
        }
        self.client.pop().map_or(Poll::Pending, Poll::Ready)
    }

    fn try_receive(&mut self) -> Option<FromServer> {
        self.client.pop()
    }

    fn send(
        &mut self,
        message: Option<&Message>,
        payload: Payload,
        headers: &ClientHeaders,
    ) -> Option<StreamId> {
        let text = payload.to_bytes();
        // Parse the message again only if the filter has changed it.
        let as_sent = message.filter(|message| text == *message.raw()).cloned();
        let message = as_sent.unwrap_or_else(|| Message::parse(text));
        self.client.send(message, headers)
    }

    fn send_part(&mut self, part: MessagePart, headers: &ClientHeaders) {
        match part {
            MessagePart::Start(piece) => {
                self.collecting = Some((BytesMut::new(), Scan::default(), headers.clone()));
                self.collect(&piece);
            }
            MessagePart::Piece(piece) => self.collect(&piece),
            MessagePart::End => self.send_collected(),
            // Drop the message, of which nothing has been sent.
            MessagePart::BrokenOff => self.collecting = None,
            // This leg does not support raw mode.
            MessagePart::Raw(_) => {}
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        self.drive(cx, false);
        if self.client.is_sending() { Poll::Pending } else { Poll::Ready(true) }
    }

    fn backlog(&self) -> Backlog {
        Backlog::of(self.client.is_sending(), self.client.is_behind())
    }

    fn enter_raw_mode(&mut self) -> bool {
        false
    }

    fn note(&mut self, _: &LegFact) {}

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.closing.is_none() {
            self.stop();
            let Some(farewell) = self.client.end_session() else { return Poll::Ready(()) };
            let patience = sleep_until(Instant::now() + CLOSE_WAIT);
            self.closing = Some((farewell, Box::pin(patience)));
        }
        let Some((farewell, patience)) = &mut self.closing else { return Poll::Ready(()) };
        // Ignore the status: a server that does not end sessions answers 405, which is allowed.
        if farewell.as_mut().poll(cx).is_pending() && patience.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.closing = None;
        Poll::Ready(())
    }

    fn stop(&mut self) {
        self.collecting = None;
        self.client.stop();
    }
}
