//! Calls that their clients leave and join again: keep, hold, join, and answer with a text.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use smallvec::{SmallVec, smallvec};

use crate::progress::client_habits::Habit;
use crate::progress::correlate::call::Call;
use crate::progress::correlate::draft::CallDraft;
use crate::progress::correlate::signature::Signature;
use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::detached::DetachedWork;
use crate::progress::detached::late::answers::note;
use crate::progress::detached::late::calls::{GivenCall, LateCall, LateWork};
use crate::progress::detached::late::habits::HabitKey;
use crate::progress::detached::late::held::{HeldCall, ReleasedRequest};
use crate::progress::detached::store::Work;
use crate::progress::durations::Expected;
use crate::progress::event::late::LateEvent;
use crate::progress::event::summary::Outcome;
use crate::progress::event::{FilterEvent, Origin};
use crate::progress::gate::heartbeat;
use crate::progress::gate::state::Gate;
use crate::progress::ids::{CallId, MappedId, Principal, StreamId};
use crate::progress::payload::{Payload, TransmitKind};
use crate::progress::streams::stream::{Item, ItemKind};
use crate::progress::verdict::Repairs;
use crate::protocol::jsonrpc::{Key, Message};
use crate::protocol::mcp::Revision;
use crate::protocol::{json, mcp};

impl DetachedWork {
    /// Takes a `tools/call`: joins the same work if that is still running, and gives up work that the client abandoned
    /// in favour of this call. Returns the draft of a call that is to be sent to the server.
    pub(crate) fn join_late(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        stream: StreamId,
        message: &Message,
        tool: Option<&str>,
        mut draft: CallDraft,
    ) -> Option<CallDraft> {
        let who = gate.calls.streams.late_principal(stream);
        // On a shared server, a client without a known principal cannot be recognised when it calls again.
        let is_unknown = matches!(who, Principal::Stream(_));
        let asks_for = tool.filter(|_| !draft.asks_for_task && !is_unknown);
        let read = |tool: &str, ignore: &[String]| Signature::read(tool, message, ignore);
        let signature = asks_for.and_then(|tool| {
            let late = self.late.as_ref()?;
            let late = late.late_of(gate, gate.calls.policy.of(Some(tool)), Some(tool))?;
            read(tool, &late.ignore)
        });
        let mut same = None;
        if let Some(tool) = asks_for {
            if let Some(signature) = &signature {
                self.give_up_silently(gate, now, who, signature);
            }
            // Running work is compared by the settings with which it began, although new calls may have other settings.
            let current =
                signature.as_ref().map(|_| &gate.calls.policy.of(Some(tool)).late.ignore[..]);
            let before = self.late.as_ref().and_then(|late| late.ignored_by(who, tool));
            let before = before.filter(|ignore| current != Some(*ignore));
            let before = before.and_then(|ignore| read(tool, ignore));
            let what = before.as_ref().or(signature.as_ref());
            same = what.and_then(|what| self.late.as_mut()?.take_same(who, what));
        }
        draft.signature = signature.map(Box::new);
        match same {
            Some(call) => {
                self.rejoin(gate, now, stream, call, draft);
                None
            }
            None => {
                let in_batch = self.in_batch;
                let late = self.late.as_mut().filter(|_| !in_batch);
                if let Some(late) = late
                    && late.held.has_room(message)
                    && draft
                        .signature
                        .as_deref()
                        .is_some_and(|what| late.repeats(gate, now, who, what))
                {
                    late.held.hold(now, stream, message, (tool, draft));
                    return None;
                }
                if let Some(late) = &mut self.late {
                    late.move_on(gate, now, who);
                }
                Some(draft)
            }
        }
    }

    /// Keeps the work of an open call for the same work that is so old that its client must have
    /// given it up without a cancellation.
    pub(crate) fn give_up_silently(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        who: Principal,
        signature: &Signature,
    ) {
        let Some(late) = &self.late else { return };
        let is_meant = |call: &Call| {
            call.signature.as_deref() == Some(signature)
                && gate.calls.streams.late_principal(call.stream) == who
                && late.repeated_after(gate, call).is_some_and(|limit| now >= call.opened + limit)
        };
        let open = gate.calls.open.iter().find(|(_, call)| is_meant(call));
        if let Some(id) = open.map(|(id, _)| id) {
            self.keep_late(gate, now, id, LateEvent::Kept);
        }
    }

