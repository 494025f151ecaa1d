//! HTTP error statuses: the error for the client, and the reaction to the status.

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};

use super::exchange::{Outgoing, State};
use super::{HttpUpstream, Source};
use crate::progress::StreamId;
use crate::protocol::jsonrpc::{Kind, Message, own_error};
use crate::relay::http_upstream::pending::{Asked, What};
use crate::transport::mcp_http::content::on_one_line;

impl HttpUpstream {
    /// The server has answered with a status, and the beginning of its body is there.
    pub(crate) fn failed(&mut self, stream: StreamId) {
        let Some(exchange) = self.exchanges.remove(&stream) else { return };
        let State::Failure(parts, _, read) = exchange.state else { return };
        let (out, status) = (exchange.out, parts.status);
        let answer = Message::parse(on_one_line(read.freeze()));
        let is_answer = answer.kind() == Kind::Response;
        let id = answer.id_key();
        if is_answer && id.as_ref().is_some_and(|id| self.asked.is_for(stream, id)) {
            if self.may_refresh(&out, &answer) {
                return self.refresh(out, answer.raw().clone());
            }
            // What it has against the request, it says itself.
            return self.heard(Source::Exchange(stream), answer);
        }
        if self.may_be_http_sse(&out, status) {
            self.asked.take(stream);
            return self.look_for_http_sse(out, told(status, &parts.headers), status);
        }
        let why = told(status, &parts.headers);
        tracing::warn!(why, "a message was refused");
        let error = answer.error().filter(|_| is_answer && id.is_none());
        for asked in self.asked.take(stream) {
            self.pass_error(&asked, error.as_ref(), &why, status);
        }
    }

    /// The server's own error under the id of the request that it is for, or one of ours.
    fn pass_error(&mut self, asked: &Asked, error: Option<&Bytes>, why: &str, status: StatusCode) {
        let text = match error {
            Some(error) if !is_about_access(status) => {
                let head = br#"{"jsonrpc":"2.0","id":"#;
                Bytes::from([&head[..], &asked.id, br#","error":"#, error, b"}"].concat())
            }
            _ => own_error(&asked.id, why, Some(status.as_u16())),
        };
        self.error(asked, text, why);
    }

    /// The server has answered with a status, and its body cannot be read.
    pub(crate) fn refused(&mut self, stream: StreamId, status: StatusCode) {
        self.drop_exchange(stream);
        let why = told(status, &HeaderMap::new());
        tracing::warn!(why, "a message was refused");
        self.refuse_all(stream, &why, Some(status.as_u16()));
    }

    /// Whether the server may be one of HTTP+SSE: it does not take the first message of a session.
    fn may_be_http_sse(&self, out: &Outgoing, status: StatusCode) -> bool {
        out.own.is_none()
            && out.what() == What::Initialize
            && self.wire.is_none()
            && status.is_client_error()
            && !is_about_access(status)
    }
}

fn is_about_access(status: StatusCode) -> bool {
    [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&status)
}

/// What a status means for whoever has set this up.
pub(crate) fn told(status: StatusCode, headers: &HeaderMap) -> String {
    let mut text = format!("the server answered with HTTP status {status}");
    if is_about_access(status) {
        text += ": the token for it is missing or not accepted (in `milepost wrap` --bearer-file, \
                 --bearer-env or --header, in a route file `headers.request`)";
    } else if status.is_redirection()
        && let Some(place) = headers.get(header::LOCATION).and_then(|place| place.to_str().ok())
    {
        // A query may hold a secret, and so may what stands before the host.
        let place = place.split(['?', '#']).next().unwrap_or_default();
        let (scheme, rest) = place.split_once("//").unwrap_or((place, ""));
        let host = rest.find('/').unwrap_or(rest.len());
        let user = rest.get(..host).and_then(|host| host.rfind('@')).map_or(0, |at| at + 1);
        let slashes = if rest.is_empty() { "" } else { "//" };
        let place = format!("{scheme}{slashes}{}", rest.get(user..).unwrap_or_default());
        text += &format!(": it is at {place:?} now, and its address has to say so");
    }
    text
}
