//! `milepost ls`: the servers of clients' files. The processes that it lists have their test in `observe`.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::milepost;

/// A home folder, and the folder of a project.
struct ClientFolders {
    home: TempDir,
    project: TempDir,
}

impl ClientFolders {
    /// Folders in which five clients have files: three of five servers are wrapped.
    fn new() -> Self {
        let folders =
            Self { home: tempfile::tempdir().unwrap(), project: tempfile::tempdir().unwrap() };
        folders.put(
            ".claude.json",
            r#"{"mcpServers": {"reports": {"command": "milepost", "args": ["wrap", "--", "node", "r.js"]}},
                "projects": {"/shop": {"mcpServers": {
                    "index": {"command": "npx", "args": ["-y", "milepost", "wrap", "--", "idx"]}}}}}"#,
        );
        folders.put(".gemini/settings.json", r#"{"theme": "dark"}"#);
        folders.put(".codex/config.toml", "[mcp_servers.stock]\ncommand = \"stock\"\n");
        folders.put(
            ".config/goose/config.yaml",
            "extensions:\n  developer:\n    type: builtin\n  pages:\n    cmd: /opt/milepost\n    args: [\"wrap\", \"--\", \"p\"]\n",
        );
        let project = folders.project.path().join(".mcp.json");
        fs::write(project, r#"{"mcpServers": {"far": {"url": "https://a.example/mcp"}}}"#).unwrap();
        folders
    }

    fn put(&self, name: &str, text: &str) {
        let path = self.home.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// The exit code, standard output and standard error of `milepost ls` in the folder of the project.
    fn ls(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let mut command = milepost();
        command.env("HOME", self.home.path()).env("XDG_RUNTIME_DIR", self.home.path());
        command.arg("ls").args(args).current_dir(self.project.path());
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    fn json(&self) -> (Option<i32>, Value) {
        let (code, out, error) = self.ls(&["--json"]);
        assert_eq!(error, "");
        (code, serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}")))
    }
}

#[test]
fn the_servers_of_all_clients_are_listed_with_what_starts_them() {
    let folders = ClientFolders::new();
    let (code, listed) = folders.json();
    assert_eq!(code, Some(0));
    let shown = |server: &Value| {
        let file = server["file"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
        json!([server["client"], server["server"], server["project"], server["wrapped"], file])
    };
    let servers: Vec<Value> = listed["servers"].as_array().unwrap().iter().map(shown).collect();
    let expected = json!([
        ["Claude Code", "reports", null, true, ".claude.json"],
        ["Claude Code", "index", "/shop", true, ".claude.json"],
        ["Codex", "stock", null, false, "config.toml"],
        ["goose", "pages", null, true, "config.yaml"],
        ["Claude Code", "far", null, false, ".mcp.json"],
    ]);
    assert_eq!(Value::from(servers), expected);
    assert_eq!((&listed["processes"], &listed["unreadable"]), (&json!([]), &json!([])));
    let (code, out, error) = folders.ls(&[]);
    assert_eq!((code, &*error), (Some(0), ""));
    for line in [
        "CLIENT       SERVER         WRAPPED  FILE",
        "Claude Code  index (/shop)  yes      ~/.claude.json",
        "Codex        stock          no       ~/.codex/config.toml",
        "not wrapped: 2 of 5; to see what can be done: milepost adopt",
    ] {
        assert!(out.lines().any(|shown| shown == line), "{line}: {out}");
    }
    assert!(out.contains("\n\nnothing runs: no `milepost wrap`"), "{out}");
}

#[test]
fn a_file_that_cannot_be_read_is_named_and_the_others_are_listed() {
    let folders = ClientFolders::new();
    folders.put(".cursor/mcp.json", "{\"mcpServers\": ");
    let (code, out, error) = folders.ls(&[]);
    assert_eq!(code, Some(1));
    assert!(out.contains("~/.codex/config.toml"), "{out}");
    assert!(error.starts_with("milepost: ") && error.contains(".cursor/mcp.json:1:"), "{error}");
    let (code, listed) = folders.json();
    assert_eq!(code, Some(1));
    assert_eq!(listed["servers"].as_array().unwrap().len(), 5);
    let unreadable = &listed["unreadable"];
    assert_eq!((&unreadable[0]["client"], &unreadable[1]), (&json!("Cursor"), &Value::Null));
    assert!(unreadable[0]["why"].as_str().unwrap().contains(".cursor/mcp.json:1:"), "{listed}");
}

#[test]
fn a_machine_without_clients_is_no_error() {
    let folders =
        ClientFolders { home: tempfile::tempdir().unwrap(), project: tempfile::tempdir().unwrap() };
    let (code, out, error) = folders.ls(&[]);
    assert_eq!((code, &*error), (Some(0), ""));
    assert!(out.starts_with("no server is in a known file of a client"), "{out}");
    let (_, listed) = folders.json();
    assert_eq!(listed, json!({ "servers": [], "processes": [], "unreadable": [] }));
}
