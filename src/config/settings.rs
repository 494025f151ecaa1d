//! The settings of a route by name, as flags and route files give them.
//!
//! Each setting is optional, so that several sources can be merged with each other and with the
//! defaults of [`Policy`].

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::progress::dialect::{self, Count, Dialect, TextSource};
use crate::progress::extract::Extract;
use crate::progress::policy::ask;
use crate::progress::policy::ask::{Ask, LogLevel, Members, TokenType};
use crate::progress::policy::masks::Masks;
use crate::progress::{
    AnswerRepairs, CallPolicy, Coalesce, HeartbeatValue, Messages, Mode, OnFall, Policy, Scale,
    TokenIs,
};

/// A setting that is one of a few words.
pub trait Word: Copy + 'static {
    /// Every word and what it means.
    const WORDS: &'static [(&'static str, Self)];

    /// What `word` means; the error names the word that may have been meant.
    fn read(word: &str) -> Result<Self, String> {
        let found = Self::WORDS.iter().find(|(known, _)| *known == word);
        found
            .map(|(_, meaning)| *meaning)
            .ok_or_else(|| unknown(word, Self::WORDS.iter().map(|(known, _)| *known)))
    }
}

fn unknown<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = known.collect();
    let expected = names.join(", ");
    match nearest(word, names) {
        Some(near) => format!("{word:?} is not known; did you mean {near:?}?"),
        None => format!("{word:?} is not known; one of {expected} is expected"),
    }
}

/// The word that comes closest, if any is close.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let scored = known.into_iter().map(|name| (strsim::jaro_winkler(word, name), name));
    scored
        .filter(|(score, _)| *score > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

impl Word for Mode {
    const WORDS: &'static [(&'static str, Self)] =
        &[("observe", Self::Observe), ("enforce", Self::Enforce), ("full", Self::Full)];
}

impl Word for OnFall {
    const WORDS: &'static [(&'static str, Self)] =
        &[("lift", Self::Lift), ("rebase", Self::Rebase), ("drop", Self::Drop)];
}

impl Word for Coalesce {
    const WORDS: &'static [(&'static str, Self)] =
        &[("repaired", Self::Repaired), ("all", Self::All)];
}

impl Word for HeartbeatValue {
    const WORDS: &'static [(&'static str, Self)] =
        &[("lift", Self::Lift), ("elapsed", Self::Elapsed)];
}

impl Word for Messages {
    const WORDS: &'static [(&'static str, Self)] =
        &[("replace", Self::Replace), ("append", Self::Append)];
}

impl Word for Count {
    const WORDS: &'static [(&'static str, Self)] =
        &[("percent", Self::Percent), ("unit", Self::Unit), ("raw", Self::Raw)];
}

impl Word for TextSource {
    const WORDS: &'static [(&'static str, Self)] =
        &[("stderr", Self::Stderr), ("stdout", Self::Stdout), ("log", Self::Log)];
}

impl Word for TokenIs {
    const WORDS: &'static [(&'static str, Self)] =
        &[("token", Self::Token), ("request_id", Self::RequestId)];
}

impl Word for TokenType {
    const WORDS: &'static [(&'static str, Self)] =
        &[("same", Self::Same), ("string", Self::String), ("integer", Self::Integer)];
}

impl Word for LogLevel {
    const WORDS: &'static [(&'static str, Self)] = &Self::ALL;
}

/// The repairs of answers by name.
pub const ANSWER_REPAIRS: [&str; 5] =
    ["response-id", "error-shape", "bare-result", "orphan-answer", "missing-id"];

/// The name that stands for the dialects that are on by default.
pub const DEFAULT_DIALECTS: &str = "defaults";

/// The longest time that a setting accepts. Clocks overflow a few centuries beyond.
const TIME_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A time such as `150ms`, `2s`, `1m 30s` or `0`.
pub fn time(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let time = humantime::parse_duration(text).map_err(|_| {
        format!("{text:?} is no time; a number with a unit such as 150ms, 2s or 5m is expected")
    })?;
    if time > TIME_MAX {
        return Err(format!("{text:?} is too long; at most a year is expected"));
    }
    Ok(time)
}

/// A time that is more than none.
pub fn positive_time(text: &str) -> Result<Duration, String> {
    match time(text)? {
        Duration::ZERO => Err("more than 0 is expected".to_owned()),
        time => Ok(time),
    }
}

/// The word for a time that never comes.
pub const OFF: &str = "off";

