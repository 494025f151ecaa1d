//! Settings, each declared once: its key, what it does, its flag, the kind of its values and the field that it sets.
//!
//! Flags, keys of the route file, the JSON Schema, `check --print`, the words of a recording and
//! `docs/settings.md` are made from the declarations. A source of settings (flags, `[defaults]`, a
//! route, a tool) is a list of changes: a setting that the source does not name stays as it is.
//!
//! A program with settings of its own beside those of the engine, such as the proxy, declares them with
//! [`settings!`](crate::settings).

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

#[cfg(feature = "schema")]
use schemars::{Schema, SchemaGenerator};
use serde::Deserialize;
use toml::de::ValueDeserializer;

use super::format::{Checked, Format};
use super::toml_text::{ShowText, plain};
use crate::progress::dialect::Dialect;
use crate::progress::{CallPolicy, Policy};

/// A place where settings are in effect.
pub trait SettingScope: Sized + 'static {
    /// The settings of this scope, in the order of `check --print`.
    const SETTINGS: &'static [Setting<Self>];

    /// The scope with every setting at its default.
    fn defaults() -> Self;
}

/// A scope whose settings have JSON Schemas.
#[cfg(feature = "schema")]
pub trait DescribedScope: SettingScope {
    /// The schema of the values of each setting, in the order of [`SettingScope::SETTINGS`].
    const SCHEMAS: &'static [fn(&mut SchemaGenerator) -> Schema];
}

/// The declaration of one setting, written with [`settings!`](crate::settings).
pub struct Setting<S: SettingScope> {
    /// The key in a route file, with that of its table: `heartbeat.after`.
    pub key: &'static str,
    /// The effect of the setting; see [`Setting::doc`].
    pub doc: &'static str,
    /// The parts that few settings have.
    pub options: SettingOptions<S>,
    /// The field that the setting sets.
    pub field: &'static dyn SettingField<S>,
}

/// A field of a scope, with the kind of its values.
pub trait SettingField<S>: Sync {
    /// The value in effect, as TOML; `None` if there is none.
    fn print(&self, scope: &S, show: ShowText<'_>) -> Option<String>;
    /// Reads a value of a file.
    ///
    /// # Errors
    /// The fault of the value.
    fn read_value(&self, value: ValueDeserializer<'_>)
    -> Result<SettingChange<S>, toml::de::Error>;
    /// Reads the texts of a flag.
    ///
    /// # Errors
    /// The fault of the texts.
    fn read_flag(&self, texts: &[String]) -> Result<SettingChange<S>, String>;
    /// Returns the words that a flag accepts, if they are few.
    fn choices(&self) -> Vec<&'static str>;
    /// Returns the names in a recording, if they differ from the key.
    fn names(&self) -> &'static [&'static str];
    /// The value in effect as a word of a recording; `None` if no word can hold it.
    fn word(&self, scope: &S, name: &str) -> Option<String>;
    /// Reads a word of a recording.
    ///
    /// # Errors
    /// The fault of the word.
    fn read_word(&self, scope: &mut S, name: &str, text: &str) -> Result<(), String>;
    /// The value in effect in all its parts, by which two values are compared.
    fn debug(&self, scope: &S) -> String;
}

/// A field, and the format of its values.
pub struct FormatField<S, F: Format> {
    /// The key of the setting.
    pub key: &'static str,
    /// The field of a scope.
    pub get: fn(&S) -> &F::Field,
    /// The field of a scope, to be changed.
    pub get_mut: fn(&mut S) -> &mut F::Field,
}

impl<S: SettingScope, F: Format> FormatField<S, F> {
    fn change(&self, value: F::Value) -> SettingChange<S> {
        let get_mut = self.get_mut;
        SettingChange::new(self.key, value, move |scope, value| F::put(get_mut(scope), value))
    }
}

impl<S: SettingScope, F: Format> SettingField<S> for FormatField<S, F> {
    fn print(&self, scope: &S, show: ShowText<'_>) -> Option<String> {
        F::print((self.get)(scope), show)
    }
    fn read_value(
        &self,
        value: ValueDeserializer<'_>,
    ) -> Result<SettingChange<S>, toml::de::Error> {
        Checked::<F>::deserialize(value).map(|checked| self.change(checked.0))
    }
    fn read_flag(&self, texts: &[String]) -> Result<SettingChange<S>, String> {
        F::read(texts).map(|value| self.change(value))
    }
    fn choices(&self) -> Vec<&'static str> {
        F::choices()
    }
    fn names(&self) -> &'static [&'static str] {
        F::names()
    }
    fn word(&self, scope: &S, name: &str) -> Option<String> {
        F::word((self.get)(scope), name)
    }
    fn read_word(&self, scope: &mut S, name: &str, text: &str) -> Result<(), String> {
        F::read_word((self.get_mut)(scope), name, text)
    }
    fn debug(&self, scope: &S) -> String {
        format!("{:?}", (self.get)(scope))
    }
}

