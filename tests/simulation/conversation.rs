//! A conversation as data: what clients and servers do, in order. It is written as text and read again.

use std::fmt;

/// A transport of MCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speaks {
    Stdio,
    Http,
    Sse,
}

impl Speaks {
    const ALL: [Self; 3] = [Self::Stdio, Self::Http, Self::Sse];

    fn name(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Http => "http",
            Self::Sse => "sse",
        }
    }
}

/// What `milepost` is between clients and a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Between {
    /// `serve` in memory.
    Memory,
    /// Three replicas of `serve` in memory: each request comes to one by chance.
    Fleet,
    /// `serve` and `wrap` as processes.
    Processes,
}

impl Between {
    const ALL: [Self; 3] = [Self::Memory, Self::Fleet, Self::Processes];
}

/// The programs that stand between the clients and the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum World {
    /// One client and one server on one wire each, paced or not: the filter alone.
    Wire { paced: bool },
    /// Clients of 2026-07-28 that share one stdio server: the bridge, in memory.
    Shared,
    /// Clients of one transport and a server of another or the same, each client in a session of its own.
    Pair { client: Speaks, server: Speaks, by: Between },
}

impl World {
    pub(crate) const fn memory(client: Speaks, server: Speaks) -> Self {
        Self::Pair { client, server, by: Between::Memory }
    }

    fn name(self) -> String {
        match self {
            Self::Wire { paced: true } => "wire-paced".to_owned(),
            Self::Wire { paced: false } => "wire".to_owned(),
            Self::Shared => "shared".to_owned(),
            Self::Pair { client, server, by } => {
                let place = match by {
                    Between::Memory => "memory",
                    Between::Fleet => "fleet",
                    Between::Processes => "processes",
                };
                format!("{place}-{}-{}", client.name(), server.name())
            }
        }
    }

    fn read(name: &str) -> Option<Self> {
        let pairs = Between::ALL.into_iter().flat_map(|by| {
            Speaks::ALL
                .into_iter()
                .flat_map(move |client| Speaks::ALL.map(|server| Self::Pair { client, server, by }))
        });
        let wires = [Self::Wire { paced: true }, Self::Wire { paced: false }, Self::Shared];
        wires.into_iter().chain(pairs).find(|world| world.name() == name)
    }

    /// Whether what comes before 150 ms waits, and what an answer may follow closely.
    pub(crate) fn is_paced(self) -> bool {
        match self {
            Self::Wire { paced } => paced,
            Self::Pair { client, .. } => client != Speaks::Http,
            Self::Shared => false,
        }
    }

    /// Whether a client has a stream for each request.
    pub(crate) fn reads_streams(self) -> bool {
        matches!(self, Self::Shared | Self::Pair { client: Speaks::Http, .. })
    }

    /// Whether the server has a stream for each request.
    pub(crate) fn serves_streams(self) -> bool {
        matches!(self, Self::Pair { server: Speaks::Http, .. })
    }

    /// Whether different clients come.
    pub(crate) fn has_clients(self) -> bool {
        !matches!(self, Self::Wire { .. } | Self::Pair { client: Speaks::Stdio, .. })
    }

    pub(crate) fn is_pair(self) -> bool {
        matches!(self, Self::Pair { .. })
    }

    /// Whether streams of the server are those of the client.
    pub(crate) fn is_direct(self) -> bool {
        self.reads_streams() && self.serves_streams()
    }

    /// Whether requests of several streams reach the server on one wire, so that an answer tells its stream by its id
    /// alone.
    pub(crate) fn finds_answers_by_id(self) -> bool {
        self.is_pair() && self.reads_streams() && !self.serves_streams()
    }

    /// Whether its processes and its clock are real.
    pub(crate) fn is_real(self) -> bool {
        matches!(self, Self::Pair { by: Between::Processes, .. })
    }

    /// Whether the work of calls that are given up may go on: the connection to the server is that of one client, who
    /// has a name where clients share a server.
    pub(crate) fn can_be_late(self) -> bool {
        match self {
            Self::Wire { .. } | Self::Shared => true,
            Self::Pair { client, server, by } => {
                client != Speaks::Stdio && server == Speaks::Stdio && by != Between::Fleet
            }
        }
    }

