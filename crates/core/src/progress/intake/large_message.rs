//! Handles server messages that are too large to be kept whole. Only their envelope is read, while the pieces are
//! forwarded.
//!
//! On a connection that many streams share, the first piece has to show the owner of the message, because a piece that
//! was written cannot be taken back. A shell that cannot find the owner keeps the message in a file
//! ([`Intake::answer_spooled`](crate::progress::Intake::answer_spooled)). If different clients share the server, the
//! shell always does this.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use bytes::Bytes;
use smallvec::{SmallVec, smallvec};

use crate::progress::correlate::call::Call;
use crate::progress::correlate::open_calls::only;
use crate::progress::correlate::readable::readable_piece;
use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::event::summary::Outcome;
use crate::progress::event::{Disposition, Origin, SalvagedLarge};
use crate::progress::ids::StreamId;
use crate::progress::intake::large_answer::LargeRepairs;
use crate::progress::intake::state::{Intake, LargeDisposition, LargeMessage};
use crate::progress::payload::{Fragment, Payload, Transmit, TransmitKind};
use crate::progress::streams::stream::{Item, ItemKind};
use crate::progress::transmit_queue::TransmitQueue;
use crate::progress::verdict::{Reason, Repair, Repairs, Verdict};
use crate::protocol::json;
use crate::protocol::jsonrpc::{Key, Kind, Scan, own_error};
use crate::protocol::unicode::{ReadablePiece, TextEnd};

/// The error for a request whose large answer was being repaired when the filter failed.
const CUT_OFF: &str = "the progress filter of the proxy has failed, and this answer was cut off";

/// How an answer that is kept in a file has to be sent.
#[derive(Debug, Clone)]
pub struct SpooledAnswer {
    /// The stream on which the answer is sent.
    pub stream: StreamId,
    /// The id of the request, as the client wrote it.
    pub id: Bytes,
    /// The repairs that have to be applied to the pieces, including the client's own id.
    pub repairs: LargeRepairs,
    /// The time before which no piece may be written, because progress of the request was written shortly before.
    /// `None` if the first piece may be written immediately.
    pub not_before: Option<Instant>,
}

impl Intake {
    /// Handles the first piece of a message that is too large for memory. The range is the message text in the piece;
    /// the rest is its frame.
    pub fn begin_large(
        &mut self,
        now: Instant,
        origin: Origin,
        head: Bytes,
        text: Range<usize>,
    ) -> Disposition {
        self.gate.calls.received_at = Some(now);
        self.messages += 1;
        let mut scan = Scan::default();
        scan.feed(&head[text.clone()]);
        let claimed = scan.method().is_some_and(|method| self.gate.calls.policy.claims(&method));
        let fate = match scan.kind() {
            _ if self.gate.calls.streams.topology.has_strangers() => {
                LargeDisposition::Withhold(Reason::TooLong)
            }
            _ if self.gate.calls.policy.call.observes() => LargeDisposition::Forward,
            Kind::Noise | Kind::Opaque if !may_be_message(&head[text.clone()]) => {
                LargeDisposition::Noise
            }
            // Members after the large one are not known yet, so `id` alone does not show the kind of the message.
            Kind::Notification if claimed => LargeDisposition::Withhold(Reason::TooLong),
            _ => LargeDisposition::Forward,
        };
        let is_forwarded = fate == LargeDisposition::Forward;
        let mut readable = self.gate.calls.readable_pieces(origin).filter(|_| is_forwarded);
        let length = head.len();
        let (head, text) = readable_piece(&mut readable, (head, text));
        // The repairs need positions in the text that is written. This text may differ from the text that arrived.
        if readable.as_ref().is_some_and(|pieces| pieces.is_changed() || head.len() != length) {
            scan = Scan::default();
            scan.feed(&head[text.clone()]);
        }
        let stream = self.gate.calls.fallback_stream(origin).ok().flatten();
        let number = self.messages;
        let passing = LargeMessage {
            number,
            scan,
            fate,
            stream,
            call: None,
            answers: Vec::new(),
            ended: 0,
            known: false,
            repairs: LargeRepairs::default(),
            readable,
        };
        self.large_messages.insert(source(origin), passing);
        self.note_large_answer(origin, false);
        self.forward_piece(now, origin, (head, text), Fragment::Piece)
    }