/// The parts of a declaration that few settings have.
pub struct SettingOptions<S> {
    /// The flag of the setting.
    pub flag: Option<Flag>,
    /// The default as text, if it depends on other settings or is not a value.
    pub default: &'static str,
    /// The default for `--help`, where its text differs.
    pub flag_default: &'static str,
    /// A further change, made whenever a flag or a route file names the setting.
    pub also: fn(&mut S),
    /// Whether a recording has a word for the setting.
    pub is_recorded: bool,
}

impl<S> SettingOptions<S> {
    /// No flag, and a default that is a value.
    pub const NONE: Self =
        Self { flag: None, default: "", flag_default: "", also: |_| {}, is_recorded: true };
}

/// The flag of a setting.
#[derive(Debug, Clone, Copy)]
pub struct Flag {
    /// The part of `--help` that has the flag; `None`: the first.
    pub heading: Option<&'static str>,
    /// The name of the flag's value; `None`: the flag takes no value and means `switches_to`.
    pub value: Option<&'static str>,
    /// The value of the flag if the flag is given without a value.
    pub switches_to: &'static str,
    /// Whether the value may be left out: `--flag` or `--flag=value`.
    pub is_value_optional: bool,
    /// Whether the flag may be given more than once.
    pub repeats: bool,
    /// The name, where it is not made from the key; empty otherwise.
    pub name: &'static str,
    /// The text of `--help`, where the effect of the setting is not; empty otherwise.
    pub help: &'static str,
}

impl Flag {
    /// The parts of `--help`, in their order.
    pub const HEADINGS: [Option<&'static str>; 6] = [
        None,
        Some("Silence"),
        Some("Timing"),
        Some("Figures and words"),
        Some("Answers"),
        Some("Requests"),
    ];

    /// A flag with a value. `heading`: its place in [`Flag::HEADINGS`].
    pub const fn new(heading: usize, value: &'static str) -> Self {
        let heading = Self::HEADINGS[heading];
        Self {
            heading,
            value: Some(value),
            switches_to: "on",
            is_value_optional: false,
            repeats: false,
            name: "",
            help: "",
        }
    }

    /// A flag that takes no value.
    pub const fn switch(heading: usize) -> Self {
        Self { value: None, ..Self::new(heading, "") }
    }

    /// The value may be left out, and is `on` then.
    pub const fn optional(self) -> Self {
        Self { is_value_optional: true, ..self }
    }

    /// The flag may be given more than once.
    pub const fn repeats(self) -> Self {
        Self { repeats: true, ..self }
    }

    /// The text of `--help`.
    pub const fn help(self, help: &'static str) -> Self {
        Self { help, ..self }
    }
}

impl<S: SettingScope> fmt::Debug for Setting<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key)
    }
}

