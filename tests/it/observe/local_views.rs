//! What a user sees of Milepost's processes without an address: local sockets, `tap`, `top`, and the live page of
//! `wrap`.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};

use crate::support::exchange::Exchange;
use crate::support::messages::{call, initialize};
use crate::support::session::{Session, signal};
use crate::support::{MILEPOST, STUCK, milepost, until, wait};

/// Answers `initialize`; says of a call one report, and answers when a file is there.
const SERVER: &str = r#"
import json, os, sys, threading, time
def say(message):
    print(json.dumps(message), flush=True)
def work(said):
    token = said["params"]["_meta"]["progressToken"]
    say({"jsonrpc": "2.0", "method": "notifications/progress",
         "params": {"progressToken": token, "progress": 3, "total": 12, "message": "linking"}})
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.02)
    say({"jsonrpc": "2.0", "id": said["id"], "result": {"content": []}})
for line in sys.stdin:
    said = json.loads(line)
    if said.get("method") == "tools/call":
        threading.Thread(target=work, args=(said,), daemon=True).start()
    elif said.get("method") == "initialize":
        say({"jsonrpc": "2.0", "id": said["id"], "result": {"protocolVersion": "2025-06-18",
             "capabilities": {}, "serverInfo": {"name": "factory", "version": "1"}}})
"#;

/// A user with a folder for running programs.
struct User {
    home: tempfile::TempDir,
}

impl User {
    fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap() }
    }

    fn command(&self) -> Command {
        let mut command = milepost();
        command.env("XDG_RUNTIME_DIR", self.home.path());
        command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY");
        command
    }

    fn done(&self) -> PathBuf {
        self.home.path().join("done")
    }

    fn wrap(&self, options: &[&str]) -> Session {
        let mut command = self.command();
        command.arg("wrap").args(options).args(["--", "python3", "-c", SERVER]).arg(self.done());
        Session::start(&mut command)
    }

    fn sockets(&self) -> Vec<PathBuf> {
        let Ok(found) = fs::read_dir(self.home.path().join("milepost")) else { return Vec::new() };
        found.map(|entry| entry.unwrap().path()).collect()
    }

    /// A `wrap` with an open call that has said something.
    fn busy(&self, options: &[&str]) -> Session {
        let mut session = self.wrap(options);
        session.tell(&initialize("2025-06-18"));
        assert!(session.line().contains("factory"));
        session.tell(&call("1", "7"));
        assert!(session.line().contains("linking"));
        session
    }

    /// Starts `tap` and waits until it watches a process. Returns its outputs. A process that has just started may not
    /// be found at once.
    fn watching(&self, args: &[&str]) -> (Kept, Receiver<String>, Receiver<String>, String) {
        let mut found = None;
        until("something is watched", || {
            let (child, lines, said) = self.tap(args);
            let first = said.recv_timeout(STUCK).unwrap();
            found = first.contains("watching").then_some((child, lines, said, first));
            found.is_some()
        });
        found.unwrap()
    }

    fn tap(&self, args: &[&str]) -> (Kept, Receiver<String>, Receiver<String>) {
        let mut command = self.command();
        command.arg("tap").args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = lines_of(child.stdout.take().unwrap());
        let said = lines_of(child.stderr.take().unwrap());
        (Kept(child), lines, said)
    }
}

fn lines_of(from: impl Read + Send + 'static) -> Receiver<String> {
    let (line, lines) = mpsc::channel();
    thread::spawn(move || {
        BufReader::new(from).lines().map_while(Result::ok).try_for_each(|text| line.send(text))
    });
    lines
}

/// A process that ends with its test.
struct Kept(Child);

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[track_caller]
fn up_to(lines: &Receiver<String>, part: &str) -> Vec<String> {
    let mut seen = Vec::new();
    loop {
        let line = lines.recv_timeout(STUCK);
        seen.push(line.unwrap_or_else(|_| panic!("no {part:?}: {seen:#?}")));
        if seen.last().unwrap().contains(part) {
            return seen;
        }
    }
}

