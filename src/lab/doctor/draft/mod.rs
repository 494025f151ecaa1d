//! Drafts settings for a server whose messages are unknown: a `[[dialect]]` made from the messages, and a pattern for
//! `extract` made from the texts. `--through` tries the draft.

mod call_names;
mod guess;
mod known_names;
mod places;
pub mod template;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use call_names::{is_id_of, key_of, matches};
use known_names::{STILL_MIN, named_total_of, rank_of_value, rank_of_words};
use places::{MemberPlace, places};
use serde_json::Value;

use super::findings::ObservedCall;
use super::habits::Habits;
use super::member_names::{
    FINALS, HANDLES, NO_VALUES, OVER, PERCENTS, STATES, TOTALS, VALUES, WORDS,
};

/// Maximum number of messages of one method from which a draft is made.
pub const SAMPLES_MAX: usize = 64;

/// A drafted dialect.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Draft {
    request_id: Option<String>,
    token: Option<String>,
    progress: Option<String>,
    total: Option<String>,
    message: Option<String>,
    /// The pointer to the member that marks the last message, and its value as TOML.
    last: Option<(String, String)>,
    scale: Option<&'static str>,
    /// The texts of the messages.
    pub words: Vec<String>,
    /// Whether a pointer finds the id or the token of a call, which cannot be chance.
    names_call: bool,
    /// Whether the request id was found only by its value, which may equal the id of the only call by chance.
    is_id_guessed: bool,
    /// Whether the value was found only because it rises, under an unknown name.
    is_value_guessed: bool,
    /// Whether the total was found only because it is beside the value, under an unknown name.
    is_total_guessed: bool,
    /// Whether the text was found by its changes, under an unknown name.
    are_words_guessed: bool,
}

