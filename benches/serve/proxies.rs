//! The processes between client and server. They are started here, each on a port of its own.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::children::SERVER;
use crate::client::{Ask, Client};

/// The proxies, in the order in which they are measured and shown.
pub(crate) const NAMES: [&str; 4] = ["direct", NGINX, "haproxy", MILEPOST];
pub(crate) const NGINX: &str = "nginx";
pub(crate) const MILEPOST: &str = "milepost";

/// The state directory for milepost, so that the bench does not use the user's own.
pub(crate) const STATE_DIR: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/state");

/// Deadline for a proxy to answer first.
const START: Duration = Duration::from_secs(10);
/// Deadline for a proxy to end.
const STOP: Duration = Duration::from_secs(5);

/// A server or proxy that requests are sent to.
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    process: Option<Process>,
}

struct Process {
    child: Child,
    /// The ids of the process and its children.
    pids: Vec<u32>,
}

impl Target {
    /// Starts the proxy with this name. Its files are in `folder`.
    pub(crate) async fn start(
        name: &'static str,
        upstream: SocketAddr,
        folder: &Path,
    ) -> io::Result<Self> {
        if name == "direct" {
            return Ok(Self { address: upstream, process: None });
        }
        let address = free_address()?;
        let folder = folder.join(format!("{name}-{}", address.port()));
        // The directory may exist already, because the same port may have been free before.
        fs::create_dir_all(&folder)?;
        let mut command = command(name, address, upstream, &folder)?;
        let log = fs::File::create(folder.join("log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).current_dir(&folder);
        let child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => io::Error::other("not installed"),
            _ => error,
        })?;
        let process = Process { child, pids: Vec::new() };
        let mut target = Self { address, process: Some(process) };
        target.wait_until_ready(&folder).await?;
        Ok(target)
    }

    async fn wait_until_ready(&mut self, folder: &Path) -> io::Result<()> {
        let begun = Instant::now();
        loop {
            let tried = self.try_once().await;
            let Some(process) = &mut self.process else { return tried };
            if tried.is_ok() {
                process.pids = family(process.child.id())?;
                return Ok(());
            }
            let ended = process.child.try_wait()?;
            if ended.is_some() || begun.elapsed() > START {
                let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
                let refused = tried.err().map(|error| error.to_string()).unwrap_or_default();
                let said = log.lines().next().unwrap_or(&refused);
                return Err(io::Error::other(format!("does not start: {said}")));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn try_once(&self) -> io::Result<()> {
        Client::connect(self.address, "/mcp", None).await?.call(&Ask::new("small")).await?;
        Ok(())
    }

    /// Returns the CPU time that all threads of the proxy have used so far; `None` if there is no proxy.
    pub(crate) fn cpu(&self) -> io::Result<Option<Duration>> {
        let Some(process) = &self.process else { return Ok(None) };
        cpu(&process.pids).map(Some)
    }

    /// Returns the kilobytes of memory that the proxy uses.
    pub(crate) fn memory(&self) -> io::Result<f64> {
        let mut total = 0.0;
        for pid in self.process.iter().flat_map(|process| &process.pids) {
            let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
            let line = text.lines().find(|line| line.starts_with("Rss:")).unwrap_or_default();
            let number = line.split_ascii_whitespace().nth(1);
            total += number.and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
        }
        Ok(total)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Use SIGTERM, because the master process of nginx has to end its worker itself.
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM);
        let begun = Instant::now();
        while let Ok(None) = self.child.try_wait() {
            if begun.elapsed() > STOP {
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
            sleep(Duration::from_millis(5));
        }
    }
}

/// Returns the CPU time that all threads of some processes have used so far.
pub(crate) fn cpu(pids: &[u32]) -> io::Result<Duration> {
    let mut total = 0;
    for pid in pids {
        for task in fs::read_dir(format!("/proc/{pid}/task"))? {
            let text = fs::read_to_string(task?.path().join("schedstat"))?;
            total += text.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0);
        }
    }
    Ok(Duration::from_nanos(total))
}

/// Returns the ids of a process and its children.
fn family(pid: u32) -> io::Result<Vec<u32>> {
    let mut found = vec![pid];
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        // `PID (NAME) STATE PARENT ...`; a process that has just ended has no parent.
        let text = fs::read_to_string(path.join("stat")).unwrap_or_default();
        let parent = text.rsplit(')').next().and_then(|rest| rest.split(' ').nth(2));
        if parent.is_some_and(|parent| parent == pid.to_string()) {
            found.extend(path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok()));
        }
    }
    Ok(found)
}

fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

fn command(
    name: &str,
    listen: SocketAddr,
    upstream: SocketAddr,
    folder: &Path,
) -> io::Result<Command> {
    let file = folder.join("conf");
    let (text, program, arguments): (_, _, &[&str]) = match name {
        NGINX => (nginx(listen, upstream), NGINX, &["-p", ".", "-e", "stderr", "-c", "conf"]),
        "haproxy" => (haproxy(listen, upstream), "haproxy", &["-db", "-f", "conf"]),
        _ => {
            let program = env!("CARGO_BIN_EXE_milepost");
            let arguments = &["serve", "conf", "--threads", "1", "--log-level", "error"];
            (milepost(listen, upstream)?, program, arguments)
        }
    };
    fs::write(file, text)?;
    let mut command = Command::new(program);
    command.args(arguments).env("MILEPOST_STATE_DIR", STATE_DIR);
    Ok(command)
}

fn nginx(listen: SocketAddr, upstream: SocketAddr) -> String {
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {kind};"))
        .concat();
    format!(
        "daemon off; worker_processes 1; pid pid; error_log stderr error;
        events {{ worker_connections 8192; }}
        http {{
            access_log off; {temporary}
            keepalive_requests 1000000000; keepalive_timeout 600s;
            upstream mcp {{
                server {upstream};
                keepalive 256; keepalive_requests 1000000000; keepalive_timeout 600s;
            }}
            server {{
                listen {listen} backlog=4096;
                location / {{
                    proxy_pass http://mcp;
                    proxy_http_version 1.1; proxy_set_header Connection \"\";
                    proxy_buffering off; proxy_read_timeout 600s;
                }}
            }}
        }}"
    )
}

fn haproxy(listen: SocketAddr, upstream: SocketAddr) -> String {
    format!(
        "global\n nbthread 1\n maxconn 8192\n\
         defaults\n mode http\n option http-no-delay\n http-reuse always\n\
         \x20timeout connect 5s\n timeout client 600s\n timeout server 600s\n\
         listen mcp\n bind {listen} backlog 4096\n server upstream {upstream}\n"
    )
}

/// Returns the route file for milepost. Its route `/every` does not thin repaired progress, unlike `/mcp`.
fn milepost(listen: SocketAddr, upstream: SocketAddr) -> io::Result<String> {
    let route = |path: &str| {
        format!("[[route]]\npath = \"{path}\"\nupstream.url = \"http://{upstream}/mcp\"\n")
    };
    let server = std::env::current_exe()?;
    Ok(format!(
        "[server]\nlisten = \"{listen}\"\n[[route]]\npath = \"/stdio\"\nupstream.command = [{server:?}, \"{SERVER}\"]\n{}{}min_interval = \"0\"\n",
        route("/mcp"),
        route("/every")
    ))
}
