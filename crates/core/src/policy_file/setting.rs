//! Settings. Each is declared once, with its key, effect, flag, kind of values, and the field that it sets.
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

/// A struct whose fields are settings, such as a policy.
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

/// The declaration of one setting; use [`settings!`](crate::settings) to write one.
pub struct Setting<S: SettingScope> {
    /// The key in a route file, including the key of its table: `heartbeat.after`.
    pub key: &'static str,
    /// The effect of the setting; see [`Setting::doc`].
    pub doc: &'static str,
    /// The rarely used parts of the declaration.
    pub options: SettingOptions<S>,
    /// The field that the setting sets.
    pub field: &'static dyn SettingField<S>,
}

/// A field of a scope, with the kind of its values.
pub trait SettingField<S>: Sync {
    /// Returns the value in effect as TOML; `None` if there is none.
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
    /// Returns the value in effect as a word of a recording; `None` if no word can express it.
    fn word(&self, scope: &S, name: &str) -> Option<String>;
    /// Reads a word of a recording.
    ///
    /// # Errors
    /// The fault of the word.
    fn read_word(&self, scope: &mut S, name: &str, text: &str) -> Result<(), String>;
    /// Returns the complete value as text, for the comparison of two values.
    fn debug(&self, scope: &S) -> String;
}

/// A field, and the format of its values.
pub struct FormatField<S, F: Format> {
    /// The key of the setting.
    pub key: &'static str,
    /// Returns the field of a scope.
    pub get: fn(&S) -> &F::Field,
    /// Returns the field of a scope, to be changed.
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

/// The rarely used parts of a setting's declaration.
pub struct SettingOptions<S> {
    /// The flag of the setting.
    pub flag: Option<Flag>,
    /// The default as text, if it depends on other settings or is not a value.
    pub default: &'static str,
    /// The default that `--help` shows, if it differs from `default`; empty otherwise.
    pub flag_default: &'static str,
    /// A further change to the scope, made whenever a flag or a route file names the setting.
    pub also: fn(&mut S),
    /// Whether a recording has a word for the setting.
    pub is_recorded: bool,
}

impl<S> SettingOptions<S> {
    /// The options of a setting without a flag whose default is a value.
    pub const NONE: Self =
        Self { flag: None, default: "", flag_default: "", also: |_| {}, is_recorded: true };
}

/// The flag of a setting.
#[derive(Debug, Clone, Copy)]
pub struct Flag {
    /// The heading of `--help` under which the flag is listed; `None`: the first group, which has no heading.
    pub heading: Option<&'static str>,
    /// The name of the flag's value; `None`: the flag takes no value and means `switches_to`.
    pub value: Option<&'static str>,
    /// The value of the flag if the flag is given without a value.
    pub switches_to: &'static str,
    /// Whether the value may be left out: `--flag` or `--flag=value`.
    pub is_value_optional: bool,
    /// Whether the flag may be given more than once.
    pub repeats: bool,
    /// The name, if it is not made from the key; empty otherwise.
    pub name: &'static str,
    /// The text of `--help`, if it differs from the description of the setting; empty otherwise.
    pub help: &'static str,
}

impl Flag {
    /// The headings of `--help`, in their order.
    pub const HEADINGS: [Option<&'static str>; 6] = [
        None,
        Some("Silence"),
        Some("Timing"),
        Some("Figures and words"),
        Some("Answers"),
        Some("Requests"),
    ];

    /// A flag with a value. `heading`: the index of its heading in [`Flag::HEADINGS`].
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

    /// Makes the value optional; without a value the flag means `on`.
    pub const fn optional(self) -> Self {
        Self { is_value_optional: true, ..self }
    }

    /// Allows the flag to be given more than once.
    pub const fn repeats(self) -> Self {
        Self { repeats: true, ..self }
    }

    /// Sets the text of `--help`.
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
    /// Returns the setting with a key.
    pub fn named(key: &str) -> Option<&'static Self> {
        S::SETTINGS.iter().find(|setting| setting.key == key)
    }

