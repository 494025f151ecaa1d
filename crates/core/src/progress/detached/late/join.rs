//! The steps of late answers in a filter: keep, join, answer, forget.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use smallvec::{SmallVec, smallvec};

use crate::progress::correlate::call::Call;
use crate::progress::correlate::draft::CallDraft;
use crate::progress::correlate::signature::Signature;
use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::detached::DetachedWork;
use crate::progress::detached::late::calls::{GivenCall, LateCall, LateWork};
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
use crate::progress::verdict::{Reason, Repairs, Verdict};
use crate::protocol::jsonrpc::{Key, Message};
use crate::protocol::mcp::Revision;
use crate::protocol::{json, mcp};

/// The reason in the cancellation of work whose client did not come back.
const NOBODY_CAME: &str = "the client has given the request up and did not ask again";

impl DetachedWork {
    /// Gives up the calls that a client has left, because the client makes another call.
    pub(crate) fn move_on(&mut self, gate: &mut Gate, now: Instant, who: Principal) {
        let Some(late) = &mut self.late else { return };
        late.forget_given(who);
        for work in late.works.take_if(|work| work.details.principal == who) {
            self.give_late_up(gate, now, &work, LateEvent::MovedOn);
        }
    }

    /// The server's id of the call that goes on without its client, and that an answer with this id is for.
    fn late_id(&self, gate: &Gate, id: &Key) -> Option<Key> {
        let (late, ledger) = (self.late.as_ref()?, &gate.calls.open.ledger);
        // An open request with exactly this id goes before work that its client has given up.
        if late.any_running().is_none() || ledger.by_id(id).is_some() {
            return None;
        }
        if late.works.running(id).is_some() {
            return Some(id.clone());
        }
        // An exact name, also that of an ended request, goes before another spelling.
        let is_unknown = ledger.call_of_answer(id).is_none() && ledger.was_id(id).is_none();
        is_unknown.then(|| late.running_in_other_spelling(id)).flatten()
    }

    /// Lets a call go on without its client.
    fn keep(&mut self, work: LateWork) {
        if let Some(late) = &mut self.late {
            late.works.add(work);
        }
    }

    /// Whether an answer with this id is for a call that goes on without its client.
    pub(crate) fn is_late_answer(&self, gate: &Gate, id: &Key) -> bool {
        self.late_id(gate, id).is_some()
    }

    /// Bytes that the answer with this id may have, so that it can wait for its client; without an id the answer to any
    /// call. `None` if the answer is for no call that goes on without its client.
    pub(crate) fn late_room(&self, gate: &Gate, id: Option<&Key>) -> Option<usize> {
        let late = self.late.as_ref()?;
        let some = late.any_running().filter(|_| id.is_none_or(|id| self.is_late_answer(gate, id)));
        let room = some?.details.policy.call.late.bytes;
        let most = if self.kept_room == u32::MAX { usize::MAX } else { self.kept_room as usize };
        Some(room.saturating_sub(late.bytes()).min(most))
    }

    /// Takes the answer to a call that goes on without its client. Returns false if the answer
    /// belongs to another call.
    pub(crate) fn take_late_answer(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        message: &Message,
        number: u64,
    ) -> bool {
        let key = message.id_key().and_then(|key| self.late_id(gate, &key));
        let Some(key) = key else { return false };
        let is_taken = self.take_kept_room(message.raw().len());
        let Some(late) = &mut self.late else { return false };
        let bytes = message.raw().len() + late.bytes();
        let Some(work) = late.works.running_mut(&key) else { return false };
        work.until = now + work.details.terms().finished;
        let has_room = is_taken && bytes <= work.details.policy.call.late.bytes;
        let event = if has_room { LateEvent::Finished } else { LateEvent::Dropped };
        gate.calls.events.push_back(FilterEvent::Late(Box::new(work.news(event, now))));
        if event == LateEvent::Finished {
            // A copy: the answer may wait for minutes, and would keep a whole read buffer.
            work.finish(Message::parse(Bytes::copy_from_slice(message.raw())));
        } else {
            late.works.take_running(&key);
        }
        // If a client fetches the answer later, it gets a message of Milepost's own.
        gate.calls.events.push_verdict(number, None, Verdict::Withheld(Reason::CancelledAnswer));
        true
    }

    /// Forgets a call that goes on without its client, because its answer cannot be kept.
    pub(crate) fn drop_late_answer(&mut self, gate: &mut Gate, now: Instant, id: &Key) {
        if let Some(work) = self.late.as_mut().and_then(|late| late.works.take_running(id)) {
            gate.calls
                .events
                .push_back(FilterEvent::Late(Box::new(work.news(LateEvent::Dropped, now))));
        }
    }

    /// Forgets the calls that go on without their clients, because the server has ended.
    pub(crate) fn drop_late_calls(&mut self, gate: &mut Gate, now: Instant) {
        let Some(late) = &mut self.late else { return };
        for call in late.take_all() {
            gate.calls
                .events
                .push_back(FilterEvent::Late(Box::new(call.news(LateEvent::Dropped, now))));
        }
    }

    /// Gives up a call whose answer no client will get, and tells the server to stop its work.
    fn give_late_up(&self, gate: &mut Gate, now: Instant, work: &LateWork, event: LateEvent) {
        gate.calls.events.push_back(FilterEvent::Late(Box::new(work.news(event, now))));
        if work.is_running() {
            gate.calls.to_server.cancel(&work.server_id, NOBODY_CAME);
        }
    }

