//! The content of messages: the words and the values that a server sends, and whether they arrive at a client.
//!
//! The text that a client shows may be shortened, joined or without control characters, and a second call has other
//! numbers in its texts. So texts are compared by their letters only. A value may get a total, so it is compared with
//! the client's value and with its part of the total.

use serde_json::Value;

use super::member_names::may_be_value;

/// Maximum number of texts kept for one finding, or for all progress of a session; the same for values.
const WORDS_MAX: usize = 10_000;

/// Maximum number of letters that are compared. The proxy cuts texts longer than 200 characters.
const LETTERS_MAX: usize = 100;

/// Minimum number of letters of a text that is searched for within another text. Shorter texts occur in many texts by
/// chance.
const PART_MIN: usize = 4;

/// Minimum number of letters of a beginning that counts as the whole text, because the proxy may have cut that text.
const CUT_MIN: usize = 40;

/// Two values count as equal if they differ by at most this fraction.
const SAME: f64 = 1e-4;

/// Names of members that contain texts.
const MEMBERS: [&str; 11] = [
    "message",
    "text",
    "msg",
    "status",
    "data",
    "error",
    "detail",
    "description",
    "event",
    "title",
    "content",
];

/// Texts and values in a form for comparison.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MessageContent {
    words: Vec<String>,
    values: Vec<f64>,
}

impl MessageContent {
    /// Adds the texts and values of a message's parameters, or of a JSON line.
    pub fn add_value(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.add_text(text),
            Value::Array(elements) => elements.iter().for_each(|one| self.add_value(one)),
            Value::Object(members) => {
                for (name, member) in members {
                    if member.is_object() || MEMBERS.contains(&&**name) {
                        self.add_value(member);
                    }
                    if may_be_value(name) {
                        number(member).into_iter().for_each(|number| self.add_number(number));
                    }
                }
            }
            _ => {}
        }
    }

    /// Adds a text, or the texts of a JSON object in a string.
    pub fn add_text(&mut self, text: &str) {
        if text.trim_start().starts_with('{')
            && let Ok(inner @ Value::Object(_)) = serde_json::from_str(text)
        {
            return self.add_value(&inner);
        }
        let letters: String = text
            .chars()
            .filter(|sign| sign.is_alphabetic())
            .flat_map(char::to_lowercase)
            .take(LETTERS_MAX)
            .collect();
        if !letters.is_empty() && self.words.len() < WORDS_MAX {
            self.words.push(letters);
        }
    }

    /// Adds a value, except zero, which clients assume before any progress.
    pub fn add_number(&mut self, number: f64) {
        if number != 0.0 && self.values.len() < WORDS_MAX {
            self.values.push(number);
        }
    }

    /// Adds the text and the values of progress that a client gets.
    pub fn add_told(&mut self, params: &Value) {
        self.add_value(params);
        if let (Some(value), Some(total)) = (params["progress"].as_f64(), params["total"].as_f64())
            && total > 0.0
        {
            self.add_number(value / total);
            self.add_number(value / total * 100.0);
        }
    }

    /// Adds other content.
    pub fn extend(&mut self, other: Self) {
        let (words, values) = (WORDS_MAX - self.words.len(), WORDS_MAX - self.values.len());
        self.words.extend(other.words.into_iter().take(words));
        self.values.extend(other.values.into_iter().take(values));
    }

    /// Whether the content has neither texts nor values.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty() && self.values.is_empty()
    }

    /// Whether some of these texts or values occur in the content `told`, which a client was sent.
    pub fn arrives_in(&self, told: &Self) -> bool {
        let is_told = |words: &String| told.words.iter().any(|said| is_in(words, said));
        let is_same = |value: &f64| {
            told.values.iter().any(|other| (value - other).abs() <= value.abs() * SAME)
        };
        self.words.iter().any(is_told) || self.values.iter().any(is_same)
    }
}

/// Whether a text occurs in another.
fn is_in(words: &str, said: &str) -> bool {
    let letters = |text: &str| text.chars().count();
    words == said
        || (letters(words) >= PART_MIN && said.contains(words))
        || (letters(said) >= CUT_MIN && words.starts_with(said))
}

/// Returns the number that a member is, or that a string such as `"45%"` contains.
fn number(member: &Value) -> Option<f64> {
    match member {
        Value::String(text) => {
            let number = text.trim().trim_end_matches('%').trim_end().parse().ok();
            number.filter(|number: &f64| number.is_finite())
        }
        other => other.as_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> MessageContent {
        let mut content = MessageContent::default();
        content.add_value(&serde_json::from_str(text).unwrap());
        content
    }

    #[test]
    fn words_are_found_where_servers_put_them_and_compared_by_their_letters() {
        let told = of(r#"{"progressToken":"t","progress":3,"message":"Row 17 of 40: \u001b[1mA"}"#);
        for (said, arrives) in [
            (
                r#"{"id":7,"content":[{"type":"text","text":"{\"message\":\"row 3 of 40\"}"}]}"#,
                true,
            ),
            (r#"{"logger":"row","data":{"message":"Row 1 of"}}"#, true),
            (r#"{"data":"other"}"#, false),
            (r#"{"data":"a"}"#, false),
            (r#"{"token":"rowof","percent":4}"#, false),
        ] {
            assert_eq!(of(said).arrives_in(&told), arrives, "{said}");
        }
        assert!(of(r#"{"progress":0,"total":4,"id":2}"#).is_empty());
    }

    #[test]
    fn a_value_arrives_as_it_is_or_as_its_part_of_the_total() {
        let mut told = MessageContent::default();
        told.add_told(&serde_json::json!({ "progressToken": 7001, "progress": 3, "total": 12 }));
        for (said, arrives) in [
            (r#"{"how_far":3}"#, true),
            (r#"{"value":{"percentage":25}}"#, true),
            (r#"{"progress":"25%"}"#, true),
            (r#"{"fraction":0.25}"#, true),
            (r#"{"step":4}"#, false),
            (r#"{"id":3,"elapsed":3,"total":3}"#, false),
        ] {
            assert_eq!(of(said).arrives_in(&told), arrives, "{said}");
        }
    }
}
