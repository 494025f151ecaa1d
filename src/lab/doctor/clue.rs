//! Hints in a server's output about why it cannot be used.

use super::findings::shown;
use super::legible::Legible;
use super::traffic::{TrafficEntry, TrafficEvent};
use crate::protocol::jsonrpc::Kind;

/// Maximum number of lines of a JSON object that is spread over several lines.
const SPREAD_MAX: usize = 1000;

/// Returns the hint that a server's output gives about why `initialize` was not answered; `None` if the output has
/// nothing unusual.
pub(super) fn clue(entries: &[TrafficEntry]) -> Option<String> {
    let lines: Vec<&[u8]> = entries
        .iter()
        .filter_map(|entry| match &entry.what {
            TrafficEvent::Noise(text) => Some(text.trim_ascii()),
            _ => None,
        })
        .collect();
    let first = lines.first();
    if lines.iter().any(|line| is_length(line)) {
        return Some(
            "the server writes `Content-Length:` before each message, as servers of the Language Server Protocol do; \
             over stdio MCP has one message a line, without a head"
                .to_owned(),
        );
    }
    if lines.iter().any(|line| line.contains(&0)) {
        return Some("the output of the server is UTF-16; MCP is UTF-8".to_owned());
    }
    if is_spread(&lines) {
        return Some(
            "the server spreads each message over several lines (pretty-printed JSON); over stdio MCP has one message \
             a line"
                .to_owned(),
        );
    }
    if let Some(answer) = other_answer(entries) {
        return Some(answer);
    }
    match first {
        Some(line) => Some(format!(
            "the standard output of the server has only text that is no message: {}",
            shown(line)
        )),
        None => errors(entries).or_else(|| wrote_nothing(entries)),
    }
}

/// Whether a line is the head of a frame of the Language Server Protocol.
fn is_length(line: &[u8]) -> bool {
    const NAME: &[u8] = b"content-length:";
    line.get(..NAME.len()).is_some_and(|head| head.eq_ignore_ascii_case(NAME))
}

/// Whether several lines together are one JSON object.
fn is_spread(lines: &[&[u8]]) -> bool {
    let Some(begin) = lines.iter().position(|line| line.starts_with(b"{")) else { return false };
    let mut text = Vec::new();
    for line in lines.iter().skip(begin).take(SPREAD_MAX) {
        text.extend_from_slice(line);
        text.push(b' ');
        if serde_json::from_slice::<serde_json::Map<_, serde_json::Value>>(&text).is_ok() {
            return true;
        }
    }
    false
}

/// Returns a description of an answer whose id is not that of the request.
fn other_answer(entries: &[TrafficEntry]) -> Option<String> {
    entries.iter().find_map(|entry| match &entry.what {
        TrafficEvent::Received { message, .. } => {
            let found = Legible::of(message).messages;
            let answer = found.into_iter().find(|one| one.kind() == Kind::Response)?;
            Some(format!(
                "the server answered under another id than that of the request: {}",
                shown(answer.raw())
            ))
        }
        _ => None,
    })
}

/// Returns the last line on standard error.
fn errors(entries: &[TrafficEntry]) -> Option<String> {
    entries.iter().rev().find_map(|entry| match &entry.what {
        TrafficEvent::Stderr(line) if !line.trim().is_empty() => Some(format!(
            "the server wrote nothing on standard output; its last words on standard error: {}",
            shown(line.as_bytes())
        )),
        _ => None,
    })
}

fn wrote_nothing(entries: &[TrafficEntry]) -> Option<String> {
    let is_own =
        |entry: &TrafficEntry| matches!(entry.what, TrafficEvent::Sent(_) | TrafficEvent::Over(_));
    let has_written = !entries.iter().all(is_own);
    (!has_written).then(|| "the server wrote nothing".to_owned())
}
