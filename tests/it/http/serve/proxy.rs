//! The process under test.

use std::io::Read;
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;

use tempfile::TempDir;

use crate::support::exchange::Exchange;
use crate::support::session::{servers_of, signal};
use crate::support::{STUCK, milepost, until, wait};

/// The `Accept` header of Prometheus: the metrics are then in the OpenMetrics format.
pub(crate) const OPEN_METRICS: (&str, &str) =
    ("accept", "application/openmetrics-text;version=1.0.0");

/// `milepost serve` on ports of its own.
pub(crate) struct Proxy {
    child: Child,
    log: Arc<Mutex<Vec<u8>>>,
    log_ended: Mutex<Receiver<()>>,
    address: String,
    admin: String,
    folder: TempDir,
}

/// How it is started.
#[derive(Default)]
pub(crate) struct Start<'a> {
    /// Options of the command line.
    pub(crate) options: &'a [&'a str],
    /// `MILEPOST_LOG`.
    pub(crate) log: Option<&'a str>,
    /// `MILEPOST_STATE_DIR`; `off` otherwise.
    pub(crate) state: Option<&'a str>,
    /// Further variables of its environment.
    pub(crate) variables: &'a [(&'static str, String)],
    /// A line of shell before it, such as `ulimit -Sn 256`.
    pub(crate) shell: &'a str,
    /// Keys of `[server]`.
    pub(crate) server: &'a str,
    /// Keys of `[defaults]`.
    pub(crate) defaults: &'a str,
}

impl Proxy {
    /// In front of one server, as `/a`.
    #[track_caller]
    pub(crate) fn before(url: &str) -> Self {
        Self::with(&Start::default(), &format!("upstream.url = \"{url}\""))
    }

    /// In front of a stdio server.
    #[track_caller]
    pub(crate) fn before_command(program: &str) -> Self {
        Self::with(&Start::default(), &format!("upstream.command = [\"{program}\"]"))
    }

    /// The same, with the keys of the route.
    #[track_caller]
    pub(crate) fn with(start: &Start<'_>, route: &str) -> Self {
        Self::serving(start, &format!("[[route]]\npath = \"/a\"\n{route}\n"))
    }

    /// With these routes.
    #[track_caller]
    pub(crate) fn serving(start: &Start<'_>, routes: &str) -> Self {
        Self::of_file(start, &file(start, routes))
    }

    /// With this route file.
    #[track_caller]
    pub(crate) fn of_file(start: &Start<'_>, file: &str) -> Self {
        let mut proxy = Self::launch(start, file);
        proxy.address = proxy.word("listening address=");
        proxy.admin = proxy.word("listening for operators address=");
        proxy
    }

