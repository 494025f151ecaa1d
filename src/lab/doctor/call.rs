//! Tool calls: how many are simultaneous, and how each gives its token.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::client::DoctorClient;
use super::trouble::Trouble;
use crate::protocol::mcp::TOOLS_CALL;

/// The token of the first call. It is unlike any request id, because some servers send the id in place of the token.
const FIRST_TOKEN: u64 = 7001;

/// How a call gives its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum GivenToken {
    /// In `_meta`: a number, and a string in the second of two simultaneous calls, because clients use either type.
    #[default]
    InMeta,
    /// In `_meta`, as a string.
    Text,
    /// In `_meta` and in the arguments, as a string. Servers accept only strings in the arguments.
    InArguments,
    /// Without a token, and without `_meta`.
    None,
}

/// A tool call that is to be made.
#[derive(Debug, Clone)]
pub(super) struct CallPlan {
    pub(super) tool: String,
    pub(super) arguments: Map<String, Value>,
    /// Number of simultaneous calls.
    pub(super) at_once: usize,
    /// The token of the calls.
    pub(super) given: GivenToken,
}

impl CallPlan {
    /// Returns the token of the call at this index.
    fn token(&self, at: usize) -> Option<Value> {
        let number = FIRST_TOKEN.saturating_add(at as u64);
        match self.given {
            GivenToken::None => None,
            GivenToken::InMeta if at.is_multiple_of(2) => Some(number.into()),
            _ => Some(format!("token-{number}").into()),
        }
    }
}

impl DoctorClient {
    /// Makes the calls, waits for their answers, and then reads for the time `after`.
    ///
    /// # Errors
    /// The reason why an answer is missing.
    pub(super) async fn call(&mut self, wanted: &CallPlan, after: Duration) -> Result<(), Trouble> {
        let mut ids = Vec::new();
        for at in 0..wanted.at_once {
            ids.push(self.begin(wanted, wanted.token(at)).await?);
        }
        let came = self.wait(&ids, self.timeout).await;
        self.drain(after).await;
        came
    }

    async fn begin(&mut self, wanted: &CallPlan, token: Option<Value>) -> Result<u64, Trouble> {
        let mut params = json!({ "name": wanted.tool, "arguments": wanted.arguments });
        if let Some(token) = token {
            if wanted.given == GivenToken::InArguments {
                params["arguments"]["_meta"] = json!({ "progressToken": token });
            }
            params["_meta"] = json!({ "progressToken": token });
        }
        self.ask(TOOLS_CALL, params).await
    }
}
