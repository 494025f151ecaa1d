//! In which order messages are sent, and what happens by itself.

use std::future::Future;
use std::task::Context;
use std::time::Duration;

use tokio::time::Instant;

use super::exchange::State;
use super::session::Phase;
use super::{ASKED_MAX, HttpUpstream, POSTS_MAX};
use crate::transport::http::client::UpstreamError;

impl HttpUpstream {
    /// Whether nothing may be sent now, whatever it is.
    fn is_blocked(&self) -> bool {
        let wire = self.wire.as_ref().is_some_and(|wire| wire.endpoint.is_none());
        wire || self.session.phase != Phase::Free
    }

    /// Sends what may be sent. Notifications and answers go one after the other, and nothing passes them;
    /// requests go as they come, as many as may be open.
    pub(crate) fn pump(&mut self) -> bool {
        if self.session.phase == Phase::Lost && !self.queue.is_empty() && self.can_renew() {
            self.renew();
            return true;
        }
        if self.session.phase == Phase::Renews && !self.renews() {
            self.renewal_failed("the server did not let it begin");
            return true;
        }
        let mut moved = false;
        let mut at = 0;
        while at < self.queue.len() && !self.is_blocked() && !self.is_ordered() {
            let told = self.queue.get(at).is_some_and(|out| Self::is_told(&out.message));
            if !told && self.is_busy() {
                // Its own answer to the server may be what an open call waits for.
                at += 1;
                continue;
            }
            let Some(out) = self.queue.remove(at) else { break };
            self.launch(out);
            moved = true;
        }
        moved
    }

    fn can_renew(&self) -> bool {
        self.wire.as_ref().is_none_or(|wire| wire.endpoint.is_some())
    }

    fn is_busy(&self) -> bool {
        let open = self.exchanges.values().filter(|exchange| exchange.leaves_at.is_none());
        open.count() >= POSTS_MAX || self.asked.len() >= ASKED_MAX
    }

    /// Does what is due. Registers for what is due next.
    pub(crate) fn on_time(&mut self, cx: &mut Context<'_>, reads: bool) -> bool {
        let mut moved = false;
        // Who is not listened to is not silent.
        let idle = self.upstream.idle.filter(|_| reads);
        while let Some(due) = self.next_due(idle) {
            if self.timer.deadline() != due {
                self.timer.as_mut().reset(due);
            }
            if self.timer.as_mut().poll(cx).is_pending() {
                break;
            }
            self.act(due, idle);
            moved = true;
        }
        moved
    }

    fn next_due(&self, idle: Option<Duration>) -> Option<Instant> {
        let wire = self.wire.as_ref().and_then(|wire| wire.due(idle));
        let exchanges = self.exchanges.values().filter_map(|exchange| exchange.due(idle));
        exchanges.chain(self.listen.due()).chain(wire).min()
    }

    fn act(&mut self, now: Instant, idle: Option<Duration>) {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let streams = self.exchanges.iter().filter(|(_, exchange)| is_due(exchange.due(idle)));
        let streams: Vec<_> = streams.map(|(stream, _)| *stream).collect();
        for stream in streams {
            let Some(exchange) = self.exchanges.get_mut(&stream) else { continue };
            if is_due(exchange.ahead_until) {
                exchange.ahead_until = None;
                tracing::warn!("the server takes long to accept a notification; others go ahead");
            }
            let silent = is_due(exchange.silent_until(idle));
            match exchange.state {
                State::Failure(..) => self.failed(stream),
                _ if is_due(exchange.leaves_at) => self.drop_exchange(stream),
                _ if silent => {
                    self.unreachable(stream, &UpstreamError::Idle(idle.unwrap_or_default()))
                }
                _ => self.go_back(stream),
            }
        }
        if is_due(self.listen.due()) {
            self.open_listen();
        }
        if is_due(self.wire.as_ref().and_then(|wire| wire.due(idle))) {
            self.wire_due();
        }
    }
}
