//! The embedded legacy server (`upstream.demo = true`) over HTTP, inside this process: every POST
//! is one conversation, and every message of the server is one event.

pub(crate) mod server;

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt, stream};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use tokio::io::duplex;

use crate::gateway::mcp_server::{
    ReplyStream, ServedBody, event_stream, events, plain, serve_http1,
};
use crate::protocol::jsonrpc::Message;
use crate::protocol::lines::INSPECT_MAX;
use crate::transport::http::client::InProcess;
use crate::transport::http::io::Io;
use crate::transport::tasks;

/// How long the silent tool takes.
const SILENCE: Duration = Duration::from_secs(20);

/// Size of the buffer between the two ends of a connection inside the process.
const PIPE_BYTES: usize = 64 << 10;

/// Returns the connector to the embedded server.
pub(crate) fn connector() -> InProcess {
    Arc::new(|| {
        let (ours, theirs) = duplex(PIPE_BYTES);
        tasks::spawn(async move {
            let answer = |request| answer(request).boxed();
            if let Err(error) = serve_http1(Box::new(theirs), None, &answer).await {
                tracing::debug!(%error, "a connection to the embedded server has ended");
            }
        });
        async move { Ok(Box::new(ours) as Io) }.boxed()
    })
}

async fn answer(request: Request<Incoming>) -> Response<ServedBody> {
    if request.method() != Method::POST {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "");
    }
    let Ok(body) = Limited::new(request.into_body(), INSPECT_MAX).collect().await else {
        return plain(StatusCode::BAD_REQUEST, "");
    };
    let message = Message::parse(body.to_bytes());
    let (reply, pieces) = ReplyStream::new();
    let call = message.id_key().and_then(|_| server::answer(&message, reply, SILENCE));
    let Some(call) = call else { return plain(StatusCode::ACCEPTED, "") };
    // The tool runs within the body of its response: a client that leaves ends both.
    let running = stream::once(call).filter_map(|()| ready(None));
    event_stream(stream::select(events(pieces), running))
}
