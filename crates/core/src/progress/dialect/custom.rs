//! A dialect that a route file describes: methods and pointers into their messages, or sources of
//! JSON lines (standard error, standard output, logs) and pointers into these lines.
//!
//! ```json
//! {"jsonrpc":"2.0","method":"acme/status","params":{"callId":7,"pct":15,"text":"m","state":"running"}}
//! {"jsonrpc":"2.0","method":"acme/status","params":{"content":[{"text":"{\"percentComplete\":15}"}]}}
//! ```

use bytes::Bytes;

use crate::progress::dialect::fields::{is_valid, number, whole};
use crate::progress::dialect::report::{About, Report, TextSource};
use crate::progress::extract::Extract;
use crate::progress::value::ProgressValue;
use crate::progress::verdict::Repair;
use crate::protocol::json;
use crate::protocol::jsonrpc::Key;

/// What a value counts in a dialect of a route file if the message has no total.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Count {
    /// Hundredths: the total is 100.
    Percent,
    /// Fractions of 1: the total is 1.
    Unit,
    /// Unknown: only the member for `total`, or the route's `scale`, tells the total.
    #[default]
    Raw,
}

/// A dialect that a route file describes. A field that is `None` has no counterpart in the dialect's messages.
#[derive(Debug, Clone, PartialEq)]
pub struct CustomDialect {
    /// The name in route files, flags and logs.
    pub name: String,
    /// The notification methods of the dialect; none if it has sources.
    pub methods: Vec<String>,
    /// The sources whose JSON objects the dialect reads, with pointers relative to these objects; empty if it has
    /// methods.
    pub sources: Vec<TextSource>,
    /// The pointer to the request id.
    pub request_id: Option<Pointer>,
    /// The pointer to the value in place of the token.
    pub token: Option<Pointer>,
    /// The pointer to the value.
    pub progress: Option<Pointer>,
    /// The pointer to the total.
    pub total: Option<Pointer>,
    /// The pointer to the message.
    pub message: Option<Pointer>,
    /// The mark of a call's last message.
    pub last: Option<Final>,
    /// What a value without a total counts.
    pub scale: Count,
}

impl CustomDialect {
    /// Reads a message, or an object from a source; `None` if no pointer finds a value.
    pub(crate) fn read(&self, text: &Bytes) -> Option<Report> {
        let find = |pointer: &Option<Pointer>| {
            let found = pointer.as_ref().and_then(|pointer| pointer.find(text));
            // Serialisers of Java, C# and Python (Pydantic) write null for a missing member.
            found.filter(|found| **found != *b"null")
        };
        let (request, token, words) =
            (find(&self.request_id), find(&self.token), find(&self.message));
        let value = find(&self.progress);
        let marker = self.last.as_ref().and_then(|last| last.pointer.find(text));
        let said = [&request, &token, &words, &value, &marker];
        if said.iter().all(|found| found.is_none()) {
            return None;
        }
        let mut report = Report {
            about: About {
                token: token.as_ref().and_then(Key::read),
                token_text: token,
                request: request.as_ref().and_then(Key::read),
                request_text: request,
                ..About::default()
            },
            figure: value.and_then(|value| self.figure(&value, find(&self.total))),
            message: words.map(as_words),
            last: marker.is_some_and(|value| self.last.as_ref().is_some_and(|l| l.is(&value))),
            ..Report::default()
        };
        report.repairs.add(Repair::Dialect);
        Some(report)
    }

    /// Returns the value that each pointer of the dialect finds in a message.
    pub fn finds(&self, text: &Bytes) -> Vec<PointerFind<'_>> {
        let pointers = [
            ("request_id", self.request_id.as_ref()),
            ("token", self.token.as_ref()),
            ("progress", self.progress.as_ref()),
            ("total", self.total.as_ref()),
            ("message", self.message.as_ref()),
            ("final", self.last.as_ref().map(|last| &last.pointer)),
        ];
        let mut finds = Vec::new();
        for (key, pointer) in pointers {
            if let Some(pointer) = pointer {
                let is_found = pointer.find(text).is_some();
                let meant = if is_found { None } else { pointer.through_strings(text) };
                finds.push(PointerFind { key, pointer: pointer.as_str(), is_found, meant });
            }
        }
        finds
    }

    /// Returns the request that an object from a source names; `None` if the object names no request.
    pub(in crate::progress) fn about(&self, text: &Bytes) -> Option<About> {
        let about = self.read(text)?.about;
        (about.token.is_some() || about.request.is_some()).then_some(about)
    }

    fn figure(&self, value: &Bytes, total: Option<Bytes>) -> Option<ProgressValue> {
        let Some(value) = number(value) else {
            return Extract::presets().figure(&json::decode_str(value)?);
        };
        let known = match self.scale {
            Count::Percent => Some(whole("100")),
            Count::Unit => Some(whole("1")),
            Count::Raw => None,
        };
        Some(ProgressValue { value, total: total.as_ref().and_then(number).or(known) })
    }
}

