//! `milepost adopt`: the new file of each client, the report, and what is left after `--undo`.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use milepost::commands::adopt::{AdoptError, run};
use milepost::commands::args::AdoptArgs;
use tempfile::TempDir;

use crate::support::MILEPOST;
use crate::support::sections::{Section, rewrite, section, section_files, sections};

/// A folder with a client's file in it.
struct Client {
    folder: TempDir,
    name: String,
}

impl Client {
    fn new(text: &str) -> Self {
        Self::called("mcp.json", text)
    }

    fn called(name: &str, text: &str) -> Self {
        let client = Self { folder: tempfile::tempdir().unwrap(), name: name.to_owned() };
        fs::write(client.path(), text).unwrap();
        client
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }

    fn text(&self) -> String {
        fs::read_to_string(self.path()).unwrap()
    }

    /// Every file of the folder but the client's.
    fn beside(&self) -> Vec<String> {
        let names = fs::read_dir(self.folder.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| *name != self.name).collect();
        names.sort();
        names
    }

    fn args(&self) -> AdoptArgs {
        AdoptArgs {
            file: Some(self.path()),
            servers: Vec::new(),
            undo: false,
            dry_run: false,
            json: false,
            yes: true,
            milepost: Some("milepost".into()),
        }
    }

    /// The shown text, without the folder.
    fn run(&self, args: &AdoptArgs, answer: Option<&str>) -> Result<String, AdoptError> {
        let mut out = Vec::new();
        let mut answer = answer.map(str::as_bytes);
        let asked = answer.as_mut().map(|answer| answer as &mut dyn std::io::BufRead);
        run(args, &mut out, asked)?;
        let folder = self.folder.path().canonicalize().unwrap();
        let shown = String::from_utf8(out).unwrap();
        let shown = shown.replace(&format!("{}/", folder.display()), "");
        Ok(shown.replace(&format!("{}/", self.folder.path().display()), ""))
    }

    fn adopt(&self) -> String {
        self.run(&self.args(), None).unwrap()
    }

    fn undo(&self) -> String {
        self.run(&AdoptArgs { undo: true, milepost: None, ..self.args() }, None).unwrap()
    }

    fn error(&self, args: &AdoptArgs) -> String {
        let before = self.text();
        let error = self.run(args, None).unwrap_err().to_string();
        assert_eq!(self.text(), before, "{error}");
        error.replace(&format!("{}/", self.folder.path().display()), "")
    }
}

#[test]
fn the_file_of_each_client_is_adopted_in_place_and_given_back() {
    let files = section_files("tests/data/adopt");
    assert!(files.len() >= 13, "{}", files.len());
    for file in files {
        // The first section is the file of the client.
        let Section { name, text: before, .. } = sections(&file).swap_remove(0);
        let client = Client::called(&name, &before);
        let shown = client.adopt();
        let after = client.text();
        assert!(!shown.contains("s3cret"), "{name}: {shown}");
        for (golden, is) in [("after", &after), ("shown", &shown)] {
            if std::env::var_os("UPDATE_EXPECT").is_some() {
                rewrite(&file, golden, is);
            }
            let expected = section(&file, golden);
            assert_eq!(*is, expected, "{file}: {golden}: UPDATE_EXPECT=1 writes it");
        }
        let again = client.adopt();
        assert!(again.ends_with("Nothing changes.\n"), "{name}: {again}");
        assert_eq!(client.text(), after, "{name}");
        // A server that a user has wrapped by hand stays wrapped.
        client.undo();
        assert_eq!(client.text(), before, "{name}");
    }
}

