//! Answers in place of a server that knows only `tools/call` at its endpoint (`upstream.lifecycle`): `initialize`,
//! `ping`, the list of tools.
//!
//! The answers are made just before the server's connections (`ConnectionPool::send`), so that clients of every
//! transport get the same answers.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use tokio::time::timeout;

use super::tool_list;
use crate::config::routes::ServerInfo;
use crate::protocol::jsonrpc::{Kind, METHOD_NOT_FOUND, Message, own_error};
use crate::protocol::mcp::Revision;
use crate::protocol::{json, mcp};
use crate::transport::http::client::{UpstreamBody, UpstreamError};
use crate::transport::http::connection_pool::ConnectionPool;
use crate::transport::http::inflate::PlainBody;
use crate::transport::http::request_body::RequestBody;

/// Limit of the bytes that are read of a tool list or an answer to `initialize`. Real lists have less than a hundredth
/// of this, because clients show every tool to a model.
const ANSWER_MAX: usize = 4 << 20;

/// Limit of the bytes of a server's error text that are repeated to a client.
const WORDS_MAX: usize = 200;

/// What `tools` is called in error messages.
const LIST: &str = "the server's list of tools";

/// The specification's code for a revision that is not known (26:basic §Error Codes).
const UNSUPPORTED_REVISION: i32 = -32022;

/// The newest revision whose clients begin with `initialize`.
const NEWEST: (Revision, &str) = (Revision::V2025_11_25, "2025-11-25");

/// The version of a server that states none.
const NO_VERSION: &str = "0.0.0";

/// Answers requests to one endpoint in the server's place.
pub(crate) struct LifecycleResponder {
    /// The endpoint's path.
    pub(crate) endpoint: PathAndQuery,
    pub(crate) tools: Option<PathAndQuery>,
    pub(crate) initialize: Option<PathAndQuery>,
    pub(crate) server: Option<ServerInfo>,
    /// The name of the server if no other name is known.
    pub(crate) address: String,
    /// Deadline for the server to answer at a URL beside its endpoint: for the head, and for each further piece of the
    /// answer.
    pub(crate) within: Duration,
}

/// How a request is answered.
enum LifecycleReply {
    /// The server answers the request.
    Server,
    /// Milepost answers the request, with this status and body.
    Own(StatusCode, Bytes),
    /// The client gets the server's response to another request.
    Theirs(Box<Response<UpstreamBody>>),
}

/// What came of a request to another path than the endpoint.
enum LifecycleRead {
    Body(Bytes),
    /// There is no body; the client gets this reply instead.
    Not(LifecycleReply),
}

impl LifecycleResponder {
    /// Sends a request to the server, or answers it.
    pub(crate) async fn send(
        &self,
        client: &Arc<ConnectionPool>,
        request: Request<RequestBody>,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        // Milepost only answers requests to the endpoint.
        if request.uri().path() != self.endpoint.path() {
            return client.send(request).await;
        }
        match *request.method() {
            Method::POST => {}
            // The server has neither a GET stream nor a session to end.
            Method::GET | Method::DELETE => return Ok(not_allowed()),
            _ => return client.send(request).await,
        }
        let (parts, body) = request.into_parts();
        let message = match &body {
            RequestBody::Whole(Some(bytes)) => Message::parse(bytes.clone()),
            // A body that is too large for memory can only be a tool call.
            _ => return client.send(Request::from_parts(parts, body)).await,
        };
        let reply = match message.kind() {
            Kind::Request => self.reply(client, &parts, &message).await?,
            // Not sent, because the server would answer with an error that belongs to no request.
            Kind::Notification | Kind::Response => {
                LifecycleReply::Own(StatusCode::ACCEPTED, Bytes::new())
            }
            Kind::Batch => self.replies(client, &parts, &message).await?,
            Kind::Opaque | Kind::Noise => LifecycleReply::Server,
        };
        // The request is forwarded unchanged, because its body was only read, not taken.
        match reply {
            LifecycleReply::Server => client.send(Request::from_parts(parts, body)).await,
            LifecycleReply::Own(status, body) => Ok(answered(status, body)),
            LifecycleReply::Theirs(response) => Ok(*response),
        }
    }

