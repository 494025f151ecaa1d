//! Messages of clients and servers. Ids, tokens and values are given as JSON text.

use std::fmt::Display;

pub(crate) const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// The members that `_meta` of every request of 2026-07-28 has.
pub(crate) const MODERN: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}"#;

/// A request; `params` is an object.
pub(crate) fn request(id: impl Display, method: &str, params: impl Display) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

/// A notification; `params` is an object.
pub(crate) fn notification(method: &str, params: impl Display) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#)
}

/// The first request of a session, with the id `i`.
pub(crate) fn initialize(revision: &str) -> String {
    initialize_with(r#""i""#, "{}", revision)
}

/// The first request of a session, with this id and these capabilities.
pub(crate) fn initialize_with(id: impl Display, capabilities: &str, revision: &str) -> String {
    let client = r#""clientInfo":{"name":"c","version":"1"}"#;
    let capabilities = format!(r#""capabilities":{capabilities}"#);
    let params = format!(r#"{{"protocolVersion":"{revision}",{capabilities},{client}}}"#);
    request(id, "initialize", params)
}

/// The server's answer to [`initialize`].
pub(crate) fn agreement(revision: &str) -> String {
    agreement_to(r#""i""#, revision)
}

/// The server's answer to an `initialize` with this id.
pub(crate) fn agreement_to(id: impl Display, revision: &str) -> String {
    let server = r#""capabilities":{},"serverInfo":{"name":"s","version":"1"}"#;
    answer(id, format!(r#"{{"protocolVersion":"{revision}",{server}}}"#))
}

/// A call of the tool `work`, without a token if `token` is empty.
pub(crate) fn call(id: impl Display, token: impl Display) -> String {
    call_of("work", id, token)
}

/// A call of a tool, without a token if `token` is empty.
pub(crate) fn call_of(tool: &str, id: impl Display, token: impl Display) -> String {
    let token = token.to_string();
    let meta = match &*token {
        "" => String::new(),
        token => format!(r#","_meta":{{"progressToken":{token}}}"#),
    };
    request(id, "tools/call", format!(r#"{{"name":"{tool}","arguments":{{}}{meta}}}"#))
}

/// A request of 2026-07-28. `params` are members, each followed by a comma.
pub(crate) fn modern(id: impl Display, method: &str, params: &str) -> String {
    request(id, method, format!(r#"{{{params}"_meta":{{{MODERN}}}}}"#))
}

/// A request of 2026-07-28 with a token.
pub(crate) fn modern_with(
    token: impl Display,
    id: impl Display,
    method: &str,
    params: &str,
) -> String {
    let meta = format!(r#""_meta":{{{MODERN},"progressToken":{token}}}"#);
    request(id, method, format!("{{{params}{meta}}}"))
}

/// The headers that a client of 2026-07-28 sends with a message. Each repeats a member of the message.
pub(crate) fn headers_of(message: &str) -> Vec<String> {
    let message: serde_json::Value = serde_json::from_str(message).unwrap();
    let params = &message["params"];
    let revision = params["_meta"]["io.modelcontextprotocol/protocolVersion"].as_str();
    let repeated = [
        ("MCP-Protocol-Version", revision.or(Some("2026-07-28"))),
        ("Mcp-Method", message["method"].as_str()),
        ("Mcp-Name", params["name"].as_str()),
        ("Mcp-Name", params["uri"].as_str()),
        ("Mcp-Name", params["taskId"].as_str()),
    ];
    let line = |(header, text): (&str, Option<&str>)| Some(format!("{header}: {}", text?));
    repeated.into_iter().filter_map(line).collect()
}

/// A call of 2026-07-28 of the tool `work`.
pub(crate) fn modern_call(id: impl Display, token: impl Display) -> String {
    modern_with(token, id, "tools/call", r#""name":"work","arguments":{},"#)
}

/// Progress with only a value.
pub(crate) fn progress(token: impl Display, figure: impl Display) -> String {
    let params = format!(r#"{{"progressToken":{token},"progress":{figure}}}"#);
    notification("notifications/progress", params)
}

/// Progress with a value and a text.
pub(crate) fn report(token: impl Display, figure: impl Display, text: &str) -> String {
    let params = format!(r#"{{"progressToken":{token},"progress":{figure},"message":"{text}"}}"#);
    notification("notifications/progress", params)
}

/// A heartbeat of the proxy for a call of the tool `work`.
pub(crate) fn heartbeat(token: impl Display, figure: impl Display, seconds: u64) -> String {
    report(token, figure, &format!("work: running {seconds}s"))
}

/// An answer with any result.
pub(crate) fn answer(id: impl Display, result: impl Display) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

/// The result of a call.
pub(crate) fn result(id: impl Display) -> String {
    answer(id, r#"{"content":[]}"#)
}

/// An error of the server.
pub(crate) fn error(id: impl Display) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32001,"message":"no"}}}}"#)
}

/// An error of the proxy. `more` are members after the proxy's name, each preceded by a comma.
pub(crate) fn own_error(id: impl Display, text: &str, more: &str) -> String {
    let text = serde_json::to_string(text).unwrap();
    let data = format!(r#"{{"proxy":"milepost"{more}}}"#);
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32603,"message":{text},"data":{data}}}}}"#
    )
}

pub(crate) fn cancelled(id: impl Display) -> String {
    notification("notifications/cancelled", format!(r#"{{"requestId":{id}}}"#))
}

/// A log message. `data` must not contain characters that JSON escapes.
pub(crate) fn log(data: &str) -> String {
    notification("notifications/message", format!(r#"{{"level":"info","data":"{data}"}}"#))
}

/// The log message `m`.
pub(crate) const LOG: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"m"}}"#;

/// An event as most servers write it.
pub(crate) fn event(message: &str) -> String {
    format!("event: message\ndata: {message}\n\n")
}

/// An event with an id.
pub(crate) fn event_with(id: &str, message: &str) -> String {
    format!("id: {id}\nevent: message\ndata: {message}\n\n")
}