/// Returns a JSON string unchanged if a client can parse it; any other value is converted to a string.
fn as_words(text: Bytes) -> Bytes {
    if !text.starts_with(b"\"") {
        return json::quote(&String::from_utf8_lossy(&text));
    }
    // A string that a strict client refuses (a raw control character, half a surrogate pair) is rewritten.
    if is_valid(&text) {
        return text;
    }
    json::decode_str(&text).map_or_else(|| text.clone(), |words| json::quote(&words))
}

/// The mark of a call's last message.
#[derive(Debug, Clone, PartialEq)]
pub struct Final {
    /// The pointer to the mark.
    pub pointer: Pointer,
    /// The expected value, as JSON text: a string, a number, `true` or `false`.
    pub equals: Bytes,
}

impl Final {
    fn is(&self, value: &Bytes) -> bool {
        match (json::decode_str(value), json::decode_str(&self.equals)) {
            (Some(said), Some(expected)) => said == expected,
            (None, None) => {
                value == &self.equals
                    || json::number(value)
                        .is_some_and(|said| Some(said) == json::number(&self.equals))
            }
            _ => false,
        }
    }
}

/// The result of looking up one pointer of a dialect in a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PointerFind<'a> {
    /// The key of the pointer in a route file.
    pub key: &'static str,
    /// The text of the pointer.
    pub pointer: &'a str,
    /// Whether the pointer finds a value.
    pub is_found: bool,
    /// A corrected pointer that finds a value, if the path of the given pointer leads through a string with JSON.
    pub meant: Option<String>,
}

/// A JSON Pointer (RFC 6901) into a message. A `#` at the end of a part continues inside JSON that is in a string:
/// `/params/content/0/text#/percentComplete`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer {
    steps: Vec<PointerStep>,
    text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum PointerStep {
    /// A step into a member, or into an element if the part is a number.
    Part(String),
    /// A step into JSON that is the content of a string.
    Embedded,
}

impl Pointer {
    /// Reads a pointer. The error describes the correct form.
    pub fn read(text: &str) -> Result<Self, String> {
        let Some(parts) = text.strip_prefix('/') else {
            let near = text.trim_start_matches(['$', '.', '#']).replace(['.', '['], "/");
            let near = near.replace([']', '\'', '"'], "");
            let near = near.trim_matches('/');
            let near = if near.is_empty() { "params/progress" } else { near };
            return Err(format!("{text:?} is no JSON Pointer; did you mean \"/{near}\"?"));
        };
        let mut steps = Vec::new();
        for part in parts.split('/') {
            let plain = part.trim_end_matches('#');
            if has_stray_tilde(plain) {
                let near = text.replace('~', "~0");
                return Err(format!(
                    "{text:?} has a `~` that is not ~0 or ~1; did you mean {near:?}?"
                ));
            }
            // RFC 6901, section 4: `~1` is replaced before `~0`. In the other order `~01` would become `/`, not `~1`.
            steps.push(PointerStep::Part(plain.replace("~1", "/").replace("~0", "~")));
            steps.extend((plain.len()..part.len()).map(|_| PointerStep::Embedded));
        }
        Ok(Self { steps, text: text.to_owned() })
    }

    /// Returns the pointer as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the raw value that the pointer finds.
    fn find(&self, text: &Bytes) -> Option<Bytes> {
        let mut value = text.clone();
        for step in &self.steps {
            value = match step {
                PointerStep::Part(part) => inner(&value, part)?,
                PointerStep::Embedded => embedded(&value)?,
            };
        }
        Some(value)
    }

    /// Returns the pointer with `#` inserted after each string with JSON on its path. `None` if that pointer finds no
    /// value, or does not differ from the given pointer.
    fn through_strings(&self, text: &Bytes) -> Option<String> {
        let (mut value, mut meant) = (text.clone(), String::new());
        let mut parts = self.text.split('/').skip(1);
        for step in &self.steps {
            let PointerStep::Part(part) = step else {
                value = embedded(&value)?;
                meant.push('#');
                continue;
            };
            if value.starts_with(b"\"") {
                value = embedded(&value)?;
                meant.push('#');
            }
            value = inner(&value, part)?;
            meant.push('/');
            meant += parts.next()?.trim_end_matches('#');
        }
        (meant != self.text).then_some(meant)
    }
}

