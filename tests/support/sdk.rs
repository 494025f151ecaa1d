//! The drivers of the official SDKs (see tests/sdk/README.md) and their reports.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{MILEPOST, STUCK, home, until, wait};

/// The names of all clients that have a driver.
pub(crate) const CLIENTS: [&str; 5] = ["ts1", "ts2", "py1", "py2", "rmcp"];

/// The names of all servers that have a driver.
pub(crate) const SERVERS: [&str; 4] = ["ts1", "ts2", "py1", "py2"];

/// How long a driver may exceed its own deadline before it is killed.
const OVERTIME: Duration = Duration::from_secs(60);

/// Installs the SDKs, if they are not installed.
pub(crate) fn set_up() {
    static SET_UP: OnceLock<()> = OnceLock::new();
    SET_UP.get_or_init(|| {
        let status = Command::new(home().join("tests/sdk/setup")).status().unwrap();
        assert!(status.success(), "tests/sdk/setup has failed");
    });
}

/// Returns the directory of a part that `tests/sdk/setup` has installed.
pub(crate) fn sdk_folder(part: &str) -> PathBuf {
    let all = env::var_os("MILEPOST_SDK_DIR").map_or_else(|| home().join("target/sdk"), Into::into);
    all.join(part)
}

/// Returns the socket of a process that has already loaded a Python client (`tests/sdk/suite/preload.py`), because
/// loading takes most of the time of a short session. The process ends with the test process.
fn loaded(name: &str) -> Option<&'static Path> {
    static LOADED: [OnceLock<(Child, PathBuf)>; 3] = [const { OnceLock::new() }; 3];
    let at = ["py1", "py2", "langchain"].iter().position(|&one| one == name)?;
    let (_, socket) = LOADED[at].get_or_init(|| {
        let socket = env::temp_dir().join(format!("milepost-{name}-{}", process::id()));
        let mut loader = Command::new(python(name));
        loader.arg(home().join("tests/sdk/suite/preload.py")).arg("serve").arg(&socket);
        loader.arg(home().join("tests/sdk").join(name).join("client.py")).stdin(Stdio::piped());
        let loader = loader.spawn().unwrap();
        until("the SDK is loaded", || socket.exists());
        (loader, socket)
    });
    Some(socket)
}

/// Returns the interpreter that has this version of the Python SDK.
pub(crate) fn python(part: &str) -> PathBuf {
    sdk_folder(part).join("python")
}

/// Returns the command line of an SDK's server.
pub(crate) fn server(name: &str) -> Vec<String> {
    set_up();
    vec![home().join("tests/sdk/run").to_str().unwrap().to_owned(), name.into(), "server".into()]
}

/// Returns the command line of a server behind Milepost.
pub(crate) fn wrapped(options: &[&str], server: &[String]) -> Vec<String> {
    // Set options and not variables, because SDKs pass few variables on to a server.
    let own = [MILEPOST, "wrap", "--state-dir", "off"].iter().chain(options).chain(&["--"]);
    own.map(|&word| word.to_owned()).chain(server.iter().cloned()).collect()
}

/// The result of one session.
pub(crate) struct Report {
    /// The lines that the driver printed.
    pub(crate) json: Value,
    /// The duration of the session.
    pub(crate) took: Duration,
    /// The text that driver and server wrote to standard error.
    pub(crate) stderr: String,
}

/// Runs an SDK's client with a server.
#[track_caller]
pub(crate) fn client(name: &str, options: &[&str], server: &[String]) -> Report {
    let target: Vec<_> = ["--"].into_iter().chain(server.iter().map(String::as_str)).collect();
    visit(name, options, &target, &[])
}

/// Runs an SDK's client with the server at `target`, with these variables in its environment.
#[track_caller]
pub(crate) fn visit(
    name: &str,
    options: &[&str],
    target: &[&str],
    variables: &[(&str, &str)],
) -> Report {
    set_up();
    let began = Instant::now();
    let mut child = Command::new(home().join("tests/sdk/run"))
        .args([name, "client"])
        .args(options)
        .args(target)
        .envs([super::FORGETFUL])
        .envs(loaded(name).map(|socket| ("MILEPOST_SDK_LOADED", socket)))
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = collect(child.stderr.take().unwrap());
    let stdout = collect(child.stdout.take().unwrap());
    let deadline = options.iter().position(|&word| word == "--deadline");
    let deadline = deadline.map_or(120.0, |at| options[at + 1].parse().unwrap());
    let status = wait(&mut child, Duration::from_secs_f64(deadline) + OVERTIME);
    let took = began.elapsed();
    let (stdout, stderr) = (stdout(), stderr());
    let json = serde_json::from_str(&stdout)
        .unwrap_or_else(|_| panic!("{name}: {status:?}, no report\n{stdout}\n{stderr}"));
    Report { json, took, stderr }
}

