//! The scripts of calls: the messages that a tool sends, and when.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::protocol::mcp::PROGRESS;

/// Maximum number of steps of a script in the arguments of a call. Further steps are ignored.
const STEPS_MAX: usize = 1000;

/// The longest wait before a step.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// The number of notifications that the tool `flooded` sends.
pub const FLOOD: u32 = 2000;

/// The number of steps before the answer, in the tools that test clients.
pub const STEPS: u32 = 4;

/// The time between two steps, in the tools that test clients.
const PACE: Duration = Duration::from_millis(150);

/// The time from the last correct notification to the answer. Clients that handle notifications after answers need it.
const REST: Duration = Duration::from_millis(300);

/// The messages of one write, and the wait before the write.
#[derive(Debug, Clone, Default)]
pub(super) struct ReferenceStep {
    pub(super) wait: Duration,
    pub(super) lines: Vec<ScriptLine>,
}

/// One message, or another action.
#[derive(Debug, Clone)]
pub(super) enum ScriptLine {
    /// Progress for the token of the call, with these members; nothing if the call has no token.
    Progress(Map<String, Value>),
    /// Progress for a token that no request has.
    Foreign(Map<String, Value>),
    /// The answer to the call.
    Answer,
    /// A ping to the client; the call waits for its answer.
    Ping,
    /// The response ends here. A client can ask for the rest, as with servers of 2025-11-25.
    HangUp,
}

impl ScriptLine {
    /// Returns the text of a notification for a call with this token.
    pub(super) fn progress(&self, token: Option<&Value>) -> Option<String> {
        let (mut params, token) = match self {
            Self::Progress(params) => (params.clone(), token?.clone()),
            Self::Foreign(params) => (params.clone(), json!("nobody-has-given-this-token")),
            Self::Answer | Self::Ping | Self::HangUp => return None,
        };
        params.insert("progressToken".to_owned(), token);
        let text = json!({ "jsonrpc": "2.0", "method": PROGRESS, "params": params });
        Some(text.to_string())
    }
}

fn members(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

fn line(value: Value) -> ScriptLine {
    ScriptLine::Progress(members(value))
}

/// Returns a correct notification, for the tools that test clients.
fn step(number: u32) -> ScriptLine {
    line(
        json!({ "progress": number, "total": STEPS, "message": format!("step {number} of {STEPS}") }),
    )
}

fn paced(lines: impl IntoIterator<Item = ScriptLine>) -> Vec<ReferenceStep> {
    lines.into_iter().map(|line| ReferenceStep { wait: PACE, lines: vec![line] }).collect()
}

/// Returns the script of a tool that tests clients; `None` for an unknown tool. `silence` is how long `silent` takes.
pub(super) fn of_tool(tool: &str, silence: Duration) -> Option<Vec<ReferenceStep>> {
    let rest = |lines: Vec<ScriptLine>| ReferenceStep { wait: REST, lines };
    let answer = || rest(vec![ScriptLine::Answer]);
    let all = || paced((1..=STEPS).map(step));
    Some(match tool {
        "correct" => all().into_iter().chain([answer()]).collect(),
        "late" => {
            let late =
                ReferenceStep { wait: Duration::from_millis(20), lines: vec![step(STEPS + 1)] };
            all().into_iter().chain([answer(), late]).collect()
        }
        "glued" => {
            let last = ReferenceStep { wait: PACE, lines: vec![step(STEPS), ScriptLine::Answer] };
            paced((1..STEPS).map(step)).into_iter().chain([last]).collect()
        }
        "null" => {
            let wrong = [
                json!({ "progress": null, "total": STEPS, "message": "no number" }),
                json!({ "progress": 1.5, "total": null, "message": "no total" }),
                json!({ "progress": 1.75, "total": STEPS, "message": null }),
            ];
            let lines = [step(1)].into_iter().chain(wrong.map(line)).chain([step(2)]);
            paced(lines).into_iter().chain([answer()]).collect()
        }
        "invented" => {
            let foreign =
                ScriptLine::Foreign(members(json!({ "progress": 1, "message": "whose?" })));
            let lines = [step(1), foreign.clone(), step(2), foreign];
            paced(lines).into_iter().chain([answer()]).collect()
        }
        "falling" => {
            let lines = [step(1), step(3), step(2), step(2), step(4)];
            paced(lines).into_iter().chain([answer()]).collect()
        }
        "silent" => vec![ReferenceStep { wait: silence, lines: vec![ScriptLine::Answer] }],
        "flooded" => {
            let lines = (1..=FLOOD).map(|at| line(json!({ "progress": at, "total": FLOOD })));
            let flood = ReferenceStep { wait: PACE, lines: lines.collect() };
            vec![
                flood,
                ReferenceStep { wait: Duration::from_secs(1), lines: vec![ScriptLine::Answer] },
            ]
        }
        _ => return None,
    })
}

/// Reads the script in the arguments of a call of `play`:
/// `{"steps":[{"wait":MS,"progress":…,"total":…},{"wait":MS,"do":"answer"}]}`. If no step is the answer, the answer
/// comes at the end.
///
/// # Errors
/// What is wrong with the arguments.
pub(super) fn of_arguments(arguments: &Value) -> Result<Vec<ReferenceStep>, String> {
    let Some(all) = arguments["steps"].as_array() else {
        return Err("`steps`, an array of objects, is expected".to_owned());
    };
    let mut steps = Vec::new();
    let mut has_answer = false;
    for given in all.iter().take(STEPS_MAX) {
        let mut given = given.as_object().cloned().unwrap_or_default();
        let wait = given.remove("wait").and_then(|wait| wait.as_u64()).unwrap_or_default();
        let wait = Duration::from_millis(wait).min(WAIT_MAX);
        let what = given.remove("do");
        let line = match what.as_ref().and_then(Value::as_str) {
            None => ScriptLine::Progress(given),
            Some("answer") => ScriptLine::Answer,
            Some("ping") => ScriptLine::Ping,
            Some("hang-up") => ScriptLine::HangUp,
            Some(other) => return Err(format!("no step is called {other:?}")),
        };
        has_answer |= matches!(line, ScriptLine::Answer);
        steps.push(ReferenceStep { wait, lines: vec![line] });
    }
    if !has_answer {
        steps.push(ReferenceStep { wait: Duration::ZERO, lines: vec![ScriptLine::Answer] });
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_says_its_figures_for_the_token_of_the_call_alone() {
        let steps = of_arguments(&json!({"steps": [{"wait": 5, "progress": 0.5}]})).unwrap();
        let said = steps[0].lines[0].progress(Some(&json!("t"))).unwrap();
        assert_eq!(
            said,
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":0.5,"progressToken":"t"}}"#
        );
        assert_eq!(steps[0].lines[0].progress(None), None);
        assert_eq!(steps.len(), 2);
        assert!(of_arguments(&json!({"steps": [{"do": "dance"}]})).is_err());
    }

    #[test]
    fn each_tool_of_clients_has_a_script_with_one_answer() {
        for (tool, _) in super::super::TOOLS {
            let Some(script) = of_tool(tool, PACE) else { continue };
            let lines = script.iter().flat_map(|step| &step.lines);
            assert_eq!(
                lines.filter(|line| matches!(line, ScriptLine::Answer)).count(),
                1,
                "{tool}"
            );
        }
    }
}
