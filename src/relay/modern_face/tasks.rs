//! Tasks of 2026-07-28: a call that takes long becomes a task, if its client declares that it knows tasks. The server
//! goes on with an ordinary call.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::questions::Asked;
use super::{FaceRequest, ModernFace, result_answer};
use crate::progress::{TaskEvent, TaskNews, rfc_3339, task_words};
use crate::protocol::jsonrpc::{
    INTERNAL_ERROR, INVALID_PARAMS, Key, METHOD_NOT_FOUND, Message, error_answer,
};
use crate::protocol::{json, mcp};
use crate::relay::legs::ClientHeaders;
use crate::transport::random::random_id;

/// The name of the extension.
pub(super) const TASKS: &str = "io.modelcontextprotocol/tasks";

/// Tasks of one server that are remembered. A further call becomes no task: its client waits for the answer.
const FACE_TASKS_MAX: usize = 256;

/// The time between two looks of a client at a task, in milliseconds.
const POLL_INTERVAL_MS: u64 = 2000;

/// The longest text of a server that the status of a task shows, in characters.
const WORDS_MAX: usize = 200;

/// The code for a client that has not declared a capability (26:basic §Error Codes).
const MISSING_CAPABILITY: i32 = -32021;

/// The members of a notification in which servers say what they do.
const WORDS: [&str; 4] = ["message", "status", "text", "data"];

enum TaskPhase {
    Working,
    /// The result.
    Completed(Bytes),
    /// The error.
    Failed(Bytes),
    Cancelled,
}

/// One task.
pub(super) struct FaceTask {
    pub(super) id: String,
    pub(super) request: FaceRequest,
    /// The id by which the server knows the call.
    server_id: Key,
    began: Instant,
    /// The times of the beginning and of the last change, in milliseconds since 1970.
    created: u64,
    updated: u64,
    ttl: Duration,
    phase: TaskPhase,
    words: Option<String>,
    /// The server's requests to the client that have no answer yet.
    pub(super) asked: Vec<Asked>,
    is_fetched: bool,
}

impl FaceTask {
    pub(super) fn is_working(&self) -> bool {
        matches!(self.phase, TaskPhase::Working)
    }

    /// Whether the task runs, or has an answer that its client has not fetched.
    pub(super) fn is_open(&self) -> bool {
        !self.is_fetched
    }

    fn status(&self) -> &'static str {
        match self.phase {
            TaskPhase::Working if !self.asked.is_empty() => "input_required",
            TaskPhase::Working => "working",
            TaskPhase::Completed(_) => "completed",
            TaskPhase::Failed(_) => "failed",
            TaskPhase::Cancelled => "cancelled",
        }
    }

    fn tool(&self) -> &str {
        self.request.tool.as_deref().unwrap_or_default()
    }

    pub(super) fn until(&self) -> Instant {
        self.began + self.ttl
    }

    /// The members of the task as JSON, without braces.
    fn show(&self, now: Instant) -> String {
        let running = || {
            let seconds = now.saturating_duration_since(self.request.came).as_secs();
            format!("{}: running {seconds}s", self.tool())
        };
        let words = match &self.phase {
            TaskPhase::Working => Some(self.words.clone().unwrap_or_else(running)),
            TaskPhase::Failed(error) => json::member(error, "message")
                .and_then(|words| Some(json::decode_str(&words)?.into_owned())),
            _ => None,
        };
        let mut shown = json!({
            "taskId": self.id,
            "status": self.status(),
            "createdAt": rfc_3339(self.created),
            "lastUpdatedAt": rfc_3339(self.updated),
            "ttlMs": u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX),
            "pollIntervalMs": POLL_INTERVAL_MS,
        });
        if let Some(words) = words {
            shown["statusMessage"] = json!(words);
        }
        if self.is_working() && !self.asked.is_empty() {
            let asked = self.asked.iter().map(|asked| (asked.name.clone(), asked.question.clone()));
            let mut requests = Map::new();
            requests.extend(asked);
            shown["inputRequests"] = requests.into();
        }
        let shown = shown.to_string();
        let members = &shown[1..shown.len() - 1];
        match &self.phase {
            TaskPhase::Completed(result) => {
                format!(r#"{members},"result":{}"#, String::from_utf8_lossy(result))
            }
            TaskPhase::Failed(error) => {
                format!(r#"{members},"error":{}"#, String::from_utf8_lossy(error))
            }
            _ => members.to_owned(),
        }
    }
}

