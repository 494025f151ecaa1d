//! Finds members that JSON readers may take for a member of the protocol, because its name is spelled in another way or
//! occurs twice.
//!
//! Readers in Go take `Method` for `method`, and others end a name at a NUL. If a name occurs twice, some readers use
//! the first member and some the last.

use std::fmt;

use bytes::Bytes;

use super::Message;
use crate::protocol::{json, mcp};

/// The members of the envelope.
const ENVELOPE: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

/// The members of `params` that the protocol reads in messages of any method.
const PARAMS: [&str; 2] = ["_meta", "requestId"];

/// The members of `params` of a progress notification.
const PROGRESS_PARAMS: [&str; 3] = ["_meta", "requestId", "progressToken"];

/// The names of members in `params` of a call whose arguments have a token.
const CALL_PARAMS: [&str; 4] = ["_meta", "requestId", "arguments", "name"];

/// A member that readers may read in different ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AmbiguousMember {
    level: &'static str,
    fault: Fault,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Some readers take another member for this member.
    Respelled(&'static str),
    /// The member occurs twice.
    Repeated(&'static str),
    /// The object is incomplete.
    Unreadable,
}

impl fmt::Display for AmbiguousMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { level, fault } = self;
        match fault {
            Fault::Respelled(name) => {
                write!(f, "{level} has a member that some servers take for \"{name}\"")
            }
            Fault::Repeated(name) => write!(f, "{level} has the member \"{name}\" twice"),
            Fault::Unreadable => write!(f, "{level} is no object that every server can read"),
        }
    }
}

impl AmbiguousMember {
    /// The first member of the protocol that readers may read in different ways: in the envelope, in
    /// `params` and in `params._meta`. With `in_arguments` also a token in the arguments of a tool.
    pub fn of(message: &Message, in_arguments: bool) -> Option<Self> {
        let found = |level, fault| Some(Self { level, fault });
        if let Some(fault) = fault_of(message.raw(), &ENVELOPE) {
            return found("the message", fault);
        }
        let params = message.params()?;
        let is_call = in_arguments && message.method().as_deref() == Some(mcp::TOOLS_CALL);
        let names: &[&str] = match message.method().as_deref() {
            Some(mcp::PROGRESS) => &PROGRESS_PARAMS,
            _ if is_call => &CALL_PARAMS,
            _ => &PARAMS,
        };
        if let Some(fault) = fault_of(&params, names) {
            return found("params", fault);
        }
        if let Some(fault) = token_fault(&params) {
            return found("params._meta", fault);
        }
        let arguments = json::member(&params, "arguments").filter(|_| is_call)?;
        if let Some(fault) = fault_of(&arguments, &["_meta"]) {
            return found("params.arguments", fault);
        }
        found("params.arguments._meta", token_fault(&arguments)?)
    }
}

/// Returns the fault of the token in an object's `_meta`.
fn token_fault(object: &Bytes) -> Option<Fault> {
    fault_of(&json::member(object, "_meta")?, &["progressToken"])
}

/// Returns the first fault of an object. A value of another type has no fault.
fn fault_of(object: &[u8], names: &[&'static str]) -> Option<Fault> {
    if object.get(json::skip_space(object, 0)) != Some(&b'{') {
        return None;
    }
    let mut seen = 0_u8;
    let mut members = json::Members::new(object);
    for member in members.by_ref() {
        let key = &object[member.key];
        for (place, name) in names.iter().enumerate() {
            if json::key_is(key, name) {
                if seen & (1 << place) != 0 {
                    return Some(Fault::Repeated(name));
                }
                seen |= 1 << place;
            } else if folds_to(key, name) {
                return Some(Fault::Respelled(name));
            }
        }
    }
    // A lenient server may read further than this reader, and find members that were not checked.
    members.end().is_none().then_some(Fault::Unreadable)
}

/// Whether a quoted key equals `name`, if letter case is ignored or the key ends at a NUL.
fn folds_to(key: &[u8], name: &str) -> bool {
    let Some(key) = json::decode_str(key) else { return false };
    let key = key.split('\0').next().unwrap_or_default();
    if key.is_ascii() {
        return key.eq_ignore_ascii_case(name);
    }
    // Lowering a capital dotted i leaves a combining dot, which is removed here.
    let folded = key.chars().flat_map(fold).filter(|letter| *letter != '\u{307}');
    folded.eq(name.chars().flat_map(fold))
}

/// Returns a letter without its case. It is raised first, which makes the long `ſ` equal to `s`, and the dotless `ı` to
/// `i`.
fn fold(letter: char) -> impl Iterator<Item = char> {
    letter.to_uppercase().flat_map(char::to_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_folded_as_readers_fold_them() {
        for (key, name) in [
            ("METHOD", "method"),
            ("param\u{17f}", "params"),
            ("progre\u{17f}sToken", "progressToken"),
            ("progressTo\u{212a}en", "progressToken"),
            ("\u{130}d", "id"),
            ("\u{131}d", "id"),
            ("method\\u0000", "method"),
            ("method\\u0000x", "method"),
            ("\\u004dethod", "method"),
            ("reque\u{fb06}Id", "requestId"),
        ] {
            assert!(folds_to(format!("\"{key}\"").as_bytes(), name), "{key}");
        }
        for (key, name) in [("method ", "method"), ("methods", "method"), ("_id", "id"), ("", "id")]
        {
            assert!(!folds_to(format!("\"{key}\"").as_bytes(), name), "{key}");
        }
    }
}
