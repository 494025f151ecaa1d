//! A route file as it is written.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::Range;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use toml::Spanned;

use super::Route;
use crate::progress::{BeatValue, Coalesce, Messages, Mode, OnFall, Scale, TokenIs};
use crate::settings::{
    ANSWER_REPAIRS, CallSettings, Settings, Word, dialects, nearest, positive_time, scale, time,
};

/// What is wrong, and where in the text.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) at: usize,
    pub(super) what: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default = "nothing")]
    defaults: Spanned<Table>,
    #[serde(default)]
    route: Vec<Spanned<Table>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Upstream {
    command: Spanned<Vec<String>>,
}

fn nothing() -> Spanned<Table> {
    Spanned::new(0..0, Table::default())
}

/// `[[route]]`, and `[defaults]`, which has no path and no upstream.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Table {
    path: Option<Spanned<String>>,
    upstream: Option<Upstream>,
    #[serde(deserialize_with = "word")]
    mode: Option<Mode>,
    #[serde(deserialize_with = "any_time")]
    first_after: Option<Duration>,
    #[serde(deserialize_with = "any_time")]
    hold: Option<Duration>,
    #[serde(deserialize_with = "any_time")]
    guard: Option<Duration>,
    #[serde(deserialize_with = "any_time")]
    min_interval: Option<Duration>,
    #[serde(deserialize_with = "word")]
    coalesce: Option<Coalesce>,
    dialects: Option<Spanned<Vec<String>>>,
    no_repair: Option<Spanned<Vec<String>>>,
    keep_original: Option<bool>,
    #[serde(deserialize_with = "word")]
    token_is: Option<TokenIs>,
    words_in_2024: Option<bool>,
    heartbeat: Heartbeat,
    #[serde(deserialize_with = "word")]
    on_fall: Option<OnFall>,
    #[serde(deserialize_with = "any_scale")]
    scale: Option<Scale>,
    figures_in_text: Option<bool>,
    #[serde(deserialize_with = "word")]
    messages: Option<Messages>,
    #[serde(deserialize_with = "some_time")]
    call_timeout: Option<Duration>,
    tools: BTreeMap<String, ToolTable>,
}

/// `tools.NAME`: the keys that may differ from tool to tool. They stand here once more because serde
/// cannot flatten one table into another that refuses unknown keys.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ToolTable {
    heartbeat: Heartbeat,
    #[serde(deserialize_with = "word")]
    on_fall: Option<OnFall>,
    #[serde(deserialize_with = "any_scale")]
    scale: Option<Scale>,
    figures_in_text: Option<bool>,
    #[serde(deserialize_with = "word")]
    messages: Option<Messages>,
    #[serde(deserialize_with = "some_time")]
    call_timeout: Option<Duration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Heartbeat {
    enabled: Option<bool>,
    #[serde(deserialize_with = "any_time")]
    after: Option<Duration>,
    #[serde(deserialize_with = "some_time")]
    every: Option<Duration>,
    #[serde(deserialize_with = "any_time")]
    max: Option<Duration>,
    #[serde(deserialize_with = "word")]
    value: Option<BeatValue>,
}

fn read_with<'de, D: Deserializer<'de>, T>(
    from: D,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, D::Error> {
    let text = String::deserialize(from)?;
    read(&text).map(Some).map_err(D::Error::custom)
}

fn word<'de, D: Deserializer<'de>, T: Word>(from: D) -> Result<Option<T>, D::Error> {
    read_with(from, T::read)
}

fn any_time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    read_with(from, time)
}

fn some_time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    read_with(from, positive_time)
}

fn any_scale<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Scale>, D::Error> {
    read_with(from, scale)
}

/// What holds for every route of a file, and the routes.
pub(super) fn read(text: &str) -> Result<(Settings, Vec<Route>), Wrong> {
    let file: File = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        Wrong { at, what: with_suggestion(error.message()) }
    })?;
    let defaults = file.defaults.get_ref();
    if defaults.path.is_some() || defaults.upstream.is_some() {
        let what = "`path` and `upstream` belong to one route, not to the defaults";
        return Err(wrong(file.defaults.span(), what.to_owned()));
    }
    let defaults = settings(defaults)?;
    let mut routes: Vec<Route> = Vec::new();
    for table in &file.route {
        let (path, command) = place(table)?;
        if routes.iter().any(|known| known.path == *path.get_ref()) {
            let what = format!("a route with the path {:?} is there already", path.get_ref());
            return Err(wrong(path.span(), what));
        }
        let command = command.get_ref().iter().map(OsString::from).collect();
        let upstream = super::Upstream::Command { command, env: Vec::new() };
        let settings = settings(table.get_ref())?;
        routes.push(Route { settings, ..Route::new(path.get_ref().clone(), upstream) });
    }
    Ok((defaults, routes))
}

