//! The lines of a route file that cure the findings, without the cures that are on by default.

use std::ffi::OsString;

use url::Url;

use super::draft::{Draft, quoted};
use super::findings::{Examined, Finding};
use super::rules::{Rule, Weight};
use crate::config::routes::{Environment, Preset, Routes, RoutesError};
use crate::config::settings::toml_text;
use crate::config::values::{DEFAULT_DIALECTS, Word};
use crate::progress::dialect;
use crate::progress::dialect::Dialect;

/// The path of the route in suggested files.
pub const PATH: &str = "/server";

/// The name of a suggested dialect.
const DIALECT: &str = "own";

/// The server behind the proxy.
#[derive(Debug, Clone)]
pub enum Behind {
    /// A command and its arguments.
    Command(Vec<OsString>),
    /// An HTTP server; `true` if it uses HTTP+SSE.
    Http(Url, bool),
}

/// The cure of the findings.
#[derive(Debug, Clone, PartialEq)]
pub struct Cure {
    /// The command that is put before the server's command.
    pub command: String,
    /// The lines of a route file; `None` if the defaults are enough.
    pub lines: Option<String>,
    /// Flags of `milepost wrap` with the same effect; `None` if flags do not suffice.
    pub flags: Option<String>,
    /// Only the keys and tables of `lines`, for an existing route.
    pub additions: String,
    /// The faults that are not cured, by the names of their rules and, if there is one, the method. These are the
    /// faults without a cure or, if the same calls were made through Milepost, the faults that still occurred there.
    pub uncured: Vec<String>,
}

/// The route that a cure is for.
#[derive(Debug, Clone)]
pub struct CureTerms<'a> {
    /// The server behind the proxy.
    pub behind: &'a Behind,
    /// Whether the server lists its tools at a path beside its endpoint.
    pub lists_tools: bool,
    /// The name of the server, as it states it.
    pub server: Option<&'a str>,
    /// The dialects of the existing route, as its route file has them.
    pub dialects: &'a [String],
}

impl<'a> CureTerms<'a> {
    /// Returns the terms for a new route.
    pub fn new(behind: &'a Behind) -> Self {
        Self { behind, lists_tools: false, server: None, dialects: &[] }
    }
}

/// One key of the route, and the equivalent flags of `wrap`.
struct CureKey {
    line: String,
    /// The equivalent flags; `None` if no flag sets the key.
    flags: Option<String>,
}

impl CureKey {
    fn new(line: impl Into<String>, flags: impl Into<String>) -> Self {
        Self { line: line.into(), flags: Some(flags.into()) }
    }

    fn without_flag(line: impl Into<String>) -> Self {
        Self { line: line.into(), flags: None }
    }
}

/// Returns the cure for the findings.
pub fn cure(found: &Examined, terms: &CureTerms<'_>) -> Cure {
    let own = own_dialects(found, terms.dialects);
    let mut keys: Vec<CureKey> = dialects(found, &own, terms.dialects).into_iter().collect();
    if found.count(Rule::NoLifecycle) > 0 {
        keys.push(CureKey::without_flag(match terms.lists_tools {
            true => "upstream.lifecycle.tools = \"/tools/list\"",
            false => "upstream.lifecycle = {}",
        }));
    }
    keys.extend(habits(found, terms.behind));
    if let Some(preset) = preset(&keys, terms.server).filter(|_| own.is_empty()) {
        let flags = format!("--preset {}", preset.name);
        keys = vec![CureKey::new(format!("preset = {}", quoted(preset.name)), flags)];
    }
    let lines: Vec<&str> = keys.iter().map(|key| &*key.line).collect();
    let tables: String = own.into_iter().map(|(_, table)| format!("\n{table}")).collect();
    let additions = if keys.is_empty() { String::new() } else { lines.join("\n") + "\n" + &tables };
    let flags: Option<Vec<&str>> = keys.iter().map(|key| key.flags.as_deref()).collect();
    let flags = flags.map(|flags| {
        let flags: String =
            flags.iter().filter(|f| !f.is_empty()).map(|f| f.to_string() + " ").collect();
        wrap_command(terms.behind, &flags)
    });
    let has_lines = !keys.is_empty();
    Cure {
        command: match has_lines {
            true => "milepost wrap --config proxy.toml".to_owned(),
            false => wrap_command(terms.behind, ""),
        },
        lines: has_lines.then(|| route(terms.behind) + &additions),
        flags,
        additions,
        uncured: uncured(found),
    }
}

