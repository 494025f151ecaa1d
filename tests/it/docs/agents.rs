//! The examples for agent frameworks: each names its packages, can be read, and starts Milepost in front of the same server.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::support::home;
use crate::support::session::Session;

/// The server of all examples.
const SERVER: &str = "examples/agents/server.py";

/// The folders of the examples.
fn examples() -> Vec<PathBuf> {
    let entries = fs::read_dir(home().join("examples/agents")).unwrap();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.is_dir() && !path.ends_with("__pycache__"));
    found.sort();
    found
}

/// Whether a program accepts a file; true if this machine does not have the program.
fn accepts(program: &str, args: &[&str], file: &PathBuf) -> bool {
    let output = Command::new(program).args(args).arg(file).output();
    output.is_ok_and(|output| output.status.success()) || Command::new(program).output().is_err()
}

#[test]
fn each_example_names_its_packages_and_starts_milepost() {
    let examples = examples();
    assert_eq!(examples.len(), 19, "{examples:?}");
    for example in examples {
        let read = |name: &str| fs::read_to_string(example.join(name)).unwrap_or_default();
        let (python, javascript) = (read("agent.py"), read("agent.mjs"));
        let text = format!("{python}{javascript}").replace('\'', "\"");
        let list = format!(r#"["wrap", "--", "python3", "{SERVER}"]"#);
        let line = format!("milepost wrap -- python3 {SERVER}");
        assert!(text.contains(&list) || text.contains(&line), "{}: {text}", example.display());
        if javascript.is_empty() {
            let packages = read("requirements.txt");
            let is_exact = packages.lines().all(|package| package.contains("=="));
            assert!(is_exact && !packages.is_empty(), "{}: {packages}", example.display());
            let check = "import ast, sys; ast.parse(open(sys.argv[1]).read())";
            assert!(accepts("python3", &["-c", check], &example.join("agent.py")));
        } else {
            let package: Value = serde_json::from_str(&read("package.json")).unwrap();
            assert!(!package["dependencies"].as_object().unwrap().is_empty());
            assert!(accepts("node", &["--check"], &example.join("agent.mjs")));
        }
    }
}

#[test]
fn the_server_of_the_examples_reports_to_clients_through_milepost() {
    let server = home().join(SERVER);
    if Command::new("python3").arg("--version").output().is_err() {
        return;
    }
    let mut session = Session::wrap(&[], &["python3", server.to_str().unwrap()]);
    session.call("1", Some(r#""t""#), "report", r#"{"seconds":0.3}"#);
    let mut lines = Vec::new();
    loop {
        let line: Value = serde_json::from_str(&session.line()).unwrap();
        let is_answer = line.get("id").is_some();
        lines.push(line);
        if is_answer {
            break;
        }
    }
    let last = lines.pop().unwrap();
    assert_eq!(last["result"]["content"][0]["text"], "The report has 15 pages.");
    assert!(!lines.is_empty(), "no progress");
    for line in lines {
        assert_eq!(line["method"], "notifications/progress", "{line}");
        assert_eq!(
            (&line["params"]["progressToken"], &line["params"]["total"]),
            (&"t".into(), &100.into())
        );
    }
    session.call("2", None, "picture", "{}");
    assert!(session.line().contains("image/png"));
    let (_, code, error) = session.finish();
    assert_eq!(code, Some(0), "{error}");
}

#[test]
fn each_example_is_on_the_page_and_is_played() {
    let read = |file: &str| fs::read_to_string(home().join(file)).unwrap();
    let (page, played) = (read("docs/agents.md"), read("tests/frameworks/frameworks.py"));
    assert!(page.starts_with("# My agent gives my tool up after N seconds\n"));
    for example in examples() {
        let name = example.file_name().unwrap().to_str().unwrap();
        assert!(page.contains(&format!("[{name}](../examples/agents/{name}/agent.")), "{name}");
        assert!(played.contains(&format!("Framework(\"{name}\", ")), "{name}");
    }
}
