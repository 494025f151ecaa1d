//! `--record` and `milepost replay`: the replay gives the recorded result.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use tempfile::TempDir;

use crate::core::transcripts;
use crate::support::session::Session;
use crate::support::{example, milepost};

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#;

/// The only recording of a folder.
fn recording(folder: &TempDir) -> PathBuf {
    let files: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|f| f.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

/// Two calls at once to an example, recorded with these options.
fn recorded(options: &[&str], server: &str, arguments: &[&str], tool: &str) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let options = [&["--record", folder.path().to_str().unwrap()], options].concat();
    let server = example(server);
    let mut session = Session::wrap(&options, &[&[&*server], arguments].concat());
    session.tell(INITIALIZE);
    session.lines_until(r#""id":0"#);
    session.call("1", Some("\"one\""), tool, "{}");
    session.call("2", Some("2"), tool, r#"{"apiKey":"correct horse battery"}"#);
    let mut answers = 0;
    while answers < 2 {
        let line = session.line();
        answers += usize::from(line.contains(r#""result""#) || line.contains(r#""error""#));
    }
    session.finish();
    let file = recording(&folder);
    (folder, file)
}

fn replay(options: &[&str], file: &Path) -> (String, Option<i32>, String) {
    let Output { status, stdout, stderr } =
        milepost().arg("replay").args(options).arg(file).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(stdout), status.code(), text(stderr))
}

#[track_caller]
fn is_equal(options: &[&str], file: &Path) -> String {
    let (shown, code, error) = replay(options, file);
    let recorded = fs::read_to_string(file).unwrap();
    assert_eq!(code, Some(0), "{error}{shown}\n\n{recorded}");
    shown
}

/// Every line of output with one byte changed makes the replay fail, and where.
#[track_caller]
fn every_changed_line_shows(file: &Path) {
    let recorded = fs::read_to_string(file).unwrap();
    let lines: Vec<&str> = recorded.lines().collect();
    let out = lines.iter().enumerate().filter(|(_, line)| line.starts_with(['=', '~', 'x']));
    let out: Vec<usize> = out.map(|(at, _)| at).collect();
    assert!(out.len() > 3);
    for at in out.iter().step_by(out.len() / 4 + 1).chain(out.last()) {
        let mut changed = lines[*at].to_owned();
        let last = changed.pop().unwrap();
        changed.push(if last == '!' { '?' } else { '!' });
        let mut edited = lines.clone();
        edited[*at] = &changed;
        let copy = file.with_extension("edited");
        fs::write(&copy, edited.join("\n")).unwrap();
        let (shown, code, error) = replay(&[], &copy);
        assert_eq!(code, Some(1), "{error}{shown}");
        assert!(shown.contains(&format!(":{}: differs\n  recorded: {changed}", at + 1)), "{shown}");
    }
}

/// As a transcript of tests it comes out as it stands.
#[track_caller]
fn is_a_test(options: &[&str], file: &Path) {
    let (test, code, error) = replay(&[&["--as-test"], options].concat(), file);
    assert_eq!(code, Some(0), "{error}");
    assert!(test.contains("\n= "), "{test}");
    assert_eq!(transcripts::replay(&test), test);
}

#[test]
fn what_examples_said_comes_out_again() {
    let train = ["--dialect", "defaults,stderr"];
    for (options, server, arguments, tool) in [
        (&[][..], "swissarmyhammer", &["--generation", "s0", "--pace", "50ms"][..], "shell"),
        (&[], "swissarmyhammer", &["--generation", "s2", "--pace", "50ms"], "code_context"),
        (&[], "kuzumem", &["--generation", "k1", "--pace", "20ms"], "pagerank"),
        (&[], "plexus", &["--pace", "50ms"], "orcha.run_task"),
        (&[], "scout", &["--pace", "50ms"], "run_materialization"),
        (&[], "mcp_devtools", &["--lines", "200", "--token-from", "meta"], "project_actions"),
        (&train, "builder", &[], "train"),
        (
            &["--heartbeat-after", "100ms", "--heartbeat-every", "150ms", "--hold", "0"],
            "silent",
            &["--pace", "1s"],
            "sleep",
        ),
    ] {
        let (_folder, file) = recorded(options, server, arguments, tool);
        let shown = is_equal(&[], &file);
        assert!(shown.contains("\n    forwarded as it is\n"), "{shown}");
        is_a_test(&[], &file);
        if server == "silent" || server == "kuzumem" {
            every_changed_line_shows(&file);
        }
    }
}

#[test]
fn settings_that_are_not_in_the_file_are_given_again() {
    let options = ["--ask-token-in-arguments"];
    let server = ["--lines", "50"];
    let (_folder, file) = recorded(&options, "mcp_devtools", &server, "project_actions");
    let lacks =
        "the recording was made with settings that this replay lacks: ask (give flags or --config)";
    let shown = is_equal(&options, &file);
    assert!(!shown.contains(lacks), "{shown}");
    let (shown, code, _) = replay(&[], &file);
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains(lacks), "{shown}");
}

#[test]
fn other_settings_show_what_they_would_change() {
    let (folder, file) =
        recorded(&[], "swissarmyhammer", &["--generation", "s2", "--pace", "50ms"], "code_context");
    let (shown, code, _) = replay(&["--mode", "observe"], &file);
    assert_eq!(code, Some(1), "{shown}");
    let config = folder.path().join("proxy.toml");
    fs::write(
        &config,
        "[[route]]\npath = \"/x\"\nupstream.command = [\"true\"]\nheartbeat = \"nonsense\"\n",
    )
    .unwrap();
    let (_, code, error) = replay(&["--config", config.to_str().unwrap()], &file);
    assert_eq!(code, Some(2), "{error}");
    fs::write(&config, "[[route]]\npath = \"/x\"\nupstream.command = [\"true\"]\n").unwrap();
    is_equal(&["--config", config.to_str().unwrap(), "--route", "/x"], &file);
}

#[test]
fn secrets_are_masked_and_the_file_is_ones_own() {
    let slow = ["--generation", "s2", "--pace", "20ms"];
    let (folder, file) = recorded(&[], "swissarmyhammer", &slow, "code_context");
    let text = fs::read_to_string(&file).unwrap();
    assert!(!text.contains("correct horse") && text.contains(r#""apiKey":"***1""#), "{text}");
    assert!(text.contains(r#""progressToken":"one""#), "{text}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    drop(folder);
    let (_folder, file) = recorded(&["--record-secrets"], "swissarmyhammer", &slow, "code_context");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("correct horse") && text.contains("# with its secrets"), "{text}");
    is_equal(&[], &file);
}

#[test]
fn large_messages_are_noted_by_their_length() {
    let folder = TempDir::new().unwrap();
    let script = r#"read -r _; printf '{"jsonrpc":"2.0","id":1,"result":"'; head -c 6000000 /dev/zero | tr '\0' a; printf '"}\n'; cat >/dev/null"#;
    let options = ["--record", folder.path().to_str().unwrap()];
    let mut session = Session::wrap(&options, &["sh", "-c", script]);
    session.call("1", Some("1"), "x", "{}");
    assert!(session.line().len() > 6_000_000);
    session.finish();
    let file = recording(&folder);
    let text = fs::read_to_string(&file).unwrap();
    assert!(
        text.contains(r#"< {"jsonrpc":"2.0","id":1,"result":{"bytes left out":60000"#),
        "{text}"
    );
    assert!(text.len() < 10_000);
    is_equal(&[], &file);
}

#[test]
fn what_is_no_recording_is_said_with_its_line() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    for (text, line, expected) in [
        ("", 1, "a conversation is expected"),
        ("# x\n> {}\nnonsense\n", 3, "a line that begins with one of"),
        ("! hold=soon\n> {}\n", 1, "is not a time"),
        ("! nonsense=on\n> {}\n", 1, "no such setting"),
        ("> {}\n! hold=1s\n", 2, "before the first message"),
        ("> {}\n+ 5\n", 2, "is not a time"),
        ("> {}\n! explode\n", 2, "is not known"),
        ("> {\\xZZ}\n", 1, "hexadecimal"),
        (">5 {}\n", 1, "only stream"),
        ("<a {}\n", 1, "a number behind the sign"),
    ] {
        fs::write(&file, text).unwrap();
        let (_, code, error) = replay(&[], &file);
        assert_eq!(code, Some(2), "{text}: {error}");
        assert!(
            error.contains(&format!(":{line}: ")) && error.contains(expected),
            "{text}: {error}"
        );
    }
    fs::write(&file, b"> {}\n\xff\n").unwrap();
    let (_, code, error) = replay(&[], &file);
    assert!(code == Some(2) && error.contains(":2: text is expected"), "{error}");
    let (_, code, error) = replay(&[], &folder.path().join("none"));
    assert!(code == Some(2) && error.contains("none"), "{error}");
}

#[test]
fn a_folder_that_cannot_be_written_is_said_before_anything_starts() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let mut session = Session::wrap(&["--record", file.to_str().unwrap()], &["cat"]);
    let (_, code, error) = session.ended();
    assert!(code == Some(2) && error.contains("milepost: --record: "), "{error}");
}

/// A route whose dialect has this pointer to its value.
fn save_dialect(file: &Path, pointer: &str) {
    let text = format!(
        "[[route]]\npath = \"/a\"\nupstream.demo = true\ndialects = [\"defaults\", \"own\"]\n\
         [[dialect]]\nname = \"own\"\nmethod = \"acme/tick\"\nprogress = \"{pointer}\"\n"
    );
    // A reader of the file never finds an incomplete file.
    let whole = file.with_extension("new");
    fs::write(&whole, text).unwrap();
    fs::rename(whole, file).unwrap();
}

#[test]
fn a_replay_plays_again_after_each_save_and_names_pointers_that_find_nothing() {
    let folder = TempDir::new().unwrap();
    let (file, routes) = (folder.path().join("a.transcript"), folder.path().join("proxy.toml"));
    let conversation = r#"> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":"p"}}}
+ 300ms
< {"jsonrpc":"2.0","method":"acme/tick","params":{"at":3}}
+ 300ms
"#;
    fs::write(&file, conversation).unwrap();
    save_dialect(&routes, "/params/nothing");
    let routes_text = routes.to_str().unwrap();
    let (shown, _, error) = replay(&["--config", routes_text], &file);
    let expected = "the dialect \"own\": `progress` (/params/nothing) found nothing in the only message; did you mean \"/params/at\", which finds 3?";
    assert!(shown.contains(expected), "{shown}{error}");
    let mut child = milepost()
        .args(["replay", "--watch", "--config", routes_text])
        .arg(&file)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut play = || {
        let mut play = String::new();
        for line in lines.by_ref() {
            play += &line;
            play.push('\n');
            if line.contains("shown to the client") {
                return play;
            }
        }
        panic!("no summary: {play}")
    };
    let first = play();
    assert!(first.contains(&format!("\n{expected}\n")), "{first}");
    // With the settings of the recording, the client gets no progress for this message.
    assert!(first.ends_with(" of 1 report shown to the client, was 0\n"), "{first}");
    save_dialect(&routes, "/params/at");
    let again = play();
    assert!(!again.contains(expected), "{again}");
    let begin = "    0.00 s  client sends  {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\"";
    assert!(again.starts_with(begin), "{again}");
    let sent = again.find("    0.30 s  server sends  {\"jsonrpc\"").unwrap();
    let verdict = again.find("    0.30 s                repaired: dialect").unwrap();
    let got = again.find(" s  client gets   {\"jsonrpc\"").unwrap();
    assert!(sent < verdict && verdict < got, "{again}");
    assert!(again.contains("\n1 of 1 report shown to the client, was "), "{again}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn the_raw_form_of_a_watched_replay_has_the_lines_of_the_recording() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("a.transcript");
    fs::write(&file, "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n").unwrap();
    let mut child = milepost()
        .args(["replay", "--watch", "--raw"])
        .arg(&file)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.next().unwrap().starts_with("> {"));
    assert!(lines.any(|line| line == "it came out as it was recorded"));
    child.kill().unwrap();
    child.wait().unwrap();
    let (_, code, _) = replay(&["--raw"], &file);
    assert_eq!(code, Some(2));
}
