//! Reads progress by the names of members, whatever the form of the notification: text, value, total, and the names of
//! the request. Members are found in any spelling, also one level down.

use bytes::Bytes;

use crate::progress::dialect::Fields;
use crate::progress::dialect::fields::{clean, whole};
use crate::progress::dialect::report::{About, Report};
use crate::progress::value::ProgressValue;
use crate::progress::verdict::Repair;
use crate::protocol::json;

/// Names of members that may contain the progress one level down.
const INSIDE: [&str; 13] = [
    "data", "params", "value", "progress", "update", "event", "msg", "payload", "delta", "output",
    "chunk", "result", "message",
];

/// Names of members with a complete text for people, in the order of preference.
const WORDS: [&str; 2] = ["message", "msg"];

/// Names of members that contain a piece of the tool's output.
const PIECES: [&str; 9] = [
    "text",
    "chunk",
    "delta",
    "output",
    "line",
    "content",
    "contentChunk",
    "partialResult",
    "structuredContent",
];

/// Names of members whose text is read only if no other member has a text.
const STATES: [&str; 15] = [
    "title",
    "description",
    "detail",
    "label",
    "summary",
    "statusMessage",
    "currentStep",
    "step",
    "stage",
    "phase",
    "currentFile",
    "action",
    "status",
    "state",
    "event",
];

/// Names of members that contain the text of an object or a content block.
const TEXT: [&str; 6] = ["text", "message", "delta", "content", "chunk", "line"];

/// Limit of the depth of nested objects and arrays in which a text is searched. Content blocks need three levels.
const DEPTH_MAX: usize = 4;

/// Limit of the elements of an array whose texts are read.
const ELEMENTS_MAX: usize = 64;

const TOKENS: [&str; 3] = ["progressToken", "token", "toolCallId"];
const REQUESTS: [&str; 2] = ["requestId", "id"];

/// Reads the members of a notification about the work of a tool.
pub(super) fn read(params: &Fields) -> Report {
    let mut report = Report { about: about(params), figure: figure(params), ..Report::default() };
    report.repairs.add(Repair::Dialect);
    let (words, chunk) = words(params);
    report.message = words.and_then(|words| clean(&words));
    report.chunk = chunk;
    report.last = params.is_true("isFinal");
    report
}

/// Returns the names of the request, from the notification, from its `_meta`, or from one level down.
pub(super) fn about(params: &Fields) -> About {
    let levels = || std::iter::once(None).chain(inside(params).into_iter().map(Some));
    let meta = params.object("_meta");
    let find = |names: &[&str]| {
        let meta = meta.as_ref().and_then(|meta| meta.first(names));
        params.first(names).or(meta).cloned()
    };
    let token_text = find(&TOKENS);
    let request_text = find(&REQUESTS);
    let tool = levels().find_map(|level| {
        let names = ["toolName", "tool", "tool_name"];
        level.as_ref().unwrap_or(params).text(&names)
    });
    About {
        token: token_text.as_ref().and_then(crate::protocol::jsonrpc::Key::read),
        token_text,
        request: request_text.as_ref().and_then(crate::protocol::jsonrpc::Key::read),
        request_text,
        tool,
        task: None,
    }
}

/// Returns the value, from the members of the notification or one level down.
pub(super) fn figure(params: &Fields) -> Option<ProgressValue> {
    let of = |fields: &Fields| {
        fields.figure().or_else(|| {
            let found = fields.progress_of_total()?;
            // A value strictly between 0 and 1 is a fraction of 1: a counter has whole numbers.
            let is_part = found.value.value > 0.0 && found.value.value < 1.0;
            let found = if is_part { found.or_of(whole("1")) } else { found };
            Some(found.within_total())
        })
    };
    of(params).or_else(|| inside(params).iter().find_map(of))
}

/// Returns the text, and whether it is a piece of a longer text.
pub(super) fn words(params: &Fields) -> (Option<String>, bool) {
    let levels: Vec<Fields> = inside(params);
    let find = |names: &[&str], depth| {
        let of = |fields: &Fields| {
            names
                .iter()
                .find_map(|name| text_of(fields.get(name)?, depth))
                .filter(|text| !text.is_empty())
        };
        of(params).or_else(|| levels.iter().find_map(of))
    };
    // An object in `message` is one of the levels that are searched below.
    if let Some(words) = find(&WORDS, 0) {
        return (Some(words), false);
    }
    // Some servers send partial results in place of the number.
    let instead = params.get("progress").filter(|value| value.starts_with(b"["));
    if let Some(words) = instead.and_then(|value| text_of(value, DEPTH_MAX)) {
        return (Some(words), true);
    }
    match find(&PIECES, DEPTH_MAX) {
        Some(piece) => (Some(piece), true),
        None => (find(&STATES, 0), false),
    }
}

/// Returns the objects one level down. If there are several events, the newest comes first.
fn inside(params: &Fields) -> Vec<Fields> {
    let mut levels: Vec<Fields> = INSIDE.iter().filter_map(|name| params.object(name)).collect();
    if let Some(events) = params.get("events")
        && let Some((places, _)) = json::elements(events)
    {
        let newest = places.into_iter().rev().take(ELEMENTS_MAX);
        levels.extend(newest.filter_map(|place| Fields::read(&events.slice(place))));
    }
    levels
}

/// Returns the text of a string, of an object that contains a text, or of content blocks.
pub(super) fn text_of(value: &Bytes, depth: usize) -> Option<String> {
    match value.first()? {
        b'"' => json::decode_str(value).map(|text| text.into_owned()),
        b'{' if depth > 0 => {
            let fields = Fields::read(value)?;
            TEXT.iter().find_map(|name| text_of(fields.get(name)?, depth - 1))
        }
        b'[' if depth > 0 => {
            let (places, _) = json::elements(value)?;
            let texts = places.into_iter().take(ELEMENTS_MAX);
            let texts = texts.filter_map(|place| text_of(&value.slice(place), depth - 1));
            let texts: Vec<String> = texts.collect();
            (!texts.is_empty()).then(|| texts.join("\n"))
        }
        _ => None,
    }
}
