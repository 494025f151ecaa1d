//! What stands between the clients and the server of a pair: `serve` in memory and in paused time, or the
//! processes of `serve` and `wrap`.

use std::net::TcpListener;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::{Instant, sleep};

use crate::conversation::{Conversation, Speaks, World};
use crate::http::rig::{self, Answer, Asked, Lines, Rig, ms, pass, settle};
use crate::replicas::Replicas;
use crate::serve::proxy::{Proxy, Start};
use crate::support::{milepost, socket_child};

/// The work of calls goes on whose clients give them up by a clock.
const LATE: &str = "late = {}";

/// How often the sides of processes are looked at.
const LOOK: u64 = 3;

/// A place of its own behind `milepost`: an address for the server, and a route to it where there are routes.
pub(crate) struct Slot {
    listener: TcpListener,
    server: Speaks,
    number: usize,
}

impl Slot {
    pub(crate) fn new(server: Speaks, number: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self { listener, server, number }
    }

    fn path(&self) -> String {
        format!("/r{}", self.number)
    }

    fn url(&self) -> String {
        let name = if self.server == Speaks::Sse { "sse" } else { "mcp" };
        format!("http://{}/base/{name}", self.listener.local_addr().unwrap())
    }

    fn command(&self) -> Vec<String> {
        socket_child::command(self.listener.local_addr().unwrap().port(), "")
    }

    /// The route to the server.
    pub(crate) fn route(&self) -> String {
        let upstream = match self.server {
            Speaks::Stdio => {
                format!("upstream.command = {}\n{LATE}", serde_json::json!(self.command()))
            }
            Speaks::Http => format!("upstream.url = \"{}\"", self.url()),
            Speaks::Sse => format!("upstream.sse = \"{}\"", self.url()),
        };
        format!("[[route]]\npath = \"{}\"\n{upstream}\n", self.path())
    }
}

/// One `serve` for the clients of many conversations, each with a slot of its own.
pub(crate) fn serve(slots: &[Slot]) -> Proxy {
    let routes: String = slots.iter().map(Slot::route).collect();
    Proxy::serving(&Start::default(), &routes)
}

/// Processes of one conversation.
struct Processes {
    serve: Option<Arc<Mutex<Proxy>>>,
    /// Held, because it ends with this.
    _wrap: Option<Child>,
    wrap: Option<Lines>,
    path: String,
    asked: UnboundedReceiver<Asked>,
    started: UnboundedReceiver<Lines>,
    refuses: Arc<AtomicBool>,
    start: Instant,
    /// Milliseconds that the longest sleep took too long.
    late: AtomicU64,
}

impl Processes {
    async fn sleep(&self, time: u64) {
        let begin = Instant::now();
        sleep(ms(time)).await;
        let late = begin.elapsed().saturating_sub(ms(time));
        self.late.fetch_max(u64::try_from(late.as_millis()).unwrap(), Ordering::Relaxed);
    }
}

enum Inside {
    Memory {
        rig: Box<Rig>,
        started: Option<UnboundedReceiver<Lines>>,
    },
    /// Three replicas, and the number of requests so far.
    Fleet {
        replicas: Box<Replicas>,
        requests: AtomicU64,
    },
    Processes(Box<Processes>),
}

pub(crate) struct Stage {
    inside: Inside,
}

/// The same route file in other words.
fn in_other_words(upstream: &str, keys: &str, number: usize) -> String {
    format!(
        "# {number}\n[[route]]\npath = \"/r\"\n{upstream}\n{keys}\nupgrade_after = \"{}s\"\n",
        5 + number
    )
}

fn upstream_in_memory(world: World) -> &'static str {
    match world.server() {
        Some(Speaks::Http) => "upstream.url = \"http://up.example/base/mcp\"",
        Some(Speaks::Sse) => "upstream.sse = \"http://up.example/base/sse\"",
        _ => "upstream.command = [\"server\"]",
    }
}

