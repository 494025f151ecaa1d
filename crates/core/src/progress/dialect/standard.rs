//! `notifications/progress`, as the specification defines it, and with every known fault.
//!
//! ```json
//! {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":3,"total":10,"message":"m"}}
//! {"jsonrpc":"2.0","method":"notifications/progress","params":{"token":"shell_01","progress":null,"message":"m","metadata":{}}}
//! {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":5,"status":"in_progress","percent":50}}
//! {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"value":{"kind":"report","percentage":40}}}
//! ```
//! Seen in: every SDK; invented tokens in SwissArmyHammer, Plexus, twenty; ids for tokens, no number
//! and spread members in KuzuMem-MCP; nulls from Java, C# and Pydantic; `value` objects from servers
//! written after LSP.

use bytes::Bytes;

use crate::progress::dialect::fields::{
    clean, is_spelling_of, is_valid, number, number_or_percentage,
};
use crate::progress::dialect::plain_progress;
use crate::progress::dialect::plain_progress::PlainMembers;
use crate::progress::dialect::report::{About, BuiltIn, Original, Report, ReportView};
use crate::progress::dialect::{Fields, meaning};
use crate::progress::value::{Number, NumberView, ProgressValue, ProgressView};
use crate::progress::verdict::{Repair, Repairs};
use crate::protocol::json;
use crate::protocol::jsonrpc::{Key, Message};
use crate::protocol::mcp::PROGRESS;

pub(in crate::progress) static DIALECT: BuiltIn = BuiltIn {
    name: "standard",
    methods: &[PROGRESS],
    default: true,
    original: Original::Replaced,
    bare_results: false,
    read,
};

/// The members that are read as the token, in the order of preference.
const TOKENS: [&str; 4] = ["progressToken", "token", "progress_token", "progressId"];
/// The members of the specification.
const KNOWN: [&str; 5] = ["progressToken", "progress", "total", "message", "_meta"];
/// Names of members whose object may contain the progress, one level down.
const INSIDE: [&str; 5] = ["value", "progress", "data", "params", "payload"];
/// Names of members that contain the request id.
const REQUESTS: [&str; 3] = ["requestId", "request_id", "id"];

fn read(_: &str, message: &Message, params: &Fields) -> Option<Report> {
    let mut repairs = Repairs::default();
    // A strict client rejects the whole message for one syntax error anywhere in it.
    if !message.is_strict() || params.is_repeated() || !is_valid(message.raw()) {
        repairs.add(Repair::Envelope);
    }
    let is_respelled = |name: &&str| params.get_exact(name).is_none() && params.get(name).is_some();
    // The token has a repair of its own; see `about`.
    if KNOWN[1..].iter().any(is_respelled) {
        repairs.add(Repair::Envelope);
    }
    let nested = INSIDE.iter().find_map(|name| params.object(name));
    let about = about(params, nested.as_ref(), &mut repairs);
    let figure = figure(params, nested.as_ref(), &mut repairs);
    let (words, chunk) = message_of(params, nested.as_ref(), &mut repairs);
    let ended = nested.as_ref().and_then(|value| value.text(&["kind"]));
    let mut report = Report {
        about,
        figure,
        message: words,
        chunk,
        last: params.is_true("isFinal") || ended.as_deref() == Some("end"),
        repairs,
        ..Report::default()
    };
    keep_members(params, &mut report);
    Some(report)
}

/// Reads a notification that has only the members of the specification, in their specified forms. Returns the same
/// report as [`read`], which reads any notification. `None` only means that this fast path cannot read the message.
pub(super) fn read_plain(message: &Message) -> Option<Report> {
    Some(report_of(&PlainMembers::read(message.raw())?, message.raw()))
}

/// Returns the report of a notification from its members, which are slices of `text`.
fn report_of(plain: &PlainMembers<'_>, text: &Bytes) -> Report {
    let slice = |part: &[u8]| text.slice_ref(part);
    let token_text = plain.token.map(slice);
    let token = token_text.as_ref().and_then(Key::read);
    let view = view_of(plain);
    let mut repairs = view.repairs;
    if token.is_none() {
        repairs.add(Repair::Token);
    }
    let number = |number: NumberView<'_>| Number { value: number.value, text: slice(number.text) };
    let figure = view.figure.map(|figure| ProgressValue {
        value: number(figure.value),
        total: figure.total.map(number),
    });
    Report {
        about: About {
            token_text: token_text.filter(|_| token.is_some()),
            token,
            ..About::default()
        },
        figure,
        message: plain.message.map(slice),
        repairs,
        ..Report::default()
    }
}

/// Returns a view of the members of a notification, without its token.
pub(in crate::progress) fn view_of<'a>(plain: &PlainMembers<'a>) -> ReportView<'a> {
    let mut repairs = Repairs::default();
    let number = |(text, value): (&'a [u8], Option<f64>)| Some(NumberView { value: value?, text });
    let value = plain.progress.and_then(|part| number((part, plain_progress::value(part))));
    let total = plain.total.and_then(number);
    if plain.total.is_some() && total.is_none() {
        repairs.add(Repair::Total);
    }
    if value.is_none() {
        repairs.add(Repair::Number);
    }
    ReportView {
        figure: value.map(|value| ProgressView { value, total }),
        message: plain.message,
        // The fast reader accepts no message longer than `MESSAGE_MAX`, so the text is not longer either.
        has_clean_words: true,
        repairs,
        ..ReportView::default()
    }
}

