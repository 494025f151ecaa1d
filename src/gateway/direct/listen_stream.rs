//! A GET stream of a session: a message for a request with a stream of its own moves to that
//! stream; every other message gets its verdict and stays on the GET stream.

use std::sync::Arc;
use std::task::Context;

use bytes::Bytes;

use super::mailbox::Mail;
use super::session::{ListenDelivery, SessionStream};
use crate::gateway::direct::event_stream::EventHandler;
use crate::progress::input::Input;
use crate::progress::{Origin, Policy, StreamId, Transmit};
use crate::protocol::jsonrpc::{Kind, Message};
use crate::protocol::sse::{COMMENT, SseEvent};
use crate::relay::filter_guard::FilterGuard;
use crate::transport::clock::now;
use crate::transport::http::body::Batch;
use crate::transport::http::client::UpstreamError;
use crate::transport::mcp_http::event_ids::EventIds;
use crate::transport::mcp_http::event_message::{divided, is_part, is_stray, message_in};

/// The handler of a stream on which the client listens.
pub(crate) struct Listening {
    member: SessionStream,
    observing: bool,
    event_ids: EventIds,
}

impl Listening {
    pub(crate) fn new(member: SessionStream, policy: &Policy) -> Self {
        Self { member, observing: policy.observes(), event_ids: EventIds::default() }
    }

    /// The same stream, which its client resumes.
    pub(crate) fn resumed(mut self) -> Self {
        self.event_ids = EventIds::resumed();
        self
    }

    /// Returns the number of the stream in its session.
    pub(crate) fn stream(&self) -> StreamId {
        self.member.stream
    }
}

impl EventHandler for Listening {
    fn origin(&self) -> Origin {
        Origin::Stream(self.member.stream)
    }

    fn with_filter<T>(&mut self, question: impl FnOnce(&mut FilterGuard) -> T) -> T {
        self.member.session.with_filter(question)
    }

    fn observes(&self) -> bool {
        self.observing
    }

    fn skips_large(&self) -> bool {
        self.observing
    }

    fn event(&mut self, event: &SseEvent, out: &mut Batch) {
        if let Some(id) = event.id() {
            let (session, stream) = (&self.member.session, self.member.stream);
            let sent_value = session.with_filter(|filter| {
                filter.try_with(|filter| filter.calls().open().value_on(stream))
            });
            self.member.note_id(id, sent_value.flatten());
        }
        let member = &self.member;
        let origin = Origin::Stream(member.stream);
        let rename = || member.session.with_filter(|filter| filter.repairs_event_name(origin));
        let message = if self.observing { None } else { message_in(event, rename) };
        let Some(message) = message else {
            let withhold = |filter: &mut FilterGuard| filter.withhold_noise(now(), origin);
            let is_withheld =
                !self.observing && is_stray(event) && member.session.with_filter(withhold);
            self.collect(out);
            if is_withheld {
                let revision = self.member.session.revision();
                out.raw(&Bytes::from_static(COMMENT));
                self.event_ids.keep_remaining_fields(event, revision, out);
            } else {
                self.event_ids.note_forwarded(event);
                out.raw(&event.raw);
            }
            return;
        };
        let is_mixed = |message: &Message| member.shares(message);
        let (parts, message) = divided(message, self.member.session.revision(), is_mixed);
        for part in &parts {
            if self.member.session.receive(self.member.stream, part, None) == ListenDelivery::Passes
            {
                self.collect(out);
                out.transmit(&Transmit::of(part));
            }
        }
        let is_answer = message.kind() == Kind::Response;
        let repaired = is_answer.then(|| self.member.session.repaired(&message)).flatten();
        match self.member.session.receive(self.member.stream, &message, Some(event)) {
            ListenDelivery::Passes if let Some(repaired) = &repaired => {
                self.collect(out);
                self.event_ids.note_forwarded(event);
                out.transmit(repaired);
            }
            ListenDelivery::Passes if is_part(&message) || message.is_renamed() => {
                self.collect(out);
                self.event_ids.note_forwarded(event);
                out.transmit(&Transmit::of(&message));
            }
            ListenDelivery::Passes => {
                self.collect(out);
                self.event_ids.note_forwarded(event);
                out.raw(&event.raw);
            }
            ListenDelivery::Moved => {
                let revision = self.member.session.revision();
                self.collect(out);
                self.event_ids.keep_remaining_fields(event, revision, out);
            }
            ListenDelivery::Taken(number) => {
                if self.event_ids.insert(number, event) {
                    self.collect(out);
                }
            }
        }
    }

    fn end_large(&mut self, out: &mut Batch) {
        self.member.session.end_large(self.member.stream);
        self.collect(out);
    }

    fn collect(&mut self, out: &mut Batch) {
        let session = &self.member.session;
        let judged = session.collect(self.member.stream, out);
        if judged.is_empty() {
            return;
        }
        let revision = session.revision();
        for (number, withheld) in judged {
            if withheld {
                self.event_ids.note_withheld(number, revision, Some(out));
            } else {
                self.event_ids.note_passed(number);
            }
        }
    }

    fn timeout(&self) -> Option<std::time::Instant> {
        let stream = self.member.stream;
        self.member.session.with_filter(|filter| filter.poll_stream_timeout(stream))
    }

    fn listen(&mut self, cx: &mut Context<'_>) {
        self.member.register(cx);
    }

    fn drain_mailbox(&mut self, out: &mut Batch) {
        let mailbox = Arc::clone(&self.member.mailbox);
        // Only events are written on a stream on which the client listens; its other mail is not needed.
        while let Some(mail) = mailbox.take() {
            if let Mail::Event(event) = mail {
                self.collect(out);
                out.raw(&event);
            }
        }
    }

    fn ended(&mut self, _: Option<&UpstreamError>, out: &mut Batch) {
        // Messages that still wait are written now, because the stream closes.
        self.member.session.with_filter(|filter| filter.apply(now(), Input::Flush));
        self.collect(out);
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.member.stop_listening();
    }
}
