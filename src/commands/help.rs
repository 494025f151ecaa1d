//! The short help, and the advice for a command line that is not understood.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, FromArgMatches};

use crate::commands::args::Cli;
use crate::lab::check_progress::shell::quoted;

/// The commands in the order of `milepost --help`.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Use", &["wrap", "serve", "adopt", "init"]),
    ("Look", &["try", "doctor", "ls", "top", "tap", "cancel", "stats", "demo"]),
    ("Record", &["replay", "export", "diff", "mock"]),
    ("Prove", &["check", "check-progress"]),
    ("Set up", &["presets", "schema", "completions", "man", "version", "help"]),
];

/// Number of columns before the description of a command.
const NAME_WIDTH: usize = 16;

/// The options that `milepost wrap -h` shows. They fit on a screen; all options do not.
const WRAP_SHORT: [&str; 3] = ["command", "config", "page"];

/// Returns the description of the command line, with the short help.
pub fn command() -> Command {
    let mut built = Cli::command();
    // `build` adds the subcommand `help`, which is changed below.
    built.build();
    let groups = GROUPS.map(|(title, names)| {
        let line = |name: &&str| {
            let about = built.find_subcommand(name).and_then(Command::get_about);
            format!("  {name:NAME_WIDTH$}{}\n", about.map(ToString::to_string).unwrap_or_default())
        };
        format!("{title}:\n{}\n", names.iter().map(line).collect::<String>())
    });
    let head = "{about}\n\n{usage-heading} {usage}\n\n";
    let template = format!("{head}{}Options:\n{{options}}{{after-help}}", groups.concat());
    let wrap = |wrap: Command| {
        wrap.mut_args(|arg| {
            let is_short = WRAP_SHORT.contains(&arg.get_id().as_str());
            arg.hide_short_help(!is_short)
        })
    };
    Cli::command().help_template(template).mut_subcommand("wrap", wrap)
}

/// Reads a command line.
///
/// # Errors
/// If the command line is not understood, or asks for help.
pub fn parse(arguments: Vec<OsString>) -> Result<Cli, clap::Error> {
    let mut command = command();
    let read = command.try_get_matches_from_mut(&arguments);
    let read = read.and_then(|matches| Cli::from_arg_matches(&matches));
    read.map_err(|error| {
        let words = arguments.get(1..).unwrap_or_default();
        let told = without_wrap(&error, words).or_else(|| address_of_serve(&error, words));
        told.map_or(error, |told| command.error(ErrorKind::InvalidSubcommand, told))
    })
}

/// Returns the advice for an option whose value is an address of `serve`.
fn address_of_serve(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let is_address =
        ["--port", "-p", "--listen", "--host", "--bind", "--address"].contains(&&**option);
    let is_serve = arguments.first().is_some_and(|word| word == "serve");
    let told = format!(
        "`serve` has no option {option}: `listen` in [server] of the route file is the address, such as \
         listen = \"127.0.0.1:7332\""
    );
    (is_address && is_serve && error.kind() == ErrorKind::UnknownArgument).then_some(told)
}

/// Returns the advice for a command line with a server's command or URL in place of a subcommand.
fn without_wrap(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let is_misspelled = error.get(ContextKind::SuggestedSubcommand).is_some();
    if error.kind() != ErrorKind::InvalidSubcommand || is_misspelled {
        return None;
    }
    let words: Vec<String> = arguments.iter().map(|word| quoted(word)).collect();
    let (first, separator) = (words.first()?, if words[0].contains("://") { "" } else { "-- " });
    Some(format!(
        "there is no command {first}; to put Milepost in front of a server, write: milepost wrap {separator}{}",
        words.join(" ")
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn told(line: &str) -> String {
        let arguments = line.split(' ').map(OsString::from).collect();
        parse(arguments).unwrap_err().to_string()
    }

    #[test]
    fn each_command_is_in_one_group() {
        let listed: Vec<&str> =
            GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let once: BTreeSet<&str> = listed.iter().copied().collect();
        assert_eq!(listed.len(), once.len());
        let mut command = command();
        command.build();
        let all = command.get_subcommands().filter(|command| !command.is_hide_set());
        assert_eq!(all.map(Command::get_name).collect::<BTreeSet<_>>(), once);
        let help = told("milepost --help");
        for (title, names) in GROUPS {
            assert!(help.contains(&format!("\n{title}:\n  {}", names[0])), "{help}");
        }
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    }

    #[test]
    fn the_short_help_of_wrap_fits_on_a_screen() {
        let help = told("milepost wrap -h");
        assert!(help.lines().count() <= 15, "{help}");
        assert!(help.contains("milepost wrap --help"), "{help}");
        assert!(!help.contains("--late-keep"), "{help}");
        assert!(told("milepost wrap --help").contains("--late-keep"));
    }

    #[test]
    fn a_server_without_wrap_is_told_of_wrap() {
        for (line, right) in [
            ("milepost node x.js --port 3", "milepost wrap -- node x.js --port 3\n"),
            ("milepost https://a.example/mcp", "milepost wrap https://a.example/mcp\n"),
        ] {
            assert!(told(line).contains(right), "{}", told(line));
        }
        let told_serve = told("milepost serve --port 80");
        assert!(told_serve.contains("`listen` in [server]"), "{told_serve}");
        assert!(!told("milepost wrapp -- node x.js").contains("to put Milepost"));
    }
}
