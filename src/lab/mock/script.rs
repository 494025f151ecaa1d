//! What the recorded server sent, by the request that caused it.

use std::time::Duration;

use bytes::Bytes;
use litemap::LiteMap;
use serde_json::Value;

use crate::config::values::nearest;
use crate::lab::recordings::calls::{RecordedCalls, RecordedMessage, RecordedSide, RecordedWay};
use crate::lab::recordings::collect::request_token;
use crate::lab::recordings::differences::{
    DIFFERENCES_MAX, ValueDifference, differences, parameters,
};
use crate::protocol::json;
use crate::protocol::jsonrpc::{INVALID_PARAMS, Key, Kind, METHOD_NOT_FOUND, Message};
use crate::protocol::mcp;
use crate::protocol::order;

/// Maximum number of differences from the most similar request that an error names.
const NAMED_MAX: usize = 3;

/// A recorded request or notification of a client, and the server's reaction.
#[derive(Debug)]
pub(super) struct ScriptedAsk {
    pub(super) method: String,
    pub(super) tool: Option<String>,
    /// The parameters, as the client sent them and as the server received them.
    params: [Value; 2],
    /// The number of the line in the recording.
    pub(super) line: usize,
    /// Whether the message is a request and not a notification.
    pub(super) is_request: bool,
    /// The id in the request that the server received.
    pub(super) id: Option<Key>,
    pub(super) token: Option<Key>,
    /// What the server did after the message.
    pub(super) steps: Vec<ScriptStep>,
}

/// A step of the server.
#[derive(Debug)]
pub(super) struct ScriptStep {
    /// The time since the previous step, or since the request.
    pub(super) after: Duration,
    pub(super) act: ScriptAct,
}

/// The content of a step.
#[derive(Debug)]
pub(super) enum ScriptAct {
    /// The server sends a message. `is_about`: whether the message belongs to this request.
    Send { text: Bytes, is_about: bool },
    /// The server writes a line to standard error.
    Print(Bytes),
    /// The server waits for the client's answer to this request of the server.
    Await(Key),
}

/// A recording as the script of a server.
#[derive(Debug)]
pub(super) struct MockScript {
    /// The name of the file.
    name: String,
    pub(super) asks: Vec<ScriptedAsk>,
    /// The messages that the server sent before the first request.
    pub(super) opening: Vec<ScriptStep>,
    /// The number of messages of which the recording has only the envelope.
    pub(super) large: usize,
}

/// How often a recorded request is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScriptReuse {
    Once,
    /// Again, if there is none left.
    Repeated,
}

/// The search for a request in a recording.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ScriptSearch {
    /// The request was found.
    Found(usize),
    /// The request is not in the recording: the code of the error, and the reason with the most similar request.
    Missed(i32, String),
}

/// Collects the steps from the messages of a recording.
#[derive(Default)]
struct ScriptWriter {
    asks: Vec<ScriptedAsk>,
    /// The time of the last step for each of `asks`.
    times: Vec<Duration>,
    opening: Vec<ScriptStep>,
    opened: Duration,
    /// The index of the last of `asks`.
    last: Option<usize>,
    /// The steps in which the server asked the client.
    questions: LiteMap<Key, Option<usize>>,
}

impl ScriptWriter {
    fn step(&mut self, ask: Option<usize>, at: Duration, act: ScriptAct) {
        let known = ask.and_then(|ask| Some((self.asks.get_mut(ask)?, self.times.get_mut(ask)?)));
        let (steps, last) = match known {
            Some((ask, last)) => (&mut ask.steps, last),
            None => (&mut self.opening, &mut self.opened),
        };
        steps.push(ScriptStep { after: at.saturating_sub(*last), act });
        *last = at.max(*last);
    }

    fn ask(&mut self, ask: ScriptedAsk, at: Duration) {
        self.last = Some(self.asks.len());
        self.asks.push(ask);
        self.times.push(at);
    }

    fn server(&mut self, message: &RecordedMessage, own: Option<usize>) {
        let read = Message::parse(message.text.clone());
        let ask = own.or(self.last);
        if read.kind() == Kind::Request
            && let Some(id) = read.id_key()
        {
            self.questions.insert(id, ask);
        }
        let act = match message.way {
            RecordedWay::Stderr => ScriptAct::Print(message.text.clone()),
            _ => ScriptAct::Send { text: message.text.clone(), is_about: own.is_some() },
        };
        self.step(ask, message.at, act);
    }

