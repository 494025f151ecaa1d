//! The leg towards a server that may have a modern face.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::time::{Instant, Sleep, sleep_until};

use super::ModernFace;
use crate::progress::{Payload, Policy, StreamId, TaskNews};
use crate::protocol::jsonrpc::{Kind, Message, Scan};
use crate::relay::legs::{ClientHeaders, FromServer, ServerLeg};

/// A leg, and the modern face of its server, if the server has one.
pub struct FaceLeg<L> {
    leg: L,
    face: Option<ModernFace>,
    /// An answer that passes in pieces.
    passing: Option<Scan>,
    timer: Pin<Box<Sleep>>,
}

impl<L: ServerLeg> FaceLeg<L> {
    /// `leg` behind `face`.
    pub fn new(leg: L, face: Option<ModernFace>) -> Self {
        let timer = Box::pin(sleep_until(Instant::now()));
        Self { leg, face, passing: None, timer }
    }

    /// The leg without its face.
    pub fn inner(&mut self) -> &mut L {
        &mut self.leg
    }

    /// Sends what the face has for the server.
    fn send_waiting(&mut self) {
        let Some(face) = &mut self.face else { return };
        while let Some(out) = face.next_to_server() {
            let payload = out.message.raw().clone().into();
            let stream = self.leg.send(Some(&out.message), payload, &out.headers);
            if let (Some(request), Some(stream)) = (out.request, stream) {
                face.note_stream(&request, stream);
            }
        }
    }

    fn intercept(&mut self, received: FromServer) -> Option<FromServer> {
        let Some(face) = &mut self.face else { return Some(received) };
        match &received {
            FromServer::Start(_, piece) => self.passing.insert(Scan::default()).feed(piece),
            FromServer::Piece(_, piece) => {
                self.passing.iter_mut().for_each(|scan| scan.feed(piece));
            }
            FromServer::End(..) => {
                let scan = self.passing.take().filter(|scan| scan.kind() == Kind::Response);
                if let Some(key) = scan.and_then(|scan| scan.id()) {
                    face.passed_in_pieces(&key, Instant::now());
                }
            }
            _ => {}
        }
        let kept = face.intercept(received, Instant::now());
        self.send_waiting();
        kept
    }

    fn own(&mut self) -> Option<FromServer> {
        // Nothing comes between the pieces of a message.
        self.face.as_mut().filter(|_| self.passing.is_none()).and_then(ModernFace::next_own)
    }

    /// Does what is due; false if nothing is.
    fn poll_due(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(due) = self.face.as_ref().and_then(ModernFace::next_due) else { return false };
        if self.timer.deadline() != due {
            self.timer.as_mut().reset(due);
        }
        if self.timer.as_mut().poll(cx).is_pending() {
            return false;
        }
        if let Some(face) = &mut self.face {
            face.act(due.max(Instant::now()));
        }
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
            if self.leg.is_writing() {
                // The server was told something just now.
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
        let Some(face) = &mut self.face else { return self.leg.send(message, payload, headers) };
        let sent = Message::parse(payload.to_bytes());
        if !face.take(sent.clone(), headers, Instant::now()) {
            return self.leg.send(message, payload, headers);
        }
        self.send_waiting();
        self.face.as_ref()?.stream_of(&sent.id_key()?)
    }

    fn send_start(&mut self, piece: Bytes, headers: &ClientHeaders) {
        self.leg.send_start(piece, headers);
    }

    fn send_piece(&mut self, piece: Bytes) {
        self.leg.send_piece(piece);
    }

    fn send_end(&mut self) {
        self.leg.send_end();
    }

    fn break_off(&mut self) {
        self.leg.break_off();
    }

    fn send_raw(&mut self, bytes: Bytes) {
        self.leg.send_raw(bytes);
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        self.leg.poll_flush(cx)
    }

    fn is_writing(&self) -> bool {
        self.leg.is_writing()
    }

    fn is_behind(&self) -> bool {
        self.leg.is_behind()
    }

    fn enter_raw_mode(&mut self) -> bool {
        self.face.is_none() && self.leg.enter_raw_mode()
    }

    fn stderr_activity(&mut self) {
        self.leg.stderr_activity();
    }

    fn held(&self) -> usize {
        self.face.as_ref().map_or(0, ModernFace::held)
    }

    fn set_policy(&mut self, policy: &Arc<Policy>) {
        self.face.iter_mut().for_each(|face| face.policy = Arc::clone(policy));
    }

    fn next_task_news(&mut self) -> Option<TaskNews> {
        self.face.as_mut()?.news.pop_front()
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.leg.poll_close(cx)
    }

    fn stop(&mut self) {
        self.leg.stop();
    }
}
