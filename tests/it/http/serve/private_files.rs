//! The parts of Milepost's environment that a server does not see, and the users who may write a file with commands.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;

use super::proxy::{Start, file};
use super::*;
use crate::support::milepost;

/// A server that says which variables of those it has, and ends.
const SERVER: &str = r#"
import os, sys
names = ["EXTRA", "HOME", "MINE", "NOTIFY_SOCKET", "OTHER", "OWN", "PLAIN", "TOKEN"]
print(sys.argv[1], "has", *[name for name in names if name in os.environ], "end", file=sys.stderr)
"#;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;

fn route(path: &str, keys: &str) -> String {
    let command = serde_json::to_string(&["python3", "-c", SERVER, path]).unwrap();
    format!("[[route]]\npath = \"{path}\"\nupstream.command = {command}\n{keys}\n")
}

fn routes() -> String {
    [
        route("/a", r#"upstream.env = { MINE = "${OWN}" }"#),
        route("/b", r#"upstream.env = { THEIRS = "${OTHER}", TOKEN = "given" }"#),
        route("/safe", r#"upstream.inherit_env = "safe""#),
        route("/named", r#"upstream.inherit_env = ["PATH", "PLAIN", "TOKEN"]"#),
        "[[route]]\npath = \"/c\"\nupstream.url = \"http://127.0.0.1:1/mcp\"\n\
         headers.request.set = { authorization = \"Bearer ${TOKEN}\" }\n"
            .to_owned(),
    ]
    .concat()
}

fn variables() -> [(&'static str, String); 6] {
    [
        ("NOTIFY_SOCKET", "/nowhere/notify".to_owned()),
        ("OTHER", "other".to_owned()),
        ("OWN", "own".to_owned()),
        ("PLAIN", "plain".to_owned()),
        ("TOKEN", "s3cret".to_owned()),
        ("EXTRA", "extra".to_owned()),
    ]
}

#[test]
fn a_server_inherits_neither_secrets_of_milepost_nor_those_of_another_server() {
    let start = Start { variables: &variables(), ..Start::default() };
    let proxy = Proxy::serving(&start, &routes());
    for (path, has) in [
        ("/a", "EXTRA HOME MINE OWN PLAIN"),
        // A server gets the variables of its own `env`, even if other settings use the same names.
        ("/b", "EXTRA HOME OTHER PLAIN TOKEN"),
        ("/safe", "HOME"),
        ("/named", "PLAIN TOKEN"),
    ] {
        let _asked = Exchange::send(proxy.address(), "POST", path, &POST, INITIALIZE);
        proxy.logged(&[&format!("{path} has {has} end")]);
    }
}

#[test]
fn check_lists_what_a_server_does_not_inherit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("proxy.toml");
    std::fs::write(&path, file(&Start::default(), &routes())).unwrap();
    let mut command = milepost();
    command.arg("check").arg(&path).env_clear().envs(variables()).env("HOME", "/h");
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("inherit")).collect();
    assert_eq!(
        lines,
        [
            "/a does not inherit NOTIFY_SOCKET, OTHER, TOKEN",
            "/b does not inherit NOTIFY_SOCKET, OWN, TOKEN",
            "/safe does not inherit EXTRA, NOTIFY_SOCKET, OTHER, OWN, PLAIN, TOKEN",
            "/named does not inherit EXTRA, HOME, NOTIFY_SOCKET, OTHER, OWN",
        ]
    );
}

/// Exit code, standard output, standard error.
fn run(args: &[&str]) -> (Option<i32>, String, String) {
    let output = milepost().args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_file_that_names_commands_and_that_others_may_write_is_told_of_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("proxy.toml");
    let name = path.to_str().unwrap();
    let told =
        format!("{name}: every user may write {name}, and the file names commands; let only");
    std::fs::write(&path, route("/a", "")).unwrap();
    set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    let (code, text, error) = run(&["check", name]);
    assert_eq!(code, Some(0), "{error}");
    assert!(text.starts_with("/a  python3") && error.contains(&told), "{text}{error}");
    for args in [
        &["check", "--strict-files", name][..],
        &["serve", "--strict-files", name],
        &["wrap", "--strict-files", "--config", name],
    ] {
        let (code, _, error) = run(args);
        assert_eq!(code, Some(2), "{args:?}: {error}");
        assert!(error.contains(&told), "{args:?}: {error}");
    }
    // A file without commands starts nothing, and a file of this user is trusted.
    std::fs::write(&path, "[[route]]\npath = \"/a\"\nupstream.demo = true\n").unwrap();
    assert_eq!(run(&["check", "--strict-files", name]).0, Some(0));
    std::fs::write(&path, route("/a", "")).unwrap();
    set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let (code, _, error) = run(&["check", "--strict-files", name]);
    assert_eq!((code, &*error), (Some(0), ""));
}

#[test]
fn a_state_directory_that_others_may_write_is_told_of_once() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    std::fs::create_dir(&state).unwrap();
    let place = state.to_str().unwrap();
    let path = folder.path().join("proxy.toml");
    std::fs::write(&path, format!("[state]\ndir = \"{place}\"\n{}", route("/a", ""))).unwrap();
    let check = |args: &[&str]| {
        let output = milepost().args(args).arg(&path).env_remove("MILEPOST_STATE_DIR").output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let cure = format!("chmod 700 {place}");
    for (mode, who) in [
        (0o777, Some("every user")),
        (0o1777, Some("every user")),
        (0o770, Some("the group with the number ")),
        (0o755, None),
        (0o700, None),
    ] {
        set_permissions(&state, Permissions::from_mode(mode)).unwrap();
        for args in [&["check"][..], &["check", "--json"], &["check", "--print"]] {
            let text = check(args);
            let told = text.contains("may write the state directory") && text.contains(&cure);
            assert_eq!(told, who.is_some(), "{mode:o} {args:?}: {text}");
            assert!(who.is_none_or(|who| text.contains(who)), "{mode:o} {args:?}: {text}");
        }
        let start = Start { state: Some(place), ..Start::default() };
        let proxy = Proxy::serving(&start, &route("/a", ""));
        let log = proxy.log();
        let lines = log.lines().filter(|line| line.contains("WARN") && line.contains(&cure));
        assert_eq!(lines.count(), usize::from(who.is_some()), "{mode:o}: {log}");
        let mut wrap = milepost();
        wrap.args(["wrap", "--state-dir", place, "--", "true"]).stdin(std::process::Stdio::null());
        let said = String::from_utf8(wrap.output().unwrap().stderr).unwrap();
        assert_eq!(said.contains(&cure), who.is_some(), "{mode:o}: {said}");
    }
    // A directory that does not exist is created for this user only.
    std::fs::remove_dir_all(&state).unwrap();
    assert!(!check(&["check"]).contains("chmod"));
}

#[test]
fn a_reload_takes_no_file_that_others_may_write() {
    let start = Start { options: &["--strict-files"], ..Start::default() };
    let proxy = Proxy::serving(&start, &route("/a", ""));
    let path = proxy.file();
    let text = std::fs::read_to_string(&path).unwrap();
    set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    std::fs::write(&path, format!("{text}{}", route("/b", ""))).unwrap();
    proxy.hang_up();
    proxy.logged(&["ERROR", "every user may write", "the previous settings still apply"]);
    set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    proxy.hang_up();
    proxy.logged(&["reloaded", "added=1"]);
}

#[test]
fn serve_warns_of_a_file_that_others_may_write() {
    let proxy = Proxy::serving(&Start::default(), &route("/a", ""));
    assert!(!proxy.log().contains("may write"), "{}", proxy.log());
    set_permissions(proxy.file(), Permissions::from_mode(0o622)).unwrap();
    proxy.hang_up();
    // Unchanged settings are not read again; a new process reports them at its start.
    proxy.logged(&["nothing to reload"]);
    let mut child = milepost();
    child.arg("serve").arg(proxy.file()).stderr(std::process::Stdio::piped());
    let mut child = child.spawn().unwrap();
    let mut log = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut log, &mut line).unwrap();
    let _ = child.kill();
    let _ = child.wait();
    assert!(line.contains("WARN") && line.contains("every user may write"), "{line}");
}
