//! An exchange whose client gets a single JSON body: progress must use another stream.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;
use tokio::time::{Instant, timeout_at};

use super::server_messages::Handled;
use super::{Exchange, drain};
use crate::gateway::direct::event_stream::EventHandler;
use crate::progress::{Payload, StreamId, Transmit, TransmitKind};
use crate::protocol::jsonrpc::{Kind, Message};
use crate::transport::clock::now;
use crate::transport::http::body::Batch;

/// The time for which an answer waits after progress on another stream, so that a client reads the two in the server's
/// order.
const PROGRESS_AHEAD: Duration = Duration::from_millis(10);

/// How progress reaches a client whose POST has no stream.
#[derive(Default)]
pub(super) struct Detour {
    /// The stream on which progress arrived last.
    pub(super) stream: Option<StreamId>,
    /// The time at which progress was last written to `stream`.
    written: Option<Instant>,
}

impl Exchange {
    /// Completes when progress of the requests has arrived on another stream or is due, for a client whose POST has no
    /// stream. Returns the answers if an operator has cancelled the requests.
    pub(crate) async fn next_progress(&mut self) -> Option<Vec<Bytes>> {
        loop {
            let due = if self.detour.stream.is_some() { self.progress_due() } else { None };
            // A future that held the filter could not be sent to another thread.
            let inbox = self.filter.cancellations();
            let filled = poll_fn(|cx| match (inbox, &self.member) {
                (Some(inbox), _) if inbox.poll_filled(cx).is_ready() => Poll::Ready(true),
                (_, Some(member)) => member.mailbox.poll_progress(cx).map(|()| false),
                (_, None) => Poll::Pending,
            });
            let is_cancelled = match due {
                Some(due) => timeout_at(due.into(), filled).await.unwrap_or_default(),
                None => filled.await,
            };
            if !is_cancelled {
                return None;
            }
            if let Some(answers) = self.cancel_calls() {
                return Some(answers);
            }
        }
    }

    /// Cancels the calls that operators have asked to cancel. Returns the answers, or `None` while a request of the
    /// POST is still open, because all answers go into one body.
    fn cancel_calls(&mut self) -> Option<Vec<Bytes>> {
        self.filter.cancel_calls();
        self.note(None);
        let mut answers = Vec::new();
        if self.filter.open_calls() == 0 {
            self.take_answers(&mut answers);
        }
        Some(answers).filter(|answers| !answers.is_empty())
    }

    /// Returns when waiting progress may be written. `None` if there is none, or if a request will be over by then.
    fn progress_due(&mut self) -> Option<std::time::Instant> {
        self.filter.try_with(|filter| filter.calls().open().progress_due()).flatten()
    }

    /// Whether the client can get progress of a request.
    pub(crate) fn has_token(&mut self) -> bool {
        self.filter.try_with(|filter| !filter.calls().open().tokens().is_empty()) == Some(true)
    }

    /// Takes progress that arrived on another stream and writes it to that stream, because the client's POST has no
    /// stream.
    pub(crate) fn write_elsewhere(&mut self) {
        let mut out = Batch::default();
        self.drain_mailbox(&mut out);
        if self.progress_due().is_some() {
            self.collect(&mut out);
        }
        self.write_on_detour(out);
    }

    pub(super) fn write_on_detour(&mut self, mut out: Batch) {
        let (Some(member), Some(stream)) = (&self.member, self.detour.stream) else { return };
        while let Some(event) = out.take() {
            member.session.write_on(stream, event);
            self.detour.written = Some(Instant::now());
        }
    }

    /// Returns the time from which the answer may follow progress that was written on another stream.
    pub(crate) fn answer_due(&self) -> Option<Instant> {
        Some(self.detour.written? + PROGRESS_AHEAD)
    }

    /// Returns the body of a JSON answer as the client gets it; `None` if the server's body is used unchanged.
    pub(crate) fn body(&mut self, body: &Bytes) -> Option<Bytes> {
        let message = Message::parse(body.clone());
        self.last_read = now();
        let handled = self.judge(&message, &mut Batch::default());
        self.end_response();
        let mut payloads: SmallVec<[Payload; 1]> = SmallVec::new();
        let mut answer = None;
        drain(&mut self.filter, now(), |Transmit { payload, kind, .. }| {
            if matches!(kind, TransmitKind::Answer(_)) {
                answer = Some(payloads.len());
            }
            payloads.push(payload);
        });
        if let Handled::AsItIs(instead) = handled {
            // The request has ended or belongs to another stream, but its answer is still the body.
            self.filter.forward_last(now(), super::OWN, &message);
            answer = Some(payloads.len());
            payloads.push(instead.unwrap_or_else(|| Transmit::of(&message)).payload);
        }
        // Progress that waited would be written together with its answer, but the body has only one message.
        if message.kind() != Kind::Batch && payloads.len() > 1 {
            let only = payloads.remove(answer.unwrap_or(payloads.len() - 1));
            let mut others = Batch::default();
            payloads.drain(..).for_each(|payload| others.own(&payload));
            payloads.push(only);
            self.write_on_detour(others);
        }
        self.note(None);
        if self.observing {
            return None;
        }
        match &payloads[..] {
            // An HTTP response needs a body even if the filter withholds the message, because its client reads the body
            // although the request is over.
            [] => {
                let legible = self.filter.try_with(|filter| filter.calls().legible(&message));
                legible.flatten().map(|message| message.raw().clone())
            }
            [only] => Some(only.to_bytes()).filter(|only| only != body),
            several => {
                let texts: Vec<Bytes> = several.iter().map(Payload::to_bytes).collect();
                Some(Bytes::from([b"[", &texts.join(&b","[..])[..], b"]"].concat()))
            }
        }
    }
}