fn about(params: &Fields, nested: Option<&Fields>, repairs: &mut Repairs) -> About {
    let text = params.first(&TOKENS).cloned();
    let in_meta = || params.object("_meta")?.first(&TOKENS[..1]).cloned();
    let text = text.or_else(in_meta).or_else(|| nested?.first(&TOKENS).cloned());
    let token = text.as_ref().and_then(Key::read);
    if token.is_none() || params.get_exact(TOKENS[0]).is_none() {
        repairs.add(Repair::Token);
    }
    About {
        token_text: token.is_some().then_some(text).flatten(),
        token,
        request: params.key(&REQUESTS),
        request_text: params.first(&REQUESTS).cloned(),
        tool: params.text(&["toolName", "tool_name"]),
        task: None,
    }
}

fn figure(
    params: &Fields,
    nested: Option<&Fields>,
    repairs: &mut Repairs,
) -> Option<ProgressValue> {
    let written = params.get("progress");
    let value = params.progress_of_total();
    let total = params.get("total");
    if total.is_some_and(|total| json::number(total).is_none()) {
        repairs.add(Repair::Total);
    }
    if written.is_none_or(|written| json::number(written).is_none()) {
        repairs.add(Repair::Number);
    }
    if value.is_some() {
        return value;
    }
    let below = || nested?.progress_of_total().map(ProgressValue::within_total);
    params.figure().or_else(|| nested.and_then(Fields::figure)).or_else(below).or_else(|| {
        let found = params.get("value").and_then(number_or_percentage)?;
        let total = found.total.or_else(|| total.and_then(number));
        Some(ProgressValue { value: found.value, total })
    })
}

/// Returns the message, and whether it continues the last message.
fn message_of(
    params: &Fields,
    nested: Option<&Fields>,
    repairs: &mut Repairs,
) -> (Option<Bytes>, bool) {
    match params.get("message") {
        Some(text) if text.starts_with(b"\"") && is_valid(text) => {
            return (Some(text.clone()), false);
        }
        Some(text) => {
            repairs.add(Repair::Message);
            // A number or an object under `message` is shown as its JSON text.
            if !matches!(text.first(), Some(b'"')) && **text != *b"null" {
                return (Some(json::quote(&String::from_utf8_lossy(text))), false);
            }
        }
        None => {}
    }
    let chunk = params.object("data").and_then(|data| data.string("chunk").cloned());
    if chunk.is_some() {
        return (chunk, true);
    }
    let below = |name: &&str| nested.and_then(|value| value.string(name));
    let found = ["message", "title", "text", "msg"].iter().find_map(below).cloned();
    if found.is_some() {
        return (found, false);
    }
    let (words, chunk) = meaning::words(params);
    (words.and_then(|words| clean(&words)), chunk)
}

/// Keeps members that the specification does not know, if a client can parse them.
fn keep_members(params: &Fields, report: &mut Report) {
    let known = KNOWN;
    let instead = |key: &str| {
        TOKENS[1..].contains(&key)
            || KNOWN.iter().any(|name| is_spelling_of(key.as_bytes(), name))
            || REQUESTS.contains(&key)
            || (key == "value" && (report.figure.is_some() || params.object(key).is_some()))
    };
    for (key, value) in params.iter() {
        let key = &*key;
        if key == "_meta" && value.starts_with(b"{") && is_valid(value) {
            report.meta = Some(value.clone());
        } else if key == "_meta" || (!known.contains(&key) && !is_valid(value)) {
            report.repairs.add(Repair::Envelope);
        } else if !known.contains(&key) && !instead(key) {
            let member = [&json::quote(key)[..], b":", value].concat();
            report.members.push(Bytes::from(member));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXTS: [&str; 6] = [
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1,"total":10,"message":"one"}}"#,
        r#"{"params":{"message":"a\n\"b","total":10.5,"progress":1.5,"progressToken":"a"},"method":"notifications/progress","jsonrpc":"2.0"}"#,
        r#" { "jsonrpc" : "2.0", "method":"notifications/progress", "params" : {"progressToken":1.5,"progress" : -1 } } "#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"message":"no figure","progressToken":7}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"message":"no token"}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"message":""}}"#,
    ];

    /// Reads a text with the fast path and with the complete reader, so that a test can compare the results.
    fn both(text: Vec<u8>) -> (Option<Report>, Option<Report>) {
        let message = Message::parse(text.into());
        let params = message.params().as_ref().and_then(Fields::read);
        let whole = params.and_then(|params| read(PROGRESS, &message, &params));
        (read_plain(&message), whole)
    }

    #[test]
    fn plain_notifications_are_read_in_one_pass() {
        for text in TEXTS {
            let (plain, whole) = both(text.into());
            assert!(plain.is_some(), "{text}");
            assert_eq!(format!("{plain:?}"), format!("{whole:?}"), "{text}");
        }
    }

    proptest! {
        #[test]
        fn the_one_pass_reads_nothing_otherwise(
            (of, at, cut) in (0..TEXTS.len(), 0_usize..200, 0_usize..4),
            put in prop::collection::vec(prop_oneof![
                prop::sample::select(br#"019.-e+"\\u {}[]:,n"#.to_vec()), any::<u8>(),
            ], 0..4),
        ) {
            let mut text = TEXTS[of].as_bytes().to_vec();
            let at = at.min(text.len());
            let end = (at + cut).min(text.len());
            text.splice(at..end, put);
            let (plain, whole) = both(text);
            if plain.is_some() {
                prop_assert_eq!(format!("{plain:?}"), format!("{whole:?}"));
            }
        }
    }
}
