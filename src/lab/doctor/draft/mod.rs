//! Drafts of settings for a server whose messages are not known: a `[[dialect]]` from its messages, and
//! a pattern for `extract` from its words. A draft is tried with `--through`.

mod places;
pub mod template;

use bytes::Bytes;
use places::{MemberPlace, places};
use serde_json::Value;

use super::findings::ObservedCall;
use super::habits::Habits;
use super::member_names::{
    FINALS, HANDLES, NO_VALUES, OVER, PERCENTS, STATES, TOTALS, VALUES, WORDS, may_be_value,
};
use crate::progress::extract::Extract;
use crate::protocol::jsonrpc::Key;

/// Messages of one method that a draft is made from.
pub const SAMPLES_MAX: usize = 64;

/// Messages from which on a member is guessed by its changes.
const GUESS_MIN: usize = 3;

/// The least number that is taken for a time or a size rather than for a value of progress.
const TIME_MIN: f64 = 1e7;

/// A drafted dialect.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Draft {
    request_id: Option<String>,
    token: Option<String>,
    progress: Option<String>,
    total: Option<String>,
    message: Option<String>,
    /// The pointer to the mark of the last message, and the value there as TOML.
    last: Option<(String, String)>,
    scale: Option<&'static str>,
    /// The words of the messages.
    pub words: Vec<String>,
    /// Whether a pointer finds the id or the token of a call, which is no accident.
    names_call: bool,
    /// The request id was found by its value, which may be like the id of the only call by accident.
    is_id_guessed: bool,
    /// The value was found by its movement, under a name that no list knows.
    is_value_guessed: bool,
    /// The words were found by their changes, under a name that no list knows.
    are_words_guessed: bool,
}

impl Draft {
    /// A draft from messages of one method in the order in which they came, each with the place of the call
    /// that was open, and the calls that the messages may be about.
    pub fn new(samples: &[(Bytes, usize)], calls: &[ObservedCall]) -> Self {
        let parse = |text: &Bytes| serde_json::from_slice(text).unwrap_or_default();
        let parsed: Vec<Value> = samples.iter().map(|(text, _)| parse(text)).collect();
        let params: Vec<&Value> = parsed.iter().map(|message| &message["params"]).collect();
        let places = places(&params);
        let mut draft = Self::default();
        draft.find_call(&places, calls);
        let owners: Vec<Option<u64>> =
            samples.iter().map(|(_, call)| calls.get(*call).map(|call| call.id)).collect();
        draft.find_id_by_value(&places, &owners);
        draft.find_value(&places, params.len());
        draft.find_last(&places, params.len());
        draft.find_words(&places);
        draft
    }

    /// Whether the messages tell how far a call is: they hold a value, or name a call and say words.
    /// A value under a name that no list knows may be something else.
    pub fn is_progress(&self) -> bool {
        (self.progress.is_some() && !self.is_value_guessed)
            || (self.names_call && self.message.is_some())
    }

    /// Whether there is anything to tell a client.
    pub fn says_something(&self) -> bool {
        self.progress.is_some() || self.message.is_some()
    }

    /// Whether the messages hold a value.
    pub fn has_value(&self) -> bool {
        self.progress.is_some()
    }

    fn find_call(&mut self, places: &[MemberPlace], calls: &[ObservedCall]) {
        let is_id = |value: &Value| calls.iter().any(|call| is_id_of(call.id, value));
        let is_token = |value: &Value| {
            let key = key_of(value);
            let tokens = calls.iter().filter_map(|call| call.token.as_ref()).map(key_of);
            tokens.into_iter().any(|token| matches(token.as_ref(), key.as_ref()))
        };
        let by_name = |is: &dyn Fn(&MemberPlace) -> bool| {
            let ranked = HANDLES
                .iter()
                .filter_map(|name| places.iter().find(|place| place.name == *name && is(place)));
            ranked.into_iter().next()
        };
        // The doctor's tokens are long: no other value is like them.
        let token = places.iter().find(|place| place.all(is_token));
        let request = by_name(&|place| place.all(is_id));
        self.names_call = token.is_some() || request.is_some();
        self.token = token.map(|place| place.pointer.clone());
        self.request_id = request.map(|place| place.pointer.clone());
        if !self.names_call {
            let is_handle = |place: &MemberPlace| {
                let is_plain = place.name == "id";
                place.is_constant() && (place.values.len() > 1 || !is_plain)
            };
            self.token = by_name(&is_handle).map(|place| place.pointer.clone());
        }
    }

