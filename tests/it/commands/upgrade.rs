//! Route files of earlier versions (`tests/data/routes/before.txt`): each is accepted and means the same.

use milepost::config::routes::{Environment, Routes};

use crate::commands::route_files::{files, folder};
use crate::support::home;
use crate::support::sections::{rewrite, section};

/// The settings that the versions of these files printed, by the name of the file.
const PRINTED: &str = "tests/data/routes/printed.txt";

/// Keys that are new, or whose defaults are: docs/upgrading.md names each.
const NAMED: [&str; 28] = [
    "body_min_rate",
    "body_timeout",
    "cached_start",
    "check_pages",
    "client_ca_file",
    "forwarded",
    "front_header",
    "http1_idle_timeout",
    "http2_idle_timeout",
    "late",
    "linger",
    "make_token",
    "max_client_child_starts",
    "max_client_children",
    "max_client_connections",
    "max_client_sessions",
    "max_client_streams",
    "max_kept_bytes",
    "max_spilled_bytes",
    "max_unread_bytes",
    "modern",
    "raise_descriptors",
    "session_idle_timeout",
    "tasks",
    "trusted_proxies",
    "upstream.abandoned_timeout",
    "upstream.inherit_env",
    "upstream.max_shared_calls",
];

/// The default of `extract`. Versions before it existed printed nothing for it.
const EXTRACT: &str = "extract = [\"presets\"]";

/// The defaults that versions printed nothing for.
const UNSET: [&str; 3] = ["scale = \"raw\"", "token_is = \"learned\"", "value_from = \"progress\""];

/// The default of `words_in_2024`, which was `false`.
const WORDS: &str = "words_in_2024 = true";

/// A dialect that is new among the defaults.
const OVERHEARD: &str = ", \"overheard\"";

/// The variables that the files name.
fn environment() -> Environment {
    [
        "CACHE",
        "DB",
        "DB_ARG1",
        "GITHUB_PERSONAL_ACCESS_TOKEN",
        "GIT_HUB",
        "GIT_HUB_API_KEY",
        "GIT_HUB_ARG5",
        "GIT_HUB_TOKEN",
        "HOME",
        "KUZU_DB",
        "NAME",
        "PERPLEXITY_KEY",
        "PROFILE",
        "REPORTS_AUTHORIZATION",
        "REPORTS_KEY",
        "REPORTS_TOKEN",
        "SEARCH_API_KEY",
        "TOKEN",
        "workspaceFolder",
    ]
    .map(|name| (name, format!("/of/{name}")))
    .into_iter()
    .collect()
}

/// Returns the settings in effect, without those that are newer than the file.
fn printed(text: &str) -> String {
    let path = folder().join("proxy.toml");
    let routes =
        Routes::parse(&path, text, &environment()).unwrap_or_else(|error| panic!("{error}"));
    let place = folder().display().to_string();
    let printed = routes.print().replace(&format!("{place}/"), "").replace(&place, "FOLDER");
    let mut printed = printed.replace(&format!("{EXTRACT}, "), "").replace(OVERHEARD, "");
    for unset in UNSET {
        printed = printed.replace(&format!("{unset}, "), "").replace(&format!(", {unset}"), "");
    }
    // A file that sets the key is not changed.
    if !text.contains("words_in_2024") {
        printed = printed.replace(WORDS, "words_in_2024 = false");
    }
    let is_named = |line: &&str| {
        *line != EXTRACT
            && !UNSET.contains(line)
            && !NAMED
                .iter()
                .any(|key| line.strip_prefix(key).is_some_and(|rest| rest.starts_with(" = ")))
    };
    let own = |line: &str| {
        ["late", "tasks"].iter().fold(line.to_owned(), |line, name| without(name, &line))
    };
    printed.lines().filter(is_named).map(|line| own(line) + "\n").collect()
}

/// A line with the settings of a tool, without one table.
fn without(table: &str, line: &str) -> String {
    let parts = line.split_once(&format!(", {table} = {{"));
    let rest = parts.and_then(|(before, own)| Some([before, own.split_once('}')?.1].concat()));
    rest.unwrap_or_else(|| line.to_owned())
}

#[test]
fn files_of_earlier_versions_are_accepted_and_mean_the_same() {
    let mut wrong = Vec::new();
    let files = files("before");
    assert!(files.len() >= 20);
    for file in files {
        let now = printed(&file.text);
        if section(PRINTED, &file.name) == now {
            continue;
        }
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            rewrite(PRINTED, &file.name, &now);
        }
        wrong.push(file.name);
    }
    assert!(wrong.is_empty(), "other settings than before: {wrong:?}");
}

#[test]
fn every_new_key_is_in_the_document() {
    let text = std::fs::read_to_string(home().join("docs/upgrading.md")).unwrap();
    for key in NAMED.into_iter().chain(["extract", "words_in_2024"]) {
        assert!(text.contains(&format!("`{key}`")), "{key} is not in docs/upgrading.md");
    }
}
