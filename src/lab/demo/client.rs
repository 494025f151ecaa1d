//! A client that asks for progress and applies the rules of the specification strictly.
//!
//! The demo also uses the client to judge the server's original lines.

use bytes::Bytes;
use litemap::LiteMap;

use crate::protocol::json;
use crate::protocol::jsonrpc::{Key, Kind, Message};

/// The client of the demo: sends requests and checks the messages it receives.
#[derive(Debug, Default)]
pub(super) struct DemoClient {
    last_id: i64,
    /// The unanswered requests.
    open: LiteMap<i64, ClientRequest>,
}

#[derive(Debug)]
struct ClientRequest {
    token: String,
    last_value: Option<f64>,
}

/// How the client understands a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ClientEvent {
    /// Progress of one of the client's requests has arrived.
    Progress(Progress),
    /// One of the client's requests is answered.
    Answer {
        /// Whether the answer has a result, and not an error.
        ok: bool,
    },
    /// A message that an MCP client cannot use.
    Refused(MessageFault),
}

/// Progress, with each value in the exact spelling of the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) figure: String,
    pub(super) total: Option<String>,
    pub(super) message: String,
}

/// The reason why a client cannot use a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MessageFault {
    /// MCP does not have the method.
    Method,
    /// The progress token is missing, or does not belong to an open request of this client.
    Token,
    /// `progress` is not a number.
    Figure,
    /// `total` is not a number.
    Total,
    /// `message` is not a string.
    Words,
    /// The value does not rise.
    Falls,
    /// The answer matches no open request of this client.
    Answer,
}

impl MessageFault {
    /// Returns the description of the fault.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Method => "not a method of MCP",
            Self::Token => "not a token of this client",
            Self::Figure => "no figure",
            Self::Total => "a total that is no number",
            Self::Words => "a message that is no string",
            Self::Falls => "a figure that does not rise",
            Self::Answer => "an answer to nothing",
        }
    }
}

impl DemoClient {
    /// Returns the first line that a client sends.
    pub(super) fn initialize(&mut self) -> String {
        self.request(
            "initialize",
            concat!(
                r#""protocolVersion":"2025-06-18","capabilities":{},"#,
                r#""clientInfo":{"name":"demo-client","version":"1.0.0"}"#,
            ),
        )
    }

    /// The second line that a client sends.
    pub(super) const INITIALIZED: &str =
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

    /// Returns the request that calls a tool.
    pub(super) fn call(&mut self, tool: &str) -> String {
        self.request("tools/call", &format!(r#""name":"{tool}","arguments":{{}}"#))
    }

    fn request(&mut self, method: &str, params: &str) -> String {
        self.last_id += 1;
        let id = self.last_id;
        let token = format!(r#""progress-{id}""#);
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params},"_meta":{{"progressToken":{token}}}}}}}"#
        );
        self.open.insert(id, ClientRequest { token, last_value: None });
        line
    }

    /// Reads and checks a line for the client.
    pub(super) fn receive(&mut self, line: &Bytes) -> ClientEvent {
        let message = Message::parse(line.clone());
        let event = match message.kind() {
            Kind::Response => self.answer(&message),
            _ => self.progress(&message).map(ClientEvent::Progress),
        };
        event.unwrap_or_else(ClientEvent::Refused)
    }

    fn answer(&mut self, message: &Message) -> Result<ClientEvent, MessageFault> {
        let Some(Key::Integer(id)) = message.id_key() else { return Err(MessageFault::Answer) };
        self.open.remove(&id).ok_or(MessageFault::Answer)?;
        Ok(ClientEvent::Answer { ok: message.result().is_some() })
    }

    fn progress(&mut self, message: &Message) -> Result<Progress, MessageFault> {
        if message.kind() != Kind::Notification
            || message.method().as_deref() != Some("notifications/progress")
        {
            return Err(MessageFault::Method);
        }
        let params = message.params().unwrap_or_default();
        let part = |name| json::member(&params, name);
        let token = part("progressToken").ok_or(MessageFault::Token)?;
        let open = self
            .open
            .iter_mut()
            .map(|(_, value)| value)
            .find(|open| *open.token.as_bytes() == *token);
        let open = open.ok_or(MessageFault::Token)?;
        let figure = part("progress").ok_or(MessageFault::Figure)?;
        let value = json::number(&figure).ok_or(MessageFault::Figure)?;
        let total = part("total");
        if total.as_ref().is_some_and(|total| json::number(total).is_none()) {
            return Err(MessageFault::Total);
        }
        let message = part("message");
        if message.as_ref().is_some_and(|message| json::decode_str(message).is_none()) {
            return Err(MessageFault::Words);
        }
        if open.last_value.is_some_and(|last_value| value <= last_value) {
            return Err(MessageFault::Falls);
        }
        open.last_value = Some(value);
        let text = |raw: Bytes| String::from_utf8_lossy(&raw).into_owned();
        let message = message.unwrap_or_default();
        Ok(Progress {
            figure: text(figure),
            total: total.map(text),
            message: json::decode_str(&message).unwrap_or_default().into_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the client's judgement of progress whose params end with the given text.
    #[track_caller]
    fn check(client: &mut DemoClient, params: &str, fault: Option<MessageFault>) {
        let line = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{{params}}}}}"#
        );
        let refused = match client.receive(&Bytes::from(line)) {
            ClientEvent::Refused(fault) => Some(fault),
            _ => None,
        };
        assert_eq!(refused, fault, "{params}");
    }

    #[test]
    fn only_what_the_specification_allows_is_heard() {
        let mut client = DemoClient::default();
        client.call("t");
        let own = r#""progressToken":"progress-1","#;
        check(&mut client, r#""progressToken":"other","progress":1"#, Some(MessageFault::Token));
        check(&mut client, r#""token":"progress-1","progress":1"#, Some(MessageFault::Token));
        check(&mut client, &format!(r#"{own}"progress":null"#), Some(MessageFault::Figure));
        check(
            &mut client,
            &format!(r#"{own}"progress":1,"total":null"#),
            Some(MessageFault::Total),
        );
        check(&mut client, &format!(r#"{own}"progress":1,"message":7"#), Some(MessageFault::Words));
        check(&mut client, &format!(r#"{own}"progress":1,"total":2,"message":"m""#), None);
        check(&mut client, &format!(r#"{own}"progress":1"#), Some(MessageFault::Falls));
        check(&mut client, &format!(r#"{own}"progress":1.5"#), None);
        let answer = Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        assert_eq!(client.receive(&answer), ClientEvent::Answer { ok: true });
        assert_eq!(client.receive(&answer), ClientEvent::Refused(MessageFault::Answer));
        check(&mut client, &format!(r#"{own}"progress":2"#), Some(MessageFault::Token));
        let own_method = Bytes::from_static(br#"{"method":"tools/progress","params":{}}"#);
        assert_eq!(client.receive(&own_method), ClientEvent::Refused(MessageFault::Method));
    }
}