impl<S: SettingScope> Setting<S> {
    /// The setting with a key.
    pub fn named(key: &str) -> Option<&'static Self> {
        S::SETTINGS.iter().find(|setting| setting.key == key)
    }

    /// The effect of the setting, in a sentence or two.
    pub fn doc(&self) -> &'static str {
        self.doc.trim()
    }

    /// Returns the flag of `milepost wrap`, if the setting has one.
    pub fn flag(&self) -> Option<&Flag> {
        self.options.flag.as_ref()
    }

    /// The name of the flag, without `--`.
    pub fn flag_name(&self) -> Option<Cow<'static, str>> {
        let flag = self.flag()?;
        Some(if flag.name.is_empty() { dashed(self.key) } else { flag.name.into() })
    }

    /// The text of `--help` for the flag.
    pub fn help(&self) -> String {
        let help = self.flag().map(|flag| flag.help).filter(|help| !help.is_empty());
        let help = help.unwrap_or_else(|| self.doc()).trim_end_matches('.');
        let has_value = self.flag().is_some_and(|flag| flag.value.is_some());
        let default = match self.options.flag_default {
            "" if has_value && self.options.default.is_empty() => {
                let printed = self.printed_default().unwrap_or_default();
                printed.trim_matches('"').to_owned()
            }
            default => default.to_owned(),
        };
        match &*default {
            "" | "[]" | "{}" => help.to_owned(),
            default => format!("{help} [default: {default}]"),
        }
    }

    /// The default as a value of a route file, if the default is a value.
    pub fn printed_default(&self) -> Option<String> {
        self.print(&S::defaults(), &|_, text| plain(text))
    }

    /// The value in effect, as TOML; `None` if there is none.
    pub fn print(&self, scope: &S, show: ShowText<'_>) -> Option<String> {
        self.field.print(scope, show)
    }

    /// Reads a value of a route file.
    ///
    /// # Errors
    /// The fault of the value.
    pub fn read_value(
        &self,
        value: ValueDeserializer<'_>,
    ) -> Result<SettingChange<S>, toml::de::Error> {
        self.field.read_value(value)
    }

    /// Reads the texts of a flag, which may be given more than once.
    ///
    /// # Errors
    /// The fault of the texts.
    pub fn read_flag(&self, texts: &[String]) -> Result<SettingChange<S>, String> {
        self.field.read_flag(texts)
    }

    /// Returns the words that a flag accepts, if they are few.
    pub fn choices(&self) -> Vec<&'static str> {
        self.field.choices()
    }

    /// Returns the default as text.
    pub fn default(&self) -> String {
        let printed = || self.printed_default().filter(|printed| printed != "[]");
        match self.options.default {
            "" => printed().unwrap_or_else(|| "none".to_owned()),
            words => words.to_owned(),
        }
    }

    /// The description of the key for editors, with its default.
    pub fn description(&self) -> String {
        format!("{} Default: {}.", self.doc(), self.default())
    }

    /// The names that the setting has in a recording.
    pub fn words(&self) -> Vec<Cow<'static, str>> {
        match self.field.names() {
            _ if !self.options.is_recorded => Vec::new(),
            [] => vec![dashed(self.key)],
            names => names.iter().map(|name| Cow::Borrowed(*name)).collect(),
        }
    }

    /// Returns the words of a recording for the difference between `scope` and the defaults; `None` if the difference
    /// cannot be written.
    pub fn write_words(&self, scope: &S) -> Option<Vec<String>> {
        let usual = S::defaults();
        // The values are compared, not their words: two different values may have the same word.
        if self.field.debug(scope) == self.field.debug(&usual) {
            return Some(Vec::new());
        }
        let word = |name: Cow<'static, str>| {
            let differs = |word: &String| Some(word) != self.field.word(&usual, &name).as_ref();
            Some(format!("{name}={}", self.field.word(scope, &name).filter(differs)?))
        };
        let words: Vec<String> = self.words().into_iter().filter_map(word).collect();
        (!words.is_empty()).then_some(words)
    }

    /// Reads a word of a recording; `None` if no setting has this name.
    pub fn read_word(&self, scope: &mut S, name: &str, text: &str) -> Option<Result<(), String>> {
        let is_name = match self.field.names() {
            [] => dashed(self.key) == name,
            names => names.contains(&name),
        };
        is_name.then(|| self.field.read_word(scope, name, text))
    }
}

#[cfg(feature = "schema")]
impl<S: DescribedScope> Setting<S> {
    /// The JSON Schema of the value, with the description of the key for editors.
    pub fn schema(&self, generator: &mut SchemaGenerator) -> Schema {
        let schemas = S::SETTINGS.iter().zip(S::SCHEMAS);
        let own = schemas.into_iter().find(|(setting, _)| setting.key == self.key);
        let mut schema = own.map(|(_, schema)| schema(generator)).unwrap_or_default();
        schema.insert("description".to_owned(), self.description().into());
        if let Ok(default) = serde_json::from_str(&self.default()) {
            schema.insert("default".to_owned(), default);
        }
        schema
    }
}

