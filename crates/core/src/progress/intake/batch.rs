//! Handles several messages in one frame: an array (MCP 2025-03-26), whose messages may be about requests on several
//! streams, or several objects on one line.

use std::time::Instant;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::progress::correlate::correlator::Correlator;
use crate::progress::correlate::id_mapping::{for_client, with_client_names};
use crate::progress::correlate::pending::{Pending, Thinning};
use crate::progress::correlate::repaired_answer::RepairedAnswer;
use crate::progress::dialect::report::About;
use crate::progress::event::{FilterEvent, Origin, RefusalRule};
use crate::progress::gate::questions::note_question;
use crate::progress::ids::{CallId, StreamId};
use crate::progress::intake::server::Unread;
use crate::progress::intake::state::Intake;
use crate::progress::intake::text_source::text_from_log;
use crate::progress::payload::{Payload, TransmitKind};
use crate::progress::streams::stream::{Guard, Item, ItemKind, MessageVerdict};
use crate::progress::verdict::{Reason, Repair, Repairs, Verdict};
use crate::protocol::jsonrpc::{Kind, Message};
use crate::protocol::mcp::Revision;

/// Limit of the elements of a client's batch that is read. A longer batch goes to the server unread, and its requests
/// get no progress. If clients share a server, or Milepost has chosen the ids, a longer batch is refused.
pub const BATCH_MAX: usize = 1000;

/// One element of a batch, with the stream of its client, the bytes for that stream, and the guard.
struct Element {
    stream: Option<StreamId>,
    payload: Option<Payload>,
    guard: Option<Guard>,
    verdict: Verdict,
    call: Option<CallId>,
}

impl Element {
    fn withheld(call: Option<CallId>, reason: Reason) -> Self {
        let verdict = Verdict::Withheld(reason);
        Self { stream: None, payload: None, guard: None, verdict, call }
    }
}

/// The elements that are written to the same stream.
#[derive(Default)]
struct Group {
    stream: Option<StreamId>,
    kept: Vec<Bytes>,
    guards: SmallVec<[Guard; 1]>,
    verdicts: SmallVec<[MessageVerdict; 1]>,
}

/// Takes several messages in one frame. Only 2025-03-26 has arrays: clients of other revisions get each message
/// separately. `done`: the repairs of the frame.
pub(crate) fn dispatch_batch(
    intake: &mut Intake,
    now: Instant,
    origin: Origin,
    message: &Message,
    done: Repairs,
) {
    if intake.gate.calls.handshake.revision != Some(Revision::V2025_03_26)
        || message.kind() != Kind::Batch
    {
        return dispatch_elements(intake, now, origin, message, done);
    }
    let mut groups: Vec<Group> = Vec::new();
    let mut untouched = true;
    for element in message.elements() {
        let mut mended = Repairs::default();
        let well_formed = intake.gate.calls.well_formed(origin, &element, &mut mended);
        let element = well_formed.as_ref().unwrap_or(&element);
        let number = intake.next_number();
        if element.kind() == Kind::Response
            && intake.detached.takes_answer(
                &mut intake.gate,
                now,
                origin,
                element,
                (number, mended),
            )
        {
            untouched = false;
            continue;
        }
        if element.kind() == Kind::Request
            && intake
                .detached
                .offered_tasks()
                .is_some_and(|tasks| tasks.is_asked(&intake.gate, origin, element))
        {
            let done = Repairs::from_iter([Repair::Batch]);
            intake.detached.server_request(&mut intake.gate, now, origin, element, number, done);
            untouched = false;
            continue;
        }
        let claims = intake.gate.calls.policy.claims_progress(element);
        let place =
            claims.then(|| progress_place(&mut intake.gate.calls, origin, element)).flatten();
        // Progress must keep its distance from the answers around it.
        if claims && intake.gate.calls.open.is_paced(place, &intake.gate.calls.streams) {
            let done = Repairs::from_iter([Repair::Batch]);
            intake.progress(now, origin, element, number, done);
            untouched = false;
            continue;
        }
        let mut judged = if claims {
            progress_at_once(intake, now, origin, element)
        } else {
            dispatch_element(intake, now, origin, element)
        };
        judged.verdict = mended.iter().fold(judged.verdict, Verdict::with);
        // Compliant server bytes never change: an array of which nothing is changed, and which
        // goes to one stream, is forwarded in its own bytes.
        untouched &= judged.verdict == Verdict::Forwarded;
        let Some(payload) = judged.payload else {
            intake.gate.calls.events.push_verdict(number, judged.call, judged.verdict);
            continue;
        };
        let stream = intake.gate.calls.streams.open_or_session_stream(judged.stream);
        let place = groups.iter().position(|group| group.stream == stream);
        let place = place.unwrap_or_else(|| {
            groups.push(Group { stream, ..Group::default() });
            groups.len() - 1
        });
        if let Some(group) = groups.get_mut(place) {
            group.guards.extend(judged.guard);
            group.kept.push(payload.to_bytes());
            let (call, verdict) = (judged.call, judged.verdict);
            group.verdicts.push(MessageVerdict { number, call, verdict });
        }
    }
    send_groups(&mut intake.gate.calls, message, groups, untouched, done);
}