    /// Whether a large answer that begins with `head` is forwarded unchanged, whatever follows. `scan` has read `head`.
    pub fn needs_no_repair(&self, scan: &Scan, head: &Bytes) -> bool {
        let answered = scan.id().and_then(|id| self.answered_call(&id));
        let Some(call) = answered.and_then(|id| self.gate.calls.open.get(id)) else {
            return false;
        };
        let mut repairs = LargeRepairs::default();
        repairs.expect(call.large_answer_repairs());
        repairs.answer(call.id.clone());
        repairs.apply(scan, head.clone(), 0..head.len(), false);
        repairs.are_over(scan) && repairs.done.is_empty() && !call.id.translated
    }

    /// Handles another piece of a large message.
    pub fn large_piece(
        &mut self,
        now: Instant,
        origin: Origin,
        piece: Bytes,
        text: Range<usize>,
    ) -> Disposition {
        self.gate.calls.received_at = Some(now);
        let (mut piece, mut text) = (piece, text);
        if let Some(passing) = self.large_messages.get_mut(&source(origin)) {
            (piece, text) = readable_piece(&mut passing.readable, (piece, text));
            if !passing.known {
                passing.scan.feed(&piece[text.clone()]);
                self.note_large_answer(origin, true);
            }
        }
        self.forward_piece(now, origin, (piece, text), Fragment::Piece)
    }

    /// Handles the end of a large message.
    pub fn finish_large(&mut self, now: Instant, origin: Origin) {
        self.end_large(now, origin, Fragment::End);
    }

    fn end_large(&mut self, now: Instant, origin: Origin, end: Fragment) {
        self.release_unfinished(now, origin);
        self.forward_piece(now, origin, (Bytes::new(), 0..0), end);
        let Some(passing) = self.large_messages.remove(&source(origin)) else { return };
        if let (Kind::Response, Some(id)) = (passing.scan.kind(), passing.scan.id()) {
            self.detached.fail_large(&mut self.gate, now, &id);
        }
        // The stream may be finished with this message, so the shell has to look at it again.
        passing.stream.into_iter().for_each(|stream| self.gate.calls.streams.change(stream));
        let verdict = match passing.fate {
            LargeDisposition::Forward => {
                let mut done = passing.repairs.done;
                if passing.readable.is_some_and(|pieces| pieces.is_changed()) {
                    done.add(Repair::Unicode);
                }
                Verdict::of(done)
            }
            LargeDisposition::Withhold(reason) => Verdict::Withheld(reason),
            LargeDisposition::Noise => Verdict::Withheld(Reason::Noise),
        };
        self.gate.calls.events.push_verdict(passing.number, passing.call, verdict);
        // Without an answer the request would wait for ever, so it gets an error.
        if let (LargeDisposition::Withhold(_), Some(call)) = (passing.fate, passing.call) {
            let why = "the server's answer is too large to be passed on";
            self.gate.answer_with_error(now, call, why, None, Outcome::Error);
        }
    }

    /// Forwards text that waited for the rest of its last character, because the message has ended.
    fn release_unfinished(&mut self, now: Instant, origin: Origin) {
        let passing = self.large_messages.get_mut(&source(origin));
        let Some(passing) =
            passing.filter(|one| one.readable.as_ref().is_some_and(|pieces| !pieces.is_empty()))
        else {
            return;
        };
        let Some(pieces) = &mut passing.readable else { return };
        if let ReadablePiece::Instead(rest) = pieces.feed(&[], TextEnd::Here) {
            passing.scan.feed(&rest);
            let text = 0..rest.len();
            self.forward_piece(now, origin, (rest.into(), text), Fragment::Piece);
        }
    }

