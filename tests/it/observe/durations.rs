//! Learned durations outlive the process, whatever happens to the process or the file.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use milepost::progress::Policy;
use milepost::progress::durations::{Durations, Sample};
use serde_json::Value;
use tempfile::TempDir;

use crate::core::transcripts::Player;
use crate::support::session::Session;
use crate::support::{example, milepost, until};

/// A directory that does not exist yet, in one that exists.
struct State {
    _around: TempDir,
    folder: PathBuf,
}

impl State {
    fn new() -> Self {
        let around = TempDir::new().unwrap();
        let folder = around.path().join("state/milepost");
        Self { _around: around, folder }
    }

    fn path(&self) -> &str {
        self.folder.to_str().unwrap()
    }

    fn file(&self) -> PathBuf {
        self.folder.join("durations.redb")
    }

    /// `wrap` in front of the silent server.
    fn wrap(&self, options: &[&str]) -> Session {
        let options = [&["--state-dir", self.path()], options].concat();
        Session::wrap(&options, &[&example("silent")])
    }

    /// Returns the output of `milepost stats` with these options.
    fn stats(&self, options: &[&str]) -> (String, String, Option<i32>) {
        let mut command = milepost();
        command.args(["stats", "--state-dir", self.path()]).args(options);
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr), output.status.code())
    }

    /// Waits until this number of calls of a tool is in the file: a process that ends gives the last calls little time.
    #[track_caller]
    fn keeps(&self, tool: &str, calls: u64) {
        until("the calls are kept", || {
            // Reading locks the file, which delays the writers.
            thread::sleep(Duration::from_millis(50));
            self.kept().get(tool) == Some(&calls)
        });
    }

    /// How many calls of each tool are kept.
    fn kept(&self) -> BTreeMap<String, u64> {
        let (text, ..) = self.stats(&["--json"]);
        let rows: Vec<Value> = serde_json::from_str(&text).unwrap_or_default();
        let count =
            |row: &Value| (row["tool"].as_str().unwrap().into(), row["calls"].as_u64().unwrap());
        rows.iter().map(count).collect()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// Calls the silent tool. Returns the messages up to the result.
fn sleep(session: &mut Session, id: u32, seconds: f64) -> Vec<String> {
    let arguments = format!(r#"{{"seconds":{seconds}}}"#);
    session.call(&id.to_string(), Some(&id.to_string()), "sleep", &arguments);
    session.lines_until(r#""result""#)
}

const SOON: [&str; 4] = ["--heartbeat-after", "100ms", "--heartbeat-every", "150ms"];

#[test]
fn from_the_third_call_on_a_silent_tool_says_how_far_it_is_also_after_a_kill() {
    crate::support::within_tries(|| {
        let state = State::new();
        let options = [&SOON[..], &["--estimate", "--first-after", "0"]].concat();
        let mut session = state.wrap(&options);
        for id in 1..=2 {
            let told = sleep(&mut session, id, 0.8);
            assert!(!told.concat().contains(" of about "), "{told:?}");
        }
        state.keeps("sleep", 2);
        session.signal("KILL");
        drop(session);

        let mut session = state.wrap(&options);
        // The durations are read in the background, so the first call may come before they are known.
        until("what was kept is known", || {
            let told = sleep(&mut session, 3, 0.4);
            told.iter().any(|line| line.contains(" of about "))
        });
        let told = sleep(&mut session, 4, 0.8);
        let figures = told.iter().filter_map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            let params = line.get("params")?;
            assert_eq!(params["total"], 1, "{told:?}");
            params["progress"].as_f64()
        });
        let figures: Vec<f64> = figures.collect();
        assert!(figures.len() >= 2 && figures.is_sorted(), "{told:?}");
        assert!(figures[0] > 0.0 && figures.iter().all(|figure| *figure < 1.0), "{told:?}");
        assert_eq!(session.finish().1, Some(0));
    });
}

#[test]
fn a_call_is_kept_at_the_end_and_by_name_and_number_only() {
    crate::support::within_tries(|| {
        let state = State::new();
        let mut session = state.wrap(&[]);
        sleep(&mut session, 1, 0.0);
        session.call("2", None, "sleep", r#"{"seconds":9}"#);
        session.tell(
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#,
        );
        session.call("3", None, "unknown", "{}");
        session.lines_until(r#""id":3"#);
        let (_, code, stderr) = session.finish();
        assert_eq!(code, Some(0), "{stderr}");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&state.folder), mode(&state.file())), (0o700, 0o600));
        let (text, ..) = state.stats(&["--json"]);
        let rows: Value = serde_json::from_str(&text).unwrap();
        let row = &rows[0];
        assert_eq!(
            (&row["tool"], &row["calls"], &row["cancelled"]),
            (&"sleep".into(), &1.into(), &1.into())
        );
        assert!(row["route"].as_str().unwrap().starts_with("silent#"), "{row}");
        assert_eq!(
            rows.as_array().unwrap().len(),
            1,
            "a tool that never succeeded is no tool: {rows}"
        );
    });
}

