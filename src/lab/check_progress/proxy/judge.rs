//! Judges each scenario for a pair of transports.

use serde_json::Value;

use super::ProxyTemplate;
use super::acts::{ActRecord, PairTerms, ProxyAct, beats, first_progress, second_progress};
use super::calls::{PlacedMessage, ProxiedCall, ProxiedCalls};
use crate::lab::check_progress::scenarios::Scenario;
use crate::lab::check_progress::{ScenarioFinding, ScenarioOutcome};
use crate::lab::doctor::findings::shown;
use crate::lab::doctor::traffic::TransportKind;
use crate::lab::reference::TOOLS;
use crate::lab::reference::seen::SeenFacts;

/// Minimum time from the first progress to the answer at the client, in milliseconds. The server waits 1,200 ms.
const PROMPT_MS: u128 = 500;

/// Messages of two streams may arrive in the other order within this time, in milliseconds, because a proxy cannot
/// determine which stream its client reads first.
const CROSSING_MS: u128 = 250;

type Found = Result<Vec<ScenarioFinding>, String>;

/// Returns the judgement of one scenario.
pub(super) fn outcome(
    scenario: Scenario,
    records: &[ActRecord],
    facts: &SeenFacts,
    pair: &PairTerms<'_>,
) -> ScenarioOutcome {
    let PairTerms { terms, template, .. } = pair;
    let judge = ProxyJudge { records, facts, template, is_modern: terms.is_modern() };
    let found = match scenario {
        Scenario::ProxyBegins => judge.begins(),
        Scenario::ProxyAnswers => judge.answers(),
        Scenario::ProxyAsks => judge.asks(),
        Scenario::ProxyToken => judge.token(),
        Scenario::ProxyArrives => judge.arrives(),
        Scenario::ProxyValue => judge.value(),
        Scenario::ProxyOrder => judge.order(),
        Scenario::ProxyPrompt => judge.prompt(),
        Scenario::ProxyAfterAnswer => {
            return judge.after_answer().unwrap_or_else(ScenarioOutcome::NotAssessed);
        }
        Scenario::ProxyApart => judge.apart(),
        Scenario::ProxyNoToken => judge.no_token(),
        Scenario::ProxyCancel => judge.cancel(),
        Scenario::ProxyPing => judge.ping(),
        Scenario::ProxyHeartbeat => judge.heartbeat(),
        Scenario::ProxyPolling => judge.polling(),
        Scenario::ProxyResume => judge.resume(),
        Scenario::ProxyLong => judge.long(),
        _ => Err("not a scenario for proxies".to_owned()),
    };
    match found {
        Ok(findings) => ScenarioOutcome::of(findings),
        Err(why) => ScenarioOutcome::NotAssessed(why),
    }
}

struct ProxyJudge<'a> {
    records: &'a [ActRecord],
    facts: &'a SeenFacts,
    template: &'a ProxyTemplate,
    /// Whether the revision is 2026-07-28, in which servers ask no questions and responses are not resumed.
    is_modern: bool,
}

/// The reason why a scenario is not judged for 2026-07-28.
const NOT_MODERN: &str = "not in 2026-07-28";

fn text(value: &Value) -> String {
    shown(value.to_string().as_bytes())
}

fn summed(findings: impl IntoIterator<Item = ScenarioFinding>) -> Vec<ScenarioFinding> {
    let mut all = Vec::new();
    findings.into_iter().for_each(|one| one.add_to(&mut all));
    all
}