/// Whether a client has declared with a request that it knows tasks.
pub(super) fn knows_tasks(capabilities: &Value) -> bool {
    capabilities["extensions"][TASKS].is_object()
}

fn millis() -> u64 {
    let millis = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis());
    u64::try_from(millis).unwrap_or(u64::MAX)
}

impl ModernFace {
    /// The time at which a call becomes a task; `None` if it never does.
    pub(super) fn task_time(
        &self,
        (method, tool): (&str, Option<&str>),
        capabilities: &Value,
        now: Instant,
    ) -> Option<Instant> {
        let may = method == mcp::TOOLS_CALL && knows_tasks(capabilities);
        let settings = self.policy.of(tool).task_settings().filter(|_| may)?;
        Some(now + settings.after)
    }

    /// Calls that have taken long enough become tasks.
    pub(super) fn begin_tasks(&mut self, now: Instant) {
        let is_due = |open: &FaceRequest| open.task_at.is_some_and(|at| at <= now);
        let due = self.open.iter().filter(|(_, open)| is_due(open));
        for key in due.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            let Some(open) = self.open.get_mut(&key) else { continue };
            open.task_at = None;
            let ttl = self.policy.of(open.tool.as_deref()).task_settings().map(|set| set.ttl);
            let (Some(ttl), Some(id)) = (ttl.filter(|_| self.make_task_room()), random_id()) else {
                continue;
            };
            let Some(request) = self.open.remove(&key) else { continue };
            let task = FaceTask {
                id: format!("mp-{id}"),
                server_id: request.server_id.clone().unwrap_or_else(|| key.clone()),
                request,
                began: now,
                created: millis(),
                updated: millis(),
                ttl,
                phase: TaskPhase::Working,
                words: None,
                asked: Vec::new(),
                is_fetched: false,
            };
            let result = format!(r#"{{"resultType":"task",{}}}"#, task.show(now));
            self.note_task(&task, TaskEvent::Began, now);
            self.tasks.push(task);
            let text = result_answer(&key.to_json(), result.as_bytes());
            self.tell_message(Message::parse(text));
        }
    }

    /// Makes room for one more task; false if there is none.
    fn make_task_room(&mut self) -> bool {
        if self.tasks.len() < FACE_TASKS_MAX {
            return true;
        }
        let over = self.tasks.iter().position(|task| task.is_fetched && !task.is_working());
        over.map(|place| self.tasks.remove(place)).is_some()
    }

    fn note_task(&mut self, task: &FaceTask, event: TaskEvent, now: Instant) {
        let age = now.saturating_duration_since(task.began);
        self.news.push_back(TaskNews { event, tool: task.tool().to_owned(), age });
    }