impl Draft {
    /// Makes a draft from the messages of one method, in the order of their arrival, each with the index of the open
    /// call. `calls` are the calls that the messages may be about.
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
        let of: Vec<usize> = samples.iter().map(|(_, call)| *call).collect();
        draft.find_value(&places, &of);
        draft.find_last(&places, params.len());
        draft.find_words(&places);
        draft
    }

    /// Whether the messages show how far a call is: they have a value, or they name a call and have a text. A value
    /// with an unknown name counts only if it has a total, because it may be anything.
    pub fn is_progress(&self) -> bool {
        let is_sure = !self.is_value_guessed || self.total.is_some();
        (self.progress.is_some() && is_sure) || (self.names_call && self.says_something())
    }

    /// Whether the draft finds anything to show a client.
    pub fn says_something(&self) -> bool {
        self.progress.is_some() || self.message.is_some()
    }

    /// Whether the messages have a value.
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
        // Any value that looks like a token is one, because the tokens of `doctor` are long.
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

    /// Looks for the request id under any name, if no known name has it: the member whose value is always the id of the
    /// open call. A single call may not suffice as proof.
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
        // If a second place also always has the id, one of both is something else, so none is chosen.
        if is_sure || fitting.next().is_none() {
            self.request_id = Some(place.pointer.clone());
            (self.names_call, self.is_id_guessed) = (is_sure, !is_sure);
            self.token = None;
        }
    }

    /// Finds the value by its name, or else as a number that rises within a call; then finds its total. `calls` has the
    /// call of each message.
    fn find_value(&mut self, places: &[MemberPlace], calls: &[usize]) {
        let free: Vec<&MemberPlace> = places.iter().filter(|place| !self.is_taken(place)).collect();
        let named = free
            .iter()
            .filter_map(|place| {
                let total = named_total_of(place, &free);
                let rank = rank_of_value(place, total)?;
                Some((rank, *place, total))
            })
            .reduce(|best, next| if next.0 > best.0 { next } else { best });
        if let Some((_, place, total)) = named {
            self.progress = Some(place.pointer.clone());
            self.find_total(place, total, &free, calls);
        } else if let Some(guess) = guess::rising(&free, calls) {
            self.is_value_guessed = true;
            self.progress = Some(guess.place.pointer.clone());
            self.set_total(guess.total);
            self.scale = guess.scale;
        }
    }

    /// Sets the total of a value that was found by its name, or the value's unit.
    fn find_total(
        &mut self,
        value: &MemberPlace,
        named: Option<&MemberPlace>,
        free: &[&MemberPlace],
        calls: &[usize],
    ) {
        if PERCENTS.contains(&&*value.name) {
            self.scale = Some("percent");
            return;
        }
        let mut habits = Habits::default();
        value.numbers().into_iter().for_each(|value| habits.see_value(value));
        let scale = habits.scale();
        // Fractions of 1 need no total.
        let guess = || guess::total_beside(value, free, calls).filter(|_| scale.is_none());
        match named.or_else(guess) {
            Some(total) => self.set_total(Some(total)),
            None => self.scale = scale,
        }
    }

    fn set_total(&mut self, total: Option<&MemberPlace>) {
        self.is_total_guessed = total.is_some_and(|place| !TOTALS.contains(&&*place.name));
        self.total = total.map(|place| place.pointer.clone());
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

    /// Finds the text by its name, or else as a text that changes. A text that never changes is less informative than
    /// one that changes, even if it has a known name.
    fn find_words(&mut self, places: &[MemberPlace]) {
        let free: Vec<&MemberPlace> = places.iter().filter(|place| !self.is_taken(place)).collect();
        let named = free
            .iter()
            .filter_map(|place| Some((rank_of_words(place)?, *place)))
            .reduce(|best, next| if next.0 > best.0 { next } else { best });
        let named = named.map(|(_, place)| place);
        let is_still =
            |place: &&MemberPlace| place.values.len() >= STILL_MIN && place.is_constant();
        let found = match named.filter(|place| !is_still(place)) {
            Some(place) => Some(place),
            None => {
                let guess = guess::changing(&free);
                self.are_words_guessed = guess.is_some();
                guess.or(named)
            }
        };
        if let Some(place) = found {
            self.message = Some(place.pointer.clone());
            let words = place.values.iter().filter_map(|(_, value)| value.as_str());
            self.words = words.map(str::to_owned).collect();
        }
    }

    fn is_taken(&self, place: &MemberPlace) -> bool {
        let taken = [&self.request_id, &self.token, &self.progress, &self.total];
        taken.into_iter().flatten().any(|pointer| *pointer == place.pointer)
    }

    /// Returns the `[[dialect]]` table of a route file for messages of this method.
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
                    "progress" if self.is_value_guessed => "  # a guess: this number rises",
                    "total" if self.is_total_guessed => "  # a guess: this number stays the same",
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
            let remark = if self.is_value_guessed { "  # a guess" } else { "" };
            table += &format!("scale = {}{remark}\n", quoted(scale));
        }
        table
    }
}

/// How sure a place of a known name holds the value; `None`: the place holds none, or its name is not known.
fn rank_of_value(place: &MemberPlace, total: Option<&MemberPlace>) -> Option<i32> {
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
        (false, None) => return None,
    };
    // Another number may be more informative.
    if !moves && numbers.len() >= STILL_MIN {
        return None;
    }
    let movement = match (numbers.len(), rises && moves) {
        (1, _) => 0,
        (_, true) => 10,
        (2, false) => -5,
        (_, false) if moves => -8,
        (_, false) => -15,
    };
    // A number of a name that means many things counts something only if it rises towards a total.
    let is_sure = by_name >= 20 || (total.is_some() && rises && moves && numbers.len() > 2);
    let rank = by_name
        + movement
        + if total.is_some() { 15 } else { 0 }
        + i32::from(place.is_inside_progress()) * 5;
    (is_sure && rank >= 10).then_some(rank)
}