    /// Finds the request id in a member of any name, where no name tells: each value there is the id of the call
    /// that was open. One call alone may be no proof.
    fn find_id_by_value(&mut self, places: &[MemberPlace], owners: &[Option<u64>]) {
        let is_own = |(message, value): &(usize, Value)| {
            owners.get(*message).copied().flatten().is_some_and(|id| is_id_of(id, value))
        };
        let fits = |place: &&MemberPlace| {
            let lists: [&[&str]; 6] = [&VALUES, &TOTALS, &PERCENTS, &NO_VALUES, &WORDS, &STATES];
            let is_other = lists.iter().any(|names| names.contains(&&*place.name));
            !is_other && place.values.len() > 1 && place.values.iter().all(is_own)
        };
        if self.names_call {
            return;
        }
        let mut fitting = places.iter().filter(fits);
        let Some(place) = fitting.next() else { return };
        let is_sure = !place.is_constant();
        // Of two places with the only id one is something else.
        if is_sure || fitting.next().is_none() {
            self.request_id = Some(place.pointer.clone());
            (self.names_call, self.is_id_guessed) = (is_sure, !is_sure);
            self.token = None;
        }
    }

    fn find_value(&mut self, places: &[MemberPlace], samples: usize) {
        let ranked = places.iter().filter(|place| !self.is_taken(place));
        let best = ranked
            .filter_map(|place| {
                let total = total_of(place, places);
                let rank = rank_of_value(place, total.is_some())?;
                Some((rank, place, total))
            })
            .reduce(|best, next| if next.0 > best.0 { next } else { best });
        let guess = || {
            let mut rising = places.iter().filter(|place| !self.is_taken(place));
            rising.find(|place| rises_always(place, samples))
        };
        let (place, total) = match best {
            Some((_, place, total)) => (place, total),
            None => match guess() {
                Some(place) => {
                    self.is_value_guessed = true;
                    (place, None)
                }
                None => return,
            },
        };
        let is_percent = PERCENTS.contains(&&*place.name);
        self.progress = Some(place.pointer.clone());
        if is_percent {
            self.scale = Some("percent");
        } else if let Some(total) = total {
            self.total = Some(total.pointer.clone());
        } else {
            let mut habits = Habits::default();
            place.numbers().into_iter().for_each(|value| habits.see_value(value, false));
            self.scale = habits.scale();
        }
    }

    fn find_last(&mut self, places: &[MemberPlace], samples: usize) {
        let is_mark = |place: &&MemberPlace| {
            FINALS.contains(&&*place.name)
                && place.all(Value::is_boolean)
                && place.values.iter().rev().skip(1).all(|(_, value)| value != &Value::Bool(true))
        };
        if let Some(mark) = places.iter().find(is_mark) {
            self.last = Some((mark.pointer.clone(), "true".to_owned()));
            return;
        }
        let end = |place: &MemberPlace| {
            let (at, value) = place.values.last()?;
            let word = value.as_str()?;
            let is_end = samples > 1
                && *at + 1 == samples
                && OVER.contains(&&*word.to_lowercase())
                && place.values.iter().filter(|(_, earlier)| earlier == value).count() == 1;
            is_end.then(|| (place.pointer.clone(), quoted(word)))
        };
        let states = places.iter().filter(|place| STATES.contains(&&*place.name));
        self.last = states.filter_map(end).next();
    }

