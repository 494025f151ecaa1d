//! Conversations played, each in a world of its own; what happens is a log for the judge.

mod pairs;
mod stage;
mod wire;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use stage::{Slot, Stage};

use crate::serve::proxy::Proxy;

use crate::conversation::{Call, Conversation, Kind, Say, Speaks, Step, World, marks};
use crate::judge::{Entry, Finding, What, judge};

/// Plays a conversation and judges it.
pub(crate) fn findings(conversation: &Conversation) -> Vec<Finding> {
    played(conversation).1
}

/// Plays a conversation: what happens in it, and what the judge finds there.
pub(crate) fn played(conversation: &Conversation) -> (Vec<Entry>, Vec<Finding>) {
    let log = log(conversation);
    let findings = judge(conversation.world, &conversation.sessions, &log);
    (log, findings)
}

/// What happens in a conversation.
fn log(conversation: &Conversation) -> Vec<Entry> {
    match conversation.world {
        World::Wire { paced } => wire::play(paced, conversation),
        world if world.is_real() => Processes::of(world).play(conversation),
        world => {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_time().start_paused(true).build().unwrap();
            runtime.block_on(async {
                pairs::play(conversation, Stage::in_memory(world, conversation.late), "m").await
            })
        }
    }
}

/// How many conversations are played at once through the processes of a pair.
pub(crate) const SLOTS: usize = 12;

/// The processes of a pair, begun once.
struct Processes {
    /// One `serve`, unless clients are of stdio.
    serve: Option<Arc<Mutex<Proxy>>>,
    free: Mutex<Vec<Slot>>,
    number: AtomicUsize,
}

type Begun = Vec<(World, Arc<Processes>)>;

static BEGUN: Mutex<Begun> = Mutex::new(Vec::new());

/// The processes of a world end with this.
pub(crate) struct EndProcesses(pub(crate) World);

impl Drop for EndProcesses {
    fn drop(&mut self) {
        let mut begun = BEGUN.lock().unwrap_or_else(PoisonError::into_inner);
        begun.retain(|(world, _)| *world != self.0);
    }
}

impl Processes {
    fn of(world: World) -> Arc<Self> {
        let mut begun = BEGUN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, processes)) = begun.iter().find(|(of, _)| *of == world) {
            return Arc::clone(processes);
        }
        let server = world.server().unwrap();
        let slots: Vec<Slot> = (0..SLOTS).map(|number| Slot::new(server, number)).collect();
        let serve = (world.client() != Some(Speaks::Stdio))
            .then(|| Arc::new(Mutex::new(stage::serve(&slots))));
        let (free, number) = (Mutex::new(slots), AtomicUsize::new(0));
        let processes = Arc::new(Self { serve, free, number });
        begun.push((world, Arc::clone(&processes)));
        processes
    }

    fn play(&self, conversation: &Conversation) -> Vec<Entry> {
        let slot = self.free.lock().unwrap().pop().expect("a free slot");
        let mark = format!("n{}", self.number.fetch_add(1, Ordering::Relaxed));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let log = runtime.block_on(async {
            let stage = Stage::of_processes(&slot, self.serve.as_ref());
            pairs::play(conversation, stage, &mark).await
        });
        drop(runtime);
        self.free.lock().unwrap().push(slot);
        log
    }
}

/// What the server knows of a request.
pub(crate) struct Known {
    pub(crate) id: String,
    pub(crate) token: String,
}

/// What the server knows of the requests that have reached it, by the number of the call.
#[derive(Default)]
pub(crate) struct Server(BTreeMap<usize, Known>);

impl Server {
    pub(crate) fn take(&mut self, text: &str) {
        let message: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
        let Some(number) =
            marks('c', text).first().copied().filter(|_| message["id"] != serde_json::Value::Null)
        else {
            return;
        };
        let raw = |name: &str| {
            let rest = text.split_once(&format!("\"{name}\":")).map_or("", |(_, rest)| rest);
            let mut stream = serde_json::Deserializer::from_str(rest)
                .into_iter::<&serde_json::value::RawValue>();
            stream.next().and_then(Result::ok).map_or(String::new(), |raw| raw.get().to_owned())
        };
        let known = Known { id: raw("id"), token: raw("progressToken") };
        self.0.insert(number, known);
    }

