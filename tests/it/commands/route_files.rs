//! Route files: the file in the repository is valid, good files load, and errors name the right form.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use milepost::config::routes::{Environment, Routes, RoutesError};
use milepost::progress::Policy;
use tempfile::TempDir;

use crate::support::sections::{Section, rewrite, sections};

/// The route files that are sections of `tests/data/routes/KIND.txt`.
pub(crate) fn files(kind: &str) -> Vec<Section> {
    sections(&format!("tests/data/routes/{kind}.txt"))
}

pub(crate) fn repository_file() -> (PathBuf, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("proxy.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    (path, text)
}

/// A folder with certificates and keys.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: LazyLock<TempDir> = LazyLock::new(|| {
        let folder = tempfile::tempdir().unwrap();
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let other = rcgen::KeyPair::generate().unwrap();
        let write = |name: &str, content: String| {
            std::fs::write(folder.path().join(name), content).unwrap();
        };
        write("certificate.pem", own.cert.pem());
        write("key.pem", own.signing_key.serialize_pem());
        write("other-key.pem", other.serialize_pem());
        write("empty.pem", "nothing\n".to_owned());
        write("token", " s3cret-of-a-file\n".to_owned());
        folder
    });
    FOLDER.path()
}

/// Reads a text in the place of a file of that folder, in an environment that is always the same.
pub(crate) fn parse(text: &str) -> Result<Routes, RoutesError> {
    Routes::parse(&folder().join("proxy.toml"), text, &environment())
}

pub(crate) fn environment() -> Environment {
    let fleet_key = "0123456789abcdef".repeat(4);
    let variables = [
        ("TOKEN", "s3cret"),
        ("REPORTS_TOKEN", "s3cret too"),
        ("KUZU_DB", "/var/kuzu"),
        ("EMPTY", ""),
        ("POD_IP", "10.0.0.1"),
    ];
    variables.into_iter().chain([("FLEET_KEY", &*fleet_key)]).collect()
}

/// Returns everything but the functions of dialects, which cannot be compared in another form.
pub(crate) fn shape(policy: &Policy) -> String {
    format!("{policy:?}")
}

#[test]
fn the_defaults_that_the_repository_writes_down_are_the_defaults() {
    let (path, _) = repository_file();
    let written = Routes::load(&path).unwrap();
    let route = written.find(Some("/demo")).unwrap();
    assert_eq!(shape(&written.policy(route)), shape(&Policy::default()));
    let bare = parse("[admin]\n[[route]]\npath = \"/demo\"\nupstream.demo = true\n").unwrap();
    assert_eq!(written.print(), bare.print());
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
    let routes = parse(text).unwrap();
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
    for file in files("good") {
        parse(&file.text).unwrap_or_else(|error| panic!("{file}: {error}"));
    }
}

#[test]
fn bad_files_say_what_would_be_right() {
    let place = format!("{}/", folder().display());
    let mut wrong = Vec::new();
    for file in files("bad") {
        let text = &file.text;
        let head: Vec<&str> =
            text.lines().take_while(|line| line.starts_with("# proxy.toml")).collect();
        let expected = head.join("\n");
        let told = match parse(text) {
            Ok(_) => "# proxy.toml: nothing is wrong".to_owned(),
            Err(error) => {
                let faults = error.faults().unwrap_or_default().iter();
                let line =
                    |told: String| format!("# {}", told.replace('\n', " ").replace(&place, ""));
                faults.map(|fault| line(fault.to_string())).collect::<Vec<_>>().join("\n")
            }
        };
        if told == expected {
            continue;
        }
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            let text = text.strip_prefix(&format!("{expected}\n")).unwrap_or(text);
            rewrite(&file.file, &file.name, &format!("{told}\n{text}"));
        }
        wrong.push(format!("{file}\n  wrong:    {told}\n  expected: {expected}"));
    }
    assert!(wrong.is_empty(), "UPDATE_EXPECT=1 writes them anew\n{}", wrong.join("\n"));
}

#[test]
fn a_file_cut_anywhere_is_read_or_refused_at_a_place_that_is_there() {
    for file in files("good") {
        let text = &file.text;
        for cut in (0..text.len()).filter(|cut| text.is_char_boundary(*cut)) {
            let Err(error) = parse(&text[..cut]) else { continue };
            let RoutesError::Invalid(faults) = error else { panic!("{error}") };
            let lines: Vec<&str> = text[..cut].split('\n').collect();
            for fault in faults.all() {
                let (line, column) = fault.line.zip(fault.column).unwrap();
                let found =
                    lines.get(line - 1).is_some_and(|line| column <= line.chars().count() + 1);
                assert!(found, "{file} cut at {cut}: {line}:{column}");
            }
        }
    }
}

#[test]
fn a_route_that_is_not_there_is_answered_with_those_that_are() {
    let text = |paths: &[&str]| {
        let route = |path| format!("[[route]]\npath = {path:?}\nupstream.demo = true\n");
        paths.iter().map(route).collect::<String>()
    };
    for (paths, name, expected) in [
        (
            &["/kuzu", "/b"][..],
            Some("/kuzo"),
            "there is no route \"/kuzo\"; did you mean \"/kuzu\"?",
        ),
        (&["/kuzu", "/b"], Some("kuzu"), "there is no route \"kuzu\"; did you mean \"/kuzu\"?"),
        (&["/kuzu", "/b"], Some("/xyz"), "there is no route \"/xyz\"; the file has /kuzu, /b"),
        (
            &["/kuzu", "/b"],
            None,
            "it is not clear which route is meant; write for instance --route /kuzu; the file has /kuzu, /b",
        ),
        (&[], None, "a [[route]] is expected; the file has none"),
    ] {
        let error = parse(&text(paths)).unwrap().find(name).unwrap_err().to_string();
        assert!(error.ends_with(&format!("proxy.toml: {expected}")), "{error}");
    }
}
