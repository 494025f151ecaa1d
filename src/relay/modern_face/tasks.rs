//! Tasks of 2026-07-28: a call that takes long becomes a task, if its client has declared support for tasks. For the
//! server it stays an ordinary call.

use bytes::Bytes;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::questions::Asked;
use super::{FaceRequest, ModernFace, result_answer};
use crate::progress::{KeptBytes, TaskEvent, TaskNews, Work, rfc_3339, task_words};
use crate::protocol::jsonrpc::{
    INTERNAL_ERROR, INVALID_PARAMS, Key, METHOD_NOT_FOUND, Message, error_answer,
};
use crate::protocol::{json, mcp};
use crate::relay::legs::ClientHeaders;
use crate::transport::random::random_id;

/// The name of the extension for tasks.
pub(super) const TASKS: &str = "io.modelcontextprotocol/tasks";

/// The interval at which a client should ask for the state of a task, in milliseconds.
const POLL_INTERVAL_MS: u64 = 2000;

/// Maximum number of characters of a server's text that the status of a task shows.
const WORDS_MAX: usize = 200;

/// The error code for a client that has not declared a capability (26:basic §Error Codes).
const MISSING_CAPABILITY: i32 = -32021;

/// The members of a notification in which servers describe their work.
const WORDS: [&str; 4] = ["message", "status", "text", "data"];

/// How a task ended.
pub(super) enum FaceEnd {
    /// With this result.
    Completed(Bytes),
    /// With this error.
    Failed(Bytes),
    Cancelled,
}

impl KeptBytes for FaceEnd {
    fn kept_bytes(&self) -> usize {
        match self {
            Self::Completed(text) | Self::Failed(text) => text.len(),
            Self::Cancelled => 0,
        }
    }
}

/// The state of one task.
pub(super) struct FaceTask {
    pub(super) id: String,
    pub(super) request: FaceRequest,
    /// When the task began, in milliseconds since 1970.
    created: u64,
    updated: u64,
    words: Option<String>,
    /// The server's unanswered requests to the client.
    pub(super) asked: Vec<Asked>,
}

impl FaceTask {
    fn tool(&self) -> &str {
        self.request.tool.as_deref().unwrap_or_default()
    }
}

/// One task.
type FaceWork = Work<FaceTask, FaceEnd>;

fn status(work: &FaceWork) -> &'static str {
    match work.answer() {
        None if !work.details.asked.is_empty() => "input_required",
        None => "working",
        Some(FaceEnd::Completed(_)) => "completed",
        Some(FaceEnd::Failed(_)) => "failed",
        Some(FaceEnd::Cancelled) => "cancelled",
    }
}