    /// Handles the answer to the request `id`, which the shell keeps in a file because the answer is too large, and
    /// which needs the repairs `needs` ([`LargeRepairs::needed`]). The call ends, and its waiting progress is written
    /// before the answer. `None` means that the caller has to drop the answer, because it belongs to no open call or
    /// the stream has closed.
    pub fn answer_spooled(
        &mut self,
        now: Instant,
        id: &Key,
        needs: Repairs,
    ) -> Option<SpooledAnswer> {
        self.gate.calls.received_at = Some(now);
        let number = self.next_number();
        let Some(id) = self.answered_call(id) else {
            self.detached.fail_large(&mut self.gate, now, id);
            let calls = &mut self.gate.calls;
            let why = calls.open.ledger.why_orphan(id);
            calls.events.push_verdict(number, None, Verdict::Withheld(why));
            return None;
        };
        let call = self.gate.calls.open.get(id)?;
        let switches = call.large_answer_repairs();
        let client_id = call.id.client.clone();
        let repairs = LargeRepairs::of_spooled(call.id.clone(), switches);
        let stream = self.gate.calls.streams.open_or_session_stream(Some(call.stream));
        // Read before the call ends, because the guard is stored in the call.
        let not_before =
            self.gate.calls.open.guard_of(id, &self.gate.calls.streams).not_before(now);
        self.gate.end_call(now, id, Tombstone::Answered, Outcome::Result);
        let done: Repairs = needs.iter().filter(|repair| repairs.allows(*repair)).collect();
        let verdict = match stream {
            None => Verdict::Withheld(Reason::Gone),
            Some(_) => Verdict::of(done),
        };
        self.gate.calls.events.push_verdict(number, Some(id), verdict);
        stream.map(|stream| SpooledAnswer { stream, id: client_id, repairs, not_before })
    }

    /// Ends a large message whose end has not arrived. The request gets an error with the reason `why`, because no
    /// client can read an incomplete answer. There is no error if only the end of the line is missing.
    pub fn break_off_server(&mut self, now: Instant, origin: Origin, why: &str) {
        let passing = self.large_messages.get_mut(&source(origin));
        let whole = passing.filter(|passing| passing.scan.is_whole());
        let end = match whole {
            Some(passing) => {
                passing.answers.clear();
                Fragment::End
            }
            None => Fragment::Broken,
        };
        self.break_off(now, origin, why, None, end);
    }

    /// Ends all large messages that have arrived only in part, because their rest will not arrive.
    pub(crate) fn break_off_large(&mut self, now: Instant, why: &str, status: Option<u16>) {
        let sources: Vec<Option<StreamId>> = self.large_messages.keys().copied().collect();
        for source in sources {
            let origin = source.map_or(Origin::Shared, Origin::Stream);
            self.break_off(now, origin, why, status, Fragment::Broken);
        }
    }

    fn break_off(
        &mut self,
        now: Instant,
        origin: Origin,
        why: &str,
        status: Option<u16>,
        end: Fragment,
    ) {
        self.release_unfinished(now, origin);
        // Ends the incomplete line, so that the next message begins on a new line.
        self.forward_piece(now, origin, (Bytes::from_static(b"\n"), 0..0), Fragment::Piece);
        let passing = self.large_messages.get_mut(&source(origin));
        let asked = passing.map(|passing| std::mem::take(&mut passing.answers));
        self.end_large(now, origin, end);
        // There is no client left that could get an error.
        if self.gate.client_left {
            return;
        }
        for (stream, id) in asked.into_iter().flatten() {
            self.gate.calls.refuse(stream, &id, why, status);
        }
    }

