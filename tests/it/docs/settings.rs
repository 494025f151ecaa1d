//! `docs/settings.md` is made from the declarations of settings, and defaults that are written down are
//! the defaults.

use std::fmt::Write;
use std::path::Path;

use milepost::config::routes::{Environment, Route, Routes, schema};
use milepost::config::settings::SettingScope;
use milepost::progress::{CallPolicy, Policy};
use serde_json::Value;

use crate::commands::route_files::{environment, parse, repository_file};

const HEAD: &str = "# Settings

Every setting: its key in the [route file](route-file.md), its default, its flag of `milepost wrap` and
`milepost replay`, and its word in a [recording](record.md). This page is made from the declarations in
`crates/core/src/policy_file` and `src/config`. [`proxy.toml`](../proxy.toml) has each key in an example.
";

const TABLES: [(&str, &str, &str); 12] = [
    ("Server", "[server]", "server"),
    ("Admin", "[admin]", "admin"),
    ("Fleet", "[fleet]", "fleet"),
    ("State", "[state]", "state"),
    ("RouteTable", "[[route]]", "route"),
    ("Headers", "`headers` of a route", "route.headers"),
    ("HeaderRules", "`headers.request` and `headers.response`", ""),
    ("Cors", "`cors` of a route", ""),
    ("Upstream", "`upstream` of a route", "route.upstream"),
    ("Lifecycle", "`upstream.lifecycle`", "route.upstream.lifecycle"),
    ("Certificate", "`tls` and `client_certificate`", ""),
    ("DialectTable", "[[dialect]]", "dialect"),
];

fn declared<S: SettingScope>(page: &mut String, place: &str) {
    for setting in S::SETTINGS {
        let _ = write!(page, "\n### `{}`\n\n{}\n\n", setting.key, setting.doc());
        let _ = writeln!(page, "- Default: {}", code(&setting.default()));
        let _ = writeln!(page, "- Place: {place}");
        match setting.flag_name() {
            Some(name) => drop(writeln!(page, "- Flag: `--{name}`")),
            None if setting.key == "dialects" => drop(writeln!(page, "- Flag: `--dialect`")),
            None => {}
        }
        let words: Vec<String> = setting.words().iter().map(|word| format!("`{word}`")).collect();
        if !words.is_empty() && place != OF_CONNECTIONS {
            let _ = writeln!(page, "- Recording: {}", words.join(", "));
        }
    }
}

/// Returns a default as code, if it is a value.
fn code(default: &str) -> String {
    let is_value = toml::from_str::<toml::Table>(&format!("value = {default}")).is_ok();
    if is_value { format!("`{default}`") } else { default.to_owned() }
}

const OF_CONNECTIONS: &str = "`[defaults]`, `[[route]]`";

fn page() -> String {
    let mut page = HEAD.to_owned();
    page += "\n## Progress of single calls\n";
    declared::<CallPolicy>(&mut page, "`[defaults]`, `[[route]]`, `tools.NAME` of both");
    page += "\n## Progress of a route\n";
    declared::<Policy>(&mut page, "`[defaults]` and `[[route]]`");
    page += "\n## Connections and limits of a route\n";
    declared::<Route>(&mut page, OF_CONNECTIONS);
    let schema: Value = serde_json::from_str(schema()).unwrap();
    let settings = keys_of_settings();
    for (name, title, _) in TABLES {
        let table = &schema["$defs"][name];
        let _ = write!(page, "\n## {title}\n\n{}\n\n", table["description"].as_str().unwrap());
        for (key, value) in table["properties"].as_object().unwrap() {
            if name != "RouteTable" || !settings.contains(key) {
                let _ = writeln!(page, "- `{key}`: {}", value["description"].as_str().unwrap());
            }
        }
    }
    page
}

fn keys_of_settings() -> Vec<String> {
    fn of<S: SettingScope>() -> impl Iterator<Item = String> {
        S::SETTINGS.iter().map(|one| one.key.split('.').next().unwrap().to_owned())
    }
    of::<CallPolicy>().chain(of::<Policy>()).chain(of::<Route>()).collect()
}

#[test]
fn the_page_of_settings_is_made_from_their_declarations() {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/settings.md");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&place, page()).unwrap();
    }
    let kept = std::fs::read_to_string(&place).unwrap_or_default();
    assert!(kept == page(), "UPDATE_EXPECT=1 writes it anew");
}