    /// The text of a message; `None` where the server has not got what it is about.
    pub(crate) fn say(&self, say: &Say) -> Option<String> {
        match say.about {
            None => Some(say.with("", "")),
            Some(call) => {
                let known = self.0.get(&call)?;
                let token = if known.token.is_empty() { "\"none\"" } else { &known.token };
                Some(say.with(&known.id, token))
            }
        }
    }

    /// The earlier call with the same arguments that the server does, where it has not got this one.
    pub(crate) fn work_of(&self, steps: &[Step], asked: &Call) -> Option<usize> {
        if self.knows(asked.number) {
            return None;
        }
        let is_same = |before: &&Call| {
            before.number != asked.number
                && before.client == asked.client
                && before.first() == asked.first()
        };
        // A client may have the same call open several times. What it has given up goes on for its next calls in turn.
        let (mut left, mut joined, mut last) = (VecDeque::new(), BTreeMap::new(), None);
        for step in steps {
            match step {
                Step::Call(call) if call.number == asked.number => break,
                Step::Call(call) if is_same(&call) && self.knows(call.number) => {
                    last = Some(call.number)
                }
                Step::Call(call) if is_same(&call) => {
                    joined.extend(left.pop_front().map(|work| (call.number, work)));
                }
                Step::GiveUp(number) if call(steps, *number).filter(is_same).is_some() => {
                    let work = joined.get(number).copied();
                    left.extend(work.or_else(|| self.knows(*number).then_some(*number)));
                }
                _ => {}
            }
        }
        left.pop_front().or(last)
    }

    /// The cancellation of a call, as the server is to get it.
    pub(crate) fn cancelled(&self, steps: &[Step], asked: &Call) -> String {
        let work = self.work_of(steps, asked).or(Some(asked.number));
        let Some(Known { id, .. }) = work.and_then(|work| self.0.get(&work)) else {
            return cancelled(asked);
        };
        if *id == asked.id {
            return cancelled(asked);
        }
        // The id is not the client's, and so a string is in its plainest spelling.
        let string = serde_json::from_str::<String>(id);
        let id = string.map_or_else(|_| id.clone(), |id| serde_json::json!(id).to_string());
        cancelled(&Call { id, ..asked.clone() })
    }

    /// Whether the server does the work of a call, which may have joined another.
    pub(crate) fn works_for(&self, steps: &[Step], number: usize) -> bool {
        let joined = call(steps, number).filter(|call| call.again.is_some());
        self.knows(number) || joined.is_some_and(|call| self.work_of(steps, call).is_some())
    }

    pub(crate) fn knows(&self, call: usize) -> bool {
        self.0.contains_key(&call)
    }
}

/// The cancellation of a call.
pub(crate) fn cancelled(call: &Call) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{}}}}}"#,
        call.id
    )
}

/// The same by a client whose clock ran out, in the words of the TypeScript SDK.
pub(crate) fn given_up(call: &Call) -> String {
    let reason = r#","reason":"MCP error -32001: Request timed out"}}"#;
    cancelled(call).strip_suffix("}}").unwrap().to_owned() + reason
}

/// Whether a server can say this now: a task that is not there does not end.
fn is_possible(say: &Say, log: &[Entry]) -> bool {
    let begins = |entry: &Entry| matches!(&entry.what, What::Said(said) if said.about == say.about && said.kind == Kind::Answer);
    say.kind != Kind::Note || say.about.is_none() || log.iter().any(begins)
}

/// The client's answer to a request of the server.
pub(crate) fn reply(mark: usize) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":"s{mark}","result":{{"m{mark}.":[]}}}}"#)
}

/// A call of a conversation.
pub(crate) fn call(steps: &[Step], number: usize) -> Option<&Call> {
    steps.iter().find_map(|step| match step {
        Step::Call(call) if call.number == number => Some(call),
        _ => None,
    })
}