/// The place of the total of a value: a member beside it that is named for a total and is never less.
fn named_total_of<'a>(value: &MemberPlace, places: &[&'a MemberPlace]) -> Option<&'a MemberPlace> {
    let numbers = value.numbers();
    let fits = |place: &&MemberPlace| {
        let totals = place.numbers();
        let least = totals.iter().copied().fold(f64::INFINITY, f64::min);
        TOTALS.contains(&&*place.name)
            && place.parent == value.parent
            && place.pointer != value.pointer
            && !totals.is_empty()
            && !numbers.is_empty()
            && totals.len() == place.values.len()
            && least > 0.0
            && numbers.iter().all(|value| *value <= least)
    };
    places.iter().copied().find(fits)
}

/// Returns how likely a place with a known name contains text for people; `None` if it contains none, or its name is
/// unknown.
fn rank_of_words(place: &MemberPlace) -> Option<i32> {
    let texts: Vec<&str> = place.values.iter().filter_map(|(_, value)| value.as_str()).collect();
    if texts.len() != place.values.len() || !texts.iter().any(|text| has_words(text)) {
        return None;
    }
    let position = WORDS.iter().position(|name| place.name == *name)?;
    let by_name = 40 - i32::try_from(position).unwrap_or(0);
    let has_sentences = texts.iter().any(|text| text.trim().contains(' '));
    Some(by_name + i32::from(has_sentences) * 10 + i32::from(!place.is_constant()) * 5)
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

/// Whether two names are equal, in any spelling.
fn matches(known: Option<&Key>, said: Option<&Key>) -> bool {
    match (known, said) {
        (Some(known), Some(said)) => known == said || known.respelled(said),
        _ => false,
    }
}

/// Returns a TOML string. A text that looks like a variable is kept as text.
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
        // Two calls with different ids suffice as proof.
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
        // The id of the request is not a value.
        check(
            &[json!({ "id": 2, "note": "reading files" })],
            "request_id = \"/id\" message = \"/note\"",
        );
        check(&[json!({ "a": 1, "b": 40 })], "");
        // A percentage has no total beside it.
        check(
            &[json!({ "percent": 10, "total": 9 })],
            "progress = \"/percent\" scale = \"percent\"",
        );
        check(&[json!({ "progress": "40%" })], "progress = \"/progress\"");
        check(&[json!({ "progress": "8,5%", "total": 9 })], "progress = \"/progress\"");
        check(
            &[json!({ "percent": "8 %" }), json!({ "percent": "45%" })],
            "progress = \"/percent\" scale = \"percent\"",
        );
    }

    /// Checks the table that is drafted from JSON objects on one line.
    #[track_caller]
    fn check_line(params: &str, expected: &str) {
        let values = serde_json::Deserializer::from_str(params).into_iter();
        let params: Vec<Value> = values.map(Result::unwrap).collect();
        assert_eq!(drafted(&params), expected, "{params:?}");
    }

    #[test]
    fn a_number_that_rises_is_the_value_under_any_name() {
        let rising =
            |pointer: &str| format!("progress = \"{pointer}\"  # a guess: this number rises");
        let scaled = |pointer: &str, scale: &str| {
            format!("{} scale = \"{scale}\"  # a guess", rising(pointer))
        };
        let of = |pointer: &str, total: &str| {
            format!(
                "{} total = \"{total}\"  # a guess: this number stays the same",
                rising(pointer)
            )
        };
        for (params, expected) in [
            // From 0 to 1, to 100, towards a constant number, and a plain counter.
            (r#"{"how_far":0.2} {"how_far":0.4} {"how_far":0.8}"#, scaled("/how_far", "unit")),
            (r#"{"ratio":0.2} {"ratio":0.4} {"ratio":0.7}"#, scaled("/ratio", "unit")),
            (r#"{"how_far":5} {"how_far":47} {"how_far":100}"#, scaled("/how_far", "percent")),
            (r#"{"how_far":20} {"how_far":50} {"how_far":80}"#, scaled("/how_far", "percent")),
            (r#"{"how_far":"4"} {"how_far":"51"} {"how_far":"96"}"#, scaled("/how_far", "percent")),
            (
                r#"{"seen":3,"plan":40} {"seen":9,"plan":40} {"seen":21,"plan":40}"#,
                of("/seen", "/plan"),
            ),
            (r#"{"at":3,"limit":9} {"at":6,"limit":9} {"at":9,"limit":9}"#, of("/at", "/limit")),
            (r#"{"lines":10} {"lines":25} {"lines":77}"#, rising("/lines")),
            (r#"{"rows":10} {"rows":25} {"rows":250}"#, rising("/rows")),
            // Text with a number is a value too.
            (r#"{"far":"20%"} {"far":"45%"} {"far":"70%"}"#, rising("/far")),
            // Nested, in a list, and as JSON in a string.
            (
                r#"{"a":{"b":{"far":0.1}}} {"a":{"b":{"far":0.3}}} {"a":{"b":{"far":0.9}}}"#,
                scaled("/a/b/far", "unit"),
            ),
            (
                r#"{"a":[{"far":3}]} {"a":[{"far":30}]} {"a":[{"far":99}]}"#,
                scaled("/a/0/far", "percent"),
            ),
            (
                r#"{"s":"{\"far\":0.1}"} {"s":"{\"far\":0.3}"} {"s":"{\"far\":0.9}"}"#,
                scaled("/s#/far", "unit"),
            ),
            (r#"{"done/of":0.1} {"done/of":0.3} {"done/of":0.9}"#, scaled("/done~1of", "unit")),
            // The value may stay equal for a while, and the first and the last message may lack it.
            (r#"{"far":0.2} {"far":0.2} {"far":0.4} {"far":0.9}"#, scaled("/far", "unit")),
            (
                r#"{"hi":true} {"far":0.1} {"far":0.5} {"far":0.9} {"bye":true}"#,
                scaled("/far", "unit"),
            ),
            // Fractions of 1 are more informative than a counter, and a counter more than the number of the message.
            (r#"{"b":10,"far":0.1} {"b":25,"far":0.3} {"b":77,"far":0.9}"#, scaled("/far", "unit")),
            (r#"{"no":1,"lines":10} {"no":2,"lines":25} {"no":3,"lines":77}"#, rising("/lines")),
            (r#"{"no":1} {"no":2} {"no":3}"#, rising("/no")),
            // A number with a known name that stays constant is less informative than another number.
            (
                r#"{"step":7,"far":0.1} {"step":7,"far":0.3} {"step":7,"far":0.9}"#,
                scaled("/far", "unit"),
            ),
            // A number of bytes is large; a time beside a counter is not a total.
            (
                r#"{"got":90,"size":50000000} {"got":20000000,"size":50000000} {"got":50000000,"size":50000000}"#,
                format!("{} total = \"/size\"", rising("/got")),
            ),
            (
                r#"{"lines":10,"start":1764371000} {"lines":25,"start":1764371000} {"lines":77,"start":1764371000}"#,
                rising("/lines"),
            ),
        ] {
            check_line(params, &expected);
        }
    }

    #[test]
    fn a_number_of_a_known_name_is_no_guess() {
        for (params, expected) in [
            (r#"{"pct":10} {"pct":40} {"pct":90}"#, r#"progress = "/pct" scale = "percent""#),
            (
                r#"{"done":1,"of":9} {"done":4,"of":9} {"done":9,"of":9}"#,
                r#"progress = "/done" total = "/of""#,
            ),
            (
                r#"{"fraction":0.1} {"fraction":0.4} {"fraction":0.9}"#,
                r#"progress = "/fraction" scale = "unit""#,
            ),
            // Only the total of this value is a guess.
            (
                r#"{"done":1,"cap":9} {"done":4,"cap":9} {"done":9,"cap":9}"#,
                r#"progress = "/done" total = "/cap"  # a guess: this number stays the same"#,
            ),
        ] {
            check_line(params, expected);
        }
    }

    #[test]
    fn a_number_that_does_not_rise_or_measures_something_else_is_no_value() {
        for params in [
            r#"{"far":3} {"far":1} {"far":8}"#,
            r#"{"far":3} {"far":8}"#,
            r#"{"far":3} {"far":3} {"far":3} {"far":4}"#,
            r#"{"far":-3} {"far":1} {"far":8}"#,
            r#"{"far":3} {"far":4} {"far":null} {"far":false} {"far":9}"#,
            r#"{"elapsed_s":1.5} {"elapsed_s":2.5} {"elapsed_s":4.5}"#,
            r#"{"clock":1764371000} {"clock":1764371004} {"clock":1764371009}"#,
            r#"{"job_id":3} {"job_id":4} {"job_id":9}"#,
            r#"{"hash":"a1b2"} {"hash":"a1b3"} {"hash":"a1b4"}"#,
        ] {
            check_line(params, "");
        }
    }

    #[test]
    fn text_that_changes_is_the_words_under_any_name() {
        let changing =
            |pointer: &str| format!("message = \"{pointer}\"  # a guess: this text changes");
        for (params, expected) in [
            (r#"{"txt":"mixing"} {"txt":"pouring"} {"txt":"baking"}"#, changing("/txt")),
            (
                r#"{"a":{"say":"mixing"}} {"a":{"say":"pouring"}} {"a":{"say":"baking"}}"#,
                changing("/a/say"),
            ),
            (
                r#"{"caption":"the oven is warm"} {"caption":"the oven is hot"}"#,
                changing("/caption"),
            ),
            (r#"{"caption":"the oven is warm"}"#, changing("/caption")),
            // Sentences are more likely for people than names.
            (
                r#"{"file":"a","say":"reads a"} {"file":"b","say":"reads b"} {"file":"c","say":"reads c"}"#,
                changing("/say"),
            ),
            // A known name is preferred, unless its text never changes.
            (
                r#"{"text":"mixing","txt":"a b"} {"text":"baking","txt":"c d"} {"text":"done","txt":"e f"}"#,
                "message = \"/text\"".to_owned(),
            ),
            (
                r#"{"status":"on","txt":"mixing"} {"status":"on","txt":"pouring"} {"status":"on","txt":"baking"}"#,
                changing("/txt"),
            ),
            (
                r#"{"status":"on"} {"status":"on"} {"status":"on"}"#,
                "message = \"/status\"".to_owned(),
            ),
            // These texts are neither for people nor do they change.
            (r#"{"kind":"begin"} {"kind":"report"} {"kind":"other"}"#, String::new()),
            (r#"{"txt":"mixing"} {"txt":"mixing"} {"txt":"mixing"}"#, String::new()),
            (r#"{"txt":"mixing"} {"txt":"baking"}"#, String::new()),
        ] {
            check_line(params, &expected);
        }
    }

    #[test]
    fn a_number_rises_within_each_call_and_may_begin_again_in_the_next() {
        let sample = |far: f64, call: usize| -> (Bytes, usize) {
            (json!({ "method": "m", "params": { "far": far } }).to_string().into(), call)
        };
        let calls = [2, 3].map(|id| ObservedCall { id, ..ObservedCall::default() });
        let samples = [(0.1, 0), (0.5, 0), (0.9, 0), (0.1, 1), (0.5, 1)];
        let samples = samples.map(|(far, call)| sample(far, call));
        let draft = Draft::new(&samples, &calls);
        assert!(draft.table("own", "m").contains("progress = \"/params/far\"  # a guess"));
        // A number alone may be anything, under a method that does not name the call.
        assert!(draft.has_value() && !draft.is_progress());
    }
}