    /// Takes a `tools/call`: joins the same work if that goes on, and gives up what the client left for this
    /// call. Returns the draft of a call that is to be sent to the server.
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
        // On a shared server, a client without a known principal could not be told from other
        // clients when it calls again.
        let is_unknown = matches!(who, Principal::Stream(_));
        let asks_for = tool.filter(|_| !draft.asks_for_task && !is_unknown);
        let read = |tool: &str, ignore: &[String]| Signature::read(tool, message, ignore);
        let signature = asks_for.and_then(|tool| {
            let late = self.late_of(gate, gate.calls.policy.of(Some(tool)), Some(tool))?;
            read(tool, &late.ignore)
        });
        let mut same = None;
        if let Some(tool) = asks_for {
            if let Some(signature) = &signature {
                self.give_up_silently(gate, now, who, signature);
            }
            // The work that goes on is compared by the settings that it began with, although new
            // calls may have other settings.
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
                let draft = self.hold_repeated(gate, now, stream, message, tool, draft)?;
                self.move_on(gate, now, who);
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
        let is_meant = |call: &Call| {
            let limit = call.settings().late.repeated_after;
            limit.is_some_and(|limit| now >= call.opened + limit)
                && call.signature.as_deref() == Some(signature)
                && gate.calls.streams.late_principal(call.stream) == who
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
        let client_id = draft.id.client.clone();
        draft.id = MappedId { server: late.server_id.clone(), translated: true, ..draft.id };
        let invented = late.details.token.is_none() && gate.calls.streams.topology.has_strangers();
        let token = late.details.token.clone().or_else(|| invented.then(|| gate.calls.give_name()));
        draft.token = draft.token.map(|own| match token {
            Some(server) => MappedId { server, translated: true, ..own },
            None => own,
        });
        let tool = Some(late.details.signature.tool.clone());
        let Some(id) = self.enter(gate, now, stream, mcp::TOOLS_CALL, tool, draft) else {
            self.keep(late);
            gate.calls.refuse(
                stream,
                &client_id,
                "too many requests are open on this upstream",
                None,
            );
            return;
        };
        gate.calls.open.join(id, late.began, late.details.attempts + 1);
        if let Some(upstream) = late.details.paired {
            gate.calls.open.pair(id, upstream);
        }
        self.plan_late(gate, now, id);
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

    /// Lets the work of a call go on whose client has given it up by its clock. Returns false if
    /// the call has to be cancelled.
    pub(crate) fn keep_late(
        &mut self,
        gate: &mut Gate,
        now: Instant,
        id: CallId,
        event: LateEvent,
    ) -> bool {
        let Some(call) = gate.calls.open.get(id) else { return false };
        let late = self.late_of(gate, call.settings(), call.tool.as_deref());
        let (Some(late), Some(signature)) = (late, &call.signature) else { return false };
        if !self.late.as_ref().is_some_and(|late| late.works.has_room()) {
            return false;
        }
        let details = LateCall {
            token: call.token.as_ref().map(|token| token.server.clone()),
            paired: call.paired,
            principal: gate.calls.streams.late_principal(call.stream),
            signature: (**signature).clone(),
            policy: Arc::clone(&call.policy),
            attempts: call.attempts,
        };
        let kept = Work::new(call.id.server.clone(), call.opened, now + late.keep, details);
        let mut news = kept.news(event, now);
        news.call = Some(id);
        gate.calls.events.push_back(FilterEvent::Late(Box::new(news)));
        let outcome = if event == LateEvent::Told { Outcome::Interim } else { Outcome::Cancelled };
        gate.end_call(now, id, Tombstone::Cancelled, outcome);
        let (who, what) = (kept.details.principal, kept.details.signature.clone());
        self.keep(kept);
        self.join_held(gate, now, who, &what);
        true
    }

    /// Takes back a call that its client gave up while the answer was on its way. If the client's
    /// clock ran out, the answer waits for the same call. Returns false if the server has to see
    /// the cancellation.
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
            // The server does not know the id of a joined call, so that call is not cancelled
            // there.
            return is_joined;
        };
        work.until = now + work.details.terms().finished;
        work.finish(answer);
        gate.calls
            .events
            .push_back(FilterEvent::Late(Box::new(work.news(LateEvent::Finished, now))));
        let what = work.details.signature.clone();
        self.keep(work);
        self.join_held(gate, now, who, &what);
        true
    }

    /// Answers with words, and gives up, what is due.
    pub(crate) fn expire_late(&mut self, gate: &mut Gate, now: Instant) {
        while let Some(id) = self.late.as_mut().and_then(|late| late.next_told(now)) {
            self.tell_late(gate, now, id);
        }
        let over = self.late.as_mut().map(|late| late.take_over(now));
        for call in over.unwrap_or_default() {
            self.give_late_up(gate, now, &call, LateEvent::Expired);
        }
        self.release_due(gate, now);
    }

    /// Answers an open call with words for a model: the work goes on, and the same call waits for it.
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

/// The words for a model whose call goes on.
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

/// Whether the reason of a cancellation shows that the client's clock ran out, and that nobody cancelled the
/// call: `MCP error -32001: Request timed out` (TypeScript SDK), `request timeout` (rmcp), `MCP request
/// cancelled by caller` (Codex, which sends nothing when a person interrupts it).
pub(crate) fn is_by_clock(params: &Bytes) -> bool {
    let reason = json::member(params, "reason");
    let words = reason.as_ref().and_then(|text| json::decode_str(text));
    words.is_some_and(|words| {
        let words = words.to_ascii_lowercase();
        let signs = ["timed out", "timeout", "-32001", "mcp request cancelled by caller"];
        signs.iter().any(|sign| words.contains(sign))
    })
}