/// The name of a key among flags and words: `heartbeat-after`.
fn dashed(key: &'static str) -> Cow<'static, str> {
    match key.strip_suffix(".enabled") {
        // `late.enabled` is the switch of its whole table: the flag is `--late`.
        Some(table) => table.into(),
        None if key.contains(['.', '_']) => key.replace(['.', '_'], "-").into(),
        None => key.into(),
    }
}

/// The value of one setting in a source.
pub struct SettingChange<S> {
    key: &'static str,
    /// The value in all its parts, by which two changes are compared.
    value: String,
    set: Arc<dyn Fn(&mut S) + Send + Sync>,
}

impl<S: SettingScope> SettingChange<S> {
    fn new<V: Clone + fmt::Debug + Send + Sync + 'static>(
        key: &'static str,
        value: V,
        set: impl Fn(&mut S, V) + Send + Sync + 'static,
    ) -> Self {
        // Functions cannot be compared: the text of the value stands for the change.
        let text = format!("{value:?}");
        Self { key, value: text, set: Arc::new(move |scope| set(scope, value.clone())) }
    }

    /// Sets the value.
    pub fn apply(&self, scope: &mut S) {
        (self.set)(scope);
        if let Some(setting) = Setting::<S>::named(self.key) {
            (setting.options.also)(scope);
        }
    }
}

impl<S> Clone for SettingChange<S> {
    fn clone(&self) -> Self {
        Self { key: self.key, value: self.value.clone(), set: Arc::clone(&self.set) }
    }
}

impl<S> PartialEq for SettingChange<S> {
    fn eq(&self, other: &Self) -> bool {
        (self.key, &self.value) == (other.key, &other.value)
    }
}

impl<S> fmt::Debug for SettingChange<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.key, self.value)
    }
}

impl SettingChange<CallPolicy> {
    /// The dialects that are understood, which only their users can look up.
    pub fn dialects(dialects: Vec<Dialect>) -> Self {
        Self::new("dialects", dialects, |call, dialects| call.dialects = dialects)
    }
}

/// The settings of one source, such as a file or the flags.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// For the route.
    pub route: Vec<SettingChange<Policy>>,
    /// For every tool.
    pub call: Vec<SettingChange<CallPolicy>>,
    /// For single tools, by name.
    pub tools: Vec<(String, Vec<SettingChange<CallPolicy>>)>,
}

impl Settings {
    /// Changes `policy` by the settings: first by those for every tool, then by those of single tools.
    pub fn apply(&self, policy: &mut Policy) {
        self.route.iter().for_each(|change| change.apply(policy));
        let apply = |changes: &[SettingChange<CallPolicy>], call: &mut CallPolicy| {
            changes.iter().for_each(|change| change.apply(call));
        };
        apply(&self.call, &mut policy.call);
        policy.tools.values_mut().for_each(|tool| apply(&self.call, tool));
        // Last, so that the settings of a tool override those for all tools, whatever their order in the file.
        for (name, changes) in &self.tools {
            let base = policy.call.clone();
            apply(changes, policy.tools.entry(name.clone()).or_insert(base));
        }
    }
}

/// Declares the settings of a scope, which becomes a [`SettingScope`]: for each setting its documentation, key, format
/// and field, and rarely used options ([`SettingOptions`]). The attribute in front determines when the scope has JSON
/// Schemas too, which needs `schemars`: `#[cfg(test)]`, for instance.
#[macro_export]
macro_rules! settings {
    (#[$described:meta] $scope:ty, $defaults:expr; $(
        $(#[doc = $doc:literal])+
        $key:literal $format:ty => $field:ident $(.$part:ident)* { $($option:ident: $value:expr),* }
    )+) => {
        impl $crate::policy_file::setting::SettingScope for $scope {
            const SETTINGS: &'static [$crate::policy_file::setting::Setting<Self>] = &[$(
                $crate::policy_file::setting::Setting {
                    key: $key,
                    doc: concat!($($doc),+),
                    options: $crate::policy_file::setting::SettingOptions {
                        $($option: $value,)*
                        ..$crate::policy_file::setting::SettingOptions::NONE
                    },
                    field: &$crate::policy_file::setting::FormatField::<Self, $format> {
                        key: $key,
                        get: |scope| &scope.$field $(.$part)*,
                        get_mut: |scope| &mut scope.$field $(.$part)*,
                    },
                },
            )+];

            fn defaults() -> Self {
                $defaults
            }
        }

        #[$described]
        impl $crate::policy_file::setting::DescribedScope for $scope {
            const SCHEMAS: &'static [fn(&mut schemars::SchemaGenerator) -> schemars::Schema] = &[$(
                |generator| generator.subschema_for::<
                    <$format as $crate::policy_file::format::Format>::Written,
                >(),
            )+];
        }
    };
}