    fn client(&mut self, message: &RecordedMessage) {
        let read = Message::parse(message.text.clone());
        let all = if read.kind() == Kind::Batch { read.elements().collect() } else { vec![read] };
        for one in all {
            match one.kind() {
                Kind::Notification => {
                    let params = parameters(one.raw());
                    let ask = ScriptedAsk {
                        method: one.method().unwrap_or_default().into_owned(),
                        tool: None,
                        params: [params.clone(), params],
                        line: message.line,
                        is_request: false,
                        id: None,
                        token: None,
                        steps: Vec::new(),
                    };
                    self.ask(ask, message.at);
                }
                Kind::Response => {
                    let Some(id) = one.id_key() else { continue };
                    if let Some(ask) = self.questions.remove(&id) {
                        self.step(ask, message.at, ScriptAct::Await(id));
                    }
                }
                _ => {}
            }
        }
    }
}

impl MockScript {
    /// Makes the script from one side of a recording.
    pub(super) fn new(recording: &RecordedCalls, side: RecordedSide) -> Self {
        let sent = match side {
            RecordedSide::Client => RecordedWay::ToClient,
            RecordedSide::Server => RecordedWay::FromServer,
        };
        let mut writer = ScriptWriter::default();
        let mut calls = recording.calls.iter().enumerate().peekable();
        let mut places: LiteMap<usize, usize> = LiteMap::new();
        let mut large = 0;
        for message in &recording.messages {
            if message.way == RecordedWay::FromClient {
                while let Some((index, call)) = calls.next_if(|(_, call)| call.line <= message.line)
                {
                    let request = Message::parse(call.request_of(side).clone());
                    let params = [&call.request, call.request_of(RecordedSide::Server)];
                    places.insert(index, writer.asks.len());
                    let ask = ScriptedAsk {
                        method: call.method.clone(),
                        tool: call.tool.clone(),
                        params: params.map(parameters),
                        line: call.line,
                        is_request: true,
                        id: request.id_key(),
                        token: token(&request),
                        steps: Vec::new(),
                    };
                    writer.ask(ask, call.at);
                }
                writer.client(message);
            } else if message.way == sent
                || (message.way == RecordedWay::Stderr && side == RecordedSide::Server)
            {
                large += usize::from(message.is_large);
                let own = message.call.and_then(|call| places.get(&call)).copied();
                writer.server(message, own);
            }
        }
        let name = recording.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Self { name, asks: writer.asks, opening: writer.opening, large }
    }

    /// Returns the number of recorded requests.
    pub(super) fn requests(&self) -> usize {
        self.asks.iter().filter(|ask| ask.is_request).count()
    }

    /// Finds the request of a client. `used` says for each recorded one whether it was asked before.
    pub(super) fn find(
        &self,
        request: &Message,
        used: &[bool],
        reuse: ScriptReuse,
    ) -> ScriptSearch {
        let method = request.method().unwrap_or_default();
        let tool = tool(request);
        let params = parameters(request.raw());
        let is_request = request.kind() == Kind::Request;
        let of_method: Vec<usize> =
            self.indices(|ask| ask.method == method && ask.is_request == is_request);
        let fitting: Vec<usize> = of_method
            .iter()
            .copied()
            .filter(|at| self.asks.get(*at).is_some_and(|ask| ask.fits(&params)))
            .collect();
        let is_used = |at: &usize| used.get(*at).copied().unwrap_or_default();
        let unused = fitting.iter().copied().find(|at| !is_used(at));
        let last = fitting.last().copied();
        if let Some(found) =
            unused.or_else(|| last.filter(|_| reuse == ScriptReuse::Repeated || !is_request))
        {
            return ScriptSearch::Found(found);
        }
        // An `initialize` matches any recorded `initialize`, because clients begin in different ways.
        if method == mcp::INITIALIZE
            && let Some(found) = of_method
                .iter()
                .copied()
                .find(|at| !is_used(at))
                .or_else(|| of_method.first().copied())
        {
            return ScriptSearch::Found(found);
        }
        let label = match &tool {
            Some(tool) => format!("{method} {tool}"),
            None => method.to_string(),
        };
        if let Some(last) = last.and_then(|at| self.asks.get(at)) {
            let (times, line) = (fitting.len(), last.line);
            return ScriptSearch::Missed(
                INVALID_PARAMS,
                format!(
                    "the recording {} has {label} with these parameters {} (last in line {line}), and all were asked \
                     for before; --repeat serves the last one again",
                    self.name,
                    if times == 1 { "once".to_owned() } else { format!("{times} times") },
                ),
            );
        }
        let code = if of_method.is_empty() { METHOD_NOT_FOUND } else { INVALID_PARAMS };
        let near = self.nearest(&of_method, (&method, tool.as_deref()), &params);
        ScriptSearch::Missed(code, format!("the recording {} has no {label}{near}", self.name))
    }

