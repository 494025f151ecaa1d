//! A policy that an embedder reads means what the same keys mean in a route file, and has the same errors.

use milepost::config::routes::ConfigFault;
use milepost::progress::Policy;

use super::route_files::{files, parse, shape};

/// Keys of the progress, as in a file of an embedder.
const GOOD: [&str; 6] = [
    "",
    "mode = \"observe\"\nheartbeat = { after = \"9s\", max = \"1h\" }\nkeep_original = true\n",
    "dialects = [\"defaults\", \"log\"]\nextract = [\"{percent}%\"]\nmask = [\"id-[0-9]+\"]\n",
    "late = {}\ntasks.ttl = \"2h\"\ntools.slow = { late.enabled = false, hold = \"0\" }\n",
    "ask = { capabilities = { a = 1 }, meta = { b = \"$${c}\" }, token_type = \"integer\" }\n",
    "no_repair = [\"total\"]\ntools.t.no_repair = [\"noise\"]\ntoken_is = \"request_id\"\n",
];

/// Texts with an error, in the keys that both have.
const BAD: [&str; 12] = [
    "mode = \"ful\"",
    "heartbeat = 5",
    "heartbeat.afer = \"2s\"",
    "hold = 30",
    "late = { bytes = \"-1\" }",
    "late.repeated_after = \"of\"",
    "dialects = [\"standart\"]",
    "extract = [\"{total}\"]",
    "ask.meta.progressToken = 1",
    "ask.arguments = { at = 2026-01-01 }",
    "tools.scan = { scale = \"half\", on_fall = \"fall\" }",
    "no_repair = [\"noises\"]\nmin_interval = true",
];

fn route_file(text: &str) -> String {
    format!("[defaults]\n{text}\n[[route]]\npath = \"/a\"\nupstream.command = [\"x\"]\n")
}

#[test]
fn a_policy_is_read_from_the_same_keys_as_a_route() {
    for text in GOOD {
        let routes = parse(&route_file(text)).unwrap();
        let policy = Policy::from_toml(text).unwrap();
        assert_eq!(shape(&policy), shape(&routes.policy(routes.find(None).unwrap())), "{text}");
    }
}

#[test]
fn a_policy_has_the_errors_of_a_route() {
    for text in BAD {
        let error = parse(&route_file(text)).unwrap_err();
        let told = |fault: &ConfigFault| {
            let key = fault.key.clone().unwrap();
            let key = key.strip_prefix("defaults.").unwrap().to_owned();
            (fault.line.unwrap() - 1, fault.column.unwrap(), key, fault.message.clone())
        };
        let expected: Vec<_> = error.faults().unwrap().iter().map(told).collect();
        let faults = Policy::from_toml(text).unwrap_err();
        let told: Vec<_> = faults
            .all()
            .iter()
            .map(|one| (one.line, one.column, one.key.clone().unwrap(), one.message.clone()))
            .collect();
        assert_eq!(told, expected, "{text}");
    }
}

/// No text of a route file makes the reader of policies panic; each is refused, as it has routes.
#[test]
fn a_route_file_is_no_policy() {
    for file in files("good").into_iter().chain(files("bad")) {
        let is_policy = Policy::from_toml(&file.text).is_ok();
        let has_tables =
            file.text.lines().any(|line| line.starts_with('[') || line.contains("path"));
        assert!(!is_policy || !has_tables, "{file}");
    }
}