    fn find_words(&mut self, places: &[MemberPlace]) {
        let ranked = places.iter().filter(|place| !self.is_taken(place));
        let best = ranked
            .filter_map(|place| Some((rank_of_words(place)?, place)))
            .reduce(|best, next| if next.0 > best.0 { next } else { best });
        let changing = || {
            let mut others = places.iter().filter(|place| !self.is_taken(place));
            others.find(|place| changes_as_words(place))
        };
        let best = match best {
            Some((_, place)) => Some(place),
            None => {
                let guess = changing();
                self.are_words_guessed = guess.is_some();
                guess
            }
        };
        if let Some(place) = best {
            self.message = Some(place.pointer.clone());
            let words = place.values.iter().filter_map(|(_, value)| value.as_str());
            self.words = words.map(str::to_owned).collect();
        }
    }

    fn is_taken(&self, place: &MemberPlace) -> bool {
        let taken = [&self.request_id, &self.token, &self.progress, &self.total];
        taken.into_iter().flatten().any(|pointer| *pointer == place.pointer)
    }

    /// The table of the route file, for messages of this method.
    pub fn table(&self, name: &str, method: &str) -> String {
        let mut table =
            format!("[[dialect]]\nname = {}\nmethod = {}\n", quoted(name), quoted(method));
        let pointers = [
            ("request_id", &self.request_id),
            ("token", &self.token),
            ("progress", &self.progress),
            ("total", &self.total),
            ("message", &self.message),
        ];
        for (key, pointer) in pointers {
            if let Some(pointer) = pointer {
                let remark = match key {
                    "request_id" if self.is_id_guessed => "  # by its value: is this the id?",
                    "progress" if self.is_value_guessed => "  # a guess: this number always rises",
                    "message" if self.are_words_guessed => "  # a guess: this text changes",
                    _ => "",
                };
                table += &format!("{key} = {}{remark}\n", quoted(pointer));
            }
        }
        if let Some((pointer, value)) = &self.last {
            table += &format!("final = {{ pointer = {}, equals = {value} }}\n", quoted(pointer));
        }
        if let Some(scale) = self.scale {
            table += &format!("scale = {}\n", quoted(scale));
        }
        table
    }
}

/// Whether a place of any name holds a number in each of several messages, which always rises.
fn rises_always(place: &MemberPlace, samples: usize) -> bool {
    let numbers = place.numbers();
    may_be_value(&place.name)
        && numbers.len() >= GUESS_MIN
        && numbers.len() == samples
        && numbers.iter().all(|number| (0.0..TIME_MIN).contains(number))
        && numbers.windows(2).all(|pair| pair[0] < pair[1])
}

/// Whether a place of any name holds text that changes.
fn changes_as_words(place: &MemberPlace) -> bool {
    !HANDLES.contains(&&*place.name)
        && place.values.len() >= GUESS_MIN
        && !place.is_constant()
        && place.all(|value| value.as_str().is_some_and(has_words))
}

/// How sure a place holds the value; `None`: the place holds none.
fn rank_of_value(place: &MemberPlace, has_total: bool) -> Option<i32> {
    let numbers = place.numbers();
    let in_words = || {
        let presets = Extract::presets();
        place.all(|value| value.as_str().is_some_and(|text| presets.figure(text).is_some()))
    };
    let position = VALUES.iter().position(|name| place.name == *name);
    let is_percent = PERCENTS.contains(&&*place.name);
    if numbers.is_empty() {
        return ((is_percent || position.is_some()) && in_words()).then_some(25);
    }
    let is_plain = numbers.iter().all(|value| (0.0..1e12).contains(value));
    if NO_VALUES.contains(&&*place.name) || numbers.len() != place.values.len() || !is_plain {
        return None;
    }
    let rises = numbers.windows(2).all(|pair| pair[0] <= pair[1]);
    let moves = numbers.windows(2).any(|pair| pair[0] != pair[1]);
    let by_name = match (is_percent, position) {
        (true, _) => 30,
        (false, Some(0..=2)) => 28,
        (false, Some(at)) if at < 15 => 22,
        (false, Some(_)) => 12,
        (false, None) => 0,
    };
    let movement = match (numbers.len(), rises && moves) {
        (1, _) => 0,
        (_, true) => 10,
        (2, false) => -5,
        (_, false) if moves => -8,
        (_, false) => -15,
    };
    // A number without a known name counts something only if it rises towards a total.
    let is_sure = by_name >= 20 || (has_total && rises && moves && numbers.len() > 2);
    let rank = by_name
        + movement
        + if has_total { 15 } else { 0 }
        + i32::from(place.is_inside_progress()) * 5;
    (is_sure && rank >= 10).then_some(rank)
}

