//! Notifications with unknown methods, and the texts that come during calls: whether they show how far a call is, and
//! which settings can read them.

use bytes::Bytes;
use litemap::LiteMap;
use serde_json::Value;

use super::aside::TextStream;
use super::{Examiner, dialect_of};
use crate::lab::doctor::draft::template::{self, TEXTS_MAX};
use crate::lab::doctor::draft::{Draft, SAMPLES_MAX};
use crate::lab::doctor::findings::{Finding, shown};
use crate::lab::doctor::member_names::is_handle;
use crate::lab::doctor::rules::Rule;
use crate::progress::extract::{Extract, PRESETS};
use crate::protocol::jsonrpc::Message;
use crate::protocol::mcp::SUBSCRIPTIONS;

/// Maximum number of nested levels of parameters in which the id or token of a call is searched for.
const DEPTH_MAX: usize = 6;

/// The notifications that the specification defines for servers, besides progress and log messages.
const KNOWN: [&str; 9] = [
    "notifications/cancelled",
    "notifications/initialized",
    "notifications/resources/updated",
    "notifications/resources/list_changed",
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/roots/list_changed",
    "notifications/elicitation/complete",
    "notifications/tasks/status",
];

/// Names of members that have the text of a structured log message.
const WORDS: [&str; 4] = ["msg", "message", "text", "event"];

/// Whether the specification defines this method of notifications.
pub(in crate::lab) fn is_of_specification(method: &str) -> bool {
    KNOWN.contains(&method) || method.starts_with(SUBSCRIPTIONS)
}

/// Notifications with unknown methods, by method.
#[derive(Default)]
pub(super) struct NotificationsByMethod {
    pub(super) by_method: LiteMap<String, Vec<KeptNotification>>,
}

/// A notification that is kept for the end of the conversation.
pub(super) struct KeptNotification {
    pub(super) message: Message,
    /// The index of the call that was open, or else of the last call.
    pub(super) call: usize,
    /// Whether the call has been answered.
    pub(super) is_over: bool,
}

/// Some of many messages, of the whole time: the first, the last, and others between them at equal distances.
pub(super) fn samples(seen: &[KeptNotification]) -> Vec<(Bytes, usize)> {
    let count = seen.len().min(SAMPLES_MAX);
    let last = seen.len().saturating_sub(1);
    let place = |at: usize| at * last / count.saturating_sub(1).max(1);
    let chosen = (0..count).filter_map(|at| seen.get(place(at)));
    chosen.map(|one| (one.message.raw().clone(), one.call)).collect()
}

impl NotificationsByMethod {
    pub(super) fn add(&mut self, method: String, one: KeptNotification) {
        self.by_method.entry(method).or_default().push(one);
    }

    /// The number of notifications of a method.
    pub(super) fn count(&self, method: &str) -> usize {
        self.by_method.get(method).map_or(0, Vec::len)
    }
}

/// The texts that a server sends during calls, by where it sends them.
#[derive(Default)]
pub(super) struct CallTexts {
    /// The texts of progress without a number.
    pub(super) progress: SpokenTexts,
    /// The texts of log messages.
    pub(super) log: SpokenTexts,
    /// The lines on standard error.
    stderr: SpokenTexts,
    /// The lines on standard output that are not messages.
    stdout: SpokenTexts,
    /// The texts in notifications with unknown methods.
    own: SpokenTexts,
}

impl CallTexts {
    /// Returns the texts on this stream.
    pub(super) fn of(&mut self, stream: TextStream) -> &mut SpokenTexts {
        match stream {
            TextStream::Stderr => &mut self.stderr,
            TextStream::Stdout => &mut self.stdout,
        }
    }
}

/// Texts in the order in which they came, up to a limit.
#[derive(Default)]
pub(super) struct SpokenTexts {
    texts: Vec<String>,
}

