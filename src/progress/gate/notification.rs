//! One compliant `notifications/progress`, written from its parts.

use std::borrow::Cow;

use bytes::{BufMut, Bytes, BytesMut};

use crate::progress::correlate::call::Call;
use crate::progress::dialect::Report;
use crate::progress::gate::meter::EmittedProgress;
use crate::protocol::json;
use crate::protocol::mcp::META_RELATED_TASK;

/// The longest message text, in bytes of JSON, of a rewritten notification. Longer text is cut.
/// Text chunks of a whole minute fit; a flood does not.
pub const MESSAGE_MAX: usize = 4 << 10;

/// Bytes of a notification besides its token, message and other members, unless its value is very long.
const WITHOUT_TEXTS: usize = 160;

/// The parts of a notification besides its value.
#[derive(Debug, Default)]
struct Parts<'a> {
    /// The client's own token text.
    token: &'a [u8],
    /// A JSON string.
    message: Option<&'a [u8]>,
    /// The server's `_meta`.
    meta: Option<&'a [u8]>,
    /// Members that the specification does not know, each `"key":value`.
    members: &'a [Bytes],
    /// The task that the token belongs to by now (2025-11-25).
    task: Option<&'a [u8]>,
}

/// The notification for a report of a call, without a line ending.
pub(crate) fn write(
    call: &Call,
    emitted: &EmittedProgress,
    token: &Bytes,
    message: Option<&Bytes>,
    report: &Report,
) -> Bytes {
    let parts = Parts {
        token,
        message: message.map(|message| &message[..]),
        meta: report.meta.as_deref(),
        members: &report.members,
        task: call.task.as_ref().map(|task| &task.text[..]),
    };
    assemble(emitted, &parts)
}

fn assemble(emitted: &EmittedProgress, parts: &Parts<'_>) -> Bytes {
    let members: usize = parts.members.iter().map(|member| member.len() + 1).sum();
    let room = parts.token.len() + parts.message.map_or(0, <[u8]>::len) + members;
    let mut out = BytesMut::with_capacity(room + WITHOUT_TEXTS);
    out.put_slice(
        br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"#,
    );
    out.put_slice(parts.token);
    out.put_slice(br#","progress":"#);
    out.put_slice(&emitted.progress.text);
    if let Some(total) = &emitted.total {
        out.put_slice(br#","total":"#);
        out.put_slice(&total.text);
    }
    if let Some(message) = parts.message {
        out.put_slice(br#","message":"#);
        out.put_slice(message);
    }
    for member in parts.members {
        out.put_u8(b',');
        out.put_slice(member);
    }
    write_meta(&mut out, parts);
    out.put_slice(b"}}");
    out.freeze()
}

/// `_meta`, with the related task that every message of a task has to carry (11:utilities/tasks).
fn write_meta(out: &mut BytesMut, parts: &Parts<'_>) {
    let own = parts.meta.map(Bytes::copy_from_slice);
    let named = own.as_ref().is_some_and(|meta| json::member(meta, META_RELATED_TASK).is_some());
    match (&own, parts.task.filter(|_| !named)) {
        (None, None) => {}
        (Some(meta), None) => {
            out.put_slice(br#","_meta":"#);
            out.put_slice(meta);
        }
        (meta, Some(task)) => {
            out.put_slice(br#","_meta":{""#);
            out.put_slice(META_RELATED_TASK.as_bytes());
            out.put_slice(br#"":{"taskId":"#);
            out.put_slice(task);
            out.put_u8(b'}');
            let rest = meta.as_ref().map_or(&b"}"[..], |meta| &meta[1..]);
            if json::skip_space(rest, 0) < rest.len() && rest[json::skip_space(rest, 0)] != b'}' {
                out.put_u8(b',');
            }
            out.put_slice(rest);
        }
    }
}

/// A JSON string of at most [`MESSAGE_MAX`] bytes: unchanged if short enough, else cut between
/// characters. Bytes that are not UTF-8 become U+FFFD.
pub(crate) fn message(text: &Bytes) -> Bytes {
    if text.len() <= MESSAGE_MAX {
        return match json::lossy(text) {
            Cow::Borrowed(_) => text.clone(),
            Cow::Owned(mended) => Bytes::from(mended),
        };
    }
    let words = json::decode_str(text).unwrap_or_default();
    // Escapes make JSON text longer than its words, but rarely more than three times.
    let mut room = MESSAGE_MAX / 3;
    loop {
        let end = (0..=room.min(words.len())).rev().find(|&at| words.is_char_boundary(at));
        let cut = json::quote(&(words[..end.unwrap_or(0)].to_owned() + "…"));
        if cut.len() <= MESSAGE_MAX {
            return cut;
        }
        room /= 2;
    }
}

/// Two pieces of one text as a JSON string; of a long one the end.
pub(crate) fn join(first: &Bytes, second: &Bytes) -> Bytes {
    let words = |text| json::decode_str(text).unwrap_or_default();
    let all = words(first).into_owned() + &words(second);
    let joined = json::quote(&all);
    if joined.len() <= MESSAGE_MAX {
        return joined;
    }
    // Half of it, so that not every further piece costs a cut.
    let from = all.len().saturating_sub(MESSAGE_MAX / 2);
    let start = (from..all.len()).find(|&at| all.is_char_boundary(at)).unwrap_or(all.len());
    json::quote(&format!("…{}", &all[start..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::value::Number;

    fn emitted() -> EmittedProgress {
        let progress = Number { value: 1.0, text: Bytes::from_static(b"1") };
        EmittedProgress { progress, total: None, repair: None }
    }

    #[track_caller]
    fn check(parts: &Parts<'_>, params: &str) {
        let text = assemble(&emitted(), parts);
        let head = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":"#;
        assert_eq!(text, format!("{head}{params}}}"));
        serde_json::from_slice::<serde_json::Value>(&text).unwrap();
    }

    #[test]
    fn a_task_is_named_beside_what_the_server_put_into_meta() {
        let parts = |meta| Parts { token: b"7", meta, task: Some(b"\"T\""), ..Parts::default() };
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
        let cut = message(&long);
        assert!(cut.len() <= MESSAGE_MAX);
        assert!(json::decode_str(&cut).unwrap().ends_with("é…"));
        let lone = Bytes::from_static(br#""abc\ud83d""#);
        assert_eq!(message(&lone), lone);
    }
}