#[test]
fn defaults_that_are_written_down_are_the_defaults() {
    let text = "[admin]\n[[route]]\npath = \"/a\"\nupstream = { command = [\"x\"] }\n\
        [[route]]\npath = \"/b\"\nupstream = { url = \"https://b.example/\", lifecycle = {} }\n";
    let (path, example) = repository_file();
    let printed = Routes::parse(&path, text, &Environment::default()).unwrap().print();
    let printed: toml::Table = toml::from_str(&printed).unwrap();
    let schema: Value = serde_json::from_str(schema()).unwrap();
    let mut compared = 0;
    for (name, _, at) in TABLES.iter().filter(|(.., at)| !at.is_empty()) {
        for (key, value) in schema["$defs"][name]["properties"].as_object().unwrap() {
            let description = value["description"].as_str().unwrap();
            let Some((_, default)) = description.split_once("Default: ") else { continue };
            let written = toml::from_str::<toml::Table>(&format!(
                "value = {}",
                default.trim_end_matches('.')
            ));
            // "defaults" means several names, which are printed.
            let Some(written) = written.ok().filter(|_| key != "dialects") else { continue };
            let found = find(&printed, at, key);
            let is_default = found.iter().any(|found| is_same(found, &written["value"]));
            // A setting that would be an error for this client is printed as a comment.
            assert!(is_default || found.is_empty(), "{at}.{key}: {default} {found:?}");
            compared += usize::from(is_default);
            for line in example.lines().filter_map(|line| line.strip_prefix("# upstream.")) {
                if let Some(shown) =
                    line.strip_prefix(&format!("{key} = ")).filter(|_| *at == "route.upstream")
                {
                    let shown: toml::Table = toml::from_str(&format!("value = {shown}")).unwrap();
                    assert_eq!(shown["value"], written["value"], "{key} in proxy.toml");
                }
            }
        }
    }
    assert!(compared > 30, "{compared}");
    assert!(Routes::parse(&path, &example, &environment()).is_ok());
}

/// Every key of the tables that are described by their types, in use.
const TYPED_TABLES: &str = r#"
    [[dialect]]
    name = "a"
    method = "acme/status"
    request_id = "/a"
    token = "/b"
    progress = "/c"
    total = "/d"
    message = "/e"
    final = "/f"
    scale = "percent"

    [[dialect]]
    name = "b"
    source = "stderr"
    progress = "/c"

    [[route]]
    path = "/a"
    upstream.demo = true

    [[route]]
    path = "/b"
    upstream = { command = ["x"], cwd = ".", env = { A = "b" } }

    [[route]]
    path = "/c"
    upstream.url = "https://c.example/mcp"
    upstream.sse = "https://c.example/sse"
    upstream.proxy = "http://proxy.example:3128"
    upstream.ca_file = "certificate.pem"
    upstream.client_certificate = { certificate = "certificate.pem", key = "key.pem" }
    headers.request = { set = { a = "b" }, remove = ["c"] }
    headers.response = { set = { a = "b" }, remove = ["c"], cookie_path = true }

    [[route]]
    path = "/d"
    upstream.url = "https://d.example/mcp"
    upstream.lifecycle.tools = "/tools"
    upstream.lifecycle.initialize = "/initialize"
    upstream.lifecycle.server = { name = "n", version = "1" }
"#;

/// A type describes these tables, and all else is tested against the type: each key has a description, is
/// read, is printed, and stands in the example.
#[test]
fn every_key_of_a_typed_table_is_read_printed_and_in_the_example() {
    let schema: Value = serde_json::from_str(schema()).unwrap();
    let printed: toml::Table = toml::from_str(&parse(TYPED_TABLES).unwrap().print()).unwrap();
    let (_, example) = repository_file();
    for (name, at, ahead) in [
        ("DialectTable", "dialect", "# "),
        ("Upstream", "route.upstream", "upstream."),
        ("Lifecycle", "route.upstream.lifecycle", "upstream.lifecycle."),
        ("Headers", "route.headers", "headers."),
        ("HeaderRules", "route.headers.response", "{ "),
    ] {
        for (key, value) in schema["$defs"][name]["properties"].as_object().unwrap() {
            assert!(value["description"].as_str().is_some_and(|text| text.ends_with('.')), "{key}");
            if value["deprecated"] == true {
                continue;
            }
            assert!(!find(&printed, at, key).is_empty(), "{at}.{key} is not printed");
            let names = [format!("{ahead}{key} ="), format!("{ahead}{key}."), format!(", {key} =")];
            let is_shown = names.iter().any(|name| example.contains(name));
            assert!(is_shown || key == "source", "{at}.{key} is not in proxy.toml");
        }
    }
}

/// Whether two values are the same, or the same time: 60s and 1m.
fn is_same(one: &toml::Value, other: &toml::Value) -> bool {
    let time = |value: &toml::Value| milepost::config::values::time(value.as_str()?).ok();
    one == other || (time(one).is_some() && time(one) == time(other))
}

/// The values of a key in every table at a place.
fn find<'a>(table: &'a toml::Table, at: &str, key: &str) -> Vec<&'a toml::Value> {
    let Some((name, rest)) = at.split_once('.').or_else(|| (!at.is_empty()).then_some((at, "")))
    else {
        return table.get(key).into_iter().collect();
    };
    match table.get(name) {
        Some(toml::Value::Table(inner)) => find(inner, rest, key),
        Some(toml::Value::Array(all)) => {
            let tables = all.iter().filter_map(toml::Value::as_table);
            tables.flat_map(|inner| find(inner, rest, key)).collect()
        }
        _ => Vec::new(),
    }
}
