//! The drivers of the official SDKs (see tests/sdk/README.md) and what they report.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{MILEPOST, home, wait};

/// Every client there is a driver for.
pub(crate) const CLIENTS: [&str; 5] = ["ts1", "ts2", "py1", "py2", "rmcp"];

/// Every server there is a driver for.
pub(crate) const SERVERS: [&str; 4] = ["ts1", "ts2", "py1", "py2"];

/// How long a driver may take over its own deadline before it is killed.
const OVERTIME: Duration = Duration::from_secs(30);

/// Installs the SDKs where they are not.
fn set_up() {
    static SET_UP: OnceLock<()> = OnceLock::new();
    SET_UP.get_or_init(|| {
        let status = Command::new(home().join("tests/sdk/setup")).status().unwrap();
        assert!(status.success(), "tests/sdk/setup has failed");
    });
}

/// The command line of an SDK's server.
pub(crate) fn server(name: &str) -> Vec<String> {
    set_up();
    vec![home().join("tests/sdk/run").to_str().unwrap().to_owned(), name.into(), "server".into()]
}

/// The same server behind Milepost.
pub(crate) fn wrapped(options: &[&str], server: &[String]) -> Vec<String> {
    let own = [MILEPOST, "wrap"].iter().chain(options).chain(&["--"]);
    own.map(|&word| word.to_owned()).chain(server.iter().cloned()).collect()
}

/// What became of one session.
pub(crate) struct Report {
    /// What the driver printed.
    pub(crate) json: Value,
    /// From start to end.
    pub(crate) took: Duration,
    /// What it and the server wrote to standard error.
    pub(crate) stderr: String,
}

/// Lets an SDK's client talk to a server.
#[track_caller]
pub(crate) fn client(name: &str, options: &[&str], server: &[String]) -> Report {
    set_up();
    let began = Instant::now();
    let mut child = Command::new(home().join("tests/sdk/run"))
        .args([name, "client"])
        .args(options)
        .arg("--")
        .args(server)
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

/// Reads all of a pipe, for as long as the driver runs and a little longer: one that is left behind
/// may keep it open.
fn collect(mut pipe: impl Read + Send + 'static) -> impl FnOnce() -> String {
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
        let _ = ended.recv_timeout(Duration::from_secs(2));
        String::from_utf8_lossy(&all.lock().unwrap()).into_owned()
    }
}

impl Report {
    /// Its calls.
    pub(crate) fn calls(&self) -> &[Value] {
        self.json["calls"].as_array().unwrap()
    }

    /// What the SDK complained of, and progress it had no use for.
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

    /// Panics unless every call got a result that is no error, and there was nothing to complain of.
    #[track_caller]
    pub(crate) fn expect_all_well(&self) {
        let Self { json, stderr, .. } = self;
        assert_eq!(self.errors(), 0, "{json}\n{stderr}");
        for call in self.calls() {
            assert_eq!(call["outcome"], "result", "{call}\n{stderr}");
            assert_eq!(call["is_error"], false, "{call}\n{stderr}");
        }
    }
}