#[test]
fn twenty_processes_share_the_file_and_lose_nothing() {
    let state = State::new();
    let mut sessions: Vec<Session> = (0..20).map(|_| state.wrap(&[])).collect();
    for session in &mut sessions {
        for id in ["1", "2", "3"] {
            session.call(id, None, "echo", r#"{"text":"x"}"#);
        }
    }
    for session in &mut sessions {
        (0..3).for_each(|_| assert!(session.line().contains("result")));
    }
    state.keeps("echo", 60);
    for session in sessions {
        let (_, code, stderr) = session.finish();
        assert_eq!(code, Some(0), "{stderr}");
        // This many processes may wait for each other longer than usual.
        let warned = stderr.lines().filter(|line| line.contains("WARN"));
        assert!(warned.clone().all(|line| line.contains("in use")), "{stderr}");
    }
    assert_eq!(state.kept().get("echo"), Some(&60));
    assert_eq!(state.names(), ["durations.redb"]);
}

#[test]
fn a_file_that_cannot_be_read_is_set_aside() {
    let state = State::new();
    fs::create_dir_all(&state.folder).unwrap();
    let zeros = vec![0; 5000];
    let bad: [&[u8]; 3] =
        [b"# somebody's notes\n", &zeros, b"redb\x1A\x0A\xA9\x0D\x0A and no more"];
    for (number, content) in bad.into_iter().enumerate() {
        fs::write(state.file(), content).unwrap();
        let mut session = state.wrap(&["--estimate"]);
        sleep(&mut session, 1, 0.0);
        let name = format!("durations.redb.bad-{}", number + 1);
        until("it says so", || session.stderr().contains(&name));
        state.keeps("sleep", 1);
        let (_, code, stderr) = session.finish();
        assert_eq!(code, Some(0));
        assert!(stderr.contains("WARN") && stderr.contains(&name), "{stderr}");
        assert_eq!(fs::read(state.folder.join(name)).unwrap(), content);
        assert_eq!(state.kept().get("sleep"), Some(&1));
    }
}

#[test]
fn a_damaged_file_never_does_harm() {
    let state = State::new();
    let mut session = state.wrap(&[]);
    sleep(&mut session, 1, 0.0);
    state.keeps("sleep", 1);
    session.finish();
    let good = fs::read(state.file()).unwrap();
    for (number, byte) in (0..good.len()).step_by(1501).enumerate().take(20) {
        let mut damaged = good.clone();
        for byte in damaged.iter_mut().skip(byte).step_by(97).take(20) {
            *byte ^= 0x55;
        }
        if number % 3 == 0 {
            damaged.truncate(byte);
        }
        fs::write(state.file(), damaged).unwrap();
        let (text, stderr, code) = state.stats(&["--json"]);
        assert_eq!(code, Some(0), "{stderr}");
        assert!(text.starts_with('['), "{text}");
    }
    assert!(state.names().len() <= 6, "{:?}", state.names());
}

#[test]
fn without_a_file_the_proxy_goes_on() {
    let state = State::new();
    fs::create_dir_all(&state.folder).unwrap();
    // Another process locks the file, and keeps the lock.
    let held = File::create(state.file()).unwrap();
    held.lock().unwrap();
    let mut session = state.wrap(&["--estimate"]);
    sleep(&mut session, 1, 0.0);
    until("it says so", || session.stderr().contains("in use"));
    sleep(&mut session, 2, 0.0);
    let (_, code, stderr) = session.finish();
    assert_eq!((code, stderr.matches("WARN").count()), (Some(0), 1), "{stderr}");
    drop(held);

    // A symbolic link to another file, and a path that is not a directory.
    fs::remove_file(state.file()).unwrap();
    let target = state.folder.join("target");
    fs::write(&target, "").unwrap();
    std::os::unix::fs::symlink(&target, state.file()).unwrap();
    for folder in [state.path(), "/dev/null/state"] {
        let options = ["--state-dir", folder];
        let mut session = Session::wrap(&options, &[&example("silent")]);
        sleep(&mut session, 1, 0.0);
        until("it says so", || session.stderr().contains("WARN"));
        let (_, code, stderr) = session.finish();
        assert_eq!((code, stderr.matches("WARN").count()), (Some(0), 1), "{stderr}");
    }
    assert_eq!(fs::metadata(&target).unwrap().len(), 0);
}

#[test]
fn nothing_is_kept_where_it_is_off_or_there_is_no_home() {
    let state = State::new();
    let home = state.folder.parent().unwrap();
    fs::create_dir_all(home).unwrap();
    let run = |variables: &[(&str, &str)], options: &[&str], kept: Option<&Path>| {
        let mut command = std::process::Command::new(crate::support::MILEPOST);
        command.env_remove("HOME").env_remove("XDG_STATE_HOME");
        command.arg("wrap").args(options).arg("--").arg(example("silent"));
        command.envs(variables.iter().copied());
        let mut session = Session::start_as_it_is(&mut command);
        sleep(&mut session, 1, 0.0);
        until("there is a file", || kept.is_none_or(Path::exists));
        let (_, code, stderr) = session.finish();
        assert_eq!((code, stderr.contains("WARN")), (Some(0), false), "{stderr}");
    };
    let home = home.to_str().unwrap();
    run(&[], &[], None);
    run(&[("HOME", home)], &["--state-dir", "off"], None);
    run(&[("HOME", home), ("MILEPOST_STATE_DIR", "off")], &[], None);
    assert!(fs::read_dir(home).unwrap().next().is_none());
    let below_home = Path::new(home).join(".local/state/milepost/durations.redb");
    run(&[("HOME", home)], &[], Some(&below_home));
    run(&[("MILEPOST_STATE_DIR", state.path())], &[], Some(&state.file()));
}

#[test]
fn stats_say_what_is_known_and_forget_it() {
    let state = State::new();
    let (text, _, code) = state.stats(&[]);
    assert_eq!((text.starts_with("nothing is known yet"), code), (true, Some(0)), "{text}");
    assert!(!state.folder.exists(), "it only looks");
    let mut session = state.wrap(&[]);
    sleep(&mut session, 1, 0.05);
    session.call("2", None, "echo", r#"{"text":"x"}"#);
    session.lines_until(r#""id":2"#);
    state.keeps("sleep", 1);
    state.keeps("echo", 1);
    session.finish();
    let (text, ..) = state.stats(&[]);
    assert!(text.starts_with("ROUTE") && text.lines().count() == 3, "{text}");
    let route = text.lines().nth(1).unwrap().split(' ').next().unwrap().to_owned();
    let (text, ..) = state.stats(&["--tool", "echo"]);
    assert!(text.contains("echo") && !text.contains("sleep"), "{text}");
    let (_, stderr, code) = state.stats(&["--tool", "slep"]);
    assert!(stderr.contains("did you mean \"sleep\"?"), "{stderr}");
    assert_eq!(code, Some(1));
    let (text, ..) = state.stats(&["--forget", "--route", &route, "--tool", "echo"]);
    assert_eq!(text, "1 tool forgotten\n");
    assert_eq!(state.kept().into_keys().collect::<Vec<_>>(), ["sleep"]);
    let (_, stderr, code) = state.stats(&["--forget"]);
    assert!(stderr.contains("--route") && code == Some(2), "{stderr}");
}

#[test]
fn a_start_does_not_wait_for_the_file() {
    let state = State::new();
    fs::create_dir_all(&state.folder).unwrap();
    let held = File::create(state.file()).unwrap();
    held.lock().unwrap();
    // A locked file would be tried for two seconds. A busy machine may take that long once.
    let is_quick = || {
        let mut session = state.wrap(&["--estimate"]);
        let began = std::time::Instant::now();
        sleep(&mut session, 1, 0.0);
        began.elapsed() < Duration::from_millis(1900)
    };
    assert!((0..20).any(|_| is_quick()));
}

#[test]
fn what_was_read_after_a_call_began_is_told_in_it() {
    let mut policy = Policy::default();
    policy.call.estimate = true;
    let learned = Arc::clone(&policy.learned);
    let mut player = Player::new(policy);
    player.play(
        r#"> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work","_meta":{"progressToken":7}}}"#,
    );
    let samples = [8000, 8000].map(|millis| Sample { millis, has_figure: false });
    learned.remember("work", &Durations::new(samples, 0, 0));
    player.play("+ 2s");
    let told = player.take();
    assert!(
        told.contains(r#""progress":0.25,"total":1,"message":"work: 2s of about 8s""#),
        "{told}"
    );
}
