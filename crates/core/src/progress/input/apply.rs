//! Applies an input to a filter.

use std::time::Instant;

use crate::progress::detached::cancel::cancel_by_operator;
use crate::progress::detached::clock::expire;
use crate::progress::dialect::TextSource;
use crate::progress::event::summary::Outcome;
use crate::progress::filter::{Filter, fail_calls};
use crate::progress::gate::server_tasks::end_tasks;
use crate::progress::input::{FilterScope, Input, InputResult, ONLY};
use crate::progress::intake::state::Intake;
use crate::progress::intake::text_source::hear;
use crate::progress::verdict::Repair;
use crate::progress::{Origin, StreamKind, StreamPacing};
use crate::protocol::jsonrpc::Message;

impl Filter {
    /// Applies an input.
    pub fn handle(&mut self, now: Instant, input: &Input) -> InputResult {
        let intake = &mut self.intake;
        match input {
            Input::ClientMessage(stream, message) => {
                return InputResult::ToServer(intake.client_message(now, *stream, message));
            }
            Input::ServerMessage(origin, message) => {
                return InputResult::Server(intake.server_message(now, *origin, message));
            }
            Input::ServerProgress(stream, text) => {
                if !intake.fast_path(now, *stream, text) {
                    let message = Message::parse(text.clone());
                    let origin = Origin::Stream(*stream);
                    return InputResult::Server(intake.server_message(now, origin, &message));
                }
            }
            Input::HandleLast(Some((origin, message))) | Input::HandleForeign(origin, message) => {
                return InputResult::Server(intake.server_message_here(now, *origin, message));
            }
            Input::HearLog(origin, message) => hear(&mut intake.gate, now, *origin, message),
            Input::FindStream(origin, message) => {
                return InputResult::Stream(
                    intake.gate.calls.stream_of_arrived(now, *origin, message),
                );
            }
            Input::SpoolAnswer(id, needs) => {
                return InputResult::Spool(intake.answer_spooled(now, id, *needs));
            }
            Input::CancelCall(asked) => {
                let tasks = intake.detached.tasks.as_deref_mut();
                let result = cancel_by_operator(&mut intake.gate, tasks, now, asked);
                return InputResult::Cancel(result);
            }
            Input::ClientLarge(stream, scan) => intake.finish_large_client(now, *stream, scan),
            Input::Refuse(message) => intake.gate.withdraw(now, message),
            Input::ServerLarge(origin, text, broken) => {
                intake.begin_large(now, *origin, text.clone(), 0..text.len());
                match broken {
                    Some(why) => intake.break_off_server(now, *origin, why),
                    None => intake.finish_large(now, *origin),
                }
            }
            Input::NoteDelivery(on, message) => intake.note_delivery(now, *on, message),
            Input::LearnToken(origin, message) => intake.gate.calls.learn_from(*origin, message),
            Input::Stderr(line) => intake.text_line(now, TextSource::Stderr, line),
            Input::Pair(Some((client, message)), upstream) => {
                intake.detached.pair(&mut intake.gate, *client, message, *upstream);
            }
            Input::Settings(_, Some(policy)) => intake.set_policy(policy),
            Input::OutOfPlace(reason) => intake.note_out_of_place(*reason),
            Input::MarkIncomplete => intake.gate.calls.open.mark_incomplete(),
            Input::SetClient(client) => intake.gate.calls.handshake.set_client(client.clone()),
            Input::MarkElsewhere(tokens) => intake.gate.calls.names.elsewhere = tokens.to_vec(),
            Input::MarkEventName => intake.done.add(Repair::EventName),
            Input::MarkApart => intake.done.add(Repair::Batch),
            Input::EndResponse(stream) => {
                intake.detached.response_ended(&mut intake.gate, now, *stream)
            }
            Input::EndTasks => end_tasks(&mut intake.gate, now),
            Input::EnableTasks(key, millis) => {
                let tasks = intake.detached.tasks.get_or_insert_default();
                tasks.enable(now, *key, *millis);
            }
            _ => self.handle_connection(now, input),
        }
        InputResult::Nothing
    }

    /// Applies an input about streams or the connection.
    fn handle_connection(&mut self, now: Instant, input: &Input) {
        let Intake { gate, detached, .. } = &mut self.intake;
        match input {
            Input::Begin(FilterScope::Exchange(revision) | FilterScope::Request(revision)) => {
                gate.calls.streams.open(ONLY, StreamKind::Exchange, StreamPacing::Immediate);
                gate.calls.handshake.set_revision(*revision);
            }
            Input::Begin(FilterScope::Shared(key)) => gate.calls.given.key = *key,
            Input::OpenStream(stream, kind, pacing) => {
                gate.calls.streams.open(*stream, *kind, *pacing)
            }
            Input::OpenReplay(stream, of) => gate.calls.streams.open_replay(*stream, *of),
            Input::ResumeStream(old, on, sent) => gate.resume_stream(now, *old, *on, *sent),
            Input::SetPrincipal(stream, principal) => {
                gate.calls.streams.set_principal(*stream, *principal)
            }
            Input::CloseStream(stream, true) => self.cancel_stream(now, *stream),
            Input::CloseStream(stream, false) => self.close_stream(now, *stream),
            Input::SettleStream(stream) => gate.settle_stream(now, *stream),
            Input::MarkWritten(stream) => gate.calls.written(now, *stream),
            Input::Expire => expire(detached, gate, now),
            Input::SetClientSlow(slow) => gate.calls.streams.client_is_slow = *slow,
            Input::SetKeptRoom(bytes) => detached.kept_room.set(*bytes),
            Input::CloseClients => self.close_clients(now),
            Input::CloseServer(why) => self.server_gone(now, why, None),
            Input::FailCalls(status, why) => self.server_gone(now, why, *status),
            Input::StopCalls(why) => {
                fail_calls(&mut self.intake, now, (why, None), Outcome::ProxyStopped);
            }
            Input::StopHeartbeats => gate.stop_heartbeats(),
            Input::Flush => gate.calls.streams.flush(),
            // These inputs are recorded so that a replay takes the same path. They do not change the filter.
            _ => {}
        }
    }
}