/// Reads a pipe for as long as the driver runs and a little longer. A process that is left behind may keep the pipe
/// open, so its end is not awaited for ever.
pub(crate) fn collect(mut pipe: impl Read + Send + 'static) -> impl FnOnce() -> String {
    let text = Arc::new(Mutex::new(Vec::new()));
    let (all, (end, ended)) = (Arc::clone(&text), mpsc::channel::<()>());
    thread::spawn(move || {
        let _end = end;
        let mut buffer = vec![0; 64 << 10];
        while let Ok(read @ 1..) = pipe.read(&mut buffer) {
            text.lock().unwrap().extend_from_slice(&buffer[..read]);
        }
    });
    move || {
        let _ = ended.recv_timeout(Duration::from_secs(10));
        String::from_utf8_lossy(&all.lock().unwrap()).into_owned()
    }
}

impl Report {
    /// Returns the calls of the session.
    pub(crate) fn calls(&self) -> &[Value] {
        self.json["calls"].as_array().unwrap()
    }

    /// Returns the number of errors that the SDK reported, and of notifications that it could not use.
    pub(crate) fn errors(&self) -> u64 {
        let errors = self.json["error_count"].as_u64().unwrap();
        let stray = self.json["stray_progress"].as_u64().unwrap();
        // The TypeScript SDK reports stray progress as an error.
        if self.json["client"].as_str().unwrap().starts_with("ts") {
            errors
        } else {
            errors + stray
        }
    }

    /// Panics unless every call got a result without an error, and the SDK reported nothing.
    #[track_caller]
    pub(crate) fn expect_all_well(&self) {
        let Self { json, stderr, .. } = self;
        assert_eq!(self.errors(), 0, "{json}\n{stderr}");
        for call in self.calls() {
            assert_eq!(call["outcome"], "result", "{call}\n{stderr}");
            assert_eq!(call["is_error"], false, "{call}\n{stderr}");
        }
    }

    /// Panics unless the values that the callback of each call got rise.
    #[track_caller]
    pub(crate) fn expect_rising(&self) {
        for call in self.calls() {
            let updates = call["progress"].as_array().unwrap().iter();
            let figures: Vec<_> = updates.map(|update| update[0].as_f64().unwrap()).collect();
            assert!(figures.windows(2).all(|two| two[0] < two[1]), "{call}");
        }
    }

    /// Returns what the callback of this call got, without the times.
    pub(crate) fn progress(&self, call: usize) -> Vec<Value> {
        let updates = self.calls()[call]["progress"].as_array().unwrap().iter();
        updates.map(|update| json!([update[0].as_f64(), update[1].as_f64(), update[2]])).collect()
    }
}

/// A process that prints its address, and ends when its standard input is closed: when this value is dropped, and when
/// the test process ends.
struct Listener {
    child: Child,
    stdin: Option<ChildStdin>,
    address: String,
    said: Arc<Mutex<String>>,
}

impl Listener {
    /// Starts the process. `address` finds the address in a line of its standard output (or error, if `loud`).
    #[track_caller]
    fn start(command: &mut Command, loud: bool, address: fn(&str) -> Option<&str>) -> Self {
        let (on, off) = (Stdio::piped(), Stdio::null());
        let (stdout, stderr) = if loud { (off, on) } else { (on, off) };
        command.stdin(Stdio::piped()).stdout(stdout).stderr(stderr);
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let pipe: Box<dyn Read + Send> = match child.stdout.take() {
            Some(stdout) => Box::new(stdout),
            None => Box::new(child.stderr.take().unwrap()),
        };
        let said = Arc::new(Mutex::new(String::new()));
        let (text, (tell, told)) = (Arc::clone(&said), mpsc::channel());
        thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                if let Some(address) = address(&line) {
                    let _ = tell.send(address.to_owned());
                }
                *text.lock().unwrap() += &(line + "\n");
            }
        });
        let mut listener = Self { child, stdin, address: String::new(), said };
        match told.recv_timeout(STUCK) {
            Ok(address) => listener.address = address,
            Err(_) => panic!("nobody listens: {command:?}\n{}", listener.said.lock().unwrap()),
        }
        listener
    }

    /// Ends the process. Returns its exit code; `None` if it had to be killed.
    fn end(&mut self) -> Option<i32> {
        self.stdin = None;
        wait(&mut self.child, STUCK).and_then(|status| status.code())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.end();
    }
}