    /// Opens the call of a client that asks again: the call waits for the work of the call that the
    /// client gave up.
    pub(crate) fn rejoin(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        stream: StreamId,
        late: LateWork,
        mut draft: CallDraft,
    ) {
        let Some(own) = &mut self.late else { return };
        let client_id = draft.id.client.clone();
        draft.id = MappedId { server: late.server_id.clone(), translated: true, ..draft.id };
        let invented = late.details.token.is_none() && gate.calls.streams.topology.has_strangers();
        let token = late.details.token.clone().or_else(|| invented.then(|| gate.calls.give_name()));
        draft.token = draft.token.map(|own| match token {
            Some(server) => MappedId { server, translated: true, ..own },
            None => own,
        });
        let tool = Some(late.details.signature.tool.clone());
        let Some(id) = gate.enter(now, stream, (mcp::TOOLS_CALL, tool), draft) else {
            own.works.add(late);
            gate.calls.refuse(
                stream,
                &client_id,
                "too many requests are open on this upstream",
                None,
            );
            return;
        };
        let LateCall { attempts, learned_names, .. } = &late.details;
        gate.calls.open.join(id, late.began, attempts + 1, learned_names);
        if let Some(upstream) = late.details.paired {
            gate.calls.open.pair(id, upstream);
        }
        own.plan(gate, now, id);
        // This client has found the work, whether or not another one was told of it.
        if let Some(call) = gate.calls.open.get(id) {
            own.note_habit(gate, &HabitKey::of(gate, call), Habit::CameBack);
        }
        let event = if late.is_running() { LateEvent::Joined } else { LateEvent::Fetched };
        let mut news = late.news(event, now);
        (news.attempts, news.call) = (news.attempts + 1, Some(id));
        gate.calls.events.push_back(FilterEvent::Late(Box::new(news)));
        let Some(answer) = late.answer() else { return gate.schedule(id) };
        let done = Repairs::default();
        let judged = self.repair_answer_to(gate, now, Origin::Shared, id, answer, done);
        let Some(payload) = judged.payload else { return };
        // The answer got its verdict when it arrived from the server.
        let item = Item {
            order: 0,
            kind: ItemKind::Whole(TransmitKind::Answer(judged.id)),
            payload,
            guards: judged.guard.into_iter().collect(),
            verdicts: SmallVec::new(),
        };
        gate.calls.enqueue_own(stream, item);
    }

    /// Learns from a call that its client gives up by its clock.
    pub(crate) fn note_given_up(&mut self, gate: &Gate, now: Instant, id: CallId) {
        if let Some(late) = &mut self.late {
            late.note_given_up(gate, now, id);
        }
    }

    /// Lets the work of a call go on whose client has given it up by its clock. Returns false if
    /// the call has to be cancelled.
    pub(crate) fn keep_late(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        id: CallId,
        event: LateEvent,
    ) -> bool {
        let Some(own) = &mut self.late else { return false };
        let Some(call) = gate.calls.open.get(id) else { return false };
        let late = own.late_of(gate, call.settings(), call.tool.as_deref());
        let (Some(late), Some(signature)) = (late, &call.signature) else { return false };
        if !own.works.has_room() {
            return false;
        }
        let details = LateCall {
            token: call.token.as_ref().map(|token| token.server.clone()),
            paired: call.paired,
            learned_names: gate.calls.open.ledger.learned_names(id),
            principal: gate.calls.streams.late_principal(call.stream),
            signature: (**signature).clone(),
            policy: Arc::clone(&call.policy),
            attempts: call.attempts,
            client: HabitKey::of(gate, call),
            is_told: event == LateEvent::Told,
        };
        let clock = own.habits(gate, &details.client).gives_up_after();
        let kept = Work::new(call.id.server.clone(), call.opened, now + late.keep, details);
        let mut news = kept.news(event, now);
        (news.call, news.clock) = (Some(id), clock);
        gate.calls.events.push_back(FilterEvent::Late(Box::new(news)));
        let outcome = if event == LateEvent::Told { Outcome::Interim } else { Outcome::Cancelled };
        gate.end_call(now, id, Tombstone::Cancelled, outcome);
        let (who, what) = (kept.details.principal, kept.details.signature.clone());
        own.works.add(kept);
        self.join_held(gate, now, who, &what);
        true
    }

    /// Takes back a call that its client gave up while the answer was on its way. If the client's timer expired, the
    /// answer waits for a repeated call. Returns false if the server has to get the cancellation.
    pub(crate) fn regain_late(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        stream: StreamId,
        id: &Key,
        is_by_clock: bool,
    ) -> bool {
        let who = gate.calls.streams.late_principal(stream);
        let Some(late) = &mut self.late else { return false };
        let given = late.take_given(who, id);
        let Some(GivenCall { mut work, answer, is_joined, .. }) = given else { return false };
        let Some(answer) = answer.filter(|_| is_by_clock && late.works.has_room()) else {
            // The server does not know the id of a joined call, so no cancellation is sent to it.
            return is_joined;
        };
        work.until = now + work.details.terms().finished;
        work.finish(answer);
        note(gate, now, &work, LateEvent::Finished);
        let what = work.details.signature.clone();
        late.works.add(work);
        self.join_held(gate, now, who, &what);
        true
    }

    /// Answers the calls that are due with a text, and gives up work whose time has passed.
    pub(crate) fn expire_late(&mut self, gate: &mut Gate, now: Instant) {
        while let Some(id) = self.late.as_mut().and_then(|late| late.next_told(now)) {
            self.tell_late(gate, now, id);
        }
        if let Some(late) = &mut self.late {
            late.expire(gate, now);
        }
        while let Some(held) = self.late.as_mut().and_then(|late| late.held.take_due(now)) {
            if let Some(late) = &mut self.late
                && let Some(what) = held.draft.signature.as_deref()
            {
                let who = gate.calls.streams.late_principal(held.stream);
                late.note_left_open(gate, who, what);
            }
            self.release(gate, now, held);
        }
    }

