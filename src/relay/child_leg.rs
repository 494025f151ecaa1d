//! The leg towards a child process: lines on a pipe, with optional parts that examine the messages. A part is absent if
//! this child does not need it.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::progress::{Origin, Payload, StreamId};
use crate::protocol::jsonrpc::Message;
use crate::relay::Pipe;
use crate::relay::cached_start::{CachedStart, HeldMessage};
use crate::relay::discover_probe::{DiscoverProbe, Era};
use crate::relay::legs::{Backlog, ClientHeaders, FromServer, LegFact, MessagePart, ServerLeg};
use crate::relay::spool::{SpillLimits, SpoolLarge};

/// A server behind a pipe.
pub struct ChildLeg {
    pipe: Pipe,
    /// Watches whether the server answers its client's first `server/discover`; absent once that is settled.
    probe: Option<Box<DiscoverProbe>>,
    /// Keeps large messages in files, if several clients share the server.
    spool: Option<SpoolLarge>,
    /// Answers in the server's place while the server starts.
    start: Option<CachedStart>,
}

impl ChildLeg {
    /// Returns the leg over `pipe`. `era` is the known era of the server, and is updated from its answers. With
    /// `spill`, messages that come in pieces are kept in files within these limits; beyond them the caller gets an
    /// error.
    pub fn new(pipe: Pipe, era: Arc<Era>, spill: Option<SpillLimits>) -> Self {
        Self {
            pipe,
            probe: Some(Box::new(DiscoverProbe::new(era))),
            spool: spill.map(SpoolLarge::new),
            start: None,
        }
    }

    /// Uses the answers of the server's last start while the server starts, if `start` has them.
    #[must_use]
    pub(crate) fn with_start(mut self, start: Option<CachedStart>) -> Self {
        self.start = start;
        self
    }

    /// Whether the server ended when it got `server/discover`. The client then gets the error for an unknown method,
    /// and a new server replaces this one.
    pub fn has_failed(&mut self) -> bool {
        self.probe.as_mut().is_some_and(|probe| probe.has_failed())
    }

    /// Returns the number of bytes of the server that were read so far.
    pub fn bytes_read(&self) -> u64 {
        self.pipe.bytes_read()
    }

    /// Replaces the ended server by a new one.
    pub fn replace(&mut self, pipe: Pipe) {
        self.pipe = pipe;
        self.spool = self.spool.take().map(SpoolLarge::afresh);
        let Some(probe) = &mut self.probe else { return };
        for payload in probe.take_unanswered() {
            self.pipe.send(None, payload, &None);
        }
    }

    fn intercept(&mut self, received: FromServer) -> Option<FromServer> {
        // `spool` comes first, because the other parts handle only whole messages.
        let kept = match &mut self.spool {
            Some(spool) => spool.intercept(received, &mut self.pipe)?,
            None => received,
        };
        let kept = match &mut self.probe {
            Some(probe) => {
                let kept = probe.intercept(kept);
                self.drop_settled();
                kept?
            }
            None => kept,
        };
        let Some(start) = &mut self.start else { return Some(kept) };
        let kept = start.intercept(kept);
        self.send_released();
        kept
    }

    /// Sends the messages that waited until the server had started.
    fn send_released(&mut self) {
        while let Some(held) = self.start.as_mut().and_then(CachedStart::release) {
            match held {
                HeldMessage::Whole(whole) => {
                    let (message, payload) = *whole;
                    if self.note_sent(message.as_ref(), &payload) {
                        self.pipe.send(message.as_ref(), payload, &None);
                    }
                }
                HeldMessage::Part(part) => self.pass_part(part),
            }
        }
    }

    /// Whether a message is to be sent to the server.
    fn note_sent(&mut self, message: Option<&Message>, payload: &Payload) -> bool {
        let Some(probe) = &mut self.probe else { return true };
        let goes = probe.note_sent(message, payload);
        self.drop_settled();
        goes
    }