/// A time that is more than none, or `off`.
pub fn time_or_off(text: &str) -> Result<Option<Duration>, String> {
    match text {
        OFF => Ok(None),
        "0" => Err(format!("more than 0 is expected, or {OFF:?}")),
        text if nearest(text, [OFF]).is_some() => {
            Err(format!("{text:?} is no time; did you mean {OFF:?}?"))
        }
        text => positive_time(text).map(Some),
    }
}

/// `percent`, `unit` or a total.
pub fn scale(text: &str) -> Result<Scale, String> {
    match text {
        "percent" => Ok(Scale::Percent),
        "unit" => Ok(Scale::Unit),
        number => match number.parse::<f64>() {
            Ok(total) if total.is_finite() && total > 0.0 => Ok(Scale::Of(total)),
            _ => Err(format!("{text:?} is no scale; percent, unit or a total is expected")),
        },
    }
}

/// A level of log messages, or `off`.
pub fn level_or_off(text: &str) -> Result<Option<LogLevel>, String> {
    if text == OFF { Ok(None) } else { LogLevel::read(text).map(Some) }
}

/// Members of an object, as JSON text.
pub fn members(text: &str) -> Result<Members, String> {
    serde_json::from_str(text).map_err(|error| format!("a JSON object is expected ({error})"))
}

/// Members of `_meta`, as JSON text.
pub fn meta(text: &str) -> Result<Members, String> {
    checked_meta(members(text)?)
}

/// What may be put into `_meta`: nothing that is the client's to say.
pub fn checked_meta(members: Members) -> Result<Members, String> {
    match members.keys().find(|name| ask::is_clients_own(name)) {
        Some(name) => Err(format!("{name:?} is for the client to say, and for nobody else")),
        None => Ok(members),
    }
}

/// The dialects of some names: built-in ones, or those of a route file.
pub fn dialects<'a>(
    names: impl IntoIterator<Item = &'a str>,
    own: &[Dialect],
) -> Result<Vec<Dialect>, String> {
    let mut found: Vec<Dialect> = Vec::new();
    for name in names {
        let meant: Vec<_> = match name {
            DEFAULT_DIALECTS => dialect::defaults().collect(),
            name => {
                let all = || dialect::ALL.iter().chain(own);
                let found = all().find(|dialect| dialect.name() == name);
                let known = || all().map(Dialect::name).chain([DEFAULT_DIALECTS]);
                vec![found.cloned().ok_or_else(|| unknown(name, known()))?]
            }
        };
        for dialect in meant {
            if !found.iter().any(|known| known.name() == dialect.name()) {
                found.push(dialect);
            }
        }
    }
    Ok(found)
}

/// Where is kept what is to outlive the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateDir {
    /// Nowhere.
    Off,
    /// In this folder.
    At(PathBuf),
}

/// A folder, or `off`.
impl fmt::Display for StateDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::At(folder) => folder.display().fmt(f),
        }
    }
}

impl From<OsString> for StateDir {
    fn from(text: OsString) -> Self {
        if text == OFF { Self::Off } else { Self::At(text.into()) }
    }
}

/// What is put into requests, and may differ from tool to tool.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AskSettings {
    /// Whether the token is copied into the arguments.
    pub token_in_arguments: Option<bool>,
    /// The type of tokens.
    pub token_type: Option<TokenType>,
    /// Put into `_meta`.
    pub meta: Option<Members>,
    /// Put into the arguments.
    pub arguments: Option<Members>,
}

impl AskSettings {
    fn apply(&self, ask: &mut Ask) {
        put(&mut ask.token_in_arguments, &self.token_in_arguments);
        put(&mut ask.token_type, &self.token_type);
        put(&mut ask.meta, &self.meta);
        put(&mut ask.arguments, &self.arguments);
    }
}

/// What may differ from tool to tool.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallSettings {
    /// The dialects that are understood.
    pub dialects: Option<Vec<Dialect>>,
    /// Whether silences are broken.
    pub heartbeat: Option<bool>,
    /// Silence before the first heartbeat.
    pub heartbeat_after: Option<Duration>,
    /// Time between heartbeats.
    pub heartbeat_every: Option<Duration>,
    /// Age of a call after which it gets none.
    pub heartbeat_max: Option<Duration>,
    /// The figure of a heartbeat.
    pub heartbeat_value: Option<HeartbeatValue>,
    /// What becomes of figures that repeat or fall.
    pub on_fall: Option<OnFall>,
    /// What a bare figure counts.
    pub scale: Option<Scale>,
    /// How figures are found in words.
    pub extract: Option<Extract>,
    /// What is not shown of text that is overheard.
    pub masks: Option<Masks>,
    /// How messages follow each other.
    pub messages: Option<Messages>,
    /// Age at which a call is given up; `Some(None)`: never.
    pub call_timeout: Option<Option<Duration>>,
    /// Whether silent calls are measured by those before.
    pub estimate: Option<bool>,
    /// What is put into requests.
    pub ask: AskSettings,
}

