//! Findings that are known only when a conversation has ended: unanswered calls, silences, and habits.

use std::time::Duration;

use super::Examiner;
use crate::lab::doctor::findings::{Examined, Finding, ObservedCall};
use crate::lab::doctor::rules::Rule;
use crate::lab::doctor::traffic::{TrafficStream, TransportKind};

impl Examiner {
    /// Ends the examination. `end` is the time at which the conversation ended.
    pub(super) fn finish(mut self, end: Duration) -> Examined {
        for at in 0..self.calls.len() {
            let Some(call) = self.calls.get_mut(at) else { continue };
            if call.ended.is_none() {
                call.took = end.saturating_sub(call.begun);
                call.silence = call.silence.max(end.saturating_sub(call.last_progress));
            }
            let call = call.clone();
            self.judge_times(&call);
            self.judge_habits(&call);
        }
        self.judge_overheard();
        self.judge_claimed();
        self.judge_unknown();
        self.judge_texts();
        let logged = self.logged_figures();
        let (told, uses_get) = (self.told, self.uses_get);
        let findings = self.found.into_iter().map(|(_, finding)| finding).collect();
        let overtaken = self.added.overtaken();
        let calls = self.calls;
        let missed = Vec::new();
        Examined { findings, calls, told, has_ended: false, uses_get, overtaken, missed, logged }
    }

    fn judge_times(&mut self, call: &ObservedCall) {
        let limit = self.terms.silence_max;
        let (id, tool) = (call.id, &call.tool);
        if call.ended.is_none() {
            self.note(Rule::NoAnswer, format!("{tool} (id {id})"));
        }
        if call.token.is_some() && call.silence > limit {
            let silent = call.silence.as_secs_f64();
            self.note(Rule::Silence, format!("{tool} said nothing for {silent:.1} s"));
        }
        let begun = call.first_byte.unwrap_or(call.took);
        if self.terms.wire == TransportKind::Streamable && begun > limit {
            let late = begun.as_secs_f64();
            self.note(Rule::FirstByte, format!("{tool} sent no byte for {late:.1} s"));
        }
        let open = !self.over.contains(&TrafficStream::Post(Some(id)));
        if self.terms.wire == TransportKind::Streamable && call.ended.is_some() && open {
            self.note(Rule::StaysOpen, format!("the response to {tool} (id {id})"));
        }
    }

    fn judge_habits(&mut self, call: &ObservedCall) {
        let tool = &call.tool;
        if call.habits.are_pieces() {
            self.note(Rule::Pieces, format!("{tool} ends with {:?}", call.habits.last_words()));
            if let Some(found) = self.found.get_mut(&(Rule::Pieces, None)) {
                found.content.extend(self.told.clone());
            }
        }
        if let Some(scale) = call.habits.scale() {
            let values = call.habits.shown_values();
            let key = (Rule::NoTotal, Some(scale.to_owned()));
            let example = format!("{tool} counts {values}");
            self.found.entry(key).or_insert_with(|| Finding {
                name: Some(scale.to_owned()),
                ..Finding::of(Rule::NoTotal, example)
            });
        } else if call.habits.counts_beside_words() {
            let (values, words) = (call.habits.shown_values(), call.habits.last_words());
            self.note(Rule::BareCounter, format!("{tool} counts {values}, and says {words:?}"));
        }
        if let Some(most) = call.habits.flood() {
            self.note(Rule::Flood, format!("{tool} sent {most} notifications within a second"));
        }
    }
}
