//! Flags for the settings of a route, made from their declarations.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser, ValueParser};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use crate::config::routes::{Preset, PresetSettings, RoutesError};
use crate::config::settings::{Flag, Setting, SettingChange, SettingScope, Settings};
use crate::config::values::{DEFAULT_DIALECTS, Word, dialects};
use crate::lab::known_names::KnownNames;
use crate::progress::dialect::{self, Dialect};
use crate::progress::{CallPolicy, Policy};

/// `milepost presets`.
#[derive(Debug, Args)]
pub struct PresetsArgs {
    /// Print the settings of this preset, as lines of a route file
    #[arg(value_name = "NAME", value_parser = preset())]
    pub name: Option<Preset>,
}

#[derive(Debug, Args)]
pub(super) struct PolicyArgs {
    /// Take the settings, and the server unless one is given, of a route of this file; flags
    /// override them
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// The path of that route, if the file has several
    #[arg(long, value_name = "PATH", requires = "config")]
    pub(super) route: Option<String>,
    /// The settings of a known server, of those that `milepost presets` lists; other flags override
    /// them
    #[arg(long, value_name = "NAME", value_parser = preset())]
    preset: Option<Preset>,
    #[arg(long = "dialect", value_name = "NAME", value_delimiter = ',', help = dialect_help(),
        value_parser = dialect_names(), hide_possible_values = true)]
    dialects: Vec<String>,
    #[command(flatten)]
    flags: Flags,
}

/// Reads the name of a preset.
pub(super) fn preset() -> impl TypedValueParser<Value = Preset> {
    let names = Preset::WORDS.iter().map(|(name, _)| *name);
    PossibleValuesParser::new(names).try_map(|name| Preset::read(&name))
}

/// Returns the names of dialects that are known without a route file.
fn dialect_names() -> KnownNames {
    let names = dialect::ALL.iter().filter_map(|dialect| match dialect {
        Dialect::BuiltIn(known) => Some(known.name),
        Dialect::Text(source) => Some(source.name()),
        Dialect::Custom(_) => None,
    });
    KnownNames::new(names.chain([DEFAULT_DIALECTS]))
}

/// Returns a help text that names every dialect.
fn dialect_help() -> String {
    let names = |is_default: bool| {
        let all = dialect::ALL.iter().map(Dialect::name);
        let is_wanted = move |name: &&str| {
            dialect::defaults().any(|default| default.name() == *name) == is_default
        };
        all.filter(is_wanted).collect::<Vec<_>>().join(", ")
    };
    format!(
        "A way of saying progress that is understood; repeat for more. Replaces the defaults, unless \
         one of them is `{DEFAULT_DIALECTS}`. There are {} (those are the defaults), {}, and those of \
         the file",
        names(true),
        names(false)
    )
}

/// The given flags for settings.
#[derive(Debug)]
struct Flags {
    route: Vec<Given<Policy>>,
    call: Vec<Given<CallPolicy>>,
}

/// A flag that is given.
#[derive(Debug)]
struct Given<S: SettingScope> {
    setting: &'static Setting<S>,
    texts: Vec<String>,
}

impl<S: SettingScope> Given<S> {
    fn all(matches: &ArgMatches) -> Vec<Self> {
        let given = |setting: &'static Setting<S>| {
            let (flag, name) = (setting.flag()?, setting.flag_name()?);
            let texts = match flag.value {
                Some(_) => matches.get_many::<String>(&name)?.cloned().collect(),
                None if matches.get_flag(&name) => vec![flag.switches_to.to_owned()],
                None => return None,
            };
            Some(Self { setting, texts })
        };
        S::SETTINGS.iter().filter_map(given).collect()
    }

    fn changes(given: &[Self]) -> Result<Vec<SettingChange<S>>, String> {
        let read = |one: &Self| {
            let name = one.setting.flag_name().unwrap_or_default();
            one.setting.read_flag(&one.texts).map_err(|what| format!("--{name}: {what}"))
        };
        given.iter().map(read).collect()
    }
}