    /// Returns the description of the setting, in a sentence or two.
    pub fn doc(&self) -> &'static str {
        self.doc.trim()
    }

    /// Returns the flag of `milepost wrap`, if the setting has one.
    pub fn flag(&self) -> Option<&Flag> {
        self.options.flag.as_ref()
    }

    /// Returns the name of the flag, without `--`.
    pub fn flag_name(&self) -> Option<Cow<'static, str>> {
        let flag = self.flag()?;
        Some(if flag.name.is_empty() { dashed(self.key) } else { flag.name.into() })
    }

    /// Returns the text of `--help` for the flag.
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

    /// Returns the default as a value of a route file, if the default is a value.
    pub fn printed_default(&self) -> Option<String> {
        self.print(&S::defaults(), &|_, text| plain(text))
    }

    /// Returns the value in effect as TOML; `None` if there is none.
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

    /// Returns the description of the key for editors, with the default.
    pub fn description(&self) -> String {
        format!("{} Default: {}.", self.doc(), self.default())
    }

    /// Returns the names that the setting has in a recording.
    pub fn words(&self) -> Vec<Cow<'static, str>> {
        match self.field.names() {
            _ if !self.options.is_recorded => Vec::new(),
            [] => vec![dashed(self.key)],
            names => names.iter().map(|name| Cow::Borrowed(*name)).collect(),
        }
    }

    /// Returns the recording's words for a value in `scope` that differs from the default. `None` if no word can
    /// express the value.
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

    /// Reads a word of a recording into `scope`; `None` if this setting does not have the name.
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

/// Returns the form of a key in flags and recordings: `heartbeat-after`.
fn dashed(key: &'static str) -> Cow<'static, str> {
    match key.strip_suffix(".enabled") {
        // `late.enabled` is the switch of its whole table: the flag is `--late`.
        Some(table) => table.into(),
        None if key.contains(['.', '_']) => key.replace(['.', '_'], "-").into(),
        None => key.into(),
    }
}

/// A setting that a source names, and the value that the source gives to it.
pub struct SettingChange<S> {
    key: &'static str,
    /// The complete value as text, for the comparison of two changes.
    value: String,
    set: Arc<dyn Fn(&mut S) + Send + Sync>,
}

impl<S: SettingScope> SettingChange<S> {
    fn new<V: Clone + fmt::Debug + Send + Sync + 'static>(
        key: &'static str,
        value: V,
        set: impl Fn(&mut S, V) + Send + Sync + 'static,
    ) -> Self {
        // Functions cannot be compared, so two changes are compared by the text of their values.
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
    /// The change that sets the dialects. A program has to look up their names itself before.
    pub fn dialects(dialects: Vec<Dialect>) -> Self {
        Self::new("dialects", dialects, |call, dialects| call.dialects = dialects)
    }
}

/// The settings that one source names, such as a file or the flags.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// Changes that apply to the whole route.
    pub route: Vec<SettingChange<Policy>>,
    /// Changes that apply to every tool.
    pub call: Vec<SettingChange<CallPolicy>>,
    /// Changes that apply to single tools, by name.
    pub tools: Vec<(String, Vec<SettingChange<CallPolicy>>)>,
}

impl Settings {
    /// Applies the settings to `policy`: first those for every tool, then those for single tools.
    pub fn apply(&self, policy: &mut Policy) {
        self.route.iter().for_each(|change| change.apply(policy));
        let apply = |changes: &[SettingChange<CallPolicy>], call: &mut CallPolicy| {
            changes.iter().for_each(|change| change.apply(call));
        };
        apply(&self.call, &mut policy.call);
        policy.tools.values_mut().for_each(|tool| apply(&self.call, tool));
        // Applied last, so that the settings of a tool override those for all tools, whatever their order in the file.
        for (name, changes) in &self.tools {
            let base = policy.call.clone();
            apply(changes, policy.tools.entry(name.clone()).or_insert(base));
        }
    }
}

/// Declares the settings of a scope and makes the scope a [`SettingScope`]. Each setting has documentation, a key, a
/// format, a field, and rarely used options ([`SettingOptions`]). The attribute in front determines when the scope has
/// JSON Schemas too, which needs `schemars`: `#[cfg(test)]`, for instance.
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