    /// Forgets the messages kept for a second server, because the running server will not be replaced any more.
    fn settle(&mut self) {
        if let Some(probe) = &mut self.probe {
            probe.settle();
            self.drop_settled();
        }
    }

    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> bool {
        self.probe.as_mut().is_some_and(|probe| probe.poll_deadline(cx))
    }

    /// Drops the probe once client and server have agreed on a revision, because it needs no later messages.
    fn drop_settled(&mut self) {
        self.probe.take_if(|probe| probe.is_settled());
    }

    fn pass_part(&mut self, part: MessagePart) {
        if matches!(part, MessagePart::Start(_)) {
            self.settle();
        }
        self.pipe.send_part(part, &None);
    }

    fn poll_server(&mut self, cx: &mut Context<'_>) -> Poll<FromServer> {
        loop {
            if let Some(spool) = &mut self.spool {
                ready!(spool.poll_write(cx));
            }
            let received = ready!(self.pipe.poll_receive(cx));
            if let Some(received) = self.intercept(received) {
                return Poll::Ready(received);
            }
            if let Some(own) = self.own() {
                return Poll::Ready(own);
            }
            if self.pipe.backlog().is_writing() {
                // A part may have queued a message for the server. Wake the task, so that the message is written.
                cx.waker().wake_by_ref();
            }
        }
    }

    fn own(&mut self) -> Option<FromServer> {
        let start = || self.start.as_mut().and_then(CachedStart::next_own);
        let asked = self.probe.as_mut().and_then(|probe| probe.own.take());
        let own = asked.or_else(start);
        own.map(|own| FromServer::Message(Origin::Shared, own))
    }
}

impl ServerLeg for ChildLeg {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<FromServer> {
        loop {
            if let Some(own) = self.own() {
                return Poll::Ready(own);
            }
            match self.poll_server(cx) {
                Poll::Pending if self.poll_deadline(cx) => {}
                received => return received,
            }
        }
    }

    fn try_receive(&mut self) -> Option<FromServer> {
        if let Some(own) = self.own() {
            return Some(own);
        }
        while !self.spool.as_ref().is_some_and(SpoolLarge::is_writing) {
            let received = self.pipe.try_receive()?;
            if let Some(received) = self.intercept(received) {
                return Some(received);
            }
        }
        None
    }

    fn send(
        &mut self,
        message: Option<&Message>,
        payload: Payload,
        headers: &ClientHeaders,
    ) -> Option<StreamId> {
        let waits = self.start.as_mut().is_some_and(|start| !start.note_sent(message, &payload));
        let goes = !waits && self.note_sent(message, &payload);
        if goes { self.pipe.send(message, payload, headers) } else { None }
    }

    fn send_part(&mut self, part: MessagePart, _: &ClientHeaders) {
        // Parts of large messages wait until the server has started.
        let goes = self.start.as_mut().is_none_or(|start| start.note_part(&part));
        if goes {
            self.pass_part(part);
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        // Nothing can be written now: the waiting bytes follow after the server has answered.
        if self.pipe.backlog().is_writing() { self.pipe.poll_flush(cx) } else { Poll::Pending }
    }

    fn backlog(&self) -> Backlog {
        let own = self.start.as_ref();
        let own = own.map(|start| Backlog::of(start.is_holding(), start.is_behind()));
        self.pipe.backlog().max(own.unwrap_or(Backlog::Empty))
    }

    fn enter_raw_mode(&mut self) -> bool {
        let is_raw = self.spool.is_none() && self.start.is_none() && self.pipe.enter_raw_mode();
        if is_raw {
            // In raw mode Milepost cannot answer in the server's place.
            self.settle();
        }
        is_raw
    }

    fn note(&mut self, fact: &LegFact) {
        if let (LegFact::StderrActivity, Some(probe)) = (fact, &mut self.probe) {
            probe.awake = true;
        }
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.pipe.poll_close(cx)
    }

    fn stop(&mut self) {
        self.pipe.stop();
    }
}