/// Returns the flag of a setting, if the flag belongs under this heading of `--help`.
fn argument<S: SettingScope>(
    setting: &'static Setting<S>,
    heading: Option<&'static str>,
) -> Option<Arg> {
    let flag = setting.flag().filter(|flag| flag.heading == heading)?;
    let name = setting.flag_name()?.into_owned();
    let arg = Arg::new(name.clone()).long(name).help(setting.help());
    let arg = heading.map_or_else(|| arg.clone(), |heading| arg.clone().help_heading(heading));
    let Some(value) = flag.value else { return Some(arg.action(ArgAction::SetTrue)) };
    let choices = setting.choices();
    let parser =
        if !choices.is_empty() {
            ValueParser::new(PossibleValuesParser::new(choices))
        } else if flag.repeats {
            // Patterns are checked later, all together, because a pattern must not occur twice.
            ValueParser::new(clap::builder::StringValueParser::new())
        } else {
            ValueParser::new(clap::builder::StringValueParser::new().try_map(|text: String| {
                setting.read_flag(std::slice::from_ref(&text)).map(|_| text)
            }))
        };
    let action = if flag.repeats { ArgAction::Append } else { ArgAction::Set };
    let arg = arg.value_name(value).value_parser(parser).action(action);
    // Require `=`, because the word after the flag may be the server's command.
    let optional =
        |arg: Arg| arg.num_args(0..=1).require_equals(true).default_missing_value(flag.switches_to);
    Some(if flag.is_value_optional { optional(arg) } else { arg })
}

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        Flag::HEADINGS.into_iter().fold(command, |command, heading| {
            let of_calls = CallPolicy::SETTINGS.iter().filter_map(|one| argument(one, heading));
            let of_route = Policy::SETTINGS.iter().filter_map(|one| argument(one, heading));
            command.args(of_calls.chain(of_route))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self { route: Given::all(matches), call: Given::all(matches) })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl PolicyArgs {
    /// Returns the named preset, if any. `own` are the dialects of a route file.
    ///
    /// # Errors
    /// If the preset is not valid, which is a bug.
    pub(super) fn preset(&self, own: &[Dialect]) -> Result<Option<PresetSettings>, RoutesError> {
        self.preset.map(|preset| PresetSettings::new(preset, own)).transpose()
    }

    /// Returns the settings that the flags name. `own` are the dialects of a route file.
    pub(super) fn settings(&self, own: &[Dialect]) -> Result<Settings, String> {
        let mut call = Given::changes(&self.flags.call)?;
        let dialects = dialects(self.dialects.iter().map(|name| &**name), own)
            .map_err(|what| format!("--dialect: {what}"))?;
        if !dialects.is_empty() {
            call.push(SettingChange::dialects(dialects));
        }
        Ok(Settings { route: Given::changes(&self.flags.route)?, call, tools: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use crate::commands::args::Cli;

    #[test]
    fn names_that_are_not_known_are_taken() {
        let taken =
            Cli::command().try_get_matches_from(["milepost", "wrap", "--dialect", "own", "x"]);
        assert!(taken.is_ok());
    }

    #[test]
    fn a_value_that_is_optional_leaves_the_command_alone() {
        for (flag, said) in [("--words-in-2024", "on"), ("--words-in-2024=off", "off")] {
            let taken = Cli::command().try_get_matches_from(["milepost", "wrap", flag, "server"]);
            let taken = taken.unwrap();
            let wrap = taken.subcommand_matches("wrap").unwrap();
            assert_eq!(wrap.get_one::<String>("words-in-2024").unwrap(), said);
        }
        let wrong = ["milepost", "wrap", "--words-in-2024=no", "server"];
        assert!(Cli::command().try_get_matches_from(wrong).is_err());
    }
}
