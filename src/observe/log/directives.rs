//! Checks the words of a log filter before the filter is made: the library takes an unknown word for the name of a
//! target, and then logs nothing.

use crate::config::values::nearest;

/// The levels, from the fewest lines to the most.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The targets of log lines: Milepost, the servers' standard error, and the only library that writes log lines.
const TARGETS: [&str; 3] = ["milepost", "server", "h2"];

/// The parts of Milepost that a target may name after `milepost::`.
const PARTS: [&str; 10] = [
    "commands",
    "config",
    "gateway",
    "lab",
    "observe",
    "platform",
    "progress",
    "protocol",
    "relay",
    "transport",
];

/// The first directive of a log filter that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "column {column}: {wrong}; levels: {}; targets: {}; for example \"debug\" or \
     \"milepost=debug,server=info\"",
    LEVELS.join(", "),
    TARGETS.join(", ")
)]
pub struct DirectiveError {
    /// The column of the wrong word in the filter, from 1, in characters.
    pub column: usize,
    /// What is wrong, with the nearest known word.
    pub wrong: String,
}

/// Checks every directive of a filter.
///
/// # Errors
/// The first directive whose level or target is unknown. An empty filter is also an error.
pub(super) fn check(filter: &str) -> Result<(), DirectiveError> {
    if filter.trim().is_empty() {
        return Err(DirectiveError { column: 1, wrong: "the log filter is empty".to_owned() });
    }
    let mut begin = 0;
    for directive in filter.split(',') {
        let indent = directive.len() - directive.trim_start().len();
        check_directive(directive.trim()).map_err(|(at, wrong)| {
            let before = filter.get(..begin + indent + at).unwrap_or_default();
            DirectiveError { column: before.chars().count() + 1, wrong }
        })?;
        begin += directive.len() + 1;
    }
    Ok(())
}

/// Checks `level`, `target` or `target=level`. The error has the place of the wrong word in the directive.
fn check_directive(directive: &str) -> Result<(), (usize, String)> {
    if directive.is_empty() || is_level(directive) {
        return Ok(());
    }
    if let Some(bracket) = directive.find('[') {
        return Err((bracket, "a filter by spans (\"[\") is not known here".to_owned()));
    }
    let (target, level) = match directive.split_once('=') {
        Some((target, level)) => (target, level),
        None if is_target(directive) => return Ok(()),
        None => return Err((0, unknown("level or target", directive, &both()))),
    };
    if !is_target(target) {
        let known = if target.starts_with("milepost::") {
            parts()
        } else {
            TARGETS.map(str::to_owned).to_vec()
        };
        return Err((0, unknown("target", target, &known)));
    }
    if is_level(level) {
        return Ok(());
    }
    let known: Vec<String> = LEVELS.map(str::to_owned).to_vec();
    Err((directive.len() - level.len(), unknown("level", level, &known)))
}

fn is_level(word: &str) -> bool {
    let is_number = word.len() == 1 && ("0"..="5").contains(&word);
    is_number || LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word))
}

fn is_target(word: &str) -> bool {
    let (root, parts) = word.split_once("::").unwrap_or((word, ""));
    let part = parts.split("::").next().unwrap_or_default();
    TARGETS.contains(&root) && (root != TARGETS[0] || part.is_empty() || PARTS.contains(&part))
}

fn parts() -> Vec<String> {
    PARTS.iter().map(|part| format!("milepost::{part}")).collect()
}

fn both() -> Vec<String> {
    LEVELS.iter().chain(&TARGETS).map(|word| (*word).to_owned()).collect()
}

/// Describes an unknown word, with the nearest known word.
fn unknown(kind: &str, word: &str, known: &[String]) -> String {
    if word.is_empty() {
        return format!("a {kind} is missing");
    }
    match nearest(&word.to_lowercase(), known.iter().map(String::as_str)) {
        Some(near) => format!("{word:?} is no {kind}; did you mean {near:?}?"),
        None => format!("{word:?} is no {kind}"),
    }
}

/// Reads a level on the command line.
///
/// # Errors
/// If the word is not a level; the error names the nearest level.
pub fn read_level(word: &str) -> Result<tracing::Level, String> {
    let levels = &LEVELS[1..];
    word.parse().map_err(|_| match nearest(&word.to_lowercase(), levels.iter().copied()) {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!("one of {} is expected", levels.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn wrong(filter: &str, column: usize, wrong: &str) {
        let wrong = wrong.to_owned();
        assert_eq!(check(filter), Err(DirectiveError { column, wrong }));
    }

    #[test]
    fn what_the_library_would_take_for_a_target_of_nobody_is_refused() {
        wrong("loud", 1, "\"loud\" is no level or target");
        wrong("debgu", 1, "\"debgu\" is no level or target; did you mean \"debug\"?");
        wrong("Warning", 1, "\"Warning\" is no level or target; did you mean \"warn\"?");
        wrong("milepost=debug, sever=info", 17, "\"sever\" is no target; did you mean \"server\"?");
        wrong("milepost=debug,server=inf", 23, "\"inf\" is no level; did you mean \"info\"?");
        wrong("milepost=", 10, "a level is missing");
        wrong(
            "milepost::relai=debug",
            1,
            "\"milepost::relai\" is no target; did you mean \"milepost::relay\"?",
        );
        wrong("hyper=trace", 1, "\"hyper\" is no target");
        wrong("milepost[call]=debug", 9, "a filter by spans (\"[\") is not known here");
        wrong("=debug", 1, "a target is missing");
        wrong("ä=debug", 1, "\"ä\" is no target");
        wrong("debug,ä=loud", 7, "\"ä\" is no target");
        wrong(" ", 1, "the log filter is empty");
    }

    #[test]
    fn right_filters_are_accepted() {
        for filter in [
            "debug",
            "OFF",
            "3",
            "milepost",
            "milepost=debug,server=info",
            "trace,h2=trace,",
            "milepost::relay::pipe=trace",
            "h2::proto=info, server=off",
        ] {
            assert_eq!(check(filter), Ok(()), "{filter}");
        }
    }

    #[test]
    fn every_part_of_milepost_is_a_target() {
        let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap();
        let mut parts: Vec<String> = folder
            .map(|entry| entry.unwrap())
            .filter(|entry| entry.file_type().unwrap().is_dir())
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        // The engine writes no log, but filters of earlier versions may name its parts.
        parts.extend(["progress", "protocol"].map(str::to_owned));
        parts.sort();
        assert_eq!(parts, PARTS);
    }
}
