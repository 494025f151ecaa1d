//! The leg towards a server that has a modern face.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep, sleep_until};

use super::ModernFace;
use crate::progress::{Payload, StreamId};
use crate::protocol::jsonrpc::{Kind, Message, Scan};
use crate::relay::legs::{Backlog, ClientHeaders, FromServer, LegFact, MessagePart, ServerLeg};

/// A leg, and the modern face of its server.
pub struct FaceLeg<L> {
    leg: L,
    face: ModernFace,
    /// A large answer that is being forwarded in pieces.
    passing: Option<Scan>,
    /// The number of waiting tasks and questions that the relay was last told.
    in_use: usize,
    timer: Pin<Box<Sleep>>,
}

impl<L: ServerLeg> FaceLeg<L> {
    /// Puts `face` in front of `leg`.
    pub fn new(leg: L, face: ModernFace) -> Self {
        let timer = Box::pin(sleep_until(Instant::now()));
        Self { leg, face, passing: None, in_use: 0, timer }
    }

    /// Returns the leg without its face.
    pub fn inner(&mut self) -> &mut L {
        &mut self.leg
    }

    /// Sends the messages that the face has for the server.
    fn send_waiting(&mut self) {
        while let Some(out) = self.face.next_to_server() {
            let payload = out.message.raw().clone().into();
            let stream = self.leg.send(Some(&out.message), payload, &out.headers);
            if let (Some(request), Some(stream)) = (out.request, stream) {
                self.face.note_stream(&request, stream);
            }
        }
    }

    fn intercept(&mut self, received: FromServer) -> Option<FromServer> {
        match &received {
            FromServer::Start(_, piece) => self.passing.insert(Scan::default()).feed(piece),
            FromServer::Piece(_, piece) => {
                self.passing.iter_mut().for_each(|scan| scan.feed(piece));
            }
            FromServer::End(..) => {
                // Only answers matter, because other large messages have no id that the client knows.
                let scan = self.passing.take().filter(|scan| scan.kind() == Kind::Response);
                if let Some(key) = scan.and_then(|scan| scan.id()) {
                    self.face.passed_in_pieces(&key, Instant::now());
                }
            }
            _ => {}
        }
        let kept = self.face.intercept(received, Instant::now());
        self.send_waiting();
        kept
    }

    fn own(&mut self) -> Option<FromServer> {
        let face = &mut self.face;
        if let Some(news) = face.news.pop_front() {
            return Some(FromServer::Task(Box::new(news)));
        }
        let in_use = face.held();
        if std::mem::replace(&mut self.in_use, in_use) != in_use {
            return Some(FromServer::InUse(in_use));
        }
        // No other message may be written between two pieces of a message.
        if self.passing.is_none() { face.next_own() } else { None }
    }

    /// Does the work that is due. Returns false if none is due.
    fn poll_due(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(due) = self.face.next_due() else { return false };
        if self.timer.deadline() != due {
            self.timer.as_mut().reset(due);
        }
        if self.timer.as_mut().poll(cx).is_pending() {
            return false;
        }
        self.face.act(due.max(Instant::now()));
        self.send_waiting();
        true
    }
}

impl<L: ServerLeg> ServerLeg for FaceLeg<L> {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<FromServer> {
        loop {
            if let Some(own) = self.own() {
                return Poll::Ready(own);
            }
            match self.leg.poll_receive(cx) {
                Poll::Ready(received) => {
                    if let Some(received) = self.intercept(received) {
                        return Poll::Ready(received);
                    }
                }
                Poll::Pending if self.poll_due(cx) => {}
                Poll::Pending => return Poll::Pending,
            }
            if self.leg.backlog().is_writing() {
                // The face may have queued a message for the server. Wake the task, so that the message is written.
                cx.waker().wake_by_ref();
            }
        }
    }

    fn try_receive(&mut self) -> Option<FromServer> {
        loop {
            if let Some(own) = self.own() {
                return Some(own);
            }
            let received = self.leg.try_receive()?;
            if let Some(received) = self.intercept(received) {
                return Some(received);
            }
        }
    }

    fn send(
        &mut self,
        message: Option<&Message>,
        payload: Payload,
        headers: &ClientHeaders,
    ) -> Option<StreamId> {
        let sent = Message::parse(payload.to_bytes());
        if !self.face.take(sent.clone(), headers, Instant::now()) {
            return self.leg.send(message, payload, headers);
        }
        self.send_waiting();
        self.face.stream_of(&sent.id_key()?)
    }

    fn send_part(&mut self, part: MessagePart, headers: &ClientHeaders) {
        self.leg.send_part(part, headers);
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        self.leg.poll_flush(cx)
    }

    fn backlog(&self) -> Backlog {
        self.leg.backlog()
    }

    fn enter_raw_mode(&mut self) -> bool {
        // Raw mode would forward bytes without reading them, but the face changes and adds messages.
        false
    }

    fn note(&mut self, fact: &LegFact) {
        if let LegFact::Policy(policy) = fact {
            self.face.policy = Arc::clone(policy);
        }
        self.leg.note(fact);
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.leg.poll_close(cx)
    }

    fn stop(&mut self) {
        self.leg.stop();
    }
}
