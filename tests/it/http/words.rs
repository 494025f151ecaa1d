//! What clients and servers say, in few words.

/// A tool call; `token` in JSON, empty for none.
pub(crate) fn call(id: &str, token: &str) -> String {
    let meta = match token {
        "" => String::new(),
        token => format!(r#","_meta":{{"progressToken":{token}}}"#),
    };
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"work"{meta}}}}}"#
    )
}

/// A tool call of 2026-07-28.
pub(crate) fn modern(id: &str, token: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"work","_meta":{{"progressToken":{token},"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}}}}"#
    )
}

/// Another request without a token.
pub(crate) fn ask(id: &str, method: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{}}}}"#)
}

/// Progress as the specification has it.
pub(crate) fn progress(token: &str, figure: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{figure}}}}}"#
    )
}

/// Progress with words.
pub(crate) fn told(token: &str, figure: &str, words: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{figure},"message":"{words}"}}}}"#
    )
}

/// A heartbeat of the tool that `call` calls.
pub(crate) fn beat(token: &str, figure: &str, seconds: u64) -> String {
    told(token, figure, &format!("work: running {seconds}s"))
}

/// An answer.
pub(crate) fn ok(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[]}}}}"#)
}

/// An error.
pub(crate) fn err(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32001,"message":"no"}}}}"#)
}

/// The error that the proxy gives.
pub(crate) fn own_error(id: &str, why: &str, more: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32603,"message":"{why}","data":{{"proxy":"milepost"{more}}}}}}}"#
    )
}

pub(crate) fn cancelled(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
    )
}

pub(crate) fn log(words: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"info","data":"{words}"}}}}"#
    )
}

/// An event as most servers write it.
pub(crate) fn event(message: &str) -> String {
    format!("event: message\ndata: {message}\n\n")
}

/// An event with an id.
pub(crate) fn event_with(id: &str, message: &str) -> String {
    format!("id: {id}\nevent: message\ndata: {message}\n\n")
}
