//! Conversations played, each in a world of its own; what happens is a log for the judge.

mod http;
mod wire;

use std::collections::BTreeMap;

use crate::conversation::{Call, Conversation, Say, Step, World, marks};
use crate::judge::{Entry, Finding, judge};

/// Plays a conversation and judges it.
pub(crate) fn findings(conversation: &Conversation) -> Vec<Finding> {
    judge(conversation.world, &conversation.sessions, &log(conversation))
}

/// What happens in a conversation.
pub(crate) fn log(conversation: &Conversation) -> Vec<Entry> {
    match conversation.world {
        World::Wire { paced } => wire::play(paced, &conversation.steps),
        World::Direct | World::Shared => http::play(conversation),
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
            None => Some(say.text.clone()),
            Some(call) => {
                let known = self.0.get(&call)?;
                let token = if known.token.is_empty() { "\"none\"" } else { &known.token };
                Some(say.with(&known.id, token))
            }
        }
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