impl SpokenTexts {
    /// Adds a line, or the texts of a JSON object in the line.
    pub(super) fn add(&mut self, line: &str) {
        match serde_json::from_str(line.trim()) {
            Ok(object @ Value::Object(_)) => self.add_value(&object),
            _ if self.texts.len() < TEXTS_MAX => self.texts.push(line.to_owned()),
            _ => {}
        }
    }

    /// Adds a string, or the texts of an object.
    pub(super) fn add_value(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.add(text),
            Value::Object(members) => {
                let words = WORDS.iter().find_map(|name| members.get(*name)?.as_str());
                if let Some(words) = words.filter(|_| self.texts.len() < TEXTS_MAX) {
                    self.texts.push(words.to_owned());
                }
            }
            _ => {}
        }
    }
}

impl Examiner {
    /// Returns the call that a member of parameters names: by its token, or by its id under a name for ids.
    pub(super) fn named_inside(&self, params: &Value, depth: usize) -> Option<usize> {
        let members = params.as_object().filter(|_| depth < DEPTH_MAX)?;
        let by_token = |value: &Value| {
            let (at, reference) = self.named(value)?;
            (reference != super::CallReference::Id).then_some(at)
        };
        let token = members.values().find_map(by_token);
        let named = members.iter().filter(|(name, _)| is_handle(name));
        token
            .or_else(|| named.filter_map(|(_, value)| self.named(value)).map(|(at, _)| at).next())
            .or_else(|| members.values().find_map(|inner| self.named_inside(inner, depth + 1)))
    }

    /// Judges the methods that a dialect claims. If the dialect finds nothing in any of their messages, clients see
    /// nothing of them behind Milepost either: another dialect has to take its place.
    pub(super) fn judge_claimed(&mut self) {
        let claimed = std::mem::take(&mut self.claimed).by_method;
        let dialects = claimed.iter().filter_map(|(method, seen)| {
            let (dialect, rule) = dialect_of(method)?;
            let is_read = seen.iter().any(|one| dialect.finds_content(&one.message));
            Some((method, (dialect.name(), rule, is_read)))
        });
        let dialects: LiteMap<_, _> = dialects.collect();
        let is_of_use = |name| dialects.values().any(|(one, _, is_read)| *one == name && *is_read);
        for (method, (name, rule, _)) in &dialects {
            let Some(seen) = claimed.get(*method) else { continue };
            let draft = (!is_of_use(*name)).then(|| Draft::new(&samples(seen), &self.calls));
            let draft = draft.filter(Draft::says_something);
            let found = match &draft {
                Some(_) => (Rule::MethodUnknown, (*method).clone()),
                None => (*rule, (*name).to_owned()),
            };
            for one in seen {
                self.found_named(found.0, Some(found.1.clone()), &one.message);
            }
            if let Some(draft) = draft {
                self.set_draft(Rule::MethodUnknown, (*method).clone(), draft);
            }
        }
    }

    /// Judges the unknown methods.
    pub(super) fn judge_unknown(&mut self) {
        let is_told = self.calls.iter().any(|call| call.reports > 0);
        let mut others = Vec::new();
        for (method, seen) in std::mem::take(&mut self.unknown).by_method {
            let draft = Draft::new(&samples(&seen), &self.calls);
            let is_progress = draft.is_progress() || method.to_lowercase().contains("progress");
            let rule = match is_progress && !is_told {
                true => Rule::MethodUnknown,
                false => Rule::MethodOther,
            };
            for KeptNotification { message, call, is_over } in seen {
                self.found_named(rule, Some(method.clone()), &message);
                if rule == Rule::MethodUnknown && is_over {
                    self.late_foreign_report(call, &message);
                } else if rule == Rule::MethodUnknown {
                    self.foreign_report(call, &message);
                }
            }
            if rule == Rule::MethodUnknown {
                if !draft.has_value() {
                    draft.words.iter().for_each(|words| self.texts.own.add(words));
                }
                self.set_draft(rule, method, draft);
            } else {
                others.push((method, draft));
            }
        }
        // If the server reports progress, other notifications are not judged as progress.
        if !self.calls.iter().any(|call| call.reports > 0) {
            for (method, draft) in others {
                draft.words.iter().for_each(|words| self.texts.own.add(words));
                self.set_draft(Rule::MethodOther, method, draft);
            }
        }
    }