#[test]
fn a_call_is_cancelled_by_its_number() {
    let user = User::new();
    let mut session = user.busy(&[]);
    let cancel = |args: &[&str]| {
        let output = user.command().arg("cancel").args(args).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    };
    let (code, said) = cancel(&[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("say which call to cancel") && said.contains("python3"), "{said}");
    let (code, said) = cancel(&["4000"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("no open call has the number 4000"), "{said}");
    let (code, said) = cancel(&["last", "--reason", "it hangs"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with("cancelled call "), "{said}");
    // Heartbeats may arrive before.
    while !session.line().contains("cancelled by an operator: it hangs") {}
    let (code, said) = cancel(&["last"]);
    assert_eq!(code, Some(1), "{said}");
    // The answer arrives after all, but no client waits for it.
    fs::write(user.done(), "").unwrap();
    assert_eq!(session.finish().1, Some(0));
}

#[test]
fn a_wrap_that_is_used_has_a_socket_for_its_user_and_takes_it_away() {
    let user = User::new();
    let mut session = user.wrap(&[]);
    session.server_pid();
    assert!(user.sockets().is_empty(), "made before anybody spoke");
    session.tell(&initialize("2025-06-18"));
    session.line();
    until("there is a socket", || !user.sockets().is_empty());
    let socket = user.sockets().remove(0);
    let about = fs::symlink_metadata(&socket).unwrap();
    assert!(about.file_type().is_socket());
    until("it is private", || {
        fs::symlink_metadata(&socket).unwrap().permissions().mode() & 0o777 == 0o600
    });
    let folder = fs::metadata(socket.parent().unwrap()).unwrap();
    assert_eq!(folder.permissions().mode() & 0o777, 0o700);
    assert_eq!(session.finish().1, Some(0));
    assert!(user.sockets().is_empty());
    // The next process removes the socket of a killed process.
    let mut killed = user.wrap(&[]);
    killed.tell(&initialize("2025-06-18"));
    killed.line();
    until("there is a socket", || !user.sockets().is_empty());
    let dead = user.sockets();
    signal("KILL", killed.pid());
    drop(killed);
    let mut next = user.wrap(&[]);
    next.tell(&initialize("2025-06-18"));
    next.line();
    until("only the new one is there", || {
        let now = user.sockets();
        now.len() == 1 && now != dead
    });
}

#[test]
fn a_wrap_without_a_place_for_a_socket_works_as_ever() {
    let user = User::new();
    for (options, runtime) in
        [(&["--no-socket"][..], None), (&[], Some("/dev/null")), (&[], Some("/proc/1"))]
    {
        let mut command = user.command();
        if let Some(runtime) = runtime {
            command.env("XDG_RUNTIME_DIR", runtime);
        }
        command.arg("wrap").args(options).args(["--", "python3", "-c", SERVER]).arg(user.done());
        let mut session = Session::start(&mut command);
        session.tell(&initialize("2025-06-18"));
        assert!(session.line().contains("factory"));
        assert!(user.sockets().is_empty());
        assert_eq!(session.finish().1, Some(0));
    }
}

#[test]
fn tap_without_an_address_shows_all_that_runs_and_what_begins() {
    let user = User::new();
    let refused = user.command().arg("tap").output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(
        refused.status.code() == Some(2) && said.contains("nothing runs that shows its calls"),
        "{said}"
    );
    let mut first = user.busy(&[]);
    until("there is a socket", || user.sockets().len() == 1);
    let (mut child, lines, said, watching) = user.watching(&[]);
    assert!(watching.starts_with("milepost: watching wrap python3, until"), "{watching}");
    let mut second = user.busy(&[]);
    up_to(&said, "watching wrap python3 too");
    fs::write(user.done(), "").unwrap();
    for session in [&mut first, &mut second] {
        assert!(session.line().contains("result"));
    }
    let mut seen = Vec::new();
    for _ in 0..2 {
        seen.extend(up_to(&lines, "\"result\""));
    }
    let heads = seen.iter().filter(|line| line.starts_with("# 2") && line.contains("python3"));
    assert!(heads.count() >= 2, "{seen:#?}");
    assert_eq!(first.finish().1, Some(0));
    up_to(&said, "wrap python3 has ended");
    assert_eq!(second.finish().1, Some(0));
    assert_eq!(wait(&mut child.0, STUCK).unwrap().code(), Some(1));
}

#[test]
fn a_serve_with_an_admin_table_is_found_too() {
    let user = User::new();
    let file = user.home.path().join("proxy.toml");
    let text = "[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
                [[route]]\npath = \"/a\"\nupstream.demo = true\n";
    fs::write(&file, text).unwrap();
    let mut serve = user.command();
    let mut serve = Kept(serve.arg("serve").arg(&file).stderr(Stdio::null()).spawn().unwrap());
    until("there is a socket", || user.sockets().len() == 1);
    let (mut child, _, _said, watching) = user.watching(&["--route", "/a"]);
    assert!(watching.starts_with("milepost: watching serve 127.0.0.1:"), "{watching}");
    signal("TERM", serve.0.id());
    assert_eq!(wait(&mut serve.0, STUCK).unwrap().code(), Some(0));
    assert_eq!(wait(&mut child.0, STUCK).unwrap().code(), Some(1));
    assert!(user.sockets().is_empty());
    let refused = user.command().args(["tap", "--route", "/b"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn ls_lists_each_process_with_its_server_and_its_open_calls() {
    let user = User::new();
    let ls = |args: &[&str]| {
        let mut command = user.command();
        command.env("HOME", user.home.path()).current_dir(user.home.path());
        let output = command.arg("ls").args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8(output.stdout).unwrap()
    };
    let listed = || serde_json::from_str::<Value>(&ls(&["--json"])).unwrap()["processes"].clone();
    assert_eq!(listed(), json!([]));
    let mut session = user.busy(&[]);
    until("there is a socket", || user.sockets().len() == 1);
    // A process that takes too long to describe itself is left out.
    let mut found = json!([]);
    until("it is listed", || {
        found = listed();
        found != json!([])
    });
    assert_eq!(found.as_array().unwrap().len(), 1, "{found}");
    assert_eq!((&found[0]["kind"], &found[0]["pid"]), (&json!("wrap"), &json!(session.pid())));
    let routes = json!([{ "route": "python3", "server": "factory", "open": 1 }]);
    assert_eq!((&found[0]["open"], &found[0]["routes"]), (&json!(1), &routes));
    until("it is listed for people", || {
        ls(&[]).lines().any(|line| line.starts_with("wrap     factory  "))
    });
    // A stopped process accepts connections, and never answers.
    signal("STOP", session.pid());
    assert_eq!(listed(), json!([]));
    signal("CONT", session.pid());
    fs::write(user.done(), "").unwrap();
    session.lines_until("result");
    until("the call has ended", || listed()[0]["open"] == 0);
    assert_eq!(session.finish().1, Some(0));
    assert_eq!(listed(), json!([]));
}

#[test]
fn top_shows_calls_in_a_terminal_and_opens_one() {
    let user = User::new();
    let mut session = user.busy(&[]);
    until("there is a socket", || user.sockets().len() == 1);
    let line = format!("stty rows 30 cols 130; exec {MILEPOST} top");
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm-256color");
    script.env("XDG_RUNTIME_DIR", user.home.path()).env("MILEPOST_STATE_DIR", "off");
    script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut terminal = Kept(script.spawn().unwrap());
    let mut keys = terminal.0.stdin.take().unwrap();
    let (piece, pieces) = mpsc::channel();
    let mut out = terminal.0.stdout.take().unwrap();
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = out.read(&mut buffer) {
            let _ = piece.send(String::from_utf8_lossy(&buffer[..read]).into_owned());
        }
    });
    let mut seen = String::new();
    let mut until_seen = |part: &str| {
        // The screen changes all the time, because the shown times advance.
        let deadline = Instant::now() + STUCK;
        while !seen.contains(part) {
            let more = pieces.recv_timeout(deadline.saturating_duration_since(Instant::now()));
            seen.push_str(&more.unwrap_or_else(|_| panic!("no {part:?}: {seen:?}")));
        }
        seen.clear();
    };
    until_seen("factory");
    keys.write_all(b"\r").unwrap();
    until_seen("tools/call");
    keys.write_all(b"q").unwrap();
    until_seen("MESSAGE");
    keys.write_all(b"q").unwrap();
    until_seen("\u{1b}[?1049l");
    assert!(wait(&mut terminal.0, STUCK).unwrap().success());
    fs::write(user.done(), "").unwrap();
    session.lines_until("result");
    // Without a terminal, `top` prints an error.
    let refused = user.command().arg("top").stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(2) && said.contains("`top` needs a terminal"), "{said}");
}

#[test]
fn wrap_serves_the_live_page_to_who_has_the_link() {
    let user = User::new();
    let session = user.busy(&["--page", "--no-socket"]);
    let link = || {
        let said = session.stderr();
        let (_, link) = said.split_once("page=\"http://")?;
        link.contains('\n').then(|| link.to_owned())
    };
    until("it says where its page is", || link().is_some());
    let link = link().unwrap();
    let link = link.split_whitespace().next().unwrap().trim_matches('"');
    let (address, token) = link.split_once("/#token=").unwrap();
    assert!(address.starts_with("127.0.0.1:") && token.len() == 32, "{link}");
    let get = |path: &str, headers: &[(&str, &str)]| {
        let mut answer = Exchange::send(address, "GET", path, headers, "");
        (answer.status(), answer.rest())
    };
    assert_eq!(get("/", &[]).0, 200);
    assert_eq!(get("/calls", &[]).0, 401);
    until("the page has the open call", || {
        let (status, calls) = get("/calls", &[("authorization", &format!("Bearer {token}"))]);
        assert_eq!(status, 200);
        let calls: Value = serde_json::from_str(&calls).unwrap();
        let open = calls["calls"].as_array().unwrap().iter().find(|call| call["ended"].is_null());
        calls["routes"][0]["server"] == "factory"
            && open.is_some_and(|open| open["message"] == "linking")
    });
    assert!(user.sockets().is_empty());
}