    /// Takes a request about tasks.
    pub(super) fn task_request(
        &mut self,
        sent: &Message,
        (method, params): (&str, &Bytes),
        capabilities: &Value,
        headers: &ClientHeaders,
        now: Instant,
    ) {
        let known = [mcp::TASKS_GET, mcp::TASKS_UPDATE, mcp::TASKS_CANCEL].contains(&method);
        if !known || !self.policy.has_tasks() {
            let why = format!("this server has no method {method:?} in 2026-07-28");
            return self.refuse_with(sent, METHOD_NOT_FOUND, &why);
        }
        if !knows_tasks(capabilities) {
            return self.refuse_without_tasks(sent);
        }
        let id = json::member(params, "taskId");
        let id = id.as_ref().and_then(|id| json::decode_str(id)).unwrap_or_default();
        let Some(place) = self.tasks.iter().position(|task| task.id == id) else {
            let why = "this task is not known: its time to live is over, or it is another client's";
            return self.refuse_with(sent, INVALID_PARAMS, why);
        };
        let Some(request) = sent.id() else { return };
        let result = match method {
            mcp::TASKS_GET => {
                let shown = self.tasks[place].show(now);
                self.note_fetched(place, now);
                format!(r#"{{"resultType":"complete",{shown}}}"#)
            }
            mcp::TASKS_UPDATE => {
                let given = json::member(params, "inputResponses").unwrap_or_default();
                self.update_task(place, &given, headers, now);
                r#"{"resultType":"complete"}"#.to_owned()
            }
            _ => {
                self.cancel_task(place, "the client has cancelled the task", headers, now);
                r#"{"resultType":"complete"}"#.to_owned()
            }
        };
        self.tell_message(Message::parse(result_answer(&request, result.as_bytes())));
    }

    /// The error for a client that has not declared tasks.
    pub(super) fn refuse_without_tasks(&mut self, sent: &Message) {
        let Some(id) = sent.id().and_then(|id| serde_json::from_slice::<Value>(&id).ok()) else {
            return;
        };
        self.tell(&json!({
            "jsonrpc": "2.0", "id": id,
            "error": {
                "code": MISSING_CAPABILITY,
                "message": format!("the client has not declared the extension {TASKS} with this request"),
                "data": {"requiredCapabilities": {"extensions": {(TASKS): {}}}},
            },
        }));
    }

    fn note_fetched(&mut self, place: usize, now: Instant) {
        let task = &mut self.tasks[place];
        if task.is_working() || std::mem::replace(&mut task.is_fetched, true) {
            return;
        }
        let (tool, age) = (task.tool().to_owned(), now.saturating_duration_since(task.began));
        self.news.push_back(TaskNews { event: TaskEvent::Fetched, tool, age });
    }

    /// A client answers questions of the server. Answers to questions that are not open mean nothing.
    fn update_task(&mut self, place: usize, given: &Bytes, headers: &ClientHeaders, now: Instant) {
        let task = &mut self.tasks[place];
        let mut answered = Vec::new();
        task.asked.retain(|asked| {
            let given = json::member(given, &asked.name).filter(|given| given.starts_with(b"{"));
            answered.extend(given.iter().map(|given| result_answer(&asked.server_id, given)));
            given.is_none()
        });
        if answered.is_empty() {
            return;
        }
        task.updated = millis();
        answered.into_iter().for_each(|answer| self.send(answer, headers));
        self.tell_of_task(place, now);
    }

    /// Cancels a task that runs.
    fn cancel_task(&mut self, place: usize, why: &str, headers: &ClientHeaders, now: Instant) {
        let task = &mut self.tasks[place];
        if !task.is_working() {
            return;
        }
        (task.phase, task.updated, task.is_fetched) = (TaskPhase::Cancelled, millis(), true);
        let (server_id, asked) = (task.server_id.clone(), std::mem::take(&mut task.asked));
        let age = now.saturating_duration_since(task.began);
        let news = TaskNews { event: TaskEvent::Cancelled, tool: task.tool().to_owned(), age };
        self.news.push_back(news);
        for asked in asked {
            self.send(error_answer(&asked.server_id, INTERNAL_ERROR, why, None), headers);
        }
        self.cancel(&server_id, headers);
        self.tell_of_task(place, now);
        self.decide(now);
    }

    /// Takes the server's answer to a call that runs as a task; false if the answer is for anybody else.
    pub(super) fn task_answer(&mut self, key: &Key, message: &Message, now: Instant) -> bool {
        let Some(place) = self.tasks.iter().position(|task| task.server_id == *key) else {
            return false;
        };
        if !self.tasks[place].is_working() {
            // The server has answered although the task was cancelled.
            return true;
        }
        let told = self.modern_answer(message, key, &self.tasks[place].request);
        let kept = |task: &FaceTask| match &task.phase {
            TaskPhase::Completed(result) => result.len(),
            _ => 0,
        };
        let held: usize = self.tasks.iter().map(kept).sum();
        // In memory of its own: an answer may wait for an hour.
        let own = |text: &Bytes| Bytes::copy_from_slice(text);
        let (phase, event) = match (told.result(), message.error()) {
            (_, Some(error)) => (TaskPhase::Failed(own(&error)), TaskEvent::Failed),
            (Some(result), _) if held + result.len() <= self.policy.call.tasks.bytes => {
                (TaskPhase::Completed(own(&result)), TaskEvent::Completed)
            }
            _ => (no_answer("the answer has no room (tasks.bytes)"), TaskEvent::Failed),
        };
        self.end_task(place, phase, event, now);
        true
    }

    /// The answer to a call that runs as a task is too large to be kept.
    pub(super) fn large_task_answer(&mut self, key: &Key, now: Instant) -> bool {
        let Some(place) = self.tasks.iter().position(|task| task.server_id == *key) else {
            return false;
        };
        if self.tasks[place].is_working() {
            let why = "the answer is too large to be kept for a task; make a call that does not become one";
            self.end_task(place, no_answer(why), TaskEvent::Failed, now);
        }
        true
    }

    fn end_task(&mut self, place: usize, phase: TaskPhase, event: TaskEvent, now: Instant) {
        let task = &mut self.tasks[place];
        (task.phase, task.updated) = (phase, millis());
        task.asked.clear();
        let age = now.saturating_duration_since(task.began);
        self.news.push_back(TaskNews { event, tool: task.tool().to_owned(), age });
        self.tell_of_task(place, now);
        self.decide(now);
    }

    /// Tells each stream that listens for a task of its state.
    pub(super) fn tell_of_task(&mut self, place: usize, now: Instant) {
        let task = &self.tasks[place];
        let shown = task.show(now);
        for id in self.listening_for(&task.id) {
            let meta = json!({(mcp::META_SUBSCRIPTION): id});
            let text = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/tasks","params":{{"_meta":{meta},{shown}}}}}"#
            );
            self.tell_message(Message::parse(Bytes::from(text)));
        }
    }