/// What may differ from route to route.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// How much is done.
    pub mode: Option<Mode>,
    /// No progress before its call is this old.
    pub first_after: Option<Duration>,
    /// How long a notification waits for an answer.
    pub hold: Option<Duration>,
    /// How long an answer waits after a notification.
    pub guard: Option<Duration>,
    /// The least time between thinned notifications.
    pub min_interval: Option<Duration>,
    /// Which notifications are thinned.
    pub coalesce: Option<Coalesce>,
    /// Repairs of answers that are not made, by name.
    pub no_repair: Vec<String>,
    /// Whether a translated message is forwarded as well.
    pub keep_original: Option<bool>,
    /// What the server puts where the token belongs.
    pub token_is: Option<TokenIs>,
    /// Whether words of ours go into progress of 2024-11-05.
    pub words_in_2024: Option<bool>,
    /// Put into the capabilities of clients.
    pub capabilities: Option<Members>,
    /// The log messages that the server is asked for; `Some(None)`: none.
    pub log_level: Option<Option<LogLevel>>,
    /// For every tool.
    pub call: CallSettings,
    /// For single tools.
    pub tools: Vec<(String, CallSettings)>,
}

fn put<T: Clone>(place: &mut T, said: &Option<T>) {
    if let Some(said) = said {
        place.clone_from(said);
    }
}

impl CallSettings {
    /// Lays what is said over `policy`.
    pub fn apply(&self, policy: &mut CallPolicy) {
        put(&mut policy.dialects, &self.dialects);
        put(&mut policy.heartbeat.enabled, &self.heartbeat);
        put(&mut policy.heartbeat.after, &self.heartbeat_after);
        put(&mut policy.heartbeat.every, &self.heartbeat_every);
        put(&mut policy.heartbeat.max, &self.heartbeat_max);
        put(&mut policy.heartbeat.value, &self.heartbeat_value);
        put(&mut policy.on_fall, &self.on_fall);
        policy.extract = self.extract.clone().or_else(|| policy.extract.take());
        put(&mut policy.masks, &self.masks);
        put(&mut policy.messages, &self.messages);
        policy.scale = self.scale.or(policy.scale);
        put(&mut policy.call_timeout, &self.call_timeout);
        put(&mut policy.estimate, &self.estimate);
        self.ask.apply(&mut policy.ask);
    }
}

impl Settings {
    /// Lays what is said over `policy`: first what holds for every tool, then single tools.
    pub fn apply(&self, policy: &mut Policy) {
        put(&mut policy.mode, &self.mode);
        put(&mut policy.pacing.first_after, &self.first_after);
        put(&mut policy.pacing.hold, &self.hold);
        put(&mut policy.pacing.guard, &self.guard);
        // Whoever sets a time means it, whatever client comes.
        let paced = [self.first_after, self.hold, self.guard].iter().any(Option::is_some);
        policy.spare_known_clients &= !paced;
        put(&mut policy.min_interval, &self.min_interval);
        put(&mut policy.coalesce, &self.coalesce);
        put(&mut policy.keep_original, &self.keep_original);
        put(&mut policy.words_in_2024, &self.words_in_2024);
        put(&mut policy.capabilities, &self.capabilities);
        put(&mut policy.log_level, &self.log_level);
        policy.token_is = self.token_is.or(policy.token_is);
        self.switch_off(&mut policy.answers);
        self.call.apply(&mut policy.call);
        for tool in policy.tools.values_mut() {
            self.call.apply(tool);
        }
        for (name, settings) in &self.tools {
            let base = policy.call.clone();
            settings.apply(policy.tools.entry(name.clone()).or_insert(base));
        }
    }

    fn switch_off(&self, answers: &mut AnswerRepairs) {
        for name in &self.no_repair {
            match &**name {
                "response-id" => answers.response_id = false,
                "error-shape" => answers.error_shape = false,
                "bare-result" => answers.bare_result = false,
                "orphan-answer" => answers.orphan_answer = false,
                "missing-id" => answers.missing_id = false,
                _ => {}
            }
        }
    }
}