fn dispatch_elements(
    intake: &mut Intake,
    now: Instant,
    origin: Origin,
    message: &Message,
    mut done: Repairs,
) {
    for element in message.apart() {
        intake.at_work =
            Some((intake.gate.calls.fallback_stream(origin).ok().flatten(), element.clone()));
        let is_array = message.kind() == Kind::Batch;
        // The repairs of the frame count once, for the first element.
        done.add(if is_array { Repair::Batch } else { Repair::SplitLine });
        intake.dispatch(now, origin, &element, std::mem::take(&mut done));
    }
}

fn dispatch_element(
    intake: &mut Intake,
    now: Instant,
    origin: Origin,
    element: &Message,
) -> Element {
    if element.kind() == Kind::Response {
        let judged = intake.detached.repair_answer(
            &mut intake.gate,
            now,
            origin,
            element,
            Repairs::default(),
        );
        let RepairedAnswer { payload, guard, verdict, call, stream, .. } = judged;
        return Element { stream, payload, guard, verdict, call };
    }
    if intake.gate.calls.streams.topology.has_strangers()
        && !matches!(element.kind(), Kind::Request | Kind::Notification)
    {
        return Element::withheld(None, Reason::Unknown);
    }
    let placed = intake.gate.calls.destination_of(origin, element);
    if element.kind() == Kind::Request && !intake.gate.calls.streams.topology.has_strangers() {
        note_question(&mut intake.gate, now, origin, element, None);
    }
    if element.kind() == Kind::Notification {
        intake.server_notification(now, element);
        text_from_log(&mut intake.gate, now, origin, element);
    }
    match placed {
        Err(reason) => Element::withheld(None, reason),
        Ok((stream, payload)) => {
            let (payload, call) = (
                Some(payload),
                intake.gate.calls.open.sole_call_on(origin, &intake.gate.calls.streams),
            );
            Element { stream, payload, guard: None, verdict: Verdict::Forwarded, call }
        }
    }
}

/// Decides about progress that stays inside its array. The array is written as a whole, so its progress cannot
/// wait.
fn progress_at_once(
    intake: &mut Intake,
    now: Instant,
    origin: Origin,
    message: &Message,
) -> Element {
    let (id, report) = match intake.read_report(origin, message) {
        Ok(found) => found,
        Err(Unread::Withheld(_))
            if intake.gate.calls.policy.observes_the_rest() && !intake.gate.calls.is_private() =>
        {
            let (stream, payload) = match intake.gate.calls.destination_of(origin, message) {
                Ok((stream, payload)) => (stream, Some(payload)),
                Err(reason) => return Element::withheld(None, reason),
            };
            let verdict = Verdict::Forwarded;
            return Element { stream, payload, guard: None, verdict, call: None };
        }
        Err(Unread::Withheld(reason)) => return Element::withheld(None, reason),
        Err(Unread::Refused(id, about, reason)) => {
            let refused = Element::withheld(Some(id), reason);
            return unless_observed(&intake.gate.calls, id, message, &about, refused);
        }
        Err(Unread::NotTaken(id, about)) => {
            let call = intake.gate.calls.open.get(id);
            let payload = call.map(|call| {
                with_client_names(call, message, &about, intake.gate.calls.streams.topology)
            });
            let (stream, verdict) = (call.map(|call| call.stream), Verdict::Forwarded);
            return Element { stream, payload, guard: None, verdict, call: Some(id) };
        }
    };
    let call = intake.gate.calls.open.get(id);
    let stream = call.map(|call| call.stream);
    let raw = call
        .and_then(|call| for_client(call, message, &report, intake.gate.calls.streams.topology));
    let framing = message.framing().clone();
    let mut pending = Pending {
        message: None,
        order: 0,
        due: now,
        ripe: now,
        thinning: Thinning::No,
        raw,
        framing,
        report,
        bytes: 0,
        done: Repairs::default(),
    };
    // Older progress of the call that still waits would be written after the array, with a lower value. So it is
    // replaced now.
    let waiting = intake.gate.calls.open.get_mut(id).map(|call| call.pending.take());
    let mut waiting = waiting.unwrap_or_default();
    waiting.iter().rev().for_each(|old| pending.take_over(old));
    if pending.report.message.is_none() {
        intake.gate.keep_words_of(id, waiting.make_contiguous());
    }
    intake.gate.supersede_all(id, waiting.make_contiguous());
    let rendered = intake.gate.render(now, id, &pending);
    intake.gate.schedule(id);
    let judged = match rendered {
        Ok((payload, verdict)) => {
            Element { stream, payload: Some(payload), guard: None, verdict, call: Some(id) }
        }
        Err(reason) => Element::withheld(Some(id), reason),
    };
    unless_observed(&intake.gate.calls, id, message, &pending.report.about, judged)
}