    async fn reply(
        &self,
        client: &Arc<ConnectionPool>,
        parts: &Parts,
        request: &Message,
    ) -> Result<LifecycleReply, UpstreamError> {
        let id = request.id().unwrap_or_default();
        let method = request.method().unwrap_or_default();
        Ok(match (&*method, modern(&parts.headers, request)) {
            // A client that gets this error begins with `initialize` (26:http §Backward Compatibility).
            (mcp::DISCOVER, _) => not_found(&id, &method, StatusCode::NOT_FOUND),
            (_, Some(date)) => unsupported(&id, &date),
            (mcp::INITIALIZE, _) => self.initialize(client, parts, request, &id).await?,
            ("ping", _) => result(&id, b"{}"),
            (mcp::TOOLS_LIST, _) => self.list_tools(client, parts, &id).await?,
            (mcp::TOOLS_CALL, _) => LifecycleReply::Server,
            _ => not_found(&id, &method, StatusCode::OK),
        })
    }

    /// Returns the replies to a batch. A batch with a tool call goes to the server unchanged.
    async fn replies(
        &self,
        client: &Arc<ConnectionPool>,
        parts: &Parts,
        batch: &Message,
    ) -> Result<LifecycleReply, UpstreamError> {
        let mut answers: Vec<Bytes> = Vec::new();
        let mut bytes = 0;
        // One after the other, so that the server gets only one request at a time, however many the array contains.
        for request in batch.elements().filter(|one| one.kind() == Kind::Request) {
            match self.reply(client, parts, &request).await? {
                LifecycleReply::Own(_, body) => {
                    bytes += body.len();
                    answers.push(body);
                }
                other => return Ok(other),
            }
            // A batch may ask for the list many times, so the size of all its answers is limited. A larger batch goes
            // to the server.
            if bytes > ANSWER_MAX {
                return Ok(LifecycleReply::Server);
            }
        }
        Ok(match &answers[..] {
            [] => LifecycleReply::Own(StatusCode::ACCEPTED, Bytes::new()),
            answers => {
                let body = [b"[", &answers.join(&b","[..])[..], b"]"].concat();
                LifecycleReply::Own(StatusCode::OK, body.into())
            }
        })
    }