/// The place of the total of a value: a member beside it that is never less.
fn total_of<'a>(value: &MemberPlace, places: &'a [MemberPlace]) -> Option<&'a MemberPlace> {
    let numbers = value.numbers();
    let fits = |place: &&MemberPlace| {
        let totals = place.numbers();
        let least = totals.iter().copied().fold(f64::INFINITY, f64::min);
        place.parent == value.parent
            && place.pointer != value.pointer
            && !totals.is_empty()
            && totals.len() == place.values.len()
            && least > 0.0
            && numbers.iter().all(|value| *value <= least)
    };
    let is_named = |place: &&MemberPlace| TOTALS.contains(&&*place.name);
    let named = places.iter().find(|place| is_named(place) && fits(place));
    let is_known = VALUES.contains(&&*value.name) || PERCENTS.contains(&&*value.name);
    named.or_else(|| {
        let is_unknown = |place: &&MemberPlace| {
            let is_other = NO_VALUES.contains(&&*place.name) || VALUES.contains(&&*place.name);
            !is_other && place.is_constant() && place.values.len() > 2
        };
        places.iter().filter(|_| !is_known).find(|place| is_unknown(place) && fits(place))
    })
}

/// How sure a place holds words for people; `None`: the place holds none.
fn rank_of_words(place: &MemberPlace) -> Option<i32> {
    let texts: Vec<&str> = place.values.iter().filter_map(|(_, value)| value.as_str()).collect();
    if texts.len() != place.values.len() || !texts.iter().any(|text| has_words(text)) {
        return None;
    }
    let position = WORDS.iter().position(|name| place.name == *name);
    let by_name = position.map_or(0, |at| 40 - i32::try_from(at).unwrap_or(0));
    let has_sentences = texts.iter().any(|text| text.trim().contains(' '));
    if position.is_none() && !has_sentences {
        return None;
    }
    Some(by_name + i32::from(has_sentences) * 10 + i32::from(!place.is_constant()) * 5)
}

/// Whether text may be words: it has letters, and is no name made by a machine.
fn has_words(text: &str) -> bool {
    let letters = text.chars().filter(|sign| sign.is_alphabetic()).count();
    let digits = text.chars().filter(char::is_ascii_digit).count();
    letters > digits
}

/// Whether a value is this id of a call, in any spelling.
fn is_id_of(id: u64, value: &Value) -> bool {
    let id = i64::try_from(id).ok().map(Key::Integer);
    matches(id.as_ref(), key_of(value).as_ref())
}

/// A value as a name of a call.
fn key_of(value: &Value) -> Option<Key> {
    Key::read(&Bytes::from(value.to_string()))
}

/// Whether two names are one, in any spelling.
fn matches(known: Option<&Key>, said: Option<&Key>) -> bool {
    match (known, said) {
        (Some(known), Some(said)) => known == said || known.respelled(said),
        _ => false,
    }
}