    /// Sends every held call to the server, because the client sends nothing more. A client that was told to call again
    /// has not done so on this connection.
    pub(crate) fn release_all(&mut self, gate: &mut Gate, now: Instant) {
        if let Some(late) = &mut self.late {
            late.note_clients_left(gate);
        }
        while let Some(held) = self.late.as_mut().and_then(|late| late.held.take_first()) {
            self.release(gate, now, held);
        }
    }

    fn release(&mut self, gate: &mut Gate, now: Instant, held: HeldCall) {
        let HeldCall { stream, message, draft, tool, .. } = held;
        if let Some(late) = &mut self.late {
            late.move_on(gate, now, gate.calls.streams.late_principal(stream));
        }
        let payload = self.enter_sent(gate, now, stream, &message, (mcp::TOOLS_CALL, tool), draft);
        if !payload.is_empty()
            && let Some(late) = &mut self.late
        {
            late.held.released.push_back(ReleasedRequest { stream, message, payload });
        }
    }

    /// Lets a held call join the same work, which continues without its client.
    pub(crate) fn join_held(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        who: Principal,
        what: &Signature,
    ) {
        let held = self.late.as_mut().and_then(|late| late.held.take_same(gate, who, what));
        let Some(HeldCall { stream, draft, .. }) = held else { return };
        if let Some(work) = self.late.as_mut().and_then(|late| late.take_same(who, what)) {
            self.rejoin(gate, now, stream, work, draft);
        }
    }

    /// Answers an open call with a text for a model: the work continues, and a repeated call waits for it.
    pub(crate) fn tell_late(&mut self, gate: &mut Gate, now: Instant, id: CallId) {
        let Some(call) = gate.calls.open.get(id).filter(|call| call.task.is_none()) else {
            return;
        };
        let tool = call.label().to_owned();
        let age = now.saturating_duration_since(call.opened);
        let usual = call.policy.learned.usual(&tool).map(|usual| usual.expected(age));
        let usual = match usual {
            Some(Expected::About(about, _)) => Some(about),
            _ => None,
        };
        // A tool with an `outputSchema` must return structured content (MCP 2025-06-18, Tools):
        // words alone are valid only as an error.
        let is_error = self.late.as_ref().is_some_and(|late| late.is_structured(&tool));
        let is_modern =
            call.revision.or(gate.calls.handshake.revision) >= Some(Revision::V2026_07_28);
        let words = status_text(age, usual, call.figure_words());
        let (stream, client_id) = (call.stream, call.id.client.clone());
        if !self.late.as_mut().is_some_and(|late| late.may_tell(gate, now, id)) {
            return;
        }
        // Before the call ends, because the guard is read from the call.
        let guards = smallvec![gate.calls.open.guard_of(id, &gate.calls.streams)];
        if !self.keep_late(gate, now, id, LateEvent::Told) {
            return;
        }
        let text = [
            &br#"{"jsonrpc":"2.0","id":"#[..],
            &client_id[..],
            br#","result":{"#,
            if is_modern { br#""resultType":"complete","#.as_slice() } else { &[] },
            br#""content":[{"type":"text","text":"#,
            &json::quote(&words)[..],
            br#"}],"isError":"#,
            if is_error { b"true".as_slice() } else { b"false" },
            b"}}",
        ]
        .concat();
        let item = Item {
            order: 0,
            kind: ItemKind::Whole(TransmitKind::Answer(Key::read(&client_id))),
            payload: Payload::own(text.into()),
            guards,
            verdicts: SmallVec::new(),
        };
        gate.calls.enqueue_own(stream, item);
    }
}

/// Returns the text for a model whose call continues.
fn status_text(age: Duration, usual: Option<Duration>, figure: Option<String>) -> String {
    let age = heartbeat::spell(age);
    let usual = usual.map(|usual| format!(" (usually about {})", heartbeat::spell(usual)));
    let figure = figure.map(|figure| format!(", {figure}"));
    format!(
        "Still running after {age}{}{}. Call the same tool again with the same arguments to go on waiting; it \
         will not run twice.",
        usual.unwrap_or_default(),
        figure.unwrap_or_default()
    )
}

/// Whether the reason of a cancellation shows that the client's timer expired, and that no person cancelled the call:
/// `MCP error -32001: Request timed out` (TypeScript SDK), `request timeout` (rmcp), `MCP request cancelled by caller`
/// (Codex, which sends no cancellation when a person interrupts the call).
pub(crate) fn is_by_clock(params: &Bytes) -> bool {
    let reason = json::member(params, "reason");
    let words = reason.as_ref().and_then(|text| json::decode_str(text));
    words.is_some_and(|words| {
        let words = words.to_ascii_lowercase();
        let signs = ["timed out", "timeout", "-32001", "mcp request cancelled by caller"];
        signs.iter().any(|sign| words.contains(sign))
    })
}
