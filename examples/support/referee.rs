//! The judgement of `impatient_client.rs` on each line of a server: the rules, as a client sees them.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::{Value, json};

/// The meaning of a line.
pub(crate) enum Event {
    /// Valid progress of a call.
    Progress { id: u64, text: String },
    /// The answer to a request: its result, or why there is none.
    Answer {
        id: u64,
        /// The line calls the request by a string where it was a number: a fault.
        misnamed: bool,
        outcome: Result<Value, String>,
    },
    /// The server did something it must not.
    Fault(String),
    /// The server asked something, and this is the answer.
    Asked(Value),
    /// Nothing that concerns a call.
    Aside,
}

/// Follows the requests that have no answer yet.
#[derive(Default)]
pub(crate) struct Referee {
    active: BTreeMap<u64, Request>,
    /// How many calls got their result.
    pub(crate) results: u64,
    /// How many valid progress notifications there were.
    pub(crate) progress: u64,
    /// How many faults there were.
    pub(crate) faults: u64,
}

struct Request {
    token: Option<Value>,
    /// The highest figure it was told.
    told: Option<f64>,
    heard: Instant,
}

impl Referee {
    /// A request is about to be sent.
    pub(crate) fn expect(&mut self, id: u64, token: Option<Value>) {
        self.active.insert(id, Request { token, told: None, heard: Instant::now() });
    }

    /// A request's time is over.
    pub(crate) fn give_up(&mut self, id: u64) {
        self.active.remove(&id);
    }

    /// The request that has not been heard of for longest, and since when.
    pub(crate) fn longest_silent(&self) -> Option<(u64, Instant)> {
        let silences = self.active.iter().map(|(id, request)| (*id, request.heard));
        silences.min_by_key(|(_, heard)| *heard)
    }

    /// Reads a line of the server's.
    pub(crate) fn judge(&mut self, line: &[u8]) -> Event {
        let line = line.trim_ascii();
        if line.is_empty() {
            return Event::Aside;
        }
        self.read(line).unwrap_or_else(|fault| {
            self.faults += 1;
            Event::Fault(fault)
        })
    }

    fn read(&mut self, line: &[u8]) -> Result<Event, String> {
        let excerpt = || String::from_utf8_lossy(line).chars().take(100).collect::<String>();
        let message: Value = serde_json::from_slice(line)
            .map_err(|_| format!("a line that is not JSON: {}", excerpt()))?;
        if message["jsonrpc"] != "2.0" {
            return Err(format!("not a JSON-RPC message: {}", excerpt()));
        }
        match (message["method"].as_str(), message.get("id")) {
            (Some("notifications/progress"), None) => self.progress(&message["params"]),
            (Some("notifications/message"), None) => Ok(Event::Aside),
            (Some(method), None) if method.starts_with("notifications/") => Ok(Event::Aside),
            (Some(method), None) => Err(format!("a notification of unknown method {method}")),
            (Some("ping"), Some(id)) => {
                Ok(Event::Asked(json!({ "jsonrpc": "2.0", "id": id, "result": {} })))
            }
            (Some(method), Some(id)) => Ok(Event::Asked(json!({
                "jsonrpc": "2.0", "id": id,
                "error": { "code": -32601, "message": format!("Method not found: {method}") },
            }))),
            (None, Some(id)) => self.answer(id, &message),
            (None, None) => Err("an answer to nothing, as it has no id".to_owned()),
        }
    }

    fn progress(&mut self, params: &Value) -> Result<Event, String> {
        let token = params
            .get("progressToken")
            .filter(|token| token.is_string() || token.is_number())
            .ok_or_else(|| format!("progress without a token: {params}"))?;
        let progress = params["progress"]
            .as_f64()
            .ok_or_else(|| format!("progress without a figure: {params}"))?;
        let total = params.get("total").map(|total| total.as_f64().ok_or(total)).transpose();
        let message = params.get("message").map(|message| message.as_str().ok_or(message));
        let total = total.map_err(|total| format!("progress of a total of {total}"))?;
        let message = message
            .transpose()
            .map_err(|message| format!("progress with a message of {message}"))?;
        let mut requests = self.active.iter_mut();
        let (id, request) = requests
            .find(|(_, request)| request.token.as_ref() == Some(token))
            .ok_or_else(|| format!("progress for an unknown token: {token}"))?;
        request.heard = Instant::now();
        if let Some(told) = request.told.filter(|told| *told >= progress) {
            return Err(format!("progress of call {id} has been at {told} and is now {progress}"));
        }
        request.told = Some(progress);
        self.progress += 1;
        let of = total.map(|total| format!(" of {total}")).unwrap_or_default();
        let text = format!("{progress}{of}  {}", message.unwrap_or_default());
        Ok(Event::Progress { id: *id, text })
    }

    fn answer(&mut self, id: &Value, message: &Value) -> Result<Event, String> {
        // The official SDKs take "5" for 5, and so does this client, but not in silence.
        let number = id.as_u64().or_else(|| id.as_str()?.parse().ok());
        let Some(number) = number.filter(|number| self.active.contains_key(number)) else {
            return Err(format!("an answer to {id}, which was not asked"));
        };
        let error = &message["error"];
        let outcome = match message.get("result") {
            // The first request is `initialize`; the others are calls.
            Some(result) if number == 0 => Ok(result.clone()),
            Some(result) if !result["content"].is_array() => {
                self.faults += 1;
                Err(format!("a fault: no content in {result}"))
            }
            Some(result) if result["isError"] == true => Err(result["content"].to_string()),
            Some(result) => Ok(result.clone()),
            None if error["code"].is_i64() && error["message"].is_string() => {
                Err(error.to_string())
            }
            // Nothing an SDK can read: the call goes on until it times out.
            None => return Err(format!("an answer to {id} without result or proper error")),
        };
        let misnamed = id.is_string();
        self.faults += u64::from(misnamed);
        self.active.remove(&number);
        self.results += u64::from(number > 0 && outcome.is_ok());
        Ok(Event::Answer { id: number, misnamed, outcome })
    }
}
