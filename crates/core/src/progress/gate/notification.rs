//! Writes one compliant `notifications/progress` from its parts.

use bytes::Bytes;

use crate::progress::correlate::call::Call;
use crate::progress::correlate::meter::EmittedProgress;
use crate::progress::dialect::report::ReportView;
use crate::progress::value::append_spelled;
use crate::protocol::json;
use crate::protocol::mcp::META_RELATED_TASK;

/// The parts of a notification.
#[derive(Debug, Default)]
struct Parts<'a> {
    /// The client's own text of the token.
    token: &'a [u8],
    value: f64,
    /// The server's text of the value, if the value is unchanged.
    value_text: Option<&'a [u8]>,
    total: Option<&'a [u8]>,
    /// The message, as a JSON string.
    message: Option<&'a [u8]>,
    /// The server's `_meta`.
    meta: Option<&'a [u8]>,
    /// Members that the specification does not know, each `"key":value`.
    members: &'a [Bytes],
    /// The task that the call has become, if it has become one (MCP 2025-11-25).
    task: Option<&'a [u8]>,
}

/// Writes the notification for a report of a call into `out`, without a line ending, and replaces the content of `out`.
/// `emitted` is the value that the call's meter computed for `report`.
pub(crate) fn write(
    out: &mut Vec<u8>,
    call: &Call,
    emitted: &EmittedProgress,
    message: Option<&[u8]>,
    report: &ReportView<'_>,
) {
    let as_claimed = report.figure.as_ref().filter(|_| emitted.repair.is_none());
    let claimed_total = as_claimed.map(|figure| figure.total.map(|total| total.text));
    let total = claimed_total.unwrap_or_else(|| Some(call.meter.total_text()));
    let parts = Parts {
        // The exact text of the client's token is used, because a client that sent 7 does not recognise "7". A call
        // without a token does not get here.
        token: call.token.as_ref().map_or(&b"null"[..], |token| &token.client[..]),
        value: emitted.value,
        value_text: as_claimed.map(|figure| figure.value.text),
        total: total.filter(|_| emitted.total.is_some()),
        message,
        meta: report.meta,
        members: report.members,
        task: call.task.as_ref().map(|task| &task.text[..]),
    };
    assemble(out, &parts);
}

fn assemble(out: &mut Vec<u8>, parts: &Parts<'_>) {
    out.clear();
    out.extend_from_slice(
        br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"#,
    );
    out.extend_from_slice(parts.token);
    out.extend_from_slice(br#","progress":"#);
    match parts.value_text {
        Some(text) => out.extend_from_slice(text),
        None => append_spelled(out, parts.value),
    }
    if let Some(total) = parts.total {
        out.extend_from_slice(br#","total":"#);
        out.extend_from_slice(total);
    }
    if let Some(message) = parts.message {
        out.extend_from_slice(br#","message":"#);
        out.extend_from_slice(message);
    }
    for member in parts.members {
        out.push(b',');
        out.extend_from_slice(member);
    }
    write_meta(out, parts);
    out.extend_from_slice(b"}}");
}

/// Writes `_meta`, with the related task that every message of a task has to name (MCP 2025-11-25, Tasks).
fn write_meta(out: &mut Vec<u8>, parts: &Parts<'_>) {
    let named = || {
        let meta = parts.meta.map(Bytes::copy_from_slice);
        meta.is_some_and(|meta| json::member(&meta, META_RELATED_TASK).is_some())
    };
    match (parts.meta, parts.task.filter(|_| !named())) {
        (None, None) => {}
        (Some(meta), None) => {
            out.extend_from_slice(br#","_meta":"#);
            out.extend_from_slice(meta);
        }
        (meta, Some(task)) => {
            out.extend_from_slice(br#","_meta":{""#);
            out.extend_from_slice(META_RELATED_TASK.as_bytes());
            out.extend_from_slice(br#"":{"taskId":"#);
            out.extend_from_slice(task);
            out.push(b'}');
            // The server's own members follow. If there are none, a comma would be an error.
            let rest = meta.map_or(&b"}"[..], |meta| &meta[1..]);
            if json::skip_space(rest, 0) < rest.len() && rest[json::skip_space(rest, 0)] != b'}' {
                out.push(b',');
            }
            out.extend_from_slice(rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::dialect::report::{MESSAGE_MAX, message_text};

    #[track_caller]
    fn check(parts: &Parts<'_>, params: &str) {
        let mut text = Vec::new();
        assemble(&mut text, parts);
        let head = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":"#;
        assert_eq!(String::from_utf8_lossy(&text), format!("{head}{params}}}"));
        serde_json::from_slice::<serde_json::Value>(&text).unwrap();
    }

    #[test]
    fn a_task_is_named_beside_what_the_server_put_into_meta() {
        let parts = |meta| Parts {
            token: b"7",
            value: 1.0,
            meta,
            task: Some(b"\"T\""),
            ..Parts::default()
        };
        let task = r#""io.modelcontextprotocol/related-task":{"taskId":"T"}"#;
        let all = |meta: &str| format!(r#"{{"progressToken":7,"progress":1,"_meta":{{{meta}}}}}"#);
        check(&parts(None), &all(task));
        check(&parts(Some(b"{ }")), &all(&format!("{task} ")));
        check(&parts(Some(br#"{"a":1}"#)), &all(&format!(r#"{task},"a":1"#)));
        let own = format!("{{{task}}}");
        check(&parts(Some(own.as_bytes())), &all(task));
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let long = json::quote(&"é".repeat(5000));
        let cut = message_text(&long);
        assert!(cut.len() <= MESSAGE_MAX);
        assert!(json::decode_str(&cut).unwrap().ends_with("é…"));
        let lone = br#""abc\ud83d""#;
        assert_eq!(*message_text(lone), *lone);
    }
}