    fn indices(&self, is: impl Fn(&ScriptedAsk) -> bool) -> Vec<usize> {
        self.asks.iter().enumerate().filter(|(_, ask)| is(ask)).map(|(at, _)| at).collect()
    }

    /// Describes the most similar recorded request.
    fn nearest(
        &self,
        of_method: &[usize],
        (method, tool): (&str, Option<&str>),
        params: &Value,
    ) -> String {
        let asks = || of_method.iter().filter_map(|at| self.asks.get(*at));
        let same_tool: Vec<&ScriptedAsk> =
            asks().filter(|ask| ask.tool.as_deref() == tool).collect();
        if of_method.is_empty() {
            let requests = || self.asks.iter().filter(|ask| ask.is_request);
            let near = nearest(method, requests().map(|ask| &*ask.method));
            return near.map_or_else(String::new, |near| format!("; the nearest method is {near}"));
        }
        if same_tool.is_empty() {
            let mut tools: Vec<&str> = asks().filter_map(|ask| ask.tool.as_deref()).collect();
            order::sort(&mut tools);
            tools.dedup();
            let near = nearest(tool.unwrap_or_default(), tools.iter().copied());
            return match near {
                Some(near) => format!("; the nearest tool is {near}"),
                None => format!("; its tools are {}", tools.join(", ")),
            };
        }
        let differ = same_tool.into_iter().map(|ask| (ask.differences(params), ask.line));
        let Some((differ, line)) = differ.min_by_key(|(differ, _)| differ.len()) else {
            return String::new();
        };
        let shown: Vec<String> = differ.iter().take(NAMED_MAX).map(described).collect();
        let more = match differ.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more if differ.len() >= DIFFERENCES_MAX => format!(" and at least {more} more"),
            more => format!(" and {more} more"),
        };
        format!(
            " with these parameters; the nearest, in line {line}, differs in {}{more}",
            shown.join(", ")
        )
    }
}

impl ScriptedAsk {
    fn fits(&self, params: &Value) -> bool {
        self.params.iter().any(|recorded| differences(recorded, params).is_empty())
    }

    fn differences(&self, params: &Value) -> Vec<ValueDifference> {
        let [client, server] = &self.params;
        let (one, other) = (differences(client, params), differences(server, params));
        if other.len() < one.len() { other } else { one }
    }
}

fn described(difference: &ValueDifference) -> String {
    let ValueDifference { path, one, other } = difference;
    let path = if path.is_empty() { "the parameters" } else { path };
    match (one, other) {
        (Some(recorded), Some(asked)) => format!("{path} ({asked} instead of {recorded})"),
        (Some(recorded), None) => format!("{path} (missing; {recorded} was recorded)"),
        (None, asked) => {
            format!("{path} ({} was not recorded)", asked.as_deref().unwrap_or_default())
        }
    }
}

/// Returns the tool of a `tools/call`.
fn tool(request: &Message) -> Option<String> {
    if request.method().as_deref() != Some(mcp::TOOLS_CALL) {
        return None;
    }
    let name = json::member(&request.params()?, "name")?;
    json::decode_str(&name).map(|name| name.into_owned())
}

fn token(request: &Message) -> Option<Key> {
    request_token(request).and_then(|token| Key::read(&token))
}