impl Stage {
    pub(crate) fn in_memory(world: World, late: bool) -> Self {
        if world.is_fleet() {
            let replicas = Box::new(Replicas::new(3, upstream_in_memory(world)));
            return Self { inside: Inside::Fleet { replicas, requests: AtomicU64::default() } };
        }
        let (rig, started) = match world.server() {
            Some(Speaks::Http | Speaks::Sse) => (Rig::having(upstream_in_memory(world)), None),
            _ => {
                let (rig, started) = Rig::of_lines(if late { LATE } else { "" });
                (rig, Some(started))
            }
        };
        Self { inside: Inside::Memory { rig: Box::new(rig), started } }
    }

    /// Clients of `serve`, or one of `wrap`, before the server of a slot.
    pub(crate) fn of_processes(slot: &Slot, serve: Option<&Arc<Mutex<Proxy>>>) -> Self {
        let (tell, asked) = mpsc::unbounded_channel();
        let (begin, started) = mpsc::unbounded_channel();
        let refuses: Arc<AtomicBool> = Arc::default();
        let start = Instant::now();
        let listener = slot.listener.try_clone().unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        tokio::spawn(accept(listener, slot.server, tell, begin, Arc::clone(&refuses), start));
        let (mut child, mut wrap) = (None, None);
        if serve.is_none() {
            let mut command = milepost();
            command.arg("wrap").env_remove("MILEPOST_LOG");
            match slot.server {
                Speaks::Stdio => command.arg("--").args(slot.command()),
                _ => command.arg(slot.url()),
            };
            let mut command = Command::from(command);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
            let mut started = command.kill_on_drop(true).spawn().unwrap();
            wrap = Some(Lines::of(started.stdout.take().unwrap(), started.stdin.take().unwrap()));
            child = Some(started);
        }
        let processes = Processes {
            serve: serve.map(Arc::clone),
            _wrap: child,
            wrap,
            path: slot.path(),
            asked,
            started,
            refuses,
            start,
            late: AtomicU64::new(0),
        };
        Self { inside: Inside::Processes(Box::new(processes)) }
    }

    /// Milliseconds since the beginning.
    pub(crate) fn now(&self) -> u64 {
        let time = match &self.inside {
            Inside::Memory { rig, .. } => rig.now(),
            Inside::Fleet { replicas, .. } => replicas.now(),
            Inside::Processes(processes) => processes.start.elapsed(),
        };
        u64::try_from(time.as_millis()).unwrap()
    }

