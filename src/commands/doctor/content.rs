//! The content of messages: the words that a server says, and whether they arrive at a client.
//!
//! What is shown of words may be cut, joined or freed of control characters, and a second call says
//! other numbers. So words are compared without anything but letters.

use serde_json::Value;

/// Words of one finding, or of all progress of a session, that are kept.
const WORDS_MAX: usize = 10_000;

/// Letters of words that are compared. Words longer than 200 characters are cut by the proxy.
const LETTERS_MAX: usize = 100;

/// Members that hold words.
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

/// Words as they are compared.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ContentWords(Vec<String>);

impl ContentWords {
    /// Adds the words of a message's parameters, or of a JSON line.
    pub fn add_value(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.add_text(text),
            Value::Array(elements) => elements.iter().for_each(|one| self.add_value(one)),
            Value::Object(members) => {
                for (name, member) in members {
                    if member.is_object() || MEMBERS.contains(&&**name) {
                        self.add_value(member);
                    }
                }
            }
            _ => {}
        }
    }

    /// Adds words, or those of the JSON object that stands in a string.
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
        if !letters.is_empty() && self.0.len() < WORDS_MAX {
            self.0.push(letters);
        }
    }

    /// Whether there are any words.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether some of these words stand in what a client was told.
    pub fn arrives_in(&self, told: &Self) -> bool {
        let arrives = |words: &String| {
            told.0.iter().any(|said| said.contains(&**words) || words.starts_with(&**said))
        };
        self.0.iter().any(arrives)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> ContentWords {
        let mut content = ContentWords::default();
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
            (r#"{"token":"rowof","percent":4}"#, false),
        ] {
            assert_eq!(of(said).arrives_in(&told), arrives, "{said}");
        }
        assert!(of(r#"{"progress":4}"#).is_empty());
    }
}
