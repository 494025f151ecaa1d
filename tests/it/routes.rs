//! Route files: the one in the repository is true, good ones load, bad ones say what would be right.

use std::path::{Path, PathBuf};

use milepost::progress::Policy;
use milepost::routes::Routes;

fn files(folder: &str) -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/routes").join(folder);
    let entries = std::fs::read_dir(folder).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: PathBuf| (path.clone(), std::fs::read_to_string(path).unwrap());
    paths.into_iter().map(read).collect()
}

fn repository_file() -> (PathBuf, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("proxy.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    (path, text)
}

/// Everything but the dialects' functions, which have no other form that can be compared.
fn shape(policy: &Policy) -> String {
    let names: Vec<&str> = policy.dialects.iter().map(|dialect| dialect.name).collect();
    format!("{names:?} {:?}", Policy { dialects: Vec::new(), ..policy.clone() })
}

#[test]
fn the_defaults_that_the_repository_writes_down_are_the_defaults() {
    let (path, _) = repository_file();
    let routes = Routes::load(&path).unwrap();
    let mut policy = Policy::default();
    routes.apply_defaults(&mut policy);
    routes.find(Some("/kuzumem")).unwrap().apply(&mut policy);
    assert_eq!(shape(&policy), shape(&Policy::default()));
}

#[test]
fn the_repository_explains_every_key() {
    let (path, text) = repository_file();
    for (table, text) in [("[defaults]\nx = 1", &text), ("[defaults.heartbeat]\nx = 1", &text)] {
        let error = Routes::parse(&path, table).unwrap_err().to_string();
        let keys: Vec<&str> = error.split('`').skip(3).step_by(2).collect();
        assert!(keys.len() > 4, "{error}");
        for key in keys {
            assert!(
                text.contains(&format!("{key} =")) || text.contains(&format!("{key}.")),
                "{key}"
            );
        }
    }
}

#[test]
fn a_tool_has_its_own_settings_over_those_of_its_route() {
    let text = r#"
        [defaults]
        heartbeat = { after = "9s", every = "8s" }
        [[route]]
        path = "/a"
        upstream.command = ["x"]
        heartbeat = { every = "7s" }
        tools.slow = { heartbeat = { after = "1m" }, scale = "percent" }
    "#;
    let routes = Routes::parse(Path::new("r.toml"), text).unwrap();
    let mut policy = Policy::default();
    routes.apply_defaults(&mut policy);
    routes.find(None).unwrap().apply(&mut policy);
    let seconds = |tool| {
        let heartbeat = policy.of(tool).heartbeat;
        (heartbeat.after.as_secs(), heartbeat.every.as_secs())
    };
    assert_eq!(seconds(None), (9, 7));
    assert_eq!(seconds(Some("slow")), (60, 7));
}

#[test]
fn good_files_load() {
    for (path, text) in files("good") {
        Routes::parse(&path, &text).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn bad_files_say_what_would_be_right() {
    for (path, text) in files("bad") {
        let expected = text.lines().next().unwrap().trim_start_matches("# ");
        let error = Routes::parse(Path::new("proxy.toml"), &text).unwrap_err().to_string();
        assert_eq!(error.replace('\n', " "), expected, "{}", path.display());
    }
}