    /// Whether calls become tasks of 2025-11-25: where a server says all to a client in one place.
    pub(crate) fn has_tasks(self) -> bool {
        match self {
            Self::Wire { .. } => true,
            Self::Pair { server, by, .. } => server != Speaks::Http && by != Between::Fleet,
            Self::Shared => false,
        }
    }

    /// Whether several replicas serve the clients.
    pub(crate) fn is_fleet(self) -> bool {
        matches!(self, Self::Pair { by: Between::Fleet, .. })
    }

    pub(crate) fn client(self) -> Option<Speaks> {
        match self {
            Self::Pair { client, .. } => Some(client),
            _ => None,
        }
    }

    pub(crate) fn server(self) -> Option<Speaks> {
        match self {
            Self::Pair { server, .. } => Some(server),
            _ => None,
        }
    }
}

/// What happens, from the first step to the last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conversation {
    pub(crate) world: World,
    /// The session id of each client; two clients may have the same.
    pub(crate) sessions: Vec<String>,
    /// The work of calls that are given up by a clock goes on (`late = {}`).
    pub(crate) late: bool,
    pub(crate) steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Milliseconds pass.
    Wait(u64),
    /// A client asks.
    Call(Call),
    /// The server answers the request of a call with 202, and says the rest elsewhere.
    Accept(usize),
    /// The server begins to answer a call with a stream of events, which have ids or not.
    Begin(usize, bool),
    /// The client of a call gives it up.
    Cancel(usize),
    /// The clock of the client of a call has run out.
    GiveUp(usize),
    /// The server says something.
    Say(Say),
    /// The client answers the server's request with this mark.
    Reply(usize),
    /// Clients stop reading, or read again.
    Stall(bool),
    /// The server stops for so many milliseconds in the middle of what it says next.
    Pause(u64),
    /// The client of a call closes its connection.
    Leave(usize),
    /// A client opens a stream for what belongs to no request.
    Listen(usize),
    /// A client that has no part in a call cancels one with this id, and is refused.
    Stranger(usize),
    /// The route file is read anew.
    Reload,
    /// The server breaks off its response to a call.
    Cut(usize),
    /// The client of a call, whose stream is over without an answer, comes back for what it missed.
    Return(usize),
    /// The server is gone.
    Die,
}

/// A request of a client. `id` and `token` are JSON texts; without a token it is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) number: usize,
    pub(crate) client: usize,
    pub(crate) id: String,
    pub(crate) token: String,
    pub(crate) tool: String,
    /// An earlier call with the same arguments.
    pub(crate) again: Option<usize>,
}

/// The tool whose calls become tasks of 2025-11-25.
pub(crate) const TASK_TOOL: &str = "job";

impl Call {
    /// Whether the server answers the call with a task, and goes on with its progress until the task is over.
    pub(crate) fn is_task(&self) -> bool {
        self.tool == TASK_TOOL
    }

    /// The first call with these arguments.
    pub(crate) fn first(&self) -> usize {
        self.again.unwrap_or(self.number)
    }

    /// The message; each call has a mark of its own, which comes first.
    pub(crate) fn text(&self, modern: bool) -> String {
        const MODERN: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}"#;
        let Self { number, id, token, tool, .. } = self;
        let first = self.first();
        let mut meta = Vec::new();
        if self.again.is_some() {
            // A call joins work whatever the baggage of its trace is.
            meta.push(format!(r#""baggage":"c{number}.""#));
        }
        if modern {
            meta.push(MODERN.to_owned());
        }
        if !token.is_empty() {
            meta.push(format!(r#""progressToken":{token}"#));
        }
        let meta = match meta.join(",") {
            none if none.is_empty() => none,
            some => format!(r#","_meta":{{{some}}}"#),
        };
        // The call's own number comes first.
        let (own, meta) = match meta.strip_prefix(',') {
            Some(first) if self.again.is_some() => (format!("{first},"), String::new()),
            _ => (String::new(), meta),
        };
        let task = if self.is_task() { r#","task":{"ttl":86400000}"# } else { "" };
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{{own}"name":"{tool}","arguments":{{"call":"c{first}."}}{task}{meta}}}}}"#
        )
    }
}

/// Where the server says something. Without streams there is one place only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The response of this call.
    Post(usize),
    /// The stream of this client for what belongs to no request.
    Home(usize),
    Wire,
}

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Progress as the specification has it, higher than all that the server has reported for the call.
    Compliant,
    /// Progress with a defect or under another name.
    Legacy,
    /// Progress for a call that the server has answered, or the same once more.
    Late,
    /// A right answer.
    Answer,
    /// The only answer, in a form that clients do not take.
    Odd,
    /// A second answer, or one to a request that nobody sent.
    Extra,
    /// A notification that is no progress.
    Note,
    /// A request of the server.
    Request,
}