/// Refuses a batch that is too long to be read, where clients share the server.
pub(crate) fn refuse_long_batch(calls: &mut Correlator, stream: StreamId) -> Payload {
    let why = format!("a batch of more than {BATCH_MAX} messages");
    calls.refuse_as_invalid(stream, &Bytes::from_static(b"null"), &why);
    calls.events.push_back(FilterEvent::Refused(RefusalRule::LongBatch));
    Payload::default()
}

/// Sends the original array if all elements go to one stream; otherwise one array for each group.
fn send_groups(
    calls: &mut Correlator,
    message: &Message,
    groups: Vec<Group>,
    untouched: bool,
    done: Repairs,
) {
    let split = groups.len() > 1;
    let last = groups.len().saturating_sub(1);
    for (index, group) in groups.into_iter().enumerate() {
        let Group { stream, mut kept, guards, mut verdicts } = group;
        let (kind, payload) = if untouched && !split {
            (TransmitKind::of(message), Payload::of(message))
        } else {
            let text = match kept.pop() {
                Some(only) if split && kept.is_empty() => only,
                end => {
                    kept.extend(end);
                    Bytes::from([b"[", &kept.join(&b","[..])[..], b"]"].concat())
                }
            };
            // The rest of the frame (an event id, the blank line) is written with the last group.
            let kind = TransmitKind::of(&Message::parse(text.clone()));
            let own = Payload::own(text);
            (kind, if index == last { own.in_place_of(message.framing()) } else { own })
        };
        for judged in verdicts.iter_mut().filter(|_| split) {
            judged.verdict = judged.verdict.with(Repair::Batch);
        }
        // The repairs of a frame are counted once, whatever the number of its messages.
        if let Some(judged) = verdicts.last_mut().filter(|_| index == last) {
            judged.verdict = done.iter().fold(judged.verdict, Verdict::with);
        }
        let kind = ItemKind::Array(kind);
        let item = Item { order: 0, kind, payload, guards, verdicts };
        calls.streams.enqueue(stream, item, &mut calls.events);
    }
}

/// Returns the stream of the call that progress is about.
fn progress_place(calls: &mut Correlator, origin: Origin, element: &Message) -> Option<StreamId> {
    let is_sought = calls.streams.topology.has_many_streams();
    let meant = is_sought.then(|| calls.find_stream(origin, element)).flatten();
    meant.or_else(|| calls.fallback_stream(origin).ok().flatten())
}

/// Returns an element about a call: the repaired one, or the unchanged one if the call is only observed.
fn unless_observed(
    calls: &Correlator,
    id: CallId,
    message: &Message,
    about: &About,
    judged: Element,
) -> Element {
    let call = calls.open.get(id).filter(|call| call.is_observed());
    let Some(call) = call else { return judged };
    let payload = Some(with_client_names(call, message, about, calls.streams.topology));
    Element { stream: Some(call.stream), payload, verdict: Verdict::Forwarded, ..judged }
}
