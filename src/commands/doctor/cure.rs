//! The lines of a route file that cure the findings, except for cures that are on by default.

use std::ffi::OsString;

use serde_json::Value;
use url::Url;

use super::examine::FIGURES;
use super::findings::{Examined, Finding};
use super::rules::Rule;
use crate::config::routes::{Environment, Preset, Routes, RoutesError};
use crate::config::settings::toml_text;
use crate::config::values::Word;

/// The path of the route in suggested files.
pub const PATH: &str = "/server";

/// The name of a suggested dialect.
const DIALECT: &str = "own";

/// Names of members in which servers put the message.
const WORDS: [&str; 5] = ["message", "text", "status", "msg", "detail"];

/// Names of members in which servers put the total.
const TOTALS: [&str; 5] = ["total", "max", "steps", "totalSteps", "total_steps"];

/// The server behind the proxy.
#[derive(Debug, Clone)]
pub enum Behind {
    /// A command and its arguments.
    Command(Vec<OsString>),
    /// An HTTP server; `true`: it speaks HTTP+SSE.
    Http(Url, bool),
}

/// The cure of the findings.
#[derive(Debug, Clone, PartialEq)]
pub struct Cure {
    /// The command that stands in front of the server.
    pub command: String,
    /// The lines of a route file; `None` if the defaults are enough.
    pub lines: Option<String>,
}

/// The cure for the findings; `server`: the name of the server in its own words.
pub fn cure(found: &Examined, behind: &Behind, lists_tools: bool, server: Option<&str>) -> Cure {
    let mut keys = Vec::new();
    let mut own = Vec::new();
    let of = |rule| found.findings.iter().filter(move |finding| finding.rule == rule);
    let mut dialects: Vec<&str> =
        of(Rule::MethodOff).filter_map(|finding| finding.name.as_deref()).collect();
    let texts = [(Rule::LogProgress, "log"), (Rule::AsideProgress, "stderr")];
    dialects.extend(texts.iter().filter(|(rule, _)| found.count(*rule) > 0).map(|(_, name)| *name));
    for (at, finding) in of(Rule::MethodUnknown).enumerate() {
        let name = if at == 0 { DIALECT.to_owned() } else { format!("{DIALECT}-{}", at + 1) };
        own.extend(dialect(&name, finding));
    }
    let names: Vec<String> = own.iter().map(|(name, _)| name.clone()).collect();
    dialects.extend(names.iter().map(String::as_str));
    if !dialects.is_empty() {
        let list: Vec<String> = dialects.iter().map(|name| quoted(name)).collect();
        keys.push(format!("dialects = [\"defaults\", {}]", list.join(", ")));
    }
    if found.count(Rule::NoLifecycle) > 0 {
        let tools = if lists_tools {
            "upstream.lifecycle.tools = \"/tools/list\""
        } else {
            "upstream.lifecycle = {}"
        };
        keys.push(tools.to_owned());
    }
    keys.extend(habits(found, behind));
    if let Some(preset) = preset(&keys, server).filter(|_| own.is_empty()) {
        keys = vec![format!("preset = {}", quoted(preset.name))];
    }
    let lines = (!keys.is_empty()).then(|| {
        let dialects: String = own.into_iter().map(|(_, table)| format!("\n{table}")).collect();
        format!("{}{}\n{dialects}", route(behind), keys.join("\n"))
    });
    Cure { command: command(behind, lines.is_some()), lines }
}

/// The keys for what shows in many messages together.
fn habits(found: &Examined, behind: &Behind) -> Vec<String> {
    let mut keys = Vec::new();
    let has = |rule| found.findings.iter().find(move |finding| finding.rule == rule);
    if found.uses_get && matches!(behind, Behind::Http(_, false)) {
        keys.push("own_get = true".to_owned());
    }
    if let Some(finding) = has(Rule::TokenInArguments) {
        let tool = toml_text::key(finding.name.as_deref().unwrap_or_default());
        keys.push(format!("tools.{tool} = {{ ask = {{ token_in_arguments = true }} }}"));
    }
    if has(Rule::Pieces).is_some() {
        keys.push("messages = \"append\"".to_owned());
    }
    if let Some(scale) = has(Rule::NoTotal).and_then(|finding| finding.name.as_deref()) {
        keys.push(format!("scale = {}", quoted(scale)));
    }
    if has(Rule::Flood).is_some() {
        keys.push("coalesce = \"all\"".to_owned());
    }
    keys
}