impl Kind {
    const ALL: [(Self, &'static str); 8] = [
        (Self::Compliant, "compliant"),
        (Self::Legacy, "legacy"),
        (Self::Late, "late"),
        (Self::Answer, "answer"),
        (Self::Odd, "odd-answer"),
        (Self::Extra, "extra-answer"),
        (Self::Note, "note"),
        (Self::Request, "request"),
    ];

    pub(crate) fn is_progress(self) -> bool {
        matches!(self, Self::Compliant | Self::Legacy | Self::Late)
    }

    pub(crate) fn ends_call(self) -> bool {
        matches!(self, Self::Answer | Self::Odd)
    }
}

/// What names the call in a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Names {
    /// The token, as the server got it.
    Token,
    /// The id, as the server got it.
    Id,
    /// A JSON text in the token's place that is neither.
    Other(String),
    /// The tool.
    Tool,
    Nothing,
}

/// A message of the server. Its text has a mark `m7.` of its own; `<id>` and `<token>` stand for the names
/// that the server knows its call by, `<rows 9>` for so many words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Say {
    pub(crate) mark: usize,
    pub(crate) kind: Kind,
    /// The call that the server means.
    pub(crate) about: Option<usize>,
    pub(crate) names: Names,
    pub(crate) place: Place,
    pub(crate) text: String,
    /// It comes in one array with what the server says next.
    pub(crate) with_next: bool,
}

impl Say {
    /// Whether both may come in one array. What is longer than any message that is held whole passes as it came.
    pub(crate) fn may_join(&self, other: &Self) -> bool {
        let is_held = |say: &Self| !say.text.contains("<rows 300000>");
        self.place == other.place && is_held(self) && is_held(other)
    }

    /// The text with these names.
    pub(crate) fn with(&self, id: &str, token: &str) -> String {
        let text = self.text.replace("<id>", id).replace("<token>", token);
        let Some((before, rest)) = text.split_once("<rows ") else { return text };
        let (count, after) = rest.split_once('>').unwrap();
        [before, &"row ".repeat(count.parse().unwrap()), after].concat()
    }
}

impl Step {
    /// The call without which the step means nothing.
    pub(crate) fn needs(&self) -> Option<usize> {
        match self {
            Self::Begin(call, _)
            | Self::Accept(call)
            | Self::Cancel(call)
            | Self::GiveUp(call)
            | Self::Leave(call)
            | Self::Cut(call)
            | Self::Return(call)
            | Self::Stranger(call) => Some(*call),
            Self::Say(say) => match say.place {
                Place::Post(call) => Some(call),
                _ => say.about,
            },
            _ => None,
        }
    }
}

/// The numbers behind the letter of marks, such as 7 in `m7.`.
pub(crate) fn marks(letter: char, text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices(letter) {
        let rest = &text[at + 1..];
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if digits > 0 && rest[digits..].starts_with('.') {
            found.push(rest[..digits].parse().unwrap());
        }
    }
    found.dedup();
    found
}

