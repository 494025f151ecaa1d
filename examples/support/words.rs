//! How `kuzumem.rs` tells of a step where that takes more than a line.

use std::process;
use std::time::SystemTime;

use serde_json::{Value, json};

use crate::support::{self, Fields};

/// The standard method, with everything but the figure it requires.
pub(crate) fn standard(id: &Value, tool: &str, step: &Fields, last: bool) -> String {
    let mut message = String::new();
    let mut data = marked(step, last);
    if let Some(at) = data.iter().position(|(key, _)| *key == "message") {
        message = format!(r#""message":{},"#, data.remove(at).1);
    }
    if last && !data.contains(&("status", json!("error"))) {
        data = vec![("status", json!("complete")), ("isFinal", json!(true))];
    }
    data.push(("toolName", json!(tool)));
    let data = support::compact(&data);
    format!(
        r#"{{"method":"notifications/progress","params":{{"progressToken":{id},{message}"data":{data}}},"jsonrpc":"2.0"}}"#
    )
}

/// The standard method, with a percentage under a name of its own and all else beside the token.
pub(crate) fn spread(token: &Value, step: &Fields, last: bool) -> String {
    let find = |name| step.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone());
    let mut params = vec![("progressToken", token.clone())];
    let told = ["status", "message"].into_iter().filter_map(|key| Some((key, find(key)?)));
    params.extend(told);
    let processed = find("processedCount").zip(find("totalCount"));
    let processed = processed.and_then(|(done, of)| Some(done.as_u64()? * 100 / of.as_u64()?));
    if let Some(percent) = find("percentComplete").or_else(|| processed.map(Value::from)) {
        params.push(("percent", percent));
    }
    let params = support::compact(&marked(&params, last));
    format!(r#"{{"method":"notifications/progress","params":{params},"jsonrpc":"2.0"}}"#)
}

/// A line of pino's on stderr.
pub(crate) fn pino(tool: &str, request: &str, data: &str) {
    let (pid, time) = (process::id(), SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default());
    let (time, tool) = (time.as_millis(), support::quoted(tool));
    eprintln!(
        r#"{{"level":"info","time":{time},"pid":{pid},"hostname":"localhost","component":"MCP-Stdio","tool":{tool},"requestId":"{request}","progressData":{data},"msg":"Progress notification (stdio no-op)"}}"#
    );
}

/// `String(id)`, as JSON.
pub(crate) fn stringified(id: &Value) -> String {
    if id.is_string() { id.to_string() } else { format!("\"{id}\"") }
}

/// The last step says so inside as well.
pub(crate) fn marked(step: &Fields, last: bool) -> Fields {
    let mut step = step.clone();
    if last {
        step.push(("isFinal", json!(true)));
    }
    step
}