impl ProxyJudge<'_> {
    /// Returns the record of an act's session.
    fn record(&self, act: ProxyAct) -> Result<&ActRecord, String> {
        let record = self.records.iter().find(|record| record.act == act);
        let record = record.ok_or("no session began through the proxy")?;
        match (record.has_begun, &record.trouble) {
            (true, _) => Ok(record),
            (false, why) => Err(format!(
                "the session for this did not begin: {}",
                why.as_deref().unwrap_or("no reason was seen")
            )),
        }
    }

    fn calls(&self, act: ProxyAct) -> Result<ProxiedCalls, String> {
        self.record(act).map(ProxiedCalls::of)
    }

    /// Returns the calls `a` and `b`, each with the progress that the server sent for it.
    fn two(&self) -> Result<Vec<(ProxiedCall, Vec<Value>)>, String> {
        let calls = self.calls(ProxyAct::Calls)?;
        let both = [("a", first_progress()), ("b", second_progress())];
        let both =
            both.into_iter().filter_map(|(key, sent)| Some((calls.find(key)?.clone(), sent)));
        // A server sends no progress for a call without a token.
        let asked = |key: &str| self.facts.token(key).is_some_and(|token| !token.is_null());
        let both: Vec<_> = both.filter(|(call, _)| asked(&call.key)).collect();
        if both.is_empty() { Err("the server got no progress token".to_owned()) } else { Ok(both) }
    }

    /// Returns those of the calls `a` and `b` for which some progress arrived.
    fn two_with_progress(&self) -> Result<Vec<(ProxiedCall, Vec<Value>)>, String> {
        let mut both = self.two()?;
        both.retain(|(call, _)| !call.progress.is_empty());
        if both.is_empty() { Err("no progress arrived".to_owned()) } else { Ok(both) }
    }

    fn begins(&self) -> Found {
        let Some(record) = self.records.first() else { return Err("nothing was tried".to_owned()) };
        if !record.has_begun {
            let why = record.trouble.clone().unwrap_or_default();
            let what = match record.has_started {
                true => "no session begins; the proxy was ended",
                false => "the proxy does not start",
            };
            return Ok(vec![ScenarioFinding::new(what, why)]);
        }
        let missing = TOOLS.iter().filter(|(tool, _)| !record.tools.iter().any(|one| one == tool));
        let missing = missing
            .map(|(tool, _)| ScenarioFinding::new("a tool of the server is not listed", *tool));
        Ok(summed(missing))
    }

    fn answers(&self) -> Found {
        let record = self.record(ProxyAct::Calls)?;
        let calls = ProxiedCalls::of(record);
        let mut found = Vec::new();
        for call in &calls.calls {
            let what = match &call.answers[..] {
                [] => {
                    let why = record.trouble.as_deref().unwrap_or("the session ended before");
                    ScenarioFinding::new("a call has no answer", why)
                }
                [one] if is_own(call, one) => continue,
                [one] => {
                    ScenarioFinding::new("the answer is not that of the server", text(&one.body))
                }
                [_, second, ..] => {
                    ScenarioFinding::new("a call has several answers", text(&second.body))
                }
            };
            what.add_to(&mut found);
        }
        Ok(found)
    }

    fn asks(&self) -> Found {
        let calls = self.calls(ProxyAct::Calls)?;
        let asked = calls.calls.iter().filter(|call| call.token.is_some());
        let missing = asked.filter_map(|call| match self.facts.token(&call.key) {
            Some(token) if !token.is_null() => None,
            Some(_) => Some(ScenarioFinding::new(
                "the call came without a progress token to the server",
                format!("the call {:?} had the token {}", call.key, text(call.token.as_ref()?)),
            )),
            None => {
                Some(ScenarioFinding::new("the call has not reached the server", call.key.clone()))
            }
        });
        Ok(summed(missing))
    }

    fn token(&self) -> Found {
        let calls = self.calls(ProxyAct::Calls)?;
        self.two()?;
        let bare = calls.find("c").map_or(usize::MAX, |call| call.sent);
        let strays = calls.strays.iter().filter(|one| one.place < bare || is_quick(one));
        let strays = strays.map(|one| {
            ScenarioFinding::new("progress has a token that no call has", text(&one.body))
        });
        let respelled = calls.calls.iter().flat_map(|call| {
            let other =
                |one: &&PlacedMessage| Some(&one.body["progressToken"]) != call.token.as_ref();
            call.progress
                .iter()
                .filter(other)
                .map(|one| ScenarioFinding::new("the token has another JSON type", text(&one.body)))
        });
        let found = summed(strays.chain(respelled));
        if found.is_empty() {
            self.two_with_progress()?;
        }
        Ok(found)
    }

    fn arrives(&self) -> Found {
        let missing = self.two()?.into_iter().filter_map(|(call, sent)| {
            let (came, all) = (call.progress.len(), sent.len());
            let example =
                format!("{came} of {all} notifications of the call {:?} arrived", call.key);
            (came < all).then(|| ScenarioFinding::new("notifications are lost", example))
        });
        Ok(summed(missing))
    }

    fn value(&self) -> Found {
        let both = self.two_with_progress()?;
        let wrong = both.iter().flat_map(|(call, sent)| {
            call.progress.iter().filter_map(|one| changed(&one.body, sent))
        });
        Ok(summed(wrong))
    }

    fn order(&self) -> Found {
        let calls = self.calls(ProxyAct::Calls)?;
        self.two_with_progress()?;
        let falls = calls.calls.iter().filter_map(|call| {
            let values = call.values();
            let falls = values.iter().zip(values.iter().skip(1)).any(|(one, next)| next <= one);
            let list: Vec<String> = values.iter().flatten().map(ToString::to_string).collect();
            falls.then(|| ScenarioFinding::new("values repeat or fall", list.join(", ")))
        });
        Ok(summed(falls))
    }

    fn prompt(&self) -> Found {
        let both = self.two_with_progress()?;
        let late = both.iter().filter_map(|(call, _)| {
            let (first, answer) = (call.progress.first()?, call.answers.first()?);
            let before = answer.at.saturating_sub(first.at);
            let example =
                format!("the first one of 1200 ms before the answer came {before} ms before");
            (before < PROMPT_MS && first.place < answer.place).then(|| {
                ScenarioFinding::new("progress came only together with the answer", example)
            })
        });
        Ok(summed(late))
    }

    /// Fails if progress follows the answer. On different streams the order is not defined, so there it is only noted.
    fn after_answer(&self) -> Result<ScenarioOutcome, String> {
        let calls = self.calls(ProxyAct::Calls)?;
        let all = calls.calls.iter().filter_map(|call| Some((call, call.answers.first()?)));
        let all: Vec<_> = all
            .flat_map(|(call, answer)| call.progress.iter().map(move |one| (one, answer)))
            .collect();
        if calls.calls.iter().all(|call| call.progress.is_empty()) {
            return Err("no progress arrived".to_owned());
        }
        let is_late = |one: &PlacedMessage, answer: &PlacedMessage| {
            one.place > answer.place
                && (one.stream == answer.stream || one.at > answer.at + CROSSING_MS)
        };
        let late =
            summed(all.iter().filter(|(one, answer)| is_late(one, answer)).map(|(one, _)| {
                ScenarioFinding::new("progress came behind the answer", text(&one.body))
            }));
        if !late.is_empty() {
            return Ok(ScenarioOutcome::Failed(late));
        }
        let mut apart = all.iter().filter(|(one, answer)| one.stream != answer.stream);
        Ok(apart.next().map_or(ScenarioOutcome::Passed, |(one, _)| {
            let what = "progress comes on another stream than its answer: chance decides which one a client reads first";
            ScenarioOutcome::Noted(vec![ScenarioFinding::new(what, text(&one.body))])
        }))
    }

    fn apart(&self) -> Found {
        let both = self.two()?;
        let mut found = Vec::new();
        for (call, sent) in &both {
            for (other, others) in both.iter().filter(|(other, _)| other.key != call.key) {
                let is_others =
                    |one: &&PlacedMessage| has(others, &one.body) && !has(sent, &one.body);
                for one in call.progress.iter().filter(is_others) {
                    let what = format!("the call {:?} shows progress of {:?}", call.key, other.key);
                    ScenarioFinding::new(what, text(&one.body)).add_to(&mut found);
                }
            }
            for answer in call.answers.iter().filter(|answer| !is_own(call, answer)) {
                if answer.body.get("result").is_some() {
                    ScenarioFinding::new("the answer is that of another call", text(&answer.body))
                        .add_to(&mut found);
                }
            }
        }
        let with_progress = both.iter().filter(|(call, _)| !call.progress.is_empty()).count();
        if with_progress < 2 && found.is_empty() {
            return Err("only one of two calls at once had progress".to_owned());
        }
        Ok(found)
    }

    fn no_token(&self) -> Found {
        let calls = self.calls(ProxyAct::Calls)?;
        let Some(bare) = calls.find("c").filter(|call| !call.answers.is_empty()) else {
            return Err("the call without a token was not answered".to_owned());
        };
        let strays = calls.strays.iter().filter(|one| one.place > bare.sent && !is_quick(one));
        Ok(summed(strays.map(|one| {
            ScenarioFinding::new("a call without a token has progress", text(&one.body))
        })))
    }

    fn cancel(&self) -> Found {
        self.record(ProxyAct::Cancel)?;
        if self.facts.token("wait").is_none() {
            return Err("the call did not reach the server".to_owned());
        }
        Ok(match self.facts.is_cancelled("wait") {
            true => Vec::new(),
            false => vec![ScenarioFinding::new(
                "the server was not told within 3 s, or with another id",
                "notifications/cancelled for the id of the call",
            )],
        })
    }

    fn ping(&self) -> Found {
        if self.is_modern {
            return Err(NOT_MODERN.to_owned());
        }
        let record = self.record(ProxyAct::Ping)?;
        if self.facts.token("ping").is_none() {
            return Err("the call did not reach the server".to_owned());
        }
        let trouble = record.trouble.clone().unwrap_or_else(|| "no answer within 5 s".to_owned());
        Ok(match self.facts.is_answered("ping") {
            true => Vec::new(),
            false => vec![ScenarioFinding::new("the ping of the server has no answer", trouble)],
        })
    }

    fn heartbeat(&self) -> Found {
        let calls = self.calls(ProxyAct::Heartbeat)?;
        let Some(call) = calls.find("beat") else { return Err("no call was made".to_owned()) };
        if self.facts.token("beat").is_none_or(Value::is_null) {
            return Err("the server got no progress token".to_owned());
        }
        let values = call.values();
        let rises = values.iter().zip(values.iter().skip(1)).all(|(one, next)| next > one);
        let mut found = Vec::new();
        let (came, all) = (values.len(), beats().len());
        if came < all {
            let example = format!("{came} of {all} notifications arrived");
            found.push(ScenarioFinding::new("signs of life are lost", example));
        }
        if !rises {
            found.push(ScenarioFinding::new("small steps are rounded", format!("{values:?}")));
        }
        Ok(found)
    }

    /// Judges a call whose response was interrupted: its answer and the progress value `last` must have arrived.
    fn interrupted(&self, act: ProxyAct, key: &str, last: f64) -> Found {
        let record = self.record(act)?;
        let calls = ProxiedCalls::of(record);
        let Some(call) = calls.find(key) else { return Err("no call was made".to_owned()) };
        if self.facts.token(key).is_none() {
            return Err("the call did not reach the server".to_owned());
        }
        let mut found = Vec::new();
        if !call.answers.first().is_some_and(|answer| is_own(call, answer)) {
            let answer = call.answers.first().map(|answer| text(&answer.body));
            let why = answer.or_else(|| record.trouble.clone());
            let why = why.unwrap_or_else(|| "the response ended".to_owned());
            found.push(ScenarioFinding::new("the answer of the server does not arrive", why));
        }
        let has_token = self.facts.token(key).is_some_and(|token| !token.is_null());
        if has_token && !call.values().contains(&Some(last)) {
            let values = format!(
                "the values {:?} arrived",
                call.values().iter().flatten().collect::<Vec<_>>()
            );
            found.push(ScenarioFinding::new("progress behind the interruption is lost", values));
        }
        Ok(found)
    }

    fn polling(&self) -> Found {
        if self.is_modern {
            return Err(NOT_MODERN.to_owned());
        }
        if self.template.back != TransportKind::Streamable {
            return Err("not a matter of this transport".to_owned());
        }
        if !self.records.iter().any(|record| record.act == ProxyAct::Polling) {
            return Err("from 2025-11-25 on".to_owned());
        }
        self.interrupted(ProxyAct::Polling, "polling", 4.0)
    }

    fn resume(&self) -> Found {
        if self.is_modern {
            return Err(NOT_MODERN.to_owned());
        }
        if self.template.front != TransportKind::Streamable {
            return Err("not a matter of this transport".to_owned());
        }
        if self.record(ProxyAct::Resume)?.broken_off == 0 {
            return Err("the events of the proxy have no ids".to_owned());
        }
        self.interrupted(ProxyAct::Resume, "resume", 5.0)
    }

    fn long(&self) -> Found {
        let Some(record) = self.records.iter().find(|record| record.act == ProxyAct::Long) else {
            return Err("no long call was made: --long TIME".to_owned());
        };
        let calls = ProxiedCalls::of(record);
        let unanswered = calls.calls.iter().filter_map(|call| {
            let kind = if call.key == "still" { "silent" } else { "with progress" };
            let why = match call.answers.first() {
                Some(answer) if is_own(call, answer) => return None,
                Some(answer) => text(&answer.body),
                None => record.trouble.clone().unwrap_or_else(|| "no answer".to_owned()),
            };
            Some(ScenarioFinding::new(format!("a long call ({kind}) is not answered"), why))
        });
        Ok(summed(unanswered))
    }
}