    /// How late, in milliseconds, a sleep ended at the latest.
    pub(crate) fn late(&self) -> u64 {
        match &self.inside {
            Inside::Memory { .. } | Inside::Fleet { .. } => 0,
            Inside::Processes(processes) => processes.late.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn path(&self) -> &str {
        match &self.inside {
            Inside::Memory { .. } | Inside::Fleet { .. } => "/r",
            Inside::Processes(processes) => &processes.path,
        }
    }

    /// A client sends a request on a connection of its own.
    pub(crate) fn send(&self, start: &str, headers: &[String], body: &str) -> Answer {
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        match &self.inside {
            Inside::Memory { rig, .. } => rig.send(start, &headers, body.as_bytes()),
            Inside::Fleet { replicas, requests } => {
                let number = requests.fetch_add(1, Ordering::Relaxed);
                // The same replicas for the same conversation.
                let to = usize::try_from(((number * 0x9e37_79b9) >> 7) % 3).unwrap();
                replicas.send(to, start, &headers, body.as_bytes())
            }
            Inside::Processes(processes) => {
                let address =
                    processes.serve.as_ref().unwrap().lock().unwrap().address().to_owned();
                let said = rig::request(&address, start, &headers, body.as_bytes());
                let connect = async move {
                    let connection = TcpStream::connect(address).await?;
                    connection.set_nodelay(true)?;
                    Ok(connection)
                };
                Answer::to(connect, said, body.as_bytes(), processes.start)
            }
        }
    }

    /// The client of `wrap`.
    pub(crate) fn wrap(&mut self) -> &mut Lines {
        match &mut self.inside {
            Inside::Memory { .. } | Inside::Fleet { .. } => {
                unreachable!("no client of lines in memory")
            }
            Inside::Processes(processes) => processes.wrap.as_mut().unwrap(),
        }
    }

    pub(crate) async fn try_asked(&mut self) -> Option<Asked> {
        match &mut self.inside {
            Inside::Memory { rig, .. } => rig.try_asked().await,
            Inside::Fleet { replicas, .. } => replicas.try_asked().await,
            Inside::Processes(processes) => {
                settle().await;
                processes.asked.try_recv().ok()
            }
        }
    }

    /// A server that was started.
    pub(crate) fn try_started(&mut self) -> Option<Lines> {
        match &mut self.inside {
            Inside::Memory { started, .. } => started.as_mut()?.try_recv().ok(),
            Inside::Fleet { replicas, .. } => replicas.try_started(),
            Inside::Processes(processes) => processes.started.try_recv().ok(),
        }
    }

    /// Lets everyone do what can be done at this moment.
    pub(crate) async fn settle(&self) {
        settle().await;
        if let Inside::Processes(processes) = &self.inside {
            processes.sleep(LOOK).await;
        }
    }

    /// Lets time pass; in real time little at once.
    pub(crate) async fn pass(&self, time: u64) {
        match &self.inside {
            Inside::Memory { .. } | Inside::Fleet { .. } => pass(ms(time)).await,
            Inside::Processes(processes) => processes.sleep(time.min(LOOK)).await,
        }
    }

    /// The server cannot be reached any more.
    pub(crate) fn refuse_connections(&self) {
        match &self.inside {
            Inside::Memory { rig, .. } => rig.refuse_connections(true),
            Inside::Fleet { replicas, .. } => replicas.refuse_connections(),
            Inside::Processes(processes) => processes.refuses.store(true, Ordering::Relaxed),
        }
    }

    /// The route file is written anew.
    pub(crate) fn reload(
        &mut self,
        Conversation { world, late, .. }: &Conversation,
        number: usize,
    ) {
        let keys = if *late { LATE } else { "" };
        match &mut self.inside {
            Inside::Memory { rig, .. } => {
                rig.take(&in_other_words(upstream_in_memory(*world), keys, number));
            }
            // A rollout replaces replicas; nobody writes their files anew.
            Inside::Fleet { .. } => {}
            Inside::Processes(processes) => {
                let Some(serve) = &processes.serve else { return };
                let serve = serve.lock().unwrap();
                let path = serve.file();
                let text = std::fs::read_to_string(&path).unwrap();
                let text: String = text
                    .lines()
                    .filter(|line| !line.starts_with('#'))
                    .collect::<Vec<_>>()
                    .join("\n");
                std::fs::write(&path, format!("{text}\n# {number}\n")).unwrap();
                serve.hang_up();
            }
        }
    }

    /// Whether no call is open; of processes that is not known.
    pub(crate) async fn calls_done(&self) -> bool {
        match &self.inside {
            Inside::Memory { rig, .. } => rig.calls_done().await,
            Inside::Fleet { replicas, .. } => replicas.calls_done().await,
            Inside::Processes(_) => true,
        }
    }
}

/// Takes the connections of a server.
async fn accept(
    listener: tokio::net::TcpListener,
    server: Speaks,
    tell: UnboundedSender<Asked>,
    begin: UnboundedSender<Lines>,
    refuses: Arc<AtomicBool>,
    start: Instant,
) {
    while let Ok((mut connection, _)) = listener.accept().await {
        if refuses.load(Ordering::Relaxed) {
            continue;
        }
        connection.set_nodelay(true).unwrap();
        if server != Speaks::Stdio {
            tokio::spawn(rig::serve(connection, tell.clone(), start));
            continue;
        }
        let begin = begin.clone();
        tokio::spawn(async move {
            // Its process id.
            while !matches!(connection.read_u8().await, Ok(b'\n') | Err(_)) {}
            let _ = begin.send(Lines::new(connection));
        });
    }
}
