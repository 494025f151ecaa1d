//! Messages of Milepost's own to an HTTP server (cancellations, `logging/setLevel`). Each is a
//! POST, as each client request is.

use std::future::poll_fn;

use http::{Method, Request};
use tokio::time::timeout;

use crate::observe::error_chain::error_chain;
use crate::progress::{Payload, Policy};
use crate::transport::http::client::UpstreamBody;
use crate::transport::http::headers;
use crate::transport::http::request_body::{PAUSE_MAX, RequestBody};
use crate::transport::mcp_http::target::ServerClient;

/// Sends a message of Milepost's own to the server.
pub(crate) type ControlSender = Box<dyn Fn(Payload) + Send>;

/// Returns a sender for the proxy's own messages to the server, if such messages can occur: cancellations, and
/// `logging/setLevel`. The server's answers to them go to no client. `is_seen`: whether operators see the calls of the
/// request, and may cancel them.
pub(crate) fn control_sender(
    policy: &Policy,
    client: &ServerClient,
    request: &Request<RequestBody>,
    is_seen: bool,
) -> Option<ControlSender> {
    if !policy.has_timeout() && policy.log_level.is_none() && !is_seen {
        return None;
    }
    let client = client.clone();
    let (uri, mut headers) = (request.uri().clone(), request.headers().clone());
    headers::remove_body_headers(&mut headers);
    Some(Box::new(move |payload| {
        let mut request = Request::new(RequestBody::from(payload.to_bytes()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri.clone();
        *request.headers_mut() = headers.clone();
        let client = client.clone();
        // Detached: no client waits for the answer.
        tokio::spawn(async move {
            match client.send(request).await {
                Ok(response) => read_out(response.into_body()).await,
                Err(error) => tracing::warn!(
                    error = error_chain(&error),
                    "a message of the proxy could not be sent to the server"
                ),
            }
        });
    }))
}

/// Reads an answer to no client, because a server may cancel a response that is not read.
async fn read_out(mut body: UpstreamBody) {
    let read = async { while let Some(Ok(_)) = poll_fn(|cx| body.poll_data(cx)).await {} };
    if timeout(PAUSE_MAX, read).await.is_err() {
        tracing::debug!("the response to a message of the proxy does not end");
    }
}