    /// Returns the large messages that are incomplete after a panic in the filter. Bytes that were held back go to
    /// `streams`. A message that was being repaired ends, because the rest would not fit the part that the client has
    /// received.
    pub(crate) fn salvage_large(
        &mut self,
        streams: &mut BTreeMap<StreamId, TransmitQueue>,
    ) -> Vec<SalvagedLarge> {
        let left = std::mem::take(&mut self.large_messages);
        let rest_of = |(source, mut passing): (Option<StreamId>, LargeMessage)| {
            let number = passing.number;
            let is_withheld = passing.fate != LargeDisposition::Forward;
            let is_held = passing.readable.as_ref().is_some_and(|pieces| !pieces.is_empty());
            // A repaired answer of which only a part was sent must not end as if it were whole. The client would get a
            // truncated body and no error.
            let is_cut = !is_withheld && (is_held || passing.repairs.is_midway(&passing.scan));
            let held = passing.repairs.take_held();
            let stream = self.gate.calls.streams.open_or_session_stream(passing.stream);
            let mut give = |stream: StreamId, of: Option<u64>, transmit: Transmit| {
                if let Some(queue) = streams.get_mut(&stream) {
                    queue.push(of, transmit);
                }
            };
            if let Some(stream) = stream.filter(|_| is_cut) {
                give(stream, Some(number), Transmit::broken());
                for (stream, id) in passing.answers {
                    let error = Payload::own(own_error(&id, CUT_OFF, None));
                    let kind = TransmitKind::Answer(Key::read(&id));
                    give(stream, None, Transmit::whole(kind, error));
                }
            } else if let Some(stream) = stream.filter(|_| !(is_withheld || held.is_empty())) {
                give(stream, Some(number), Transmit::part(held.into(), Fragment::Piece));
            }
            let origin = source.map_or(Origin::Shared, Origin::Stream);
            SalvagedLarge { origin, number, is_withheld: is_withheld || is_cut }
        };
        left.into_iter().map(rest_of).collect()
    }

    /// Ends the progress of a call as soon as the id of its large answer is known.
    fn note_large_answer(&mut self, origin: Origin, begun: bool) {
        let sole = self.gate.calls.open.sole_call_on(origin, &self.gate.calls.streams);
        let Some(passing) = self.large_messages.get(&source(origin)) else { return };
        if passing.scan.kind() != Kind::Response {
            return;
        }
        // On the stream of a single request, an answer is for that request even if its id is unknown. An answer that is
        // too large for memory cannot wait until a better one arrives.
        let id = passing.scan.id();
        // If the answer is for a task, the client already has an answer to its request, which names the task.
        let is_of_task = id.as_ref().is_some_and(|id| self.detached.running_task(id).is_some());
        // If the answer is late, no client waits for it, and it is too long to keep.
        let late = self.detached.late.as_ref().zip(id.as_ref());
        let is_late = late.is_some_and(|(late, id)| late.is_answer(&self.gate, id));
        let answered = id.as_ref().and_then(|id| self.answered_call(id));
        let meant = || {
            id.as_ref().map_or(sole, |id| {
                self.gate.calls.open.call_of_sole_answer(origin, id, &self.gate.calls.streams)
            })
        };
        let call = passing.call.or(answered).or_else(meant);
        if let Some(call) = call {
            // If the client has reconnected, it reads the stream on which the answer arrives. The call is moved there,
            // so that the pacing of its closed stream does not delay the answer.
            self.gate.rebind_stream(origin, call);
        }
        // As long as the id has not arrived, the only open request shows which kind of result to expect.
        let sole_open = || only(self.gate.calls.open.active(|call| call.task.is_none())).ok();
        let likely = call.or_else(|| if id.is_none() { sole_open() } else { None });
        let likely = likely.and_then(|id| self.gate.calls.open.get(id));
        let expected = likely.map(Call::large_answer_repairs);
        let known = call.and_then(|id| self.gate.calls.open.get(id));
        // A client that has reconnected reads its new stream, while another filter writes the stream of the request.
        let is_read = |call: &Call| {
            call.shadow
                && self.gate.calls.streams.has_stream(call.stream)
                && !self.gate.calls.streams.is_exchange(call.stream)
        };
        let moves =
            known.is_some_and(|call| self.gate.calls.streams.topology.is_whole() || is_read(call));
        let known = known.map(|call| (call.stream, call.id.clone()));
        let Some(passing) = self.large_messages.get_mut(&source(origin)) else { return };
        passing.call = call;
        if (is_of_task || is_late) && !begun {
            passing.fate = LargeDisposition::Withhold(Reason::TooLong);
        }
        if let Some(switches) = expected {
            passing.repairs.expect(switches);
        }
        if let Some((stream, id)) = known.filter(|_| !passing.repairs.has_request()) {
            passing.repairs.answer(id);
            // Pieces that were already forwarded cannot be moved to another stream.
            if !begun && moves {
                passing.stream = Some(stream);
            }
        }
    }