/// The preset for a server of this name that has all these keys.
fn preset(keys: &[String], server: Option<&str>) -> Option<Preset> {
    let name = server?.split(' ').next()?;
    let has = |preset: &Preset, key: &String| {
        let (name, value) = key.split_once(" = ").unwrap_or((key, ""));
        let words = value.split('"').skip(1).step_by(2);
        let line = preset.lines.lines().find(|line| line.starts_with(name));
        match line {
            Some(line) => words.into_iter().all(|word| line.contains(&format!("{word:?}"))),
            // The keys of a table may stand in the table.
            None => {
                let table = name.split('.').take(2).collect::<Vec<_>>().join(".");
                name.contains("lifecycle") && preset.lines.contains(&table)
            }
        }
    };
    let mut presets = Preset::WORDS.iter().map(|(_, preset)| *preset);
    presets.find(|preset| {
        let is_server = preset.names.iter().any(|known| known.eq_ignore_ascii_case(name));
        is_server && !keys.is_empty() && keys.iter().all(|key| has(preset, key))
    })
}

/// The whole file, with or without anything but defaults.
///
/// # Errors
/// If the file cannot be used, which is a fault of Milepost.
pub(super) fn routes(cure: &Cure, behind: &Behind) -> Result<Routes, RoutesError> {
    let text = cure.lines.clone().unwrap_or_else(|| route(behind));
    Routes::parse("proxy.toml".as_ref(), &text, &Environment::of_process())
}

/// The command or address of the server, quoted for a shell.
pub(super) fn shown(behind: &Behind) -> String {
    match behind {
        Behind::Command(command) => {
            let words = command.iter().map(|word| shell(&word.to_string_lossy()));
            words.collect::<Vec<_>>().join(" ")
        }
        Behind::Http(url, _) => shell(url.as_str()),
    }
}

fn command(behind: &Behind, has_lines: bool) -> String {
    let shown = shown(behind);
    match (behind, has_lines) {
        (_, true) => "milepost wrap --config proxy.toml".to_owned(),
        (Behind::Command(_), false) => format!("milepost wrap -- {shown}"),
        (Behind::Http(..), false) => format!("milepost wrap {shown}"),
    }
}

/// The head of the route.
fn route(behind: &Behind) -> String {
    let upstream = match behind {
        Behind::Command(command) => {
            let words = command.iter().map(|word| quoted(&word.to_string_lossy()));
            format!("upstream.command = [{}]", words.collect::<Vec<_>>().join(", "))
        }
        Behind::Http(url, false) => format!("upstream.url = {}", quoted(url.as_str())),
        Behind::Http(url, true) => format!("upstream.sse = {}", quoted(url.as_str())),
    };
    format!("[[route]]\npath = \"{PATH}\"\n{upstream}\n")
}

/// A TOML string. What looks like a variable is none.
fn quoted(text: &str) -> String {
    toml::Value::String(text.replace("${", "$${")).to_string()
}

/// A word of a shell.
fn shell(word: &str) -> String {
    let plain = |sign: char| sign.is_ascii_alphanumeric() || "-_./:=@,+%".contains(sign);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A dialect that reads messages of this form: its name, and its table.
fn dialect(name: &str, finding: &Finding) -> Option<(String, String)> {
    let message: Value = serde_json::from_slice(finding.message.as_ref()?).ok()?;
    let params = message["params"].as_object()?;
    let first = |names: &[&str], is: fn(&Value) -> bool| {
        let known = |name: &&&str| params.get(**name).is_some_and(is);
        names.iter().find(known).map(|name| format!("/params/{name}"))
    };
    // A token of the doctor's is never the id of a request of its.
    let ids = ["id", "requestId", "request_id", "callId", "toolCallId"];
    let tokens = ["progressToken", "token", "progress_token"];
    let said = [
        ("request_id", first(&ids, |id| id.is_string() || id.is_number())),
        ("token", first(&tokens, |token| token.is_string() || token.is_number())),
        ("progress", first(&FIGURES, Value::is_number)),
        ("total", first(&TOTALS, Value::is_number)),
        ("message", first(&WORDS, Value::is_string)),
    ];
    let mut table = format!(
        "[[dialect]]\nname = {}\nmethod = {}\n",
        quoted(name),
        quoted(finding.name.as_deref()?)
    );
    let mut some = false;
    for (key, pointer) in &said {
        if let Some(pointer) = pointer {
            some = true;
            table += &format!("{key} = {}\n", quoted(pointer));
        }
    }
    let percents =
        said[2].1.as_deref().is_some_and(|at| at.contains("pct") || at.contains("percent"));
    if percents && said[3].1.is_none() {
        table += "scale = \"percent\"\n";
    }
    some.then(|| (name.to_owned(), table))
}