/// Where a route is found, and what it leads to.
fn place(table: &Spanned<Table>) -> Result<(&Spanned<String>, &Spanned<Vec<String>>), Wrong> {
    let missing = |what: &str| wrong(table.span(), format!("this route has no {what}"));
    let path = table.get_ref().path.as_ref();
    let path = path.ok_or_else(|| missing("`path`, such as path = \"/reports\""))?;
    let upstream = table.get_ref().upstream.as_ref();
    let upstream = upstream.ok_or_else(|| {
        missing("`upstream`, such as upstream.command = [\"node\", \"server.js\"]")
    })?;
    if !path.get_ref().starts_with('/') || path.get_ref().len() < 2 {
        let what = format!("{:?} is no path; one such as \"/reports\" is expected", path.get_ref());
        return Err(wrong(path.span(), what));
    }
    let command = &upstream.command;
    if command.get_ref().first().is_none_or(String::is_empty) {
        let what = "a command and its arguments are expected, such as [\"node\", \"server.js\"]";
        return Err(wrong(command.span(), what.to_owned()));
    }
    Ok((path, command))
}

fn settings(table: &Table) -> Result<Settings, Wrong> {
    let dialects = table.dialects.as_ref().map(|names| {
        dialects(names.get_ref().iter().map(|name| &**name))
            .map_err(|what| wrong(names.span(), what))
    });
    let no_repair = table.no_repair.as_ref();
    for name in no_repair.map(|names| &names.get_ref()[..]).unwrap_or_default() {
        if !ANSWER_REPAIRS.contains(&&**name) {
            let near = nearest(name, ANSWER_REPAIRS).unwrap_or(ANSWER_REPAIRS[0]);
            let what = format!("{name:?} is no repair; did you mean {near:?}?");
            return Err(wrong(no_repair.map_or(0..0, Spanned::span), what));
        }
    }
    let tool = |(name, table): (&String, &ToolTable)| (name.clone(), table.settings());
    Ok(Settings {
        mode: table.mode,
        first_after: table.first_after,
        hold: table.hold,
        guard: table.guard,
        min_interval: table.min_interval,
        coalesce: table.coalesce,
        dialects: dialects.transpose()?,
        no_repair: no_repair.map(|names| names.get_ref().clone()).unwrap_or_default(),
        keep_original: table.keep_original,
        token_is: table.token_is,
        words_in_2024: table.words_in_2024,
        call: CallSettings {
            on_fall: table.on_fall,
            scale: table.scale,
            figures_in_text: table.figures_in_text,
            messages: table.messages,
            call_timeout: table.call_timeout,
            ..table.heartbeat.settings()
        },
        tools: table.tools.iter().map(tool).collect(),
    })
}

impl ToolTable {
    fn settings(&self) -> CallSettings {
        CallSettings {
            on_fall: self.on_fall,
            scale: self.scale,
            figures_in_text: self.figures_in_text,
            messages: self.messages,
            call_timeout: self.call_timeout,
            ..self.heartbeat.settings()
        }
    }
}

impl Heartbeat {
    fn settings(&self) -> CallSettings {
        CallSettings {
            heartbeat: self.enabled,
            heartbeat_after: self.after,
            heartbeat_every: self.every,
            heartbeat_max: self.max,
            heartbeat_value: self.value,
            ..CallSettings::default()
        }
    }
}

fn wrong(span: Range<usize>, what: String) -> Wrong {
    Wrong { at: span.start, what }
}

/// An unknown key, and the known one that comes closest.
fn with_suggestion(message: &str) -> String {
    let mut names = message.split('`').skip(1).step_by(2);
    let near = message
        .starts_with("unknown field")
        .then(|| names.next())
        .flatten()
        .and_then(|unknown| nearest(unknown, names));
    match near {
        Some(near) => format!("{message}; did you mean `{near}`?"),
        None => message.to_owned(),
    }
}
