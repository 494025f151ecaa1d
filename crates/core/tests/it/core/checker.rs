//! Checks the rules of progress as a client can observe them. It uses no code of the proxy.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// The requests and messages of a client on one connection.
///
/// Pass every message to `client_said` or `client_told`, in the order in which the messages were sent. Both panic if a
/// rule of the specification is broken.
#[derive(Debug, Default)]
pub(crate) struct Checker {
    /// Unanswered requests by the text of their id, oldest first. There may be several with one id, because a careless
    /// client repeats ids.
    open: Vec<(String, Request)>,
    /// Tokens whose request has become a task (2025-11-25), by task id.
    tasks: BTreeMap<String, Request>,
    answered: Vec<String>,
    told: BTreeMap<String, f64>,
}

#[derive(Debug, Clone, Default)]
struct Request {
    method: String,
    token: Option<String>,
    about_task: Option<String>,
    wants_task: bool,
    revision: Option<String>,
}

/// The raw members of a message. If a key is repeated, the last value counts.
struct Envelope {
    jsonrpc: Option<String>,
    id: Option<String>,
    method: Option<String>,
    params: Option<String>,
    result: Option<String>,
    error: Option<String>,
}

/// Reads one message; `None` if `text` is not a single message.
fn envelope(text: &str) -> Option<Envelope> {
    let mut members: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
    let mut take = |key| members.remove(key).map(|value| value.get().to_owned());
    Some(Envelope {
        jsonrpc: take("jsonrpc"),
        id: take("id"),
        method: take("method").and_then(|method| serde_json::from_str(&method).ok()),
        params: take("params"),
        result: take("result"),
        error: take("error"),
    })
}

fn raw_members(text: &str) -> BTreeMap<String, String> {
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(text).unwrap_or_default();
    members.into_iter().map(|(key, value)| (key, value.get().to_owned())).collect()
}

/// Whether a client reads two spellings as the same token: they have the same text, or are the same string.
fn same(one: &str, other: &str) -> bool {
    let string = |text: &str| {
        text.starts_with('"').then(|| serde_json::from_str::<String>(text).ok()).flatten()
    };
    one == other || (string(one).is_some() && string(one) == string(other))
}

fn is_key(text: &str) -> bool {
    text.starts_with('"') || serde_json::from_str::<&RawValue>(text).is_ok() && is_number(text)
}

fn is_number(text: &str) -> bool {
    text.starts_with(|first: char| first == '-' || first.is_ascii_digit())
}

impl Checker {
    /// Notes a message that the client has sent.
    pub(crate) fn client_said(&mut self, text: &str) {
        let Some(message) = envelope(text) else {
            let elements: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
            elements.into_iter().for_each(|element| self.client_said(element.get()));
            return;
        };
        let params = message.params.map(|params| raw_members(&params)).unwrap_or_default();
        let Some(method) = message.method else { return };
        if method == "notifications/cancelled" {
            let Some(id) = params.get("requestId") else { return };
            let found = self.open.iter().position(|(open, _)| same(open, id));
            if let Some(at) = found.filter(|&at| self.open[at].1.method != "initialize") {
                let request = self.open.remove(at).1;
                self.retire(request);
            }
            return;
        }
        let Some(id) = message.id else { return };
        let meta = params.get("_meta").map(|meta| raw_members(meta)).unwrap_or_default();
        let token = meta.get("progressToken").filter(|token| is_key(token)).cloned();
        let request = Request {
            method,
            token,
            about_task: params.get("taskId").cloned(),
            wants_task: params.contains_key("task"),
            revision: meta.get("io.modelcontextprotocol/protocolVersion").cloned(),
        };
        self.open.push((id, request));
    }

    /// Checks a message that the client has read.
    #[track_caller]
    pub(crate) fn client_told(&mut self, text: &str) {
        let Some(message) = envelope(text) else {
            let elements: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
            elements.into_iter().for_each(|element| self.client_told(element.get()));
            self.note_joined(text);
            return;
        };
        let Some(method) = message.method else { return self.answered(&message) };
        let params = message.params.as_deref().unwrap_or("null");
        match &*method {
            "notifications/progress" if message.id.is_none() => {
                assert_eq!(message.jsonrpc.as_deref(), Some("\"2.0\""), "jsonrpc in {text}");
                self.progressed(text, params);
            }
            "notifications/tasks/status" => self.note_task(params),
            _ => {}
        }
    }