    /// Answers `initialize`. The client's revision is accepted, if it is a revision with
    /// `initialize`.
    async fn initialize(
        &self,
        client: &Arc<ConnectionPool>,
        parts: &Parts,
        request: &Message,
        id: &[u8],
    ) -> Result<LifecycleReply, UpstreamError> {
        let params = request.params().unwrap_or_default();
        // MCP, Version Negotiation: the answer to an unknown revision names the newest known one.
        let asked = json::member(&params, "protocolVersion").and_then(|date| {
            let date = json::decode_str(&date)?;
            legacy().find(|known| *known == date)
        });
        let date = asked.unwrap_or(NEWEST.1);
        let theirs = match &self.initialize {
            None => Bytes::new(),
            Some(path) => match self.introduce(client, parts, path, id, date, &params).await? {
                LifecycleRead::Body(body) => body,
                LifecycleRead::Not(reply) => return Ok(reply),
            },
        };
        if let Some(error) = json::member(&theirs, "error").filter(|error| **error != *b"null") {
            let body: [&[u8]; 5] =
                [br#"{"jsonrpc":"2.0","id":"#, id, br#","error":"#, &error, b"}"];
            return Ok(LifecycleReply::Own(StatusCode::OK, body.concat().into()));
        }
        let theirs = json::member(&theirs, "result").unwrap_or(theirs);
        let instructions = json::member(&theirs, "instructions")
            .filter(|words| words.starts_with(b"\""))
            .map(|words| [br#","instructions":"#, &words[..]].concat());
        let body: [&[u8]; 6] = [
            br#"{"protocolVersion":"#,
            &json::quote(date),
            br#","capabilities":{"tools":{}},"serverInfo":"#,
            &self.server_info(&theirs),
            &instructions.unwrap_or_default(),
            b"}",
        ];
        Ok(result(id, &body.concat()))
    }

    /// Tells the server about a new client. The revision is written both beside `params` and in it, because
    /// hand-written servers read either place.
    async fn introduce(
        &self,
        client: &Arc<ConnectionPool>,
        parts: &Parts,
        path: &PathAndQuery,
        id: &[u8],
        date: &str,
        params: &[u8],
    ) -> Result<LifecycleRead, UpstreamError> {
        let params = if params.is_empty() { b"{}" } else { params };
        let body: [&[u8]; 7] = [
            br#"{"jsonrpc":"2.0","id":"#,
            id,
            br#","method":"initialize","protocolVersion":"#,
            &json::quote(date),
            br#","params":"#,
            params,
            b"}",
        ];
        let mut request = sibling_request(parts, Method::POST, path);
        let kind = HeaderValue::from_static("application/json");
        request.headers_mut().insert(header::CONTENT_TYPE, kind);
        *request.body_mut() = Bytes::from(body.concat()).into();
        self.read(client, request, id, "the server's answer to a client that comes").await
    }

    /// Returns `serverInfo`: from the route, else from the server's own answer, else with its address as the name.
    fn server_info(&self, theirs: &Bytes) -> Bytes {
        let info = |name: &str, version: &str| {
            let (name, version) = (json::quote(name), json::quote(version));
            let parts: [&[u8]; 5] = [br#"{"name":"#, &name, br#","version":"#, &version, b"}"];
            Bytes::from(parts.concat())
        };
        if let Some(ServerInfo { name, version }) = &self.server {
            return info(name, version);
        }
        // The schema of MCP requires both members, and clients refuse an answer without one of them.
        let is_whole = |info: &Bytes| {
            ["name", "version"]
                .iter()
                .all(|key| json::member(info, key).is_some_and(|words| words.starts_with(b"\"")))
        };
        let own = json::member(theirs, "serverInfo").filter(is_whole);
        own.unwrap_or_else(|| info(&self.address, NO_VERSION))
    }

    async fn list_tools(
        &self,
        client: &Arc<ConnectionPool>,
        parts: &Parts,
        id: &[u8],
    ) -> Result<LifecycleReply, UpstreamError> {
        let Some(path) = &self.tools else { return Ok(LifecycleReply::Server) };
        let body =
            match self.read(client, sibling_request(parts, Method::GET, path), id, LIST).await? {
                LifecycleRead::Body(body) => body,
                LifecycleRead::Not(reply) => return Ok(reply),
            };
        if let Some(tools) = tool_list::of(&body) {
            return Ok(result(id, &tools));
        }
        let Some(error) = json::member(&body, "error") else {
            let why = format!("what there is in the place of {LIST} is none");
            return Ok(failed(id, &why, None));
        };
        // The server's text is meant for its client, so it is not logged.
        tracing::warn!(why = format!("{LIST} is an error"), "{UNANSWERED}");
        let words = String::from_utf8_lossy(&error[..error.len().min(WORDS_MAX)]);
        let why = format!("{LIST} is an error: {words}");
        Ok(LifecycleReply::Own(StatusCode::OK, own_error(id, &why, None)))
    }

    /// Reads a URL of the server, for the client's request `id`. Errors to clients do not contain the URL.
    async fn read(
        &self,
        client: &Arc<ConnectionPool>,
        request: Request<RequestBody>,
        id: &[u8],
        what: &str,
    ) -> Result<LifecycleRead, UpstreamError> {
        let late = |_| UpstreamError::Idle(self.within);
        // The deadline applies to the head here, and again to each piece of the body below.
        let response = timeout(self.within, client.send(request)).await.map_err(late)??;
        let status = response.status();
        // With these statuses the headers tell the client how to sign in, so the client gets the response itself.
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Ok(LifecycleRead::Not(LifecycleReply::Theirs(Box::new(response))));
        }
        let not = |why: &str, status| Ok(LifecycleRead::Not(failed(id, why, status)));
        if !status.is_success() {
            return not(&format!("{what}: HTTP status {status}"), Some(status.as_u16()));
        }
        let (head, body) = response.into_parts();
        let Some(mut body) = PlainBody::new(body, &head.headers) else {
            return not(&format!("{what} is compressed although asked not to"), None);
        };
        let mut whole = Vec::new();
        while let Some(chunk) =
            timeout(self.within, poll_fn(|cx| body.poll_data(cx))).await.map_err(late)?
        {
            whole.extend_from_slice(&chunk?);
            if whole.len() > ANSWER_MAX {
                return not(&format!("{what} is too large"), None);
            }
        }
        Ok(LifecycleRead::Body(whole.into()))
    }
}

/// Returns a request for a path beside the endpoint, with the headers of a request for the endpoint.
fn sibling_request(parts: &Parts, method: Method, path: &PathAndQuery) -> Request<RequestBody> {
    let mut request = Request::new(RequestBody::empty());
    *request.method_mut() = method;
    let mut uri = parts.uri.clone().into_parts();
    uri.path_and_query = Some(path.clone());
    // The URI of HTTP/2 has a scheme and an authority, which are kept; that of HTTP/1.1 is only a path.
    *request.uri_mut() = uri.try_into().unwrap_or_else(|_| path.clone().into());
    *request.headers_mut() = parts.headers.clone();
    let headers = request.headers_mut();
    // These headers describe the client's body, which the new request does not have.
    headers.remove(header::CONTENT_LENGTH);
    headers.remove(header::CONTENT_TYPE);
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    request
}

/// Returns the revision that a request itself names, as requests from 2026-07-28 on do.
fn modern(headers: &HeaderMap, request: &Message) -> Option<String> {
    let header = || headers.get("mcp-protocol-version")?.to_str().ok().map(str::to_owned);
    crate::transport::mcp_http::header_mirror::date_in(request)
        .or_else(header)
        // Clients of earlier revisions begin with `initialize`, which is answered here.
        .filter(|date| Revision::from_date(date) > Some(NEWEST.0))
}

/// Returns the dates of the revisions whose clients begin with `initialize`.
fn legacy() -> impl Iterator<Item = &'static str> {
    Revision::ALL.into_iter().filter(|(known, _)| *known <= NEWEST.0).map(|(_, date)| date)
}

fn result(id: &[u8], result: &[u8]) -> LifecycleReply {
    let body: [&[u8]; 5] = [br#"{"jsonrpc":"2.0","id":"#, id, br#","result":"#, result, b"}"];
    LifecycleReply::Own(StatusCode::OK, body.concat().into())
}

/// Returns an error of Milepost itself, marked as such. `more`: further members of its data.
fn refused(id: &[u8], code: i32, why: &str, more: &str, status: StatusCode) -> LifecycleReply {
    let code = format!(r#","error":{{"code":{code},"message":"#);
    let tail = format!(r#","data":{{"proxy":"milepost"{more}}}}}}}"#);
    let head = br#"{"jsonrpc":"2.0","id":"#;
    let body = [head, id, code.as_bytes(), &json::quote(why), tail.as_bytes()].concat();
    LifecycleReply::Own(status, body.into())
}

fn not_found(id: &[u8], method: &str, status: StatusCode) -> LifecycleReply {
    refused(id, METHOD_NOT_FOUND, &format!("Method not found: {method}"), "", status)
}

fn unsupported(id: &[u8], date: &str) -> LifecycleReply {
    let supported: Vec<String> = legacy().map(|date| format!("{date:?}")).collect();
    let requested = String::from_utf8_lossy(&json::quote(date)).into_owned();
    let more = format!(r#","supported":[{}],"requested":{requested}"#, supported.join(","));
    let why = "Unsupported protocol version";
    refused(id, UNSUPPORTED_REVISION, why, &more, StatusCode::BAD_REQUEST)
}

const UNANSWERED: &str = "a client could not be answered in the server's place";

fn failed(id: &[u8], why: &str, status: Option<u16>) -> LifecycleReply {
    tracing::warn!(why, "{UNANSWERED}");
    LifecycleReply::Own(StatusCode::OK, own_error(id, why, status))
}

fn answered(status: StatusCode, body: Bytes) -> Response<UpstreamBody> {
    let is_json = !body.is_empty();
    let mut response = Response::new(UpstreamBody::own(body));
    *response.status_mut() = status;
    if is_json {
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
    }
    response
}

fn not_allowed() -> Response<UpstreamBody> {
    let mut response = answered(StatusCode::METHOD_NOT_ALLOWED, Bytes::new());
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
    response
}