/// A TOML string. What looks like a variable is none.
pub(super) fn quoted(text: &str) -> String {
    toml::Value::String(text.replace("${", "$${")).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The table that is drafted from these parameters, without its head.
    fn drafted(params: &[Value]) -> String {
        let text = |params: &Value| json!({ "method": "m", "params": params }).to_string();
        let samples: Vec<(Bytes, usize)> =
            params.iter().map(|params| (text(params).into(), 0)).collect();
        let call = ObservedCall { id: 2, token: Some(7001.into()), ..ObservedCall::default() };
        let table = Draft::new(&samples, &[call]).table("own", "m");
        let lines =
            table.lines().skip(3).map(|line| line.replace("/params", "")).collect::<Vec<_>>();
        lines.join(" ")
    }

    #[track_caller]
    fn check(params: &[Value], expected: &str) {
        assert_eq!(drafted(params), expected);
    }

    #[test]
    fn nested_members_and_json_in_strings_are_found() {
        let tick = |at: u32| json!({ "job": { "call": "2", "id": 2 }, "tick": { "at": at, "end": 9 }, "say": { "what": format!("field {at}") } });
        check(
            &[tick(1), tick(2), tick(5)],
            "request_id = \"/job/id\" progress = \"/tick/at\" total = \"/tick/end\" message = \"/say/what\"",
        );
        let inside = |pct: u32| {
            let text = json!({ "pct": pct, "words": "sorting", "token": "7001" }).to_string();
            json!({ "content": [{ "type": "text", "text": text }], "isFinal": pct == 90 })
        };
        check(
            &[inside(10), inside(40), inside(90)],
            "token = \"/content/0/text#/token\" progress = \"/content/0/text#/pct\" \
             message = \"/content/0/text#/words\" final = { pointer = \"/isFinal\", equals = true } \
             scale = \"percent\"",
        );
    }

    #[test]
    fn an_id_under_an_unusual_name_is_found_by_its_value() {
        let one = |n: u32| json!({ "job": { "rpc": 2, "lane": "2a" }, "step": n, "steps": 2 });
        check(
            &[one(1), one(2)],
            "request_id = \"/job/rpc\"  # by its value: is this the id? progress = \"/step\" total = \"/steps\"",
        );
        // Two members have the value: none of them may be meant.
        let two = |n: u32| json!({ "rpc": 2, "lane": 2, "step": n });
        check(&[two(1), two(2)], "progress = \"/step\"");
        // Two calls with different ids are a proof.
        let sample = |rpc: &str, lane: u32, step: u32, call: usize| {
            let params = json!({ "rpc": rpc, "lane": lane, "words": format!("step {step}") });
            (json!({ "method": "m", "params": params }).to_string().into(), call)
        };
        let samples = [sample("2", 2, 1, 0), sample("2", 2, 2, 0), sample("3", 2, 1, 1)];
        let calls = [2, 3].map(|id| ObservedCall { id, ..ObservedCall::default() });
        let draft = Draft::new(&samples, &calls);
        assert!(draft.table("own", "m").contains("request_id = \"/params/rpc\"\n"));
        assert!(draft.is_progress());
    }

    #[test]
    fn a_state_that_ends_is_the_last_message() {
        let state =
            |state: &str, done: f64| json!({ "jobId": "j-1", "state": state, "done": done });
        check(
            &[state("busy", 0.1), state("busy", 0.4), state("busy", 0.9), state("finished", 1.0)],
            "token = \"/jobId\" progress = \"/done\" message = \"/state\" \
             final = { pointer = \"/state\", equals = \"finished\" } scale = \"unit\"",
        );
    }

    #[test]
    fn numbers_that_measure_no_work_are_left_out() {
        let one =
            |n: u32| json!({ "timestamp": 1_700_000_000 + n, "elapsed": n, "seq": n, "port": 80 });
        check(&[one(1), one(2), one(3)], "");
        // The id of the request is no value.
        check(
            &[json!({ "id": 2, "note": "reading files" })],
            "request_id = \"/id\" message = \"/note\"",
        );
        // Unnamed, but it rises towards a total.
        let one = |n: u32| json!({ "a": n, "b": 40 });
        check(&[one(1), one(2), one(30)], "progress = \"/a\" total = \"/b\"");
        check(&[json!({ "a": 1, "b": 40 })], "");
        // A percentage has no total beside it.
        check(
            &[json!({ "percent": 10, "total": 9 })],
            "progress = \"/percent\" scale = \"percent\"",
        );
        check(&[json!({ "progress": "40%" })], "progress = \"/progress\"");
    }
}