/// Returns the members of a task as JSON, without braces.
fn show(work: &FaceWork, now: Instant) -> String {
    let task = &work.details;
    let running = || {
        let seconds = now.saturating_duration_since(task.request.came).as_secs();
        format!("{}: running {seconds}s", task.tool())
    };
    let words = match work.answer() {
        None => Some(task.words.clone().unwrap_or_else(running)),
        Some(FaceEnd::Failed(error)) => json::member(error, "message")
            .and_then(|words| Some(json::decode_str(&words)?.into_owned())),
        Some(_) => None,
    };
    let mut shown = json!({
        "taskId": task.id,
        "status": status(work),
        "createdAt": rfc_3339(task.created),
        "lastUpdatedAt": rfc_3339(task.updated),
        "ttlMs": u64::try_from(work.ttl().as_millis()).unwrap_or(u64::MAX),
        "pollIntervalMs": POLL_INTERVAL_MS,
    });
    if let Some(words) = words {
        shown["statusMessage"] = json!(words);
    }
    if work.is_running() && !task.asked.is_empty() {
        let asked = task.asked.iter().map(|asked| (asked.name.clone(), asked.question.clone()));
        let mut requests = Map::new();
        requests.extend(asked);
        shown["inputRequests"] = requests.into();
    }
    let shown = shown.to_string();
    // Splice the text, so that the result stays exactly as the server wrote it.
    let members = &shown[1..shown.len() - 1];
    match work.answer() {
        Some(FaceEnd::Completed(result)) => {
            format!(r#"{members},"result":{}"#, String::from_utf8_lossy(result))
        }
        Some(FaceEnd::Failed(error)) => {
            format!(r#"{members},"error":{}"#, String::from_utf8_lossy(error))
        }
        _ => members.to_owned(),
    }
}

/// Whether a client has declared in a request that it supports tasks.
pub(super) fn knows_tasks(capabilities: &Value) -> bool {
    capabilities["extensions"][TASKS].is_object()
}

fn news(task: &FaceWork, event: TaskEvent, now: Instant) -> TaskNews {
    let tool = task.details.tool().to_owned();
    TaskNews { event, tool, age: task.age(now.into_std()) }
}

fn millis() -> u64 {
    let millis = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis());
    u64::try_from(millis).unwrap_or(u64::MAX)
}

impl ModernFace {
    /// Returns the time at which a call becomes a task; `None` if it never does.
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

    /// Turns calls that have taken long enough into tasks.
    pub(super) fn begin_tasks(&mut self, now: Instant) {
        let is_due = |open: &FaceRequest| open.task_at.is_some_and(|at| at <= now);
        let due = self.open.iter().filter(|(_, open)| is_due(open));
        for key in due.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            let Some(open) = self.open.get_mut(&key) else { continue };
            // Decide only once: if no task can be made for a call, it stays an ordinary call.
            open.task_at = None;
            let ttl = self.policy.of(open.tool.as_deref()).task_settings().map(|set| set.ttl);
            let (Some(ttl), Some(id)) = (ttl.filter(|_| self.tasks.make_room()), random_id())
            else {
                // If the limit is reached, or the system has no random bytes, the call stays an ordinary call.
                continue;
            };
            let Some(request) = self.open.remove(&key) else { continue };
            let server_id = request.server_id.clone().unwrap_or_else(|| key.clone());
            let details = FaceTask {
                // The id must not be guessable, because whoever knows it can get the result.
                id: format!("mp-{id}"),
                request,
                created: millis(),
                updated: millis(),
                words: None,
                asked: Vec::new(),
            };
            let began = now.into_std();
            let task = Work::new(server_id, began, began + ttl, details);
            let result = format!(r#"{{"resultType":"task",{}}}"#, show(&task, now));
            self.note_task(&task, TaskEvent::Began, now);
            self.tasks.add(task);
            let text = result_answer(&key.to_json(), result.as_bytes());
            self.tell_message(Message::parse(text));
        }
    }

    fn note_task(&mut self, task: &FaceWork, event: TaskEvent, now: Instant) {
        self.news.push_back(news(task, event, now));
    }

    /// Handles a request about tasks.
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
        let Some(place) = self.tasks.place_of(|task| task.details.id == id) else {
            let why = "this task is not known: its time to live is over, or it is another client's";
            return self.refuse_with(sent, INVALID_PARAMS, why);
        };
        let Some(request) = sent.id() else { return };
        let result = match method {
            mcp::TASKS_GET => {
                let shown = show(&self.tasks[place], now);
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

    /// Refuses a request about tasks from a client that has not declared support for them.
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
        if task.fetch() {
            self.news.push_back(news(task, TaskEvent::Fetched, now));
        }
    }

    /// Handles a client's answers to questions of the server. Answers to unknown questions are ignored.
    fn update_task(&mut self, place: usize, given: &Bytes, headers: &ClientHeaders, now: Instant) {
        let task = &mut self.tasks[place].details;
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

    /// Cancels a running task.
    fn cancel_task(&mut self, place: usize, why: &str, headers: &ClientHeaders, now: Instant) {
        let task = &mut self.tasks[place];
        if !task.is_running() {
            return;
        }
        // Mark the answer as fetched, because no client requests the answer of a cancelled task.
        task.finish(FaceEnd::Cancelled);
        task.fetch();
        task.details.updated = millis();
        let (server_id, asked) = (task.server_id.clone(), std::mem::take(&mut task.details.asked));
        self.news.push_back(news(task, TaskEvent::Cancelled, now));
        for asked in asked {
            self.send(error_answer(&asked.server_id, INTERNAL_ERROR, why, None), headers);
        }
        self.cancel(&server_id, headers);
        self.tell_of_task(place, now);
        self.decide(now);
    }

    /// Handles the server's answer to a call that became a task. Returns false if the answer is for another call.
    pub(super) fn task_answer(&mut self, key: &Key, message: &Message, now: Instant) -> bool {
        let Some(place) = self.tasks.place_of(|task| task.server_id == *key) else {
            return false;
        };
        if !self.tasks[place].is_running() {
            // The task was cancelled, but the server has answered nevertheless.
            return true;
        }
        let told = self.modern_answer(message, key, &self.tasks[place].details.request);
        // Copy the text: an answer may wait for an hour, and would keep a whole read buffer in memory.
        let own = |text: &Bytes| Bytes::copy_from_slice(text);
        let (end, event) = match (told.result(), message.error()) {
            (_, Some(error)) => (FaceEnd::Failed(own(&error)), TaskEvent::Failed),
            (Some(result), _) if self.make_kept_room(result.len()) => {
                (FaceEnd::Completed(own(&result)), TaskEvent::Completed)
            }
            _ => {
                let why = "the answer has no room (tasks.bytes, server.max_kept_bytes)";
                (no_answer(why), TaskEvent::Failed)
            }
        };
        // Making room may have removed earlier tasks, so look the index up again.
        if let Some(place) = self.tasks.place_of(|task| task.server_id == *key) {
            self.end_task(place, end, event, now);
        }
        true
    }

    /// Makes room for an answer that is to be kept. Returns false if there is not enough.
    fn make_kept_room(&mut self, bytes: usize) -> bool {
        let has_room = self.tasks.make_bytes(bytes, self.policy.call.tasks.bytes);
        self.count_kept();
        has_room && self.kept.as_ref().is_none_or(|room| bytes <= room.left())
    }

    /// Counts the memory for the answers that are kept now.
    fn count_kept(&mut self) {
        if let Some(room) = &mut self.kept {
            room.count(self.tasks.bytes());
        }
    }

    /// Handles an answer to a call that became a task, if the answer is too large to be kept.
    pub(super) fn large_task_answer(&mut self, key: &Key, now: Instant) -> bool {
        let Some(place) = self.tasks.place_of(|task| task.server_id == *key) else {
            return false;
        };
        if self.tasks[place].is_running() {
            let why = "the answer is too large to be kept for a task; make a call that does not become one";
            self.end_task(place, no_answer(why), TaskEvent::Failed, now);
        }
        true
    }

    fn end_task(&mut self, place: usize, end: FaceEnd, event: TaskEvent, now: Instant) {
        let task = &mut self.tasks[place];
        task.finish(end);
        task.details.updated = millis();
        task.details.asked.clear();
        self.news.push_back(news(task, event, now));
        self.count_kept();
        self.tell_of_task(place, now);
        self.decide(now);
    }

    /// Notifies each stream that listens for a task of its state.
    pub(super) fn tell_of_task(&mut self, place: usize, now: Instant) {
        let task = &self.tasks[place];
        let shown = show(task, now);
        for id in self.listening_for(&task.details.id) {
            let meta = json!({(mcp::META_SUBSCRIPTION): id});
            let text = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/tasks","params":{{"_meta":{meta},{shown}}}}}"#
            );
            self.tell_message(Message::parse(Bytes::from(text)));
        }
    }

    /// Forgets tasks whose time to live is over, and cancels their work at the server.
    pub(super) fn expire_tasks(&mut self, now: Instant) {
        let at = now.into_std();
        while let Some(place) = self.tasks.place_of(|task| task.until <= at) {
            let headers = self.tasks[place].details.request.headers.clone();
            self.cancel_task(place, "the time to live of the task is over", &headers, now);
            if let Some(task) = self.tasks.take_at(place).filter(FaceWork::is_open) {
                self.note_task(&task, TaskEvent::Expired, now);
            }
            self.count_kept();
        }
    }

    /// Notes the server's text about a call that became a task.
    pub(super) fn note_task_words(&mut self, message: &Message, now: Instant) {
        if self.tasks.iter().all(|task| !task.is_running()) {
            return;
        }
        let Some(params) = message.params() else { return };
        let meta = json::member(&params, "_meta");
        let named: Vec<Key> =
            [Some(params.clone()), meta].into_iter().flatten().flat_map(names).collect();
        let is_named = |task: &&mut FaceWork| {
            let token = task.details.request.token.as_ref().unwrap_or(&task.server_id);
            named.contains(&task.server_id) || named.contains(token)
        };
        let calls = self.open.values().filter(|open| open.method == mcp::TOOLS_CALL).count();
        let mut working: Vec<&mut FaceWork> =
            self.tasks.iter_mut().filter(|task| task.is_running()).collect();
        // A notification that names no call belongs to a task only if nothing else runs.
        let is_sole = working.len() == 1 && calls == 0;
        let Some(place) =
            working.iter_mut().position(|task| is_named(task)).or_else(|| is_sole.then_some(0))
        else {
            return;
        };
        let task = &mut working[place].details;
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

/// Returns the end of a task whose answer cannot be kept.
fn no_answer(why: &str) -> FaceEnd {
    FaceEnd::Failed(Bytes::from(json!({"code": INTERNAL_ERROR, "message": why}).to_string()))
}

/// Returns the values of an object that may be tokens or ids.
fn names(object: Bytes) -> Vec<Key> {
    let all = json::Members::new(&object).filter_map(|member| {
        let name = json::decode_str(&object[member.key])?.to_ascii_lowercase();
        let is_name = name.ends_with("token") || name.ends_with("id");
        Key::read(&object.slice(member.value)).filter(|_| is_name)
    });
    all.collect()
}

/// Returns the text in a notification that belongs to no dialect.
fn words_in(params: &Bytes) -> Option<String> {
    let text = |name: &&str| {
        let value = json::member(params, name)?;
        Some(json::decode_str(&value).filter(|_| value.starts_with(b"\""))?.into_owned())
    };
    WORDS.iter().find_map(text)
}
