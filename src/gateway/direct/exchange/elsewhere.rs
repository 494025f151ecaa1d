//! Answers that come on the GET stream of the session: the server has accepted the requests of a POST, but sends
//! nothing in the response.

use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{Exchange, drain};
use crate::gateway::direct::event_stream::EventHandler;
use crate::progress::TransmitKind;
use crate::progress::input::Input;
use crate::transport::clock::now;
use crate::transport::http::body::Batch;
use crate::transport::http::in_flight::InFlightGuard;

/// Time without any GET stream of the session after which a request whose answer would come there gets an error. It is
/// long, because clients reopen a broken stream within seconds.
const ABSENT_MAX: Duration = Duration::from_secs(60);

/// The interval of checks whether the session has a GET stream.
const LOOK: Duration = Duration::from_secs(5);

/// The error for a request whose answer can no longer come.
const NO_STREAM: &str = "the server took the request, said nothing in its response, and the GET stream for the answer is closed";

/// The error for a request whose answer has come on the stream that Milepost itself reads.
const TOO_LARGE: &str =
    "the server's answer came on the GET stream, and is too large to be moved to the response";

/// The state of a response that waits for messages on another stream.
pub(super) struct Elsewhere {
    /// The last time at which the session had a GET stream.
    seen: Instant,
    looked: Instant,
}

impl Elsewhere {
    pub(super) fn next_look(&self) -> Instant {
        self.looked + LOOK
    }
}

impl Exchange {
    /// Whether the session has a GET stream, opened by its client or by Milepost in the client's place.
    pub(crate) fn has_listener(&self) -> bool {
        self.member.as_ref().is_some_and(|member| member.session.is_listening())
    }

    /// Whether the answers of the requests may come on the GET stream, which 2026-07-28 does not have.
    pub(crate) fn may_be_answered_elsewhere(&self) -> bool {
        self.member.is_some() && !self.modern && !self.observing && self.elsewhere.is_none()
    }

    /// Whether the response of the server is empty so far, so that the answers may come on another stream.
    pub(crate) fn is_unheard(&self) -> bool {
        !self.is_heard
            && !self.resumable
            && self.may_be_answered_elsewhere()
            && self.filter.open_calls() > 0
    }

    /// Expects the answers on the GET stream from now on. They belong to this response, which ends with the last one.
    pub(crate) fn wait_elsewhere(&mut self) {
        let Some(member) = &self.member else { return };
        member.mailbox.take_answers();
        self.ends_with_answer = true;
        self.elsewhere = Some(Elsewhere { seen: now(), looked: now() });
    }

    /// Ends the response without an answer and leaves the requests open: the client gets their progress and their
    /// answers on its GET stream.
    pub(crate) fn leave_open(mut self: Box<Self>) -> Option<InFlightGuard> {
        self.resumable = true;
        self.open.take()
    }

    /// Ends the requests that are still open here although the session has no open request of this response: their
    /// answers were too large to move and were forwarded on the GET stream.
    pub(super) fn settle_own(&mut self) {
        if self.filter.open_calls() == 0 {
            return;
        }
        if self.member.as_ref().is_some_and(|member| member.session.is_held()) {
            return self.fail(TOO_LARGE, None);
        }
        self.filter.apply(now(), Input::SettleStream(super::OWN));
        self.answered |= self.elsewhere.is_some();
    }

    /// Checks whether the answers can still come.
    pub(super) fn look_elsewhere(&mut self, at: Instant) {
        let (Some(wait), Some(member)) = (&mut self.elsewhere, &self.member) else { return };
        if !member.session.has_calls_on(member.stream) && !member.mailbox.is_filled() {
            self.settle_own();
            return;
        }
        if at < wait.next_look() {
            return;
        }
        wait.looked = at;
        if member.session.is_listening() {
            wait.seen = at;
        } else if at >= wait.seen + ABSENT_MAX {
            self.fail(NO_STREAM, None);
        }
    }

    /// Takes messages that came on other streams, for a client that gets a single JSON body: answers go to `answers`,
    /// progress to the stream on which it came. Returns true if all answers have arrived.
    pub(crate) fn take_answers(&mut self, answers: &mut Vec<Bytes>) -> bool {
        let mut out = Batch::default();
        self.drain_mailbox(&mut out);
        let at = now();
        self.look_elsewhere(at);
        drain(&mut self.filter, at, |transmit| match transmit.kind {
            TransmitKind::Answer(_) | TransmitKind::Batch(..) => {
                answers.push(transmit.payload.to_bytes());
            }
            _ => out.transmit(&transmit),
        });
        self.note(None);
        self.write_on_detour(out);
        self.filter.open_calls() == 0
    }

    /// Completes when a message has come on another stream, or a timer is due.
    #[expect(
        clippy::needless_pass_by_ref_mut,
        reason = "a future that holds `&self` could not be sent to another thread"
    )]
    pub(crate) async fn next_elsewhere(&mut self) {
        let due = self.timeout();
        let inbox = self.filter.cancellations();
        let filled = poll_fn(|cx| match (inbox, &self.member) {
            (Some(inbox), _) if inbox.poll_filled(cx).is_ready() => Poll::Ready(()),
            (_, Some(member)) => member.mailbox.poll_mail(cx),
            (_, None) => Poll::Pending,
        });
        match due {
            Some(due) => drop(tokio::time::timeout_at(due.into(), filled).await),
            None => filled.await,
        }
    }
}