    /// Forgets tasks whose time to live is over; the server can stop its work.
    pub(super) fn expire_tasks(&mut self, now: Instant) {
        while let Some(place) = self.tasks.iter().position(|task| task.until() <= now) {
            let headers = self.tasks[place].request.headers.clone();
            self.cancel_task(place, "the time to live of the task is over", &headers, now);
            let task = self.tasks.remove(place);
            if !task.is_fetched {
                self.note_task(&task, TaskEvent::Expired, now);
            }
        }
    }

    /// Notes what the server says of a call that runs as a task.
    pub(super) fn note_task_words(&mut self, message: &Message, now: Instant) {
        if self.tasks.iter().all(|task| !task.is_working()) {
            return;
        }
        let Some(params) = message.params() else { return };
        let meta = json::member(&params, "_meta");
        let named: Vec<Key> =
            [Some(params.clone()), meta].into_iter().flatten().flat_map(names).collect();
        let is_named = |task: &&mut FaceTask| {
            let token = task.request.token.as_ref().unwrap_or(&task.server_id);
            named.contains(&task.server_id) || named.contains(token)
        };
        let calls = self.open.values().filter(|open| open.method == mcp::TOOLS_CALL).count();
        let mut working: Vec<&mut FaceTask> =
            self.tasks.iter_mut().filter(|task| task.is_working()).collect();
        let is_sole = working.len() == 1 && calls == 0;
        let Some(place) =
            working.iter_mut().position(|task| is_named(task)).or_else(|| is_sole.then_some(0))
        else {
            return;
        };
        let task = &mut working[place];
        let settings = self.policy.of(task.request.tool.as_deref());
        if let Some(words) =
            task_words(settings, message, now.into_std()).or_else(|| words_in(&params))
        {
            let letters = words.chars().filter(|letter| !letter.is_control());
            task.words = Some(letters.take(WORDS_MAX).collect());
            task.updated = millis();
        }
    }
}

/// The error of a task whose answer cannot be kept.
fn no_answer(why: &str) -> TaskPhase {
    TaskPhase::Failed(Bytes::from(json!({"code": INTERNAL_ERROR, "message": why}).to_string()))
}

/// The values of an object that may be tokens or ids.
fn names(object: Bytes) -> Vec<Key> {
    let all = json::Members::new(&object).filter_map(|member| {
        let name = json::decode_str(&object[member.key])?.to_ascii_lowercase();
        let is_name = name.ends_with("token") || name.ends_with("id");
        Key::read(&object.slice(member.value)).filter(|_| is_name)
    });
    all.collect()
}

/// What a notification of no dialect says.
fn words_in(params: &Bytes) -> Option<String> {
    let text = |name: &&str| {
        let value = json::member(params, name)?;
        Some(json::decode_str(&value).filter(|_| value.starts_with(b"\""))?.into_owned())
    };
    WORDS.iter().find_map(text)
}
