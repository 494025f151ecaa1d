//! The fast path for the most frequent message: compliant progress on the stream of its own
//! request.
//!
//! Uncertain messages take the ordinary path, with the same result (a property test compares both
//! paths). The fast path builds no message: the server's bytes are forwarded.

use std::time::Instant;

use crate::progress::correlate::call::{Call, LastSent};
use crate::progress::filter::Filter;
use crate::progress::gate::stream::StreamKind;
use crate::progress::ids::StreamId;
use crate::progress::policy::{Coalesce, Messages, StreamPacing};
use crate::progress::verdict::Verdict;
use crate::protocol::{json, mcp};

/// The longest message, in bytes, that the fast path reads. Longer messages take the ordinary path.
const LENGTH_MAX: usize = 4 << 10;

/// One notification, in parts of its text.
#[derive(Debug, Default)]
struct Plain<'a> {
    token: &'a [u8],
    progress: f64,
    total: Option<(&'a [u8], f64)>,
    message: Option<&'a [u8]>,
}

impl Filter {
    /// Takes a server message on `stream`, if the message is progress that can be forwarded
    /// unchanged and at once. Any other message returns false and changes nothing.
    pub fn fast_path(&mut self, now: Instant, stream: StreamId, text: &[u8]) -> bool {
        if !self.is_unhindered(stream) {
            return false;
        }
        let Some(plain) = Plain::read(text) else { return false };
        let Some((id, call)) = self.correlator.ledger.sole_mut() else { return false };
        let policy = call.settings();
        let ready = call.stream == stream
            && call.is_quiet()
            && policy.coalesce == Coalesce::Repaired
            && policy.messages == Messages::Replace
            && policy.scale.is_none()
            && policy.has_standard()
            && call.token.as_ref().is_some_and(|token| token.is_just(plain.token))
            && &*call.method != mcp::LISTEN;
        if !ready || !call.meter.rise(plain.progress, plain.total) {
            return false;
        }
        call.note_plain(now, &plain);
        let is_unplanned = call.wake.is_none();
        self.intake.received_at = Some(now);
        let number = self.intake.next_number();
        self.record(number, Some(id), Verdict::Forwarded);
        // A beat that is put off is looked at when it would have been due.
        if is_unplanned {
            self.schedule(id);
        }
        true
    }

    /// Whether messages on this stream can be forwarded without waiting.
    fn is_unhindered(&self, id: StreamId) -> bool {
        self.gate.streams.get(&id).is_some_and(|stream| {
            stream.kind == StreamKind::Exchange
                && stream.pacing == StreamPacing::Immediate
                && stream.queue.is_empty()
                && !stream.replays
                && stream.midway.is_none()
        }) && !self.policy.observes()
            && !self.topology.has_strangers()
            && !self.gate.client_is_slow
            && self.intake.large_messages.is_empty()
    }
}

impl Call {
    /// Whether no report of the call waits, and the server has not sent its final report.
    fn is_quiet(&self) -> bool {
        self.pending.first().is_none() && self.reports.last_of.is_none() && self.task.is_none()
    }

    fn note_plain(&mut self, now: Instant, plain: &Plain<'_>) {
        self.account.received += 1;
        self.reports.began = true;
        self.reports.has_protocol_value = true;
        self.reports.has_figure = true;
        self.note_sent(now);
        let sent = LastSent {
            value: Some(plain.progress),
            total: plain.total.map(|(_, value)| value),
            message: plain.message.map(bytes::Bytes::copy_from_slice),
        };
        self.sent.remember(sent, now);
    }
}

/// A reader that knows one shape and gives up on any other.
struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        self.at = json::skip_space(self.text, self.at);
        let byte = *self.text.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.byte()? == byte).then_some(())
    }

    /// A string with its quotes, all of which any parser reads in the same way.
    fn string(&mut self) -> Option<&'a [u8]> {
        self.expect(b'"')?;
        let start = self.at - 1;
        loop {
            let rest = self.text.get(self.at..)?;
            let length = memchr::memchr2(b'"', b'\\', rest)?;
            if rest[..length].iter().any(|byte| *byte < b' ') {
                return None;
            }
            self.at += length + 1;
            match rest[length] {
                b'"' => return Some(&self.text[start..self.at]),
                b'\\' => match self.text.get(self.at)? {
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 1,
                    _ => return None,
                },
                _ => return None,
            }
        }
    }

    fn number(&mut self) -> Option<&'a [u8]> {
        self.at = json::skip_space(self.text, self.at);
        let start = self.at;
        let digits = |reader: &mut Self| {
            let rest = &reader.text[reader.at..];
            let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            reader.at += count;
            (count > 0).then_some(count)
        };
        if self.text.get(self.at) == Some(&b'-') {
            self.at += 1;
        }
        let zero = self.text.get(self.at) == Some(&b'0');
        let count = digits(self)?;
        if zero && count > 1 {
            return None;
        }
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            digits(self)?;
        }
        // A power is left to the long way.
        if matches!(self.text.get(self.at), Some(b'e' | b'E')) {
            return None;
        }
        Some(&self.text[start..self.at])
    }

    /// Reads the members of an object with `member`, which refuses unknown members.
    fn object(&mut self, mut member: impl FnMut(&mut Self, &'a [u8]) -> Option<()>) -> Option<()> {
        self.expect(b'{')?;
        loop {
            let key = self.string()?;
            self.expect(b':')?;
            member(self, key)?;
            match self.byte()? {
                b',' => {}
                b'}' => return Some(()),
                _ => return None,
            }
        }
    }
}

fn finite(value: &f64) -> bool {
    value.is_finite()
}

/// Stores a member that occurs for the first time; a second occurrence is a fault.
fn once<'a>(place: &mut Option<&'a [u8]>, found: &'a [u8]) -> Option<()> {
    place.replace(found).is_none().then_some(())
}

impl<'a> Plain<'a> {
    fn read(text: &'a [u8]) -> Option<Self> {
        if text.len() > LENGTH_MAX || std::str::from_utf8(text).is_err() {
            return None;
        }
        let mut reader = Reader { text, at: 0 };
        let (mut version, mut method, mut params) = (None, None, None);
        reader.object(|reader, key| match key {
            br#""jsonrpc""# => once(&mut version, reader.string()?),
            br#""method""# => {
                let name = reader.string()?;
                // Of anything else no more is read.
                (name == br#""notifications/progress""#).then_some(())?;
                once(&mut method, name)
            }
            br#""params""# if params.is_none() => {
                params = Some(Self::params(reader)?);
                Some(())
            }
            _ => None,
        })?;
        method?;
        let whole = json::skip_space(text, reader.at) == text.len();
        params.filter(|_| whole && version == Some(br#""2.0""#))
    }

    fn params(reader: &mut Reader<'a>) -> Option<Self> {
        let (mut token, mut progress, mut total, mut message) = (None, None, None, None);
        reader.object(|reader, key| match key {
            br#""progressToken""# => {
                reader.at = json::skip_space(reader.text, reader.at);
                let found = match reader.text.get(reader.at)? {
                    b'"' => reader.string()?,
                    _ => reader.number()?,
                };
                once(&mut token, found)
            }
            br#""progress""# => once(&mut progress, reader.number()?),
            br#""total""# => once(&mut total, reader.number()?),
            br#""message""# => once(&mut message, reader.string()?),
            _ => None,
        })?;
        let value = |text: &[u8]| std::str::from_utf8(text).ok()?.parse().ok().filter(finite);
        let total = match total {
            Some(text) => Some((text, value(text)?)),
            None => None,
        };
        Some(Self { token: token?, progress: value(progress?)?, total, message })
    }
}