    fn set_draft(&mut self, rule: Rule, method: String, draft: Draft) {
        if let Some(finding) = self.found.get_mut(&(rule, Some(method))) {
            draft.words.iter().for_each(|words| finding.content.add_text(words));
            finding.draft = Some(draft).filter(Draft::says_something);
        }
    }

    /// Returns the number of log messages whose text shows how far a call is, in a known form or in the drafted form.
    pub(super) fn logged_figures(&self) -> usize {
        let Some(logs) = self.found.get(&(Rule::LogProgress, None)) else { return 0 };
        let drafted = self.found.keys().filter(|(rule, _)| *rule == Rule::FigureInWords);
        let patterns = drafted.filter_map(|(_, pattern)| pattern.as_deref());
        let known = Extract::read(std::iter::once(PRESETS).chain(patterns));
        let known = known.unwrap_or_else(|_| Extract::presets());
        let texts = &self.texts.log.texts;
        let telling = texts.iter().filter(|text| known.figure(text).is_some()).count();
        // Only the first texts are kept. If all of them show how far a call is, assume the same of the others.
        if telling == texts.len() && telling > 0 { logs.count } else { telling }
    }

    /// Judges texts. If the server also reports progress, texts are not judged as progress.
    pub(super) fn judge_texts(&mut self) {
        let streams = TextStream::ALL;
        if self.calls.iter().any(|call| call.reports > 0) {
            let is_text = |rule: Rule| {
                let is_aside = |one: TextStream| rule == one.progress() || rule == one.text();
                rule == Rule::LogProgress || streams.into_iter().any(is_aside)
            };
            self.found.retain(|(rule, _), _| !is_text(*rule));
        }
        let has = |rule| self.found.contains_key(&(rule, None));
        let texts = &self.texts;
        let mut places = vec![(None, &texts.own), (None, &texts.progress)];
        places.extend(has(Rule::LogProgress).then_some((None, &texts.log)));
        let asides = [(streams[0], &texts.stderr), (streams[1], &texts.stdout)];
        let asides = asides.into_iter().filter(|(stream, _)| has(stream.text()));
        places.extend(asides.map(|(stream, texts)| (Some(stream), texts)));
        let drafted = places.into_iter().find_map(|(stream, texts)| {
            let pattern = template::draft(&texts.texts)?;
            Some((stream, pattern, texts.texts.first().cloned().unwrap_or_default()))
        });
        if let Some((stream, pattern, example)) = drafted {
            let finding = Finding {
                name: Some(pattern.clone()),
                ..Finding::of(Rule::FigureInWords, shown(example.as_bytes()))
            };
            self.found.insert((Rule::FigureInWords, Some(pattern)), finding);
            // If a pattern was drafted, these lines show how far the call is.
            if let Some(stream) = stream
                && let Some(found) = self.found.remove(&(stream.text(), None))
            {
                let found = Finding { rule: stream.progress(), ..found };
                self.found.insert((stream.progress(), None), found);
            }
        }
        for stream in streams {
            if self.found.contains_key(&(stream.progress(), None)) {
                self.found.remove(&(stream.text(), None));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_of_the_whole_time() {
        let chosen = |count: usize| -> Vec<usize> {
            let message = Message::parse(Bytes::from_static(b"{}"));
            let one = |call| KeptNotification { message: message.clone(), call, is_over: false };
            let seen: Vec<KeptNotification> = (0..count).map(one).collect();
            samples(&seen).into_iter().map(|(_, call)| call).collect()
        };
        for count in [0, 1, 2, SAMPLES_MAX] {
            assert_eq!(chosen(count), (0..count).collect::<Vec<_>>());
        }
        let many = chosen(1000);
        assert_eq!((many.len(), many.first(), many.last()), (SAMPLES_MAX, Some(&0), Some(&999)));
        assert!(many.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