/// Returns the JSON in a string.
fn embedded(value: &Bytes) -> Option<Bytes> {
    let content = json::unescape(value)?.into_owned();
    let begin = json::skip_space(&content, 0);
    let end = json::skip_value(&content, begin)?;
    Some(Bytes::from(content).slice(begin..end))
}

fn has_stray_tilde(part: &str) -> bool {
    part.split('~').skip(1).any(|after| !after.starts_with(['0', '1']))
}

fn inner(value: &Bytes, part: &str) -> Option<Bytes> {
    if !value.starts_with(b"[") {
        return json::member(value, part);
    }
    // RFC 6901, section 4: an index has no leading zero and no sign.
    let is_index = part == "0" || !part.starts_with(['0', '+']);
    let index: usize = part.parse().ok().filter(|_| is_index)?;
    let (elements, _) = json::elements(value)?;
    elements.get(index).map(|element| value.slice(element.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pointer: &str, text: &'static str, expected: Option<&str>) {
        let found = Pointer::read(pointer).unwrap().find(&Bytes::from_static(text.as_bytes()));
        assert_eq!(
            found,
            expected.map(|text| Bytes::copy_from_slice(text.as_bytes())),
            "{pointer}"
        );
    }

    #[test]
    fn a_pointer_finds_the_raw_value() {
        let text =
            r#" { "a/b": 1, "m~n": [10, {"c" : "d\u0041"}], "": 2, "a": 1, "a": NaN, "0": 3 }"#;
        check("/a~1b", text, Some("1"));
        check("/m~0n/0", text, Some("10"));
        check("/m~0n/1/c", text, Some(r#""d\u0041""#));
        check("/", text, Some("2"));
        check("/a", text, Some("NaN"));
        check("/0", text, Some("3"));
        for nothing in ["/b", "/m~0n/2", "/m~0n/00", "/m~0n/+1", "/m~0n/-", "/a/b", "/m~0n/1/c/0"] {
            check(nothing, text, None);
        }
    }

    #[test]
    fn a_hash_descends_into_a_string() {
        let text = r##"{"t":" {\"p\": 15, \"u\": \"{\\\"q\\\":[7]}\"} ","n":"42","x":"no","#k":1,"k#l":2}"##;
        check("/t#/p", text, Some("15"));
        check("/t#/u#/q/0", text, Some("7"));
        check("/n#", text, Some("42"));
        check("/n##", text, None);
        check("/x#/p", text, None);
        check("/k#/p", text, None);
        check("/#k", text, Some("1"));
        check("/k#l", text, Some("2"));
    }

    #[test]
    fn a_string_of_json_in_the_way_is_named() {
        let text = r##"{"t":" {\"p\": 15, \"u\": \"{\\\"q\\\":[7]}\"} ","n":"no","o":{"p":1}}"##;
        for (pointer, meant) in [
            ("/t/p", Some("/t#/p")),
            ("/t/u/q/0", Some("/t#/u#/q/0")),
            ("/t#/u/q/0", Some("/t#/u#/q/0")),
            ("/t/x", None),
            ("/n/p", None),
            ("/o/p", None),
        ] {
            let found = Pointer::read(pointer)
                .unwrap()
                .through_strings(&Bytes::from_static(text.as_bytes()));
            assert_eq!(found.as_deref(), meant, "{pointer}");
        }
    }

    #[test]
    fn what_is_no_pointer_is_refused_with_the_one_that_may_be_meant() {
        for (text, near) in [
            ("params/pct", "\"/params/pct\""),
            ("$.params.items[0].pct", "\"/params/items/0/pct\""),
            ("", "\"/params/progress\""),
            ("/a~b", "\"/a~0b\""),
        ] {
            let error = Pointer::read(text).unwrap_err();
            assert!(error.ends_with(&format!("did you mean {near}?")), "{error}");
        }
    }

    #[test]
    fn nesting_is_a_counter_and_no_stack() {
        let depth = if cfg!(miri) { 1000 } else { 200_000 };
        let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
        let pointer = Pointer::read("/a/0/0").unwrap();
        assert!(pointer.find(&Bytes::from(deep)).is_some());
    }
}