/// Whether an answer is the one that the server gave to this call.
fn is_own(call: &ProxiedCall, answer: &PlacedMessage) -> bool {
    let text = answer.body["result"]["content"][0]["text"].as_str();
    text.is_some_and(|text| text.starts_with(&format!("{}: done", call.key)))
}

/// Whether progress that belongs to no call may belong to the call `d`, which runs at the same time as the call without
/// a token.
fn is_quick(stray: &PlacedMessage) -> bool {
    stray.body.get("total").is_none() && stray.body.get("message").is_none()
}

fn has(sent: &[Value], came: &Value) -> bool {
    sent.iter().any(|one| one["progress"].as_f64() == came["progress"].as_f64())
}

/// Returns the difference between a notification and the sent notification with the same value.
fn changed(came: &Value, sent: &[Value]) -> Option<ScenarioFinding> {
    let same = sent.iter().find(|one| one["progress"].as_f64() == came["progress"].as_f64());
    let Some(same) = same else {
        return Some(ScenarioFinding::new("`progress` is not what the server sent", text(came)));
    };
    if same["total"].as_f64() != came["total"].as_f64() {
        return Some(ScenarioFinding::new("`total` is not what the server sent", text(came)));
    }
    (same["message"] != came["message"])
        .then(|| ScenarioFinding::new("`message` is not what the server sent", text(came)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::lab::doctor::traffic::{TrafficEntry, TrafficEvent, TrafficStream};
    use crate::protocol::jsonrpc::Message;

    /// Returns the outcome of a call with progress at `at` ms on `stream`, and its answer at 100 ms on the POST.
    fn after_answer(at: u64, stream: TrafficStream) -> &'static str {
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{"key":"a"},"_meta":{"progressToken":7}}}"#;
        let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}"#;
        let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        let received = |at, stream, text: &'static str| TrafficEntry {
            at: Duration::from_millis(at),
            what: TrafficEvent::Received {
                stream,
                read: 0,
                event: None,
                message: Message::parse(text.into()),
            },
        };
        let sent = TrafficEvent::Sent(Message::parse(call.into()));
        let mut entries = vec![
            TrafficEntry { at: Duration::ZERO, what: sent },
            received(at, stream, progress),
            received(100, TrafficStream::Post(Some(1)), answer),
        ];
        entries.sort_by_key(|entry| entry.at);
        let record = ActRecord {
            act: ProxyAct::Calls,
            has_started: true,
            has_begun: true,
            tools: Vec::new(),
            entries,
            broken_off: 0,
            trouble: None,
        };
        let facts = SeenFacts::default();
        let template = "proxy {url}".parse().expect("a template");
        let judge =
            ProxyJudge { records: &[record], facts: &facts, template: &template, is_modern: false };
        judge.after_answer().map_or("not assessed", |outcome| outcome.name())
    }

    #[test]
    fn only_streams_of_their_own_may_change_places() {
        let own = TrafficStream::Post(Some(1));
        for (at, stream, outcome) in [
            (50, own, "passed"),
            (101, own, "failed"),
            (50, TrafficStream::Get, "noted"),
            (101, TrafficStream::Get, "noted"),
            (400, TrafficStream::Get, "failed"),
        ] {
            assert_eq!(after_answer(at, stream), outcome, "{at} ms, {stream:?}");
        }
    }
}
