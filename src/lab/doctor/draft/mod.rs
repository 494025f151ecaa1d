//! Drafts of settings for a server with unknown messages: a `[[dialect]]` from its messages, and a pattern for
//! `extract` from its texts. A draft is tried with `--through`.

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
    /// The pointer to the mark of the last message, and the value there as TOML.
    last: Option<(String, String)>,
    scale: Option<&'static str>,
    /// The texts of the messages.
    pub words: Vec<String>,
    /// Whether a pointer finds the id or the token of a call, which cannot be chance.
    names_call: bool,
    /// The request id was found by its value, which may be like the id of the only call by accident.
    is_id_guessed: bool,
    /// The value was found by its movement, under a name that no list knows.
    is_value_guessed: bool,
    /// The total was found beside the value, under a name that no list knows.
    is_total_guessed: bool,
    /// Whether the text was found by its changes, under an unknown name.
    are_words_guessed: bool,
}

impl Draft {
    /// Returns a draft from messages of one method in the order of their arrival, each with the index of the open call,
    /// and the calls that the messages may be about.
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

    /// Whether the messages show how far a call is: they have a value, or name a call and have a text. A value under an
    /// unknown name may be anything, unless it has a total.
    pub fn is_progress(&self) -> bool {
        let is_sure = !self.is_value_guessed || self.total.is_some();
        (self.progress.is_some() && is_sure) || (self.names_call && self.says_something())
    }

    /// Whether the draft finds anything to show a client.
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

    /// Finds the request id in a member of any name, if no name shows it: each value there is the id of the open call.
    /// A single call may not suffice as proof.
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
        // If two places contain only the id, one of them is something else.
        if is_sure || fitting.next().is_none() {
            self.request_id = Some(place.pointer.clone());
            (self.names_call, self.is_id_guessed) = (is_sure, !is_sure);
            self.token = None;
        }
    }

    /// Finds the value by its name, or as a number that rises within a call, and its total. `calls` has the call of
    /// each message.
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

    /// Sets the total of a value that was found by its name, or what the value counts.
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
        // Fractions of 1 have no other total.
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

    /// Finds the text by its name, or as text that changes. A named text that never changes is less informative than
    /// another text that does.
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

/// Returns a TOML string. A text that looks like a variable is kept as text.
pub(super) fn quoted(text: &str) -> String {
    toml::Value::String(text.replace("${", "$${")).to_string()
}
