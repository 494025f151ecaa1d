//! A recording as a HAR 1.2 archive. An MCP call is not an HTTP exchange, so an entry has the request and the answer as
//! bodies, a URL whose scheme is the kind of the call, and the messages of both sides in `_messages`.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::ExportText;
use crate::lab::recordings::calls::{
    RecordedCall, RecordedCalls, RecordedMessage, RecordedSide, RecordedWay,
};
use crate::observe::printable::printable_json;
use crate::observe::transcript::words::verdict_text;

/// The HTTP version of an entry. A call has no HTTP version.
const NO_HTTP: &str = "unknown";

/// Writes the archive, entry by entry.
pub(super) fn write(
    recording: &RecordedCalls,
    text: &mut ExportText,
    to: &mut impl Write,
) -> io::Result<()> {
    let creator = json!({ "name": "milepost", "version": env!("CARGO_PKG_VERSION") });
    let comment = Value::from(comment(recording));
    write!(
        to,
        r#"{{"log":{{"version":"1.2","creator":{creator},"comment":{comment},"pages":[],"entries":["#
    )?;
    for (at, call) in recording.calls.iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        write!(to, "{comma}\n{}", printable_json(&entry(recording, call, text)))?;
    }
    write!(to, "\n],\"_messages\":[")?;
    let others = recording.messages.iter().filter(|message| message.call.is_none());
    for (at, message) in others.enumerate() {
        let comma = if at > 0 { "," } else { "" };
        write!(to, "{comma}\n{}", printable_json(&shown(message, Duration::ZERO, text)))?;
    }
    writeln!(to, "]}}}}")
}

fn comment(recording: &RecordedCalls) -> String {
    let name = recording.path.file_name().unwrap_or_default().to_string_lossy();
    let mut text = format!(
        "The calls of the recording {name} of milepost. They are calls of MCP and no requests of HTTP: \
         status and headers are not recorded."
    );
    if !recording.is_begun_exact {
        text += " The start is estimated from the time of the file.";
    }
    for remark in &recording.remarks {
        text += &format!(" {remark}.");
    }
    text
}

/// Returns a duration in milliseconds.
fn ms(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}

/// Returns a URL for a call. The scheme shows how the client reached Milepost; the last segment is the tool or the
/// method.
fn url(recording: &RecordedCalls, call: &RecordedCall) -> String {
    let mut url = match &recording.route {
        None => "mcp+stdio://wrap".to_owned(),
        Some(_) => "mcp+http://serve".to_owned(),
    };
    let route = recording.route.iter().flat_map(|route| route.split('/'));
    let parts = route.chain(call.method.split('/')).chain(call.tool.as_deref());
    for part in parts.filter(|part| !part.is_empty()) {
        url.push('/');
        url += &path_segment(part);
    }
    url
}

/// Returns a path segment: letters and digits stay, other bytes are written as `%XX`.
fn path_segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~$".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// Returns the number of bytes of a body.
fn size(text: &str) -> u64 {
    text.len() as u64
}

fn entry(recording: &RecordedCalls, call: &RecordedCall, text: &mut ExportText) -> Value {
    let started = humantime::format_rfc3339_millis(recording.time_of(call.at)).to_string();
    let request = text.show(&call.request);
    let told: Vec<&RecordedMessage> = recording
        .messages_of(call)
        .filter(|message| message.way == RecordedWay::ToClient)
        .collect();
    let answer = recording.answer(call, RecordedSide::Client);
    let since = |message: &RecordedMessage| message.at.saturating_sub(call.at);
    let end = answer.or_else(|| told.last().copied()).map(since).unwrap_or_default();
    let wait = told.first().copied().map(since).unwrap_or_default().min(end);
    let messages: Vec<Value> =
        recording.messages_of(call).map(|message| shown(message, call.at, text)).collect();
    json!({
        "startedDateTime": started,
        "time": ms(end),
        "request": {
            "method": "POST",
            "url": url(recording, call),
            "httpVersion": NO_HTTP,
            "cookies": [],
            "headers": [],
            "queryString": [],
            "postData": { "mimeType": "application/json", "params": [], "text": request },
            "headersSize": -1,
            "bodySize": size(&request),
        },
        "response": response(answer.map(|answer| &answer.text), call, text),
        "cache": {},
        "timings": {
            "blocked": -1, "dns": -1, "connect": -1, "ssl": -1,
            "send": 0, "wait": ms(wait), "receive": ms(end - wait),
        },
        "connection": call.part.to_string(),
        "comment": summary(recording, call),
        "_method": call.method,
        "_tool": call.tool,
        "_outcome": call.outcome_name(),
        "_line": call.line,
        "_messages": messages,
    })
}

/// Returns the answer; the status 0 means none, as in archives of browsers.
fn response(answer: Option<&Bytes>, call: &RecordedCall, text: &mut ExportText) -> Value {
    let body = answer.map(|answer| text.show(answer));
    let (status, words) = if body.is_some() { (200, "OK") } else { (0, "") };
    let body = body.unwrap_or_default();
    let mime = if status == 0 { "x-unknown" } else { "application/json" };
    let mut response = json!({
        "status": status,
        "statusText": words,
        "httpVersion": NO_HTTP,
        "cookies": [],
        "headers": [],
        "content": { "size": size(&body), "mimeType": mime, "text": body },
        "redirectURL": "",
        "headersSize": -1,
        "bodySize": size(&body),
    });
    if let Some(response) = response.as_object_mut().filter(|_| status == 0) {
        response.insert("_error".to_owned(), call.outcome_name().into());
    }
    response
}

/// Returns a call on one line for people.
fn summary(recording: &RecordedCalls, call: &RecordedCall) -> String {
    let [server, client] = [RecordedSide::Server, RecordedSide::Client]
        .map(|side| recording.reports(call, side).count());
    let beats = recording.messages_of(call).filter(|message| message.is_beat).count();
    format!(
        "{}; {server} notifications of the server, {client} to the client, {beats} of them heartbeats",
        call.outcome_name()
    )
}

fn shown(message: &RecordedMessage, since: Duration, text: &mut ExportText) -> Value {
    let way = match message.way {
        RecordedWay::FromClient => "from client",
        RecordedWay::ToServer => "to server",
        RecordedWay::FromServer => "from server",
        RecordedWay::ToClient => "to client",
        RecordedWay::Stderr => "server's standard error",
    };
    let mut value = json!({
        "time": ms(message.at.saturating_sub(since)),
        "way": way,
        "text": text.show(&message.text),
    });
    if let Some(members) = value.as_object_mut() {
        if let Some(verdict) = message.verdict {
            members.insert("verdict".to_owned(), verdict_text(verdict).into());
        }
        if message.is_beat {
            members.insert("heartbeat".to_owned(), true.into());
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_segment() {
        assert_eq!(path_segment("a/b?c#d é"), "a%2Fb%3Fc%23d%20%C3%A9");
    }
}
