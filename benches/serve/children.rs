//! What milepost adds to a call if it changes the transport: a stdio server behind HTTP, and an HTTP server behind
//! stdio. For comparison, the same rounds call the same server on its own transport.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{self, BufRead, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::client::{Ask, Client, next_id, tool_call};
use crate::proxies::{self, MILEPOST, Target};
use crate::table::{Added, Figure};
use crate::upstream;

/// Number of calls in a round, of all clients together.
const CALLS: usize = 2000;
/// Number of clients that share a server.
const SHARING: usize = 8;
/// The argument that makes this program a stdio server.
pub(crate) const SERVER: &str = "server";

/// The scenarios by name, each with what is compared.
pub(crate) const SCENARIOS: [(&str, &str); 3] = [
    (
        "stdio",
        "a session of HTTP before a stdio server, one call after the other, beside its pipes",
    ),
    ("stdio-shared", "8 clients of 2026-07-28 that share one, beside 8 open calls in its pipes"),
    ("wrap-url", "`wrap URL`, one call after the other, beside HTTP to the same server"),
];

/// Answers each request on standard input immediately.
pub(crate) fn serve() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let Some(id) = line.split_once("\"id\":").and_then(|(_, rest)| rest.split(',').next())
        else {
            continue;
        };
        let answer = match line.contains("\"initialize\"") {
            true => upstream::agreement(id),
            false => upstream::small_answer(id),
        };
        out.write_all(format!("{answer}\n").as_bytes())?;
        out.flush()?;
    }
    Ok(())
}

/// A process that is used through its standard streams.
struct Peer {
    child: Child,
    into: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Peer {
    async fn start(program: impl AsRef<OsStr>, arguments: &[&str]) -> io::Result<Self> {
        let mut child = Command::new(program)
            .args(arguments)
            .env("MILEPOST_STATE_DIR", proxies::STATE_DIR)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let into = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let from = BufReader::new(child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?);
        let mut peer = Self { child, into, from };
        // A client that is known to need no pacing, so that only the cost is measured.
        let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"rmcp","version":"1"}}}"#;
        peer.say(hello).await?;
        peer.line().await?;
        Ok(peer)
    }

    async fn say(&mut self, message: &str) -> io::Result<()> {
        self.into.write_all(format!("{message}\n").as_bytes()).await
    }

    async fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.from.read_line(&mut line).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line),
        }
    }

    /// Makes the calls of a round, `at_once` of them simultaneously. Returns how long each took.
    async fn calls(&mut self, at_once: usize) -> io::Result<Vec<Duration>> {
        let (mut open, mut times) = (HashMap::new(), Vec::new());
        while times.len() < CALLS {
            while open.len() < at_once && times.len() + open.len() < CALLS {
                let id = next_id();
                open.insert(upstream::small_answer(&id.to_string()), Instant::now());
                self.say(&tool_call(id, &Ask::new("small"), "")).await?;
            }
            let begun = open.remove(self.line().await?.trim_end());
            times.push(begun.ok_or_else(|| io::Error::other("no such answer"))?.elapsed());
        }
        Ok(times)
    }
}

/// Makes calls with clients that wait for each answer. Returns how long each call took.
async fn over_http(clients: &mut [Client]) -> io::Result<Vec<Duration>> {
    let each = CALLS / clients.len().max(1);
    let calls = clients.iter_mut().map(async |client| {
        let mut times = Vec::new();
        for _ in 0..each {
            let begun = Instant::now();
            if client.call(&Ask::new("small")).await?.answers != 1 {
                return Err(io::Error::other("not the answer of the server"));
            }
            times.push(begun.elapsed());
        }
        Ok(times)
    });
    Ok(try_join_all(calls).await?.concat())
}

/// The clients that call the server on its own transport, and those that call it through milepost.
enum Sides {
    Stdio { server: Peer, target: Target, clients: Vec<Client> },
    Wrap { direct: Client, wrap: Peer },
}

impl Sides {
    async fn start(scenario: &str, upstream: SocketAddr, folder: &Path) -> io::Result<Self> {
        if scenario == "wrap-url" {
            let direct = Client::connect(upstream, "/mcp", None).await?;
            let url = format!("http://{upstream}/mcp");
            let arguments = ["wrap", "--log-level", "error", &url];
            let wrap = Peer::start(env!("CARGO_BIN_EXE_milepost"), &arguments).await?;
            return Ok(Self::Wrap { direct, wrap });
        }
        let server = Peer::start(std::env::current_exe()?, &[SERVER]).await?;
        let target = Target::start(MILEPOST, upstream, folder).await?;
        let count = if scenario == "stdio" { 1 } else { SHARING };
        let mut clients = Vec::new();
        for _ in 0..count {
            let mut client = Client::connect(target.address, "/stdio", None).await?;
            match scenario {
                "stdio" => client.begin_session().await?,
                _ => client.be_modern("small"),
            }
            clients.push(client);
        }
        Ok(Self::Stdio { server, target, clients })
    }

    async fn direct(&mut self) -> io::Result<Vec<Duration>> {
        match self {
            Self::Stdio { server, clients, .. } => server.calls(clients.len()).await,
            Self::Wrap { direct, .. } => over_http(std::slice::from_mut(direct)).await,
        }
    }

    async fn through(&mut self) -> io::Result<Vec<Duration>> {
        match self {
            Self::Stdio { clients, .. } => over_http(clients).await,
            Self::Wrap { wrap, .. } => wrap.calls(1).await,
        }
    }

    /// Returns the CPU time that milepost has used so far.
    fn cpu(&self) -> io::Result<Duration> {
        match self {
            Self::Stdio { target, .. } => Ok(target.cpu()?.unwrap_or_default()),
            Self::Wrap { wrap, .. } => proxies::cpu(wrap.child.id().as_slice()),
        }
    }
}

/// Measures what milepost adds to a call.
pub(crate) async fn added(
    out: &mut impl Write,
    (scenario, what): (&'static str, &str),
    upstream: SocketAddr,
    folder: &Path,
    rounds: usize,
) -> io::Result<Figure> {
    let mut sides = Sides::start(scenario, upstream, folder).await?;
    let mut added = Added::default();
    // The first round only warms up.
    for number in 0..=rounds {
        let mut direct = if number % 2 == 0 { sides.direct().await? } else { Vec::new() };
        let before = sides.cpu()?;
        let through = sides.through().await?;
        let cpu = sides.cpu()? - before;
        if direct.is_empty() {
            direct = sides.direct().await?;
        }
        if number > 0 {
            added.round(direct, through, cpu);
        }
    }
    added.show(out, scenario, what)
}