impl fmt::Display for Conversation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "world {} {}", self.world.name(), self.sessions.join(" "))?;
        if self.late {
            writeln!(f, "late")?;
        }
        for step in &self.steps {
            match step {
                Step::Wait(time) => writeln!(f, "wait {time}")?,
                Step::Call(call) => {
                    let Call { number, client, id, token, tool, again } = call;
                    let token = if token.is_empty() { "-" } else { token };
                    let again = again.map(|first| format!(" again {first}")).unwrap_or_default();
                    writeln!(
                        f,
                        "call {number} client {client} id {id} token {token} tool {tool}{again}"
                    )?;
                }
                Step::Begin(call, numbered) => {
                    let numbered = if *numbered { " numbered" } else { "" };
                    writeln!(f, "begin {call}{numbered}")?;
                }
                Step::Accept(call) => writeln!(f, "accept {call}")?,
                Step::Cancel(call) => writeln!(f, "cancel {call}")?,
                Step::GiveUp(call) => writeln!(f, "give-up {call}")?,
                Step::Reply(mark) => writeln!(f, "reply {mark}")?,
                Step::Pause(time) => writeln!(f, "pause {time}")?,
                Step::Stall(true) => writeln!(f, "stall")?,
                Step::Stall(false) => writeln!(f, "resume")?,
                Step::Leave(call) => writeln!(f, "leave {call}")?,
                Step::Listen(client) => writeln!(f, "listen {client}")?,
                Step::Stranger(call) => writeln!(f, "stranger {call}")?,
                Step::Reload => writeln!(f, "reload")?,
                Step::Cut(call) => writeln!(f, "cut {call}")?,
                Step::Return(call) => writeln!(f, "return {call}")?,
                Step::Die => writeln!(f, "die")?,
                Step::Say(say) => {
                    let kind = Kind::ALL.iter().find(|(kind, _)| *kind == say.kind).unwrap().1;
                    let about = say.about.map_or_else(|| "-".to_owned(), |call| call.to_string());
                    let names = match &say.names {
                        Names::Token => "token",
                        Names::Id => "id",
                        Names::Other(text) => text,
                        Names::Tool => "tool",
                        Names::Nothing => "-",
                    };
                    let place = match say.place {
                        Place::Post(call) => format!("post-{call}"),
                        Place::Home(client) => format!("home-{client}"),
                        Place::Wire => "wire".to_owned(),
                    };
                    let Say { mark, text, .. } = say;
                    let verb = if say.with_next { "join" } else { "say" };
                    writeln!(
                        f,
                        "{verb} {mark} {kind} about {about} names {names} at {place} {text}"
                    )?;
                }
            }
        }
        Ok(())
    }
}

impl Conversation {
    /// Reads what `Display` has written. Empty lines and those with `#` in front say nothing.
    pub(crate) fn read(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let mut lines = lines.peekable();
        let mut head = lines.next().unwrap().split(' ').skip(1);
        let name = head.next().unwrap();
        let world = World::read(name).unwrap_or_else(|| panic!("no world is {name}"));
        let sessions = head.map(str::to_owned).collect();
        let late = lines.next_if_eq(&"late").is_some();
        Self { world, sessions, late, steps: lines.map(read_step).collect() }
    }
}

fn read_step(line: &str) -> Step {
    let words: Vec<&str> = line.splitn(10, ' ').collect();
    let number = |at: usize| words[at].parse().unwrap_or_else(|_| panic!("a number in {line}"));
    match words[0] {
        "wait" => Step::Wait(number(1) as u64),
        "call" => Step::Call(Call {
            number: number(1),
            client: number(3),
            id: words[5].to_owned(),
            token: if words[7] == "-" { String::new() } else { words[7].to_owned() },
            tool: words[9].split(' ').next().unwrap().to_owned(),
            again: words[9].split_once(" again ").map(|(_, first)| first.parse().unwrap()),
        }),
        "begin" => Step::Begin(number(1), words.len() > 2),
        "accept" => Step::Accept(number(1)),
        "cancel" => Step::Cancel(number(1)),
        "give-up" => Step::GiveUp(number(1)),
        "reply" => Step::Reply(number(1)),
        "pause" => Step::Pause(number(1) as u64),
        "stall" => Step::Stall(true),
        "resume" => Step::Stall(false),
        "leave" => Step::Leave(number(1)),
        "listen" => Step::Listen(number(1)),
        "stranger" => Step::Stranger(number(1)),
        "reload" => Step::Reload,
        "cut" => Step::Cut(number(1)),
        "return" => Step::Return(number(1)),
        "die" => Step::Die,
        "say" | "join" => Step::Say(Say {
            with_next: words[0] == "join",
            mark: number(1),
            kind: Kind::ALL.iter().find(|(_, name)| *name == words[2]).unwrap().0,
            about: words[4].parse().ok(),
            names: match words[6] {
                "token" => Names::Token,
                "id" => Names::Id,
                "tool" => Names::Tool,
                "-" => Names::Nothing,
                text => Names::Other(text.to_owned()),
            },
            place: match words[8].split_once('-') {
                Some(("post", call)) => Place::Post(call.parse().unwrap()),
                Some((_, client)) => Place::Home(client.parse().unwrap()),
                None => Place::Wire,
            },
            text: words[9].to_owned(),
        }),
        _ => panic!("what is {line}?"),
    }
}
