//! Results and errors that a client's SDK cannot accept, and their replacements.

use std::ops::Range;

use bytes::Bytes;

use crate::progress::correlate::call::Call;
use crate::progress::policy::AnswerRepairs;
use crate::progress::verdict::{Repair, Repairs};
use crate::protocol::jsonrpc::{INTERNAL_ERROR, Key, METHOD_NOT_FOUND, Message, RESULT_MEMBERS};
use crate::protocol::mcp::Revision;
use crate::protocol::{json, mcp};

/// Requests whose results are empty. PHP writes `[]` for an empty object, and other servers write null or "pong".
const WITHOUT_RESULT: [&str; 4] =
    [mcp::PING, mcp::SET_LEVEL, "resources/subscribe", "resources/unsubscribe"];

/// Returns the range of the answer to `call` that a client cannot accept, and the replacement for the range.
pub(crate) fn mended_body(
    message: &Message,
    call: &Call,
    switches: AnswerRepairs,
    repairs: &mut Repairs,
) -> Option<(Range<usize>, Bytes)> {
    if let (Some(error), Some(range)) = (message.error(), message.error_range()) {
        // The server has answered, so it is alive. Clients that take the error for a dead server disconnect, some of
        // them in a loop. MCP 2026-07-28 has no `ping`.
        if switches.ping
            && &*call.method == mcp::PING
            && call.revision != Some(Revision::V2026_07_28)
            && message.error_code() == Some(METHOD_NOT_FOUND)
            && let Some(member) = member_of(message.raw(), &range)
        {
            repairs.add(Repair::Ping);
            return Some((member, Bytes::from_static(br#""result":{}"#)));
        }
        let mended = mended_error(&error).filter(|_| switches.error_shape)?;
        repairs.add(Repair::ErrorShape);
        return Some((range, mended));
    }
    let (result, range) = (message.result()?, message.result_range()?);
    // An object may be a kind of result that Milepost does not know, so it is wrapped only where bare results are
    // expected.
    let may_be_bare = !result.starts_with(b"{") || call.may_have_bare_result();
    if !may_be_bare || !switches.bare_result {
        return None;
    }
    let mended = match &*call.method {
        // If the server sends bare results, `[]` is the payload itself, and is wrapped below.
        mcp::TOOLS_CALL if is_nothing(&result) && !call.may_have_bare_result() => {
            Bytes::from_static(br#"{"content":[]}"#)
        }
        mcp::TOOLS_CALL if is_content(&result) => {
            Bytes::from([br#"{"content":"#, &result[..], b"}"].concat())
        }
        mcp::TOOLS_CALL => wrapped_result(&result)?,
        method if WITHOUT_RESULT.contains(&method) => Bytes::from_static(b"{}"),
        _ => return None,
    };
    repairs.add(Repair::BareResult);
    Some((range, mended))
}

/// Returns the range of the outermost object's member that has its value at `value`.
fn member_of(text: &Bytes, value: &Range<usize>) -> Option<Range<usize>> {
    let mut members = json::Members::new(text);
    members.find(|member| member.value == *value).map(|member| member.key.start..value.end)
}

/// Whether a result is an empty value of another type (`[]`, `null`), which some languages write for an empty object.
fn is_nothing(result: &Bytes) -> bool {
    let inner = result.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]"));
    **result == *b"null" || inner.is_some_and(|inner| inner.trim_ascii().is_empty())
}

/// Whether a result is the content of a tool result, without the object around it.
fn is_content(result: &Bytes) -> bool {
    let blocks = json::elements(result).map(|(blocks, _)| blocks).unwrap_or_default();
    let is_block = |block: &Range<usize>| {
        let kind = json::member(&result.slice(block.clone()), "type");
        kind.is_some_and(|kind| kind.starts_with(b"\""))
    };
    !blocks.is_empty() && blocks.iter().all(is_block)
}

/// Returns a corrected error with `code` and `message`; `None` if the error already has both.
fn mended_error(error: &Bytes) -> Option<Bytes> {
    // JSON-RPC 2.0, section 5.1: `code` is an integer, `message` is a string.
    let code =
        json::member(error, "code").filter(|code| matches!(Key::read(code), Some(Key::Integer(_))));
    let is_words = |text: &Bytes| text.starts_with(b"\"");
    let message = json::member(error, "message").filter(is_words);
    if code.is_some() && message.is_some() {
        return None;
    }
    let said = json::member(error, "error").filter(is_words);
    let own = is_words(error).then(|| error.clone());
    let words =
        message.or(said).or(own).unwrap_or_else(|| json::quote("the server gave no reason"));
    let code = code.unwrap_or_else(|| Bytes::from(INTERNAL_ERROR.to_string()));
    // The server's whole error goes into `data`, so that nothing is lost.
    let parts: [&[u8]; 7] =
        [br#"{"code":"#, &code, br#","message":"#, &words, br#","data":"#, error, b"}"];
    Some(Bytes::from(parts.concat()))
}

/// Wraps a bare payload as the content of a tool result; `None` if the payload is already a tool result.
fn wrapped_result(result: &Bytes) -> Option<Bytes> {
    let known = || RESULT_MEMBERS.iter().any(|name| json::member(result, name).is_some());
    if result.starts_with(b"{") && known() {
        return None;
    }
    // JSON text is UTF-8. A result with other bytes cannot be quoted, so it stays unchanged.
    let text = json::quote(std::str::from_utf8(result).ok()?);
    let failed = json::member(result, "error").is_some();
    let tail: &[u8] = if failed { br#"}],"isError":true}"# } else { br#"}],"isError":false}"# };
    let parts: [&[u8]; 3] = [br#"{"content":[{"type":"text","text":"#, &text, tail];
    Some(Bytes::from(parts.concat()))
}