/// An SDK's server that listens on a separate port.
pub(crate) struct Upstream(Listener);

impl Upstream {
    /// Starts the server with this name and these options. `--sse` makes it use HTTP+SSE.
    #[track_caller]
    pub(crate) fn start(name: &str, options: &[&str]) -> Self {
        set_up();
        let mut command = Command::new(home().join("tests/sdk/run"));
        command.args([name, "server", "--http", "0"]).args(options);
        Self(Listener::start(&mut command, false, |line| line.strip_prefix("listening on ")))
    }

    /// Returns the URL of the server's endpoint.
    pub(crate) fn url(&self) -> &str {
        &self.0.address
    }
}

/// `milepost serve` with a route file and a port of its own.
pub(crate) struct Proxy {
    listener: Listener,
    _folder: TempDir,
}

impl Proxy {
    /// Starts Milepost. `routes` is the text of the route file after the listening address.
    #[track_caller]
    pub(crate) fn start(routes: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("proxy.toml");
        let server = "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"5s\"\n\n";
        fs::write(&file, format!("{server}{routes}")).unwrap();
        // `serve` does not read its standard input, so a shell ends it when the input is closed.
        let script = r#""$0" serve "$1" & cat >/dev/null; kill $!; wait $!"#;
        let mut command = Command::new("sh");
        command.args(["-c", script, MILEPOST]).arg(&file).envs([super::FORGETFUL]);
        if env::var_os("MILEPOST_TEST_LOG").is_none() {
            command.env_remove("MILEPOST_LOG");
        }
        let listener = Listener::start(&mut command, true, |line| {
            let (_, address) = line.split_once("listening address=\"")?;
            address.split('"').next()
        });
        Self { listener, _folder: folder }
    }

    /// Starts Milepost with a route `/mcp` to a Streamable HTTP endpoint. `lines` are further lines of the route.
    #[track_caller]
    pub(crate) fn to(url: &str, lines: &str) -> Self {
        Self::start(&route("/mcp", "url", url, lines))
    }

    /// Returns the URL at which clients reach this path of the route file.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.listener.address)
    }

    /// Returns the URL of the admin listener, if the route file has `[admin]`.
    #[track_caller]
    pub(crate) fn admin(&self) -> String {
        let mut admin = None;
        until("it listens for operators", || {
            let log = self.log();
            let told = log.split_once("listening for operators address=");
            admin = told.map(|(_, address)| {
                let end = address.find(char::is_whitespace).unwrap_or(address.len());
                format!("http://{}", address[..end].trim_matches('"'))
            });
            admin.is_some()
        });
        admin.unwrap()
    }

    /// Returns the lines that Milepost has logged.
    pub(crate) fn log(&self) -> String {
        self.listener.said.lock().unwrap().clone()
    }

    /// Ends Milepost. Panics unless it exits with success and has logged no error.
    #[track_caller]
    pub(crate) fn finish(mut self) {
        let code = self.listener.end();
        let log = self.log();
        assert_eq!(code, Some(0), "{log}");
        assert!(!log.contains(" ERROR ") && !log.contains("panicked"), "{log}");
    }
}

/// Returns a route for a route file. `kind` is `url` or `sse`.
pub(crate) fn route(path: &str, kind: &str, url: &str, lines: &str) -> String {
    format!("[[route]]\npath = \"{path}\"\nupstream.{kind} = \"{url}\"\n{lines}\n")
}

/// Returns a route to a stdio server.
pub(crate) fn stdio_route(path: &str, command: &[String], lines: &str) -> String {
    format!("[[route]]\npath = \"{path}\"\nupstream.command = {command:?}\n{lines}\n")
}