    /// Notes several messages on one line, which no client can read. Their requests count as answered.
    fn note_joined(&mut self, text: &str) {
        let documents = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
        for document in documents.map_while(Result::ok) {
            let answer = envelope(document.get()).filter(|message| message.method.is_none());
            let id = answer.and_then(|answer| answer.id);
            if let Some(at) = self.open.iter().position(|(open, _)| id.as_ref() == Some(open)) {
                let request = self.open.remove(at).1;
                self.retire(request);
            }
        }
    }

    #[track_caller]
    fn progressed(&mut self, text: &str, params: &str) {
        // Read as raw values, because a lone surrogate is not Unicode, but is JSON that most clients read.
        let strict: Result<BTreeMap<String, &RawValue>, _> = serde_json::from_str(params);
        assert!(strict.is_ok(), "{strict:?} in {text}");
        let raw = raw_members(params);
        let begins = |name: &str, with| raw.get(name).is_none_or(|value| value.starts_with(with));
        let token = raw.get("progressToken").unwrap_or_else(|| panic!("no token in {text}"));
        let mut active = self.open.iter().map(|(_, open)| open).chain(self.tasks.values());
        let known = active.find_map(|request| request.token.clone().filter(|own| same(own, token)));
        let known = known.unwrap_or_else(|| panic!("unknown or finished token in {text}"));
        let number = |name: &str| {
            let value: f64 = raw[name].parse().unwrap_or_else(|_| panic!("{name} in {text}"));
            assert!(value.is_finite(), "{name} in {text}");
            value
        };
        let progress = number("progress");
        if raw.contains_key("total") {
            number("total");
        }
        assert!(begins("message", '"'), "message in {text}");
        assert!(begins("_meta", '{'), "_meta in {text}");
        let told = self.told.insert(known, progress);
        assert!(told.is_none_or(|told| progress > told), "{told:?} before {text}");
    }

    #[track_caller]
    fn answered(&mut self, message: &Envelope) {
        let Some(id) = message.id.clone() else { return };
        if message.result.is_none() && message.error.is_none() {
            return;
        }
        let Some(at) = self.open.iter().position(|(open, _)| *open == id) else {
            assert!(!self.answered.contains(&id), "a second answer to {id}");
            return;
        };
        let request = self.open.remove(at).1;
        self.answered.push(id);
        let result = message.result.as_deref().map(raw_members).unwrap_or_default();
        let task = result.get("task").map(|task| raw_members(task)).unwrap_or_default();
        let modern = request.revision.as_deref() == Some("\"2026-07-28\"");
        if let Some(task) = task.get("taskId").filter(|_| request.wants_task && !modern) {
            self.tasks.insert(task.clone(), request);
            return;
        }
        if request.method.starts_with("tasks/") {
            let unknown = message.error.as_ref().is_some_and(|error| error.contains("-32602"));
            if let Some(task) = request.about_task.as_ref()
                && (unknown || request.method == "tasks/result")
            {
                self.end_task(task);
            }
            if let Some(result) = &message.result {
                self.note_task(result);
            }
        }
        self.retire(request);
    }

    fn note_task(&mut self, task: &str) {
        let task = raw_members(task);
        let over = ["\"completed\"", "\"failed\"", "\"cancelled\""];
        if task.get("status").is_some_and(|status| over.contains(&&**status))
            && let Some(id) = task.get("taskId")
        {
            self.end_task(id);
        }
    }

    fn end_task(&mut self, id: &str) {
        if let Some(request) = self.tasks.remove(id) {
            self.retire(request);
        }
    }

    /// Ends a request. If no request has its token any more, the values of this token begin again.
    fn retire(&mut self, request: Request) {
        let Some(token) = request.token else { return };
        let mut left = self.open.iter().map(|(_, open)| open).chain(self.tasks.values());
        if !left.any(|request| request.token.as_ref() == Some(&token)) {
            self.told.remove(&token);
        }
    }
}
