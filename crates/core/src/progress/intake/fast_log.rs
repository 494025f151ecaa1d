//! The fast path for log messages on the stream of their only call. It is used if nothing in the message decides on its
//! stream, and no other message waits before it.

use std::sync::LazyLock;
use std::time::Instant;

use memchr::memmem::Finder;

use crate::progress::arrived_message::ArrivedMessage;
use crate::progress::dialect::plain_progress::LENGTH_MAX;
use crate::progress::gate::state::Gate;
use crate::progress::ids::StreamId;
use crate::progress::intake::fast_path::{FastPaths, is_unhindered};
use crate::progress::verdict::Verdict;
use crate::protocol::jsonrpc::{Kind, Message};
use crate::protocol::{mcp, unicode};

static META: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("_meta"));
static ESCAPE: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("\\u"));

impl FastPaths {
    /// Forwards a server message on `stream`, if it is a log message that can be forwarded unchanged and immediately.
    /// Returns false and changes nothing for any other message. `messages`: the number of messages so far.
    pub(crate) fn forward_log(
        &mut self,
        gate: &mut Gate,
        messages: &mut u64,
        now: Instant,
        stream: StreamId,
        arrived: &ArrivedMessage<'_>,
    ) -> bool {
        let text = arrived.text;
        if text.len() > LENGTH_MAX || !is_unhindered(gate, stream) || !forwards_logs(gate) {
            return false;
        }
        let sole = gate.calls.open.sole_mut();
        let call = sole.filter(|(_, call)| call.stream == stream && call.is_quiet());
        let Some(id) = call.filter(|(_, call)| !call.is_subscription()).map(|(id, _)| id) else {
            return false;
        };
        // A message that fits a template differs from an earlier message only in its text, so it need not be parsed.
        if !self.log_templates.know(text) {
            let message = Message::parse(arrived.held_text());
            // The id of a subscription in `_meta` would decide on the stream of the message, even if `\u` escapes spell
            // the member's name.
            let is_log = message.kind() == Kind::Notification
                && message.method().as_deref() == Some(mcp::LOG);
            let is_plain = !message.has_nulls() && unicode::is_readable(text);
            if !is_log || !is_plain || META.find(text).is_some() || ESCAPE.find(text).is_some() {
                return false;
            }
            self.log_templates.note(&message);
        }
        gate.calls.received_at = Some(now);
        *messages += 1;
        gate.calls.events.push_verdict(*messages, Some(id), Verdict::Forwarded);
        true
    }
}

/// Whether log messages are only forwarded, and not read as progress.
fn forwards_logs(gate: &mut Gate) -> bool {
    gate.calls.names.elsewhere.is_empty() && gate.calls.policy.forwards_logs()
}