/// Returns the drafted dialects with their names.
fn own_dialects(found: &Examined, known: &[String]) -> Vec<(String, String)> {
    let drafts = found.findings.iter().filter_map(|finding| {
        let draft = finding.draft.as_ref()?;
        Some((draft, finding.name.as_deref()?))
    });
    let mut names = std::iter::once(DIALECT.to_owned())
        .chain((2..).map(|number| format!("{DIALECT}-{number}")))
        .filter(|name| !known.contains(name));
    let name = |(draft, method): (&Draft, &str)| {
        let name = names.next()?;
        let table = draft.table(&name, method);
        Some((name, table))
    };
    drafts.filter_map(name).collect()
}

/// Returns the key for the dialects that are needed in addition to those of the route.
fn dialects(found: &Examined, own: &[(String, String)], known: &[String]) -> Option<CureKey> {
    let off = found.findings.iter().filter(|finding| finding.rule == Rule::MethodOff);
    let mut added: Vec<&str> = off.filter_map(|finding| finding.name.as_deref()).collect();
    let texts = [
        (Rule::LogProgress, "log"),
        (Rule::AsideProgress, "stderr"),
        (Rule::StdoutProgress, "stdout"),
    ];
    added.extend(texts.iter().filter(|(rule, _)| found.count(*rule) > 0).map(|(_, name)| *name));
    let has_own = !own.is_empty();
    added.extend(own.iter().map(|(name, _)| &**name));
    added.retain(|name| !known.iter().any(|known| known == name));
    if added.is_empty() {
        return None;
    }
    let first = if known.is_empty() { vec![DEFAULT_DIALECTS] } else { Vec::new() };
    let before = first.into_iter().chain(known.iter().map(String::as_str));
    let all: Vec<&str> = without(&replaced(found), before.chain(added));
    let list: Vec<String> = all.iter().map(|name| quoted(name)).collect();
    let line = format!("dialects = [{}]", list.join(", "));
    Some(match has_own {
        true => CureKey::without_flag(line),
        false => CureKey::new(line, format!("--dialect {}", all.join(","))),
    })
}

/// Returns the built-in dialects that a drafted dialect replaces: two dialects cannot claim one method.
fn replaced(found: &Examined) -> Vec<&'static Dialect> {
    let drafted = found.findings.iter().filter(|finding| finding.draft.is_some());
    let methods = drafted.filter_map(|finding| finding.name.as_deref());
    let claiming = |method| dialect::ALL.iter().filter(move |one| one.claims(method));
    methods.flat_map(claiming).collect()
}

/// Returns the names without those of some dialects. If `defaults` stands for one of these, the others that it stands
/// for take its place.
fn without<'a>(
    left_out: &[&'static Dialect],
    names: impl Iterator<Item = &'a str>,
) -> Vec<&'a str> {
    let defaults = || dialect::ALL.iter().filter(|one| dialect::defaults().any(|on| on == **one));
    let is_left_out = |name: &str| left_out.iter().any(|one| one.name() == name);
    let has_default = defaults().any(|one| is_left_out(one.name()));
    let expanded = names.flat_map(|name| match name == DEFAULT_DIALECTS && has_default {
        true => defaults().map(Dialect::name).collect(),
        false => vec![name],
    });
    expanded.filter(|name| !is_left_out(name)).collect()
}

/// The faults that no setting cures.
fn uncured(found: &Examined) -> Vec<String> {
    let is_uncured = |finding: &&Finding| {
        let has_draft = finding.rule != Rule::MethodUnknown || finding.draft.is_some();
        finding.rule.weight() == Weight::Fault && (finding.rule.remedy().is_empty() || !has_draft)
    };
    found.findings.iter().filter(is_uncured).map(named).collect()
}

/// Returns the faults that were counted behind Milepost, even if the rules promise a cure.
pub(super) fn counted_again(after: &Examined) -> Vec<String> {
    let hurts = |finding: &&Finding| finding.rule.weight() != Weight::Note;
    after.findings.iter().filter(hurts).map(named).collect()
}

/// Returns the name of a finding's rule, with the method or dialect if it has one.
fn named(finding: &Finding) -> String {
    match &finding.name {
        Some(name) => format!("{} ({name})", finding.rule.name()),
        None => finding.rule.name().to_owned(),
    }
}