    /// Ends the calls whose answers were forwarded in an array.
    fn end_calls_of_array(&mut self, now: Instant, origin: Origin) {
        loop {
            let Some(passing) = self.large_messages.get_mut(&source(origin)) else { return };
            let Some(id) = passing.scan.answers().get(passing.ended).cloned() else { return };
            passing.ended += 1;
            let Some(call) =
                self.gate.calls.open.call_of_answer_on(origin, &id, &self.gate.calls.streams)
            else {
                continue;
            };
            let Some(answered) = self.gate.calls.open.get(call) else { continue };
            let asked = (answered.stream, answered.id.client.clone());
            if let Some(passing) = self.large_messages.get_mut(&source(origin)) {
                passing.answers.push(asked);
            }
            self.gate.end_call(now, call, Tombstone::Answered, Outcome::Result);
        }
    }

    fn forward_piece(
        &mut self,
        now: Instant,
        origin: Origin,
        (piece, text): (Bytes, Range<usize>),
        part: Fragment,
    ) -> Disposition {
        let Some(passing) = self.large_messages.get(&source(origin)) else {
            return Disposition::Consumed;
        };
        if passing.fate == LargeDisposition::Noise {
            return Disposition::NotAMessage(piece);
        }
        if passing.fate != LargeDisposition::Forward {
            return Disposition::Consumed;
        }
        let (stream, number) = (passing.stream, passing.number);
        // As long as the id is unknown, the message may answer any open call. It therefore keeps the pause after the
        // last progress of all calls.
        let guards = match (passing.call, passing.scan.kind()) {
            (_, Kind::Request | Kind::Notification) => SmallVec::new(),
            (Some(call), _) => {
                smallvec![self.gate.calls.open.guard_of(call, &self.gate.calls.streams)]
            }
            (None, _) => self
                .gate
                .calls
                .open
                .iter()
                .map(|(id, _)| self.gate.calls.open.guard_of(id, &self.gate.calls.streams))
                .collect(),
        };
        if let Some(call) = passing.call
            && let Some(answered) = self.gate.calls.open.get(call)
        {
            let asked = (answered.stream, answered.id.client.clone());
            self.gate.end_call(now, call, Tombstone::Answered, Outcome::Result);
            if let Some(passing) = self.large_messages.get_mut(&source(origin)) {
                passing.answers = vec![asked];
            }
        }
        self.end_calls_of_array(now, origin);
        if self.gate.calls.policy.observes() {
            let stream = if self.gate.calls.streams.topology.is_whole() {
                stream
            } else {
                self.gate.calls.streams.session_stream
            };
            let transmit = Transmit::part(piece.into(), part);
            self.gate.calls.streams.observe_part(stream, Some(number), transmit);
            return Disposition::Consumed;
        }
        let kind = ItemKind::Piece { of: number, part };
        let is_last = part != Fragment::Piece;
        let passing = self.large_messages.get_mut(&source(origin));
        let payload = passing.map_or_else(
            || piece.clone().into(),
            |passing| {
                let payload = passing.repairs.apply(&passing.scan, piece.clone(), text, is_last);
                // A message on a shared stream may break off, so its scan continues to the end to detect whether it is
                // complete.
                passing.known = matches!(origin, Origin::Stream(_))
                    && passing.call.is_some()
                    && passing.repairs.are_over(&passing.scan);
                payload
            },
        );
        let item = Item { order: 0, kind, payload, guards, verdicts: SmallVec::new() };
        let calls = &mut self.gate.calls;
        calls.streams.enqueue(stream, item, &mut calls.events);
        Disposition::Consumed
    }
}

/// Returns the server's stream of a message; `None` if one connection carries all messages.
fn source(origin: Origin) -> Option<StreamId> {
    match origin {
        Origin::Shared => None,
        Origin::Stream(id) => Some(id),
    }
}

/// Whether a large text may still be one or several messages: no member of an envelope has been read yet, or the text
/// is an array.
fn may_be_message(head: &[u8]) -> bool {
    let start = json::skip_space(head, 0);
    let inside = match head.get(start) {
        Some(b'[') => json::skip_space(head, start + 1),
        _ => start,
    };
    head.get(inside) == Some(&b'{') && memchr::memmem::find(head, b"\"jsonrpc\"").is_some()
}
