//! `mode = "observe"`: every message is forwarded unchanged to its stream. Verdicts are computed only for the record.
//! If only some tools of a route are observed, their messages pass through the queue of their stream, like other
//! messages.

use crate::progress::correlate::correlator::Correlator;
use crate::progress::correlate::id_mapping::{restored_names, with_client_names};
use crate::progress::correlate::place::Placement;
use crate::progress::event::Origin;
use crate::progress::intake::split_line::is_split;
use crate::progress::payload::{Payload, Transmit, TransmitKind, spliced};
use crate::progress::verdict::Reason;
use crate::protocol::jsonrpc::{Kind, Message};

/// Forwards a message unchanged, except for names given by Milepost. Returns false if no client can get the message.
pub(crate) fn forward_unchanged(calls: &mut Correlator, origin: Origin, message: &Message) -> bool {
    // Only one stream is possible, so the message need not be parsed.
    if !calls.streams.topology.is_whole() || calls.streams.topology.needs_no_choice() {
        let streams = &mut calls.streams;
        return streams.observe(streams.session_stream, Transmit::of(message));
    }
    if message.kind() != Kind::Batch && !is_split(calls, message) {
        let Ok((stream, payload)) = observed_place(calls, origin, message) else { return true };
        return calls.streams.observe(stream, transmit(payload));
    }
    let elements = message.elements().map(|element| observed_place(calls, origin, &element));
    let placed: Vec<Placement> = elements.collect();
    let first = placed.first().and_then(|one| one.as_ref().ok()).map(|(stream, _)| *stream);
    let together = |one: &Placement| one.as_ref().is_ok_and(|(stream, _)| Some(*stream) == first);
    // An array whose elements all go to one stream stays unchanged.
    if let Some(stream) = first
        && !calls.streams.topology.has_strangers()
        && placed.iter().all(together)
    {
        return calls.streams.observe(stream, Transmit::of(message));
    }
    for (stream, payload) in placed.into_iter().flatten() {
        calls.streams.observe(stream, transmit(payload));
    }
    true
}

fn observed_place(calls: &mut Correlator, origin: Origin, message: &Message) -> Placement {
    match message.kind() {
        Kind::Response => observed_answer(calls, origin, message),
        Kind::Notification => match observed_progress(calls, origin, message) {
            Some(placed) => placed,
            None => calls.destination_of(origin, message),
        },
        Kind::Request => calls.destination_of(origin, message),
        Kind::Noise => Err(Reason::Noise),
        _ if calls.streams.topology.has_strangers() => Err(Reason::Unknown),
        _ => calls.destination_of(origin, message),
    }
}

fn observed_answer(calls: &Correlator, origin: Origin, message: &Message) -> Placement {
    let topology = calls.streams.topology;
    let answered = message
        .id_key()
        .and_then(|key| calls.open.call_of_answer_on(origin, &key, &calls.streams))
        .and_then(|id| calls.open.get(id));
    let Some(call) = answered else {
        // If clients share the server, the answer could be for another client.
        return if topology.has_strangers() {
            Err(Reason::OrphanAnswer)
        } else {
            calls.fallback_stream(origin).map(|stream| (stream, Payload::of(message)))
        };
    };
    let names =
        if topology.has_strangers() { restored_names(call, message, topology) } else { Vec::new() };
    Ok((Some(call.stream), spliced(message, names)))
}

/// Returns the stream for progress; `None` if the message is not progress, or its call is unknown.
fn observed_progress(
    calls: &mut Correlator,
    origin: Origin,
    message: &Message,
) -> Option<Placement> {
    if !calls.policy.claims_progress(message) {
        return None;
    }
    let (policies, method) = (calls.policy.clone(), message.method()?);
    let mut why = Reason::Unreadable;
    for (_, report) in policies.reports(&method, message) {
        match calls.attribute(&report.about, origin) {
            Ok((id, _)) => {
                let call = calls.open.get(id)?;
                let payload =
                    with_client_names(call, message, &report.about, calls.streams.topology);
                return Some(Ok((Some(call.stream), payload)));
            }
            Err(reason) => why = reason,
        }
    }
    calls.streams.topology.has_strangers().then_some(Err(why))
}

/// Returns a whole message with the names that its client gave.
fn transmit(payload: Payload) -> Transmit {
    let message = Message::parse(payload.to_bytes());
    Transmit::whole(TransmitKind::of(&message), payload)
}