/// Returns the keys for habits that only many messages together show.
fn habits(found: &Examined, behind: &Behind) -> Vec<CureKey> {
    let mut keys = Vec::new();
    let has = |rule| found.findings.iter().find(move |finding| finding.rule == rule);
    if found.uses_get && matches!(behind, Behind::Http(_, false)) {
        // No flag is needed: `wrap` always opens the GET stream itself.
        keys.push(CureKey::new("own_get = true", ""));
    }
    if let Some(finding) = has(Rule::TokenInArguments) {
        let tool = toml_text::key(finding.name.as_deref().unwrap_or_default());
        let line = format!("tools.{tool} = {{ ask = {{ token_in_arguments = true }} }}");
        keys.push(CureKey::new(line, "--ask-token-in-arguments"));
    }
    if let Some(name) = has(Rule::TokenType).and_then(|finding| finding.name.as_deref()) {
        let line = format!("ask.token_type = {}", quoted(name));
        keys.push(CureKey::new(line, format!("--ask-token-type {name}")));
    }
    if has(Rule::BareCounter).is_some() {
        keys.push(CureKey::new("value_from = \"words\"", "--value-from words"));
    }
    if has(Rule::Pieces).is_some() {
        keys.push(CureKey::new("messages = \"append\"", "--messages append"));
    }
    if let Some(scale) = has(Rule::NoTotal).and_then(|finding| finding.name.as_deref()) {
        keys.push(CureKey::new(format!("scale = {}", quoted(scale)), format!("--scale {scale}")));
    }
    if let Some(pattern) = has(Rule::FigureInWords).and_then(|finding| finding.name.as_deref()) {
        let line = format!("extract = [\"presets\", {}]", quoted(pattern));
        keys.push(CureKey::new(line, format!("--extract presets --extract {}", shell(pattern))));
    }
    if has(Rule::Flood).is_some() {
        keys.push(CureKey::new("coalesce = \"all\"", "--coalesce all"));
    }
    keys
}

/// Returns the preset that has all these keys, if it is for servers with this name or with this dialect.
fn preset(keys: &[CureKey], server: Option<&str>) -> Option<Preset> {
    let name = server.and_then(|server| server.split(' ').next()).unwrap_or_default();
    let dialects = keys.iter().find(|key| key.line.starts_with("dialects = "));
    let speaks = |name: &str| dialects.is_some_and(|key| key.line.contains(&quoted(name)));
    let has = |preset: &Preset, key: &CureKey| {
        let (name, value) = key.line.split_once(" = ").unwrap_or((&key.line, ""));
        let words = value.split('"').skip(1).step_by(2);
        let line = preset.lines.lines().find(|line| line.starts_with(name));
        match line {
            Some(line) => words.into_iter().all(|word| line.contains(&format!("{word:?}"))),
            // The keys of a table may be inside the table.
            None => {
                let table = name.split('.').take(2).collect::<Vec<_>>().join(".");
                name.contains("lifecycle") && preset.lines.contains(&table)
            }
        }
    };
    let mut presets = Preset::WORDS.iter().map(|(_, preset)| *preset);
    presets.find(|preset| {
        let is_server = preset.names.iter().any(|known| known.eq_ignore_ascii_case(name));
        (is_server || speaks(preset.name))
            && !keys.is_empty()
            && keys.iter().all(|key| has(preset, key))
    })
}

/// Reads the suggested file, or a file with only the route if the cure has no lines.
///
/// # Errors
/// If the file cannot be used, which is a fault of Milepost.
pub(super) fn routes(cure: &Cure, behind: &Behind) -> Result<Routes, RoutesError> {
    let text = cure.lines.clone().unwrap_or_else(|| route(behind));
    Routes::parse("proxy.toml".as_ref(), &text, &Environment::of_process())
}

/// Returns the command or address of the server, quoted for a shell.
pub(super) fn shown(behind: &Behind) -> String {
    match behind {
        Behind::Command(command) => {
            let words = command.iter().map(|word| shell(&word.to_string_lossy()));
            words.collect::<Vec<_>>().join(" ")
        }
        Behind::Http(url, _) => shell(url.as_str()),
    }
}

/// Returns the server's command with `milepost wrap` in front. Each of `flags` is followed by a space.
fn wrap_command(behind: &Behind, flags: &str) -> String {
    let shown = shown(behind);
    match behind {
        Behind::Command(_) => format!("milepost wrap {flags}-- {shown}"),
        Behind::Http(_, false) => format!("milepost wrap {flags}{shown}"),
        Behind::Http(_, true) => format!("milepost wrap {flags}--transport sse {shown}"),
    }
}

/// Returns the first lines of the route.
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

/// Returns a text quoted as one word for a shell.
fn shell(word: &str) -> String {
    let plain = |sign: char| sign.is_ascii_alphanumeric() || "-_./:=@,+%".contains(sign);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}