#[test]
fn edits_of_the_file_outlive_the_undo() {
    let client = Client::new(r#"{"mcpServers":{"a":{"command":"a","args":["b"]}}}"#);
    client.adopt();
    let edited =
        client.text().replace(r#""b"]}"#, r#""b","c"],"env":{"D":"e"}},"f":{"command":"g"}"#);
    fs::write(client.path(), edited).unwrap();
    client.undo();
    let expected = r#"{"mcpServers":{"a":{"command":"a","args":["b","c"],"env":{"D":"e"}},"f":{"command":"g"}}}"#;
    assert_eq!(client.text(), expected);
}

#[test]
fn only_what_is_named_is_touched() {
    let text = r#"{"mcpServers":{"a":{"command":"a"},"b":{"url":"https://example.com/mcp"}}}"#;
    let client = Client::new(text);
    let only = |name: &str| AdoptArgs { servers: vec![name.to_owned()], ..client.args() };
    client.run(&only("b"), None).unwrap();
    let expected = r#"{"mcpServers":{"a":{"command":"a"},"b":{"command":"milepost","args":["wrap","https://example.com/mcp"]}}}"#;
    assert_eq!(client.text(), expected);
    client.run(&AdoptArgs { undo: true, milepost: None, ..only("a") }, None).unwrap();
    assert_eq!(client.text(), expected);
    client.run(&AdoptArgs { undo: true, milepost: None, ..only("b") }, None).unwrap();
    assert_eq!(client.text(), text);
    assert_eq!(
        client.error(&only("aa")),
        "mcp.json: no server is called \"aa\"; did you mean \"a\"?"
    );
    assert_eq!(
        client.error(&only("zzz")),
        "mcp.json: no server is called \"zzz\"; the servers are a, b"
    );
}

#[test]
fn what_cannot_be_done_is_said_with_its_place() {
    let text = "{\n  \"mcpServers\": {\n    \"é\": { \"command\": 5 }\n  }\n}";
    let client = Client::new(text);
    let named = AdoptArgs { servers: vec!["é".to_owned()], ..client.args() };
    assert_eq!(client.error(&named), "mcp.json:3:23: é: \"command\" is not a string");
    let check = |text: &[u8], expected: &str| {
        fs::write(client.path(), text).unwrap();
        let error = client.run(&client.args(), None).unwrap_err();
        assert_eq!(error.to_string().rsplit('/').next(), Some(expected));
    };
    check(b"{\n  \"mcpServers\": {\n    \"a\": {]\n", "mcp.json:3:11: Unexpected token in object");
    check(
        b"{}",
        "mcp.json:1:1: no servers are here; a file with \"mcpServers\" or \"servers\" is expected",
    );
    check(
        b"",
        "mcp.json:1:1: no servers are here; a file with \"mcpServers\" or \"servers\" is expected",
    );
    check(b"{\n  \xff", "mcp.json:2:3: text in UTF-8 is expected");
    let deep = "[".repeat(100_000);
    check(deep.as_bytes(), "mcp.json:1:513: Maximum nesting depth exceeded");
    fs::remove_file(client.path()).unwrap();
    check_cannot_read(&client);
    fs::create_dir(client.path()).unwrap();
    check_cannot_read(&client);
}

#[track_caller]
fn check_cannot_read(client: &Client) {
    let error = client.run(&client.args(), None).unwrap_err();
    assert!(matches!(error, AdoptError::Unreadable { .. }), "{error}");
}

#[test]
fn the_program_has_a_name_that_is_known_again() {
    let client = Client::new(r#"{"mcpServers":{"a":{"command":"a"}}}"#);
    let with = |path: &str| AdoptArgs { milepost: Some(path.into()), ..client.args() };
    assert!(client.error(&with("/bin/mp")).contains("has to begin with `milepost`"));
    client.run(&with("/opt/milepost-0.1/bin/milepost-0.1"), None).unwrap();
    assert!(client.text().contains(r#""command":"/opt/milepost-0.1/bin/milepost-0.1""#));
    assert!(client.adopt().contains("a: wrapped already"));
}

#[test]
fn nothing_is_written_before_somebody_says_so() {
    let text = r#"{"mcpServers":{"a":{"command":"a"}}}"#;
    let client = Client::new(text);
    let asking = AdoptArgs { yes: false, ..client.args() };
    let shown = client.run(&asking, Some("n\n")).unwrap();
    assert!(shown.ends_with("Write mcp.json? [y/N] Nothing was written.\n"), "{shown}");
    let shown = client.run(&asking, Some("")).unwrap();
    assert!(shown.ends_with("Nothing was written.\n"), "{shown}");
    assert!(client.error(&asking).contains("--yes"));
    let shown = client.run(&AdoptArgs { dry_run: true, ..asking }, None).unwrap();
    assert!(shown.contains("+{\"mcpServers\"") || shown.contains("+\"a\":"), "{shown}");
    assert_eq!((client.text().as_str(), client.beside().len()), (text, 0));
    let asking = AdoptArgs { yes: false, ..client.args() };
    let shown = client.run(&asking, Some("Yes\n")).unwrap();
    assert!(shown.contains("Written; as it was, it is in mcp.json.milepost-backup."), "{shown}");
    assert_ne!(client.text(), text);
}

#[test]
fn there_is_one_backup_and_it_is_of_the_file_before_milepost() {
    let text = r#"{"mcpServers":{"a":{"command":"a"},"b":{"command":"b"}}}"#;
    let client = Client::new(text);
    let older = client.folder.path().join("mcp.json.milepost-backup");
    fs::write(&older, "older").unwrap();
    let only = AdoptArgs { servers: vec!["a".to_owned()], ..client.args() };
    client.run(&only, None).unwrap();
    client.adopt();
    client.undo();
    client.adopt();
    assert_eq!(client.beside(), ["mcp.json.milepost-backup"]);
    assert_eq!(fs::read_to_string(&older).unwrap(), text);
}

#[test]
fn what_was_wrapped_by_hand_stays_so() {
    let text = r#"{"mcpServers":{"a":{"command":"a"},"b":{"command":"milepost","args":["wrap","b"]},"c":{"command":"npx","args":["-y","milepost","wrap","c"]}}}"#;
    let client = Client::new(text);
    client.adopt();
    let shown = client.undo();
    assert_eq!(client.text(), text);
    assert!(shown.contains("a: unwrapped") && shown.contains("b: left alone"), "{shown}");
    let named =
        AdoptArgs { servers: vec!["b".to_owned()], undo: true, milepost: None, ..client.args() };
    client.run(&named, None).unwrap();
    assert!(client.text().contains(r#""b":{"command":"b"}"#), "{}", client.text());
}

#[test]
fn a_file_that_nobody_may_write_stays_as_it_is() {
    let text = r#"{"mcpServers":{"a":{"command":"a"}}}"#;
    let client = Client::new(text);
    fs::set_permissions(client.path(), fs::Permissions::from_mode(0o444)).unwrap();
    assert!(client.error(&client.args()).contains("mcp.json is read-only"));
    assert_eq!(client.beside().len(), 0);
}

/// `milepost adopt` in a folder, with a home folder of its own.
fn adopt_in(folder: &Path, home: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(MILEPOST);
    command.arg("adopt").args(args).stdin(Stdio::null()).current_dir(folder);
    command.env("HOME", home).env("XDG_STATE_HOME", home.join("state"));
    command.env_remove("MILEPOST_STATE_DIR");
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_files_of_this_machine_are_found() {
    let home = tempfile::tempdir().unwrap();
    let project = tempfile::tempdir().unwrap();
    let (code, _, error) = adopt_in(project.path(), home.path(), &["--yes"]);
    assert_eq!(code, Some(2));
    assert!(error.contains("no client's file of servers was found"), "{error}");
    let put = |path: &Path, text: &str| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let claude = home.path().join(".claude.json");
    put(&claude, r#"{"mcpServers":{"a":{"command":"a"}}}"#);
    put(&home.path().join(".gemini/settings.json"), r#"{"theme":"dark"}"#);
    let codex = home.path().join(".codex/config.toml");
    put(&codex, "[mcp_servers.b]\ncommand = \"b\"\n");
    // This file is shared through a repository.
    fs::create_dir(project.path().join(".git")).unwrap();
    let shared = project.path().join(".mcp.json");
    put(&shared, r#"{"mcpServers":{"c":{"command":"c"}}}"#);
    let (code, out, error) = adopt_in(project.path(), home.path(), &["--dry-run", "--json"]);
    assert_eq!((code, &*error), (Some(0), ""));
    let files: serde_json::Value = serde_json::from_str(&out).unwrap();
    let seen = |at: usize, key: &str| files[at][key].clone();
    assert_eq!(files.as_array().unwrap().len(), 3, "{out}");
    assert_eq!(
        seen(0, "servers"),
        serde_json::json!([{ "name": "a", "action": "wrapped", "words": "wrapped" }])
    );
    assert_eq!((seen(0, "changes"), seen(0, "readOnly")), (true.into(), false.into()));
    assert!(seen(1, "repository").is_null() && seen(2, "repository").is_string(), "{out}");
    let (code, out, error) = adopt_in(project.path(), home.path(), &["--yes"]);
    assert_eq!((code, &*error), (Some(0), ""), "{out}");
    assert!(fs::read_to_string(&claude).unwrap().contains(MILEPOST));
    assert!(fs::read_to_string(&codex).unwrap().contains("\"wrap\", \"b\""));
    assert!(fs::read_to_string(&shared).unwrap().contains(r#""command":"milepost""#));
    assert!(!project.path().join(".mcp.json.milepost-backup").exists());
    assert_eq!(fs::read_dir(home.path().join("state/milepost/backups")).unwrap().count(), 1);
    let (code, _, _) = adopt_in(project.path(), home.path(), &["--undo", "--yes"]);
    assert_eq!(code, Some(0));
    assert_eq!(fs::read_to_string(&shared).unwrap(), r#"{"mcpServers":{"c":{"command":"c"}}}"#);
    assert_eq!(fs::read_to_string(&codex).unwrap(), "[mcp_servers.b]\ncommand = \"b\"\n");
}

#[test]
fn rights_links_and_marks_are_kept() {
    let text = "\u{feff}{\"mcpServers\":{\"a\":{\"command\":\"a\"}}}";
    let client = Client::new(text);
    let real = client.folder.path().join("dotfiles.json");
    fs::rename(client.path(), &real).unwrap();
    symlink("dotfiles.json", client.path()).unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    client.adopt();
    assert!(fs::symlink_metadata(client.path()).unwrap().is_symlink());
    assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
    let backup = client.folder.path().join("dotfiles.json.milepost-backup");
    assert_eq!(fs::metadata(&backup).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(fs::metadata(&backup).unwrap().uid(), fs::metadata(&real).unwrap().uid());
    assert!(client.text().starts_with("\u{feff}{\"mcpServers\":{\"a\":{\"command\":\"milepost\""));
    client.undo();
    assert_eq!(client.text(), text);
}

#[test]
fn a_program_on_path_is_written_by_its_name() {
    let before = r#"{"mcpServers":{"a":{"command":"cat"}}}"#;
    let client = Client::new(before);
    let bin = tempfile::tempdir().unwrap();
    symlink(MILEPOST, bin.path().join("milepost")).unwrap();
    let adopt = |environment: &str, args: &[&str]| {
        let mut command = Command::new(MILEPOST);
        command.arg("adopt").arg(client.path()).arg("--yes").args(args).stdin(Stdio::null());
        command.env("PATH", bin.path()).env("VIRTUAL_ENV", environment);
        let output = command.env_remove("CONDA_PREFIX").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let shown = adopt("", &[]);
    assert!(shown.contains("`milepost` is started by its name"), "{shown}");
    let after = r#"{"mcpServers":{"a":{"command":"milepost","args":["wrap","cat"]}}}"#;
    assert_eq!(client.text(), after);
    let shown = adopt("", &["--undo"]);
    assert!(!shown.contains("by its name"), "{shown}");
    assert_eq!(client.text(), before);
    // Other shells do not find the programs of an activated virtual environment.
    let shown = adopt(bin.path().to_str().unwrap(), &[]);
    assert!(!shown.contains("by its name"), "{shown}");
    assert_eq!(client.text(), after.replace("milepost", MILEPOST));
}

/// Answers as a person would, after the client has written its file.
struct Late<'a>(&'a Client, &'a [u8]);

impl std::io::Read for Late<'_> {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Ok(0)
    }
}

impl std::io::BufRead for Late<'_> {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        fs::write(self.0.path(), r#"{"mcpServers":{}}"#).unwrap();
        Ok(self.1)
    }

    fn consume(&mut self, count: usize) {
        self.1 = &self.1[count..];
    }
}

#[test]
fn what_the_client_has_written_meanwhile_is_not_lost() {
    let client = Client::new(r#"{"mcpServers":{"a":{"command":"a"}}}"#);
    let args = AdoptArgs { yes: false, ..client.args() };
    let error = run(&args, &mut Vec::new(), Some(&mut Late(&client, b"y\n"))).unwrap_err();
    assert!(matches!(error, AdoptError::Changed(_)), "{error}");
    assert_eq!(client.text(), r#"{"mcpServers":{}}"#);
}

#[test]
fn as_a_program_it_names_itself_and_needs_a_terminal_or_yes() {
    let client = Client::new(r#"{"mcpServers":{"a":{"command":"cat"}}}"#);
    let adopt = |args: &[&str]| {
        let mut command = Command::new(MILEPOST);
        command.arg("adopt").arg(client.path()).args(args).stdin(Stdio::null());
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, out, error) = adopt(&[]);
    assert_eq!(code, Some(2));
    assert!(out.contains("a: wrapped") && error.contains("--yes"), "{out}{error}");
    assert!(!out.contains('\u{1b}'), "{out}");
    let (code, _, error) = adopt(&["--yes"]);
    assert_eq!((code, &*error), (Some(0), ""));
    // The client now starts this program, in front of its server.
    let file: serde_json::Value = serde_json::from_str(&client.text()).unwrap();
    let server = &file["mcpServers"]["a"];
    assert_eq!(server["command"], MILEPOST);
    assert_eq!(server["args"], serde_json::json!(["wrap", "cat"]));
    let (code, _, error) = adopt(&["--undo", "--yes"]);
    assert_eq!((code, &*error), (Some(0), ""));
    assert_eq!(client.text(), r#"{"mcpServers":{"a":{"command":"cat"}}}"#);
}
