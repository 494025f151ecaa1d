//! A GET stream of a session: what it brings for a request that has a stream of its own goes there;
//! the rest is judged and passed where it came.

use std::sync::Arc;
use std::task::Context;

use super::mailbox::Mail;
use super::session::{ListenDelivery, SessionStream};
use crate::gateway::direct::event_stream::{EventHandler, passed_on};
use crate::progress::input::Input;
use crate::progress::{Disposition, Origin, StreamId};
use crate::protocol::sse::{Event, Piece};
use crate::transport::clock::now;
use crate::transport::http::body::Batch;
use crate::transport::http::client::UpstreamError;
use crate::transport::mcp_http::event_ids::{EventIds, has_id_or_retry};
use crate::transport::mcp_http::event_message::{message_in, text_of};

/// A stream on which the client listens.
pub(crate) struct Listening {
    member: SessionStream,
    observing: bool,
    marks: EventIds,
}

impl Listening {
    /// `replays`: the client has come back for what it missed.
    pub(crate) fn new(member: SessionStream, observing: bool, replays: bool) -> Self {
        let marks = if replays { EventIds::resumed() } else { EventIds::default() };
        Self { member, observing, marks }
    }

    /// Its number in its session.
    pub(crate) fn stream(&self) -> StreamId {
        self.member.stream
    }

    fn origin(&self) -> Origin {
        Origin::Stream(self.member.stream)
    }
}

impl EventHandler for Listening {
    fn event(&mut self, event: &Event, out: &mut Batch) {
        let message = message_in(event).filter(|_| !self.observing);
        let Some(message) = message else {
            self.collect(out);
            self.marks.passed(event);
            out.raw(&event.raw);
            return;
        };
        match self.member.session.heard(self.member.stream, &message, has_id_or_retry(event)) {
            ListenDelivery::Passes => {
                self.collect(out);
                self.marks.passed(event);
                out.raw(&event.raw);
            }
            ListenDelivery::Moved => {
                let revision = self.member.session.revision();
                self.collect(out);
                self.marks.keep_the_rest(event, revision, out);
            }
            ListenDelivery::Taken(number) => self.marks.put(number, event),
        }
    }

    fn passing(&mut self, piece: &Piece, out: &mut Batch) -> bool {
        self.collect(out);
        if self.observing {
            out.raw(&piece.raw);
            return true;
        }
        let (origin, text, raw) = (self.origin(), text_of(piece), piece.raw.clone());
        let fate = self.member.session.ask(|filter| filter.begin_large(now(), origin, raw, text));
        passed_on(self, false, &fate, piece, out);
        matches!(fate, Disposition::NotAMessage(_))
    }

    fn piece(&mut self, piece: &Piece, out: &mut Batch) {
        if self.observing {
            return out.raw(&piece.raw);
        }
        let (origin, text, raw) = (self.origin(), text_of(piece), piece.raw.clone());
        let fate = self.member.session.ask(|filter| filter.large_piece(now(), origin, raw, text));
        passed_on(self, false, &fate, piece, out);
    }

    fn passed(&mut self, out: &mut Batch) {
        let origin = self.origin();
        self.member.session.ask(|filter| filter.finish_large(now(), origin, None));
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
            self.marks.judged(number, withheld, revision, Some(out));
        }
    }

    fn slow(&mut self, slow: bool) {
        self.member.session.ask(|filter| filter.apply(now(), Input::Slow(slow)));
    }

    fn timeout(&self) -> Option<std::time::Instant> {
        let stream = self.member.stream;
        self.member.session.ask(|filter| filter.poll_stream_timeout(stream))
    }

    fn listen(&mut self, cx: &mut Context<'_>) {
        self.member.register(cx);
    }

    fn look_around(&mut self, out: &mut Batch) {
        let mailbox = Arc::clone(&self.member.mailbox);
        while let Some(mail) = mailbox.take() {
            if let Mail::Event(event) = mail {
                self.collect(out);
                out.raw(&event);
            }
        }
    }

    fn ended(&mut self, _: Option<&UpstreamError>, out: &mut Batch) {
        self.collect(out);
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.member.stop_listening();
    }
}