    /// Starts a proxy with this route file, which it may refuse.
    pub(crate) fn launch(start: &Start<'_>, file: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("proxy.toml");
        std::fs::write(&path, file).unwrap();
        let mut command = milepost();
        if !start.shell.is_empty() {
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", &format!("{}; exec \"$0\" \"$@\"", start.shell)]);
            shell.arg(command.get_program());
            for (name, value) in command.get_envs() {
                match value {
                    Some(value) => shell.env(name, value),
                    None => shell.env_remove(name),
                };
            }
            command = shell;
        }
        command.arg("serve").arg(path).args(start.options).env_remove("MILEPOST_LOG");
        command.envs(start.variables.iter().map(|(name, value)| (name, value)));
        if let Some(folder) = start.state {
            command.env("MILEPOST_STATE_DIR", folder);
        }
        if let Some(log) = start.log {
            command.env("MILEPOST_LOG", log);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let (ended, log_ended) = mpsc::channel();
        let (mut pipe, text) = (child.stderr.take().unwrap(), Arc::clone(&log));
        thread::spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(read @ 1..) = pipe.read(&mut buffer) {
                text.lock().unwrap().extend_from_slice(&buffer[..read]);
            }
            let _ = ended.send(());
        });
        let (address, admin) = (String::new(), String::new());
        let log_ended = Mutex::new(log_ended);
        Self { child, log, log_ended, address, admin, folder }
    }

    /// Where clients connect.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Where operators connect.
    pub(crate) fn admin(&self) -> &str {
        &self.admin
    }

    /// Its route file.
    pub(crate) fn file(&self) -> String {
        self.folder.path().join("proxy.toml").display().to_string()
    }

    /// All lines that have been logged. A line of which only a part has come is left out.
    pub(crate) fn log(&self) -> String {
        let log = self.log.lock().unwrap();
        let end = log.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        String::from_utf8_lossy(&log[..end]).into_owned()
    }

    /// Waits for a line of the log that has all of this in it.
    #[track_caller]
    pub(crate) fn logged(&self, parts: &[&str]) -> String {
        let mut found = None;
        let deadline = std::time::Instant::now() + STUCK;
        while found.is_none() {
            let log = self.log();
            assert!(std::time::Instant::now() < deadline, "no line with {parts:?}:\n{log}");
            found = log
                .lines()
                .find(|line| parts.iter().all(|part| line.contains(part)))
                .map(str::to_owned);
            thread::sleep(std::time::Duration::from_millis(2));
        }
        found.unwrap()
    }

    /// Returns the text in quotes, or up to a space, after these words of the log.
    #[track_caller]
    fn word(&self, before: &str) -> String {
        let line = self.logged(&[before]);
        let (_, rest) = line.split_once(before).unwrap();
        rest.trim_start_matches('"').split(['"', ' ']).next().unwrap().to_owned()
    }

    /// Returns a page of the admin address.
    #[track_caller]
    pub(crate) fn probe(&self, path: &str) -> (u16, String) {
        let mut page = Exchange::send(&self.admin, "GET", path, &[OPEN_METRICS], "");
        (page.status(), page.rest())
    }

    /// Whether it takes connections.
    pub(crate) fn accepts(&self) -> bool {
        TcpStream::connect(&self.address).is_ok()
    }

    /// SIGHUP.
    pub(crate) fn hang_up(&self) {
        signal("HUP", self.child.id());
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGTERM.
    pub(crate) fn terminate(&self) {
        signal("TERM", self.child.id());
    }

    /// SIGTERM, once it is known to have arrived.
    #[track_caller]
    pub(crate) fn stop(&self) -> String {
        self.terminate();
        let line = self.logged(&[" stopping "]);
        until("nothing is accepted", || !self.accepts());
        line
    }

    /// The exit code, when it ends.
    #[track_caller]
    pub(crate) fn code(&mut self) -> Option<i32> {
        let status = wait(&mut self.child, STUCK);
        let _ = self.log_ended.get_mut().unwrap().recv_timeout(STUCK);
        status.unwrap_or_else(|| panic!("it does not end:\n{}", self.log())).code()
    }

    /// A figure of the system: the memory it has in use (`VmRSS`) or has ever had (`VmHWM`), in KiB; `Threads`.
    pub(crate) fn status(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// The files, pipes and sockets that it has open.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    /// Returns the number of its server processes, including zombies.
    pub(crate) fn servers(&self) -> usize {
        servers_of(self.child.id()).len()
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the pids that servers have printed after the word `pids` on their standard error, one list for each
    /// server.
    pub(crate) fn pids(&self) -> Vec<Vec<u32>> {
        let log = self.log();
        let lines = log.lines().filter_map(|line| line.split_once("pids "));
        lines
            .map(|(_, rest)| rest.split(' ').map_while(|word| word.parse().ok()).collect())
            .collect()
    }
}

/// A route file that listens on ports which the system chooses.
pub(crate) fn file(start: &Start<'_>, routes: &str) -> String {
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n{}\n[admin]\nlisten = \"127.0.0.1:0\"\n[defaults]\n{}\n{routes}",
        start.server, start.defaults
    )
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
