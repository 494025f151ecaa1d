//! Messages of Milepost's own to an HTTP server (cancellations, `logging/setLevel`). Each is a
//! POST, as each client request is.

use std::future::poll_fn;
use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, Uri, Version};
use tokio::time::timeout;

use crate::gateway::route_state::RouteState;
use crate::observe::error_chain::error_chain;
use crate::progress::{Payload, Policy};
use crate::transport::http::client::UpstreamBody;
use crate::transport::http::request_body::{PAUSE_MAX, RequestBody};
use crate::transport::mcp_http::target::Target;
use crate::transport::tasks;

/// Sends messages of the proxy's own to the server: cancellations, and `logging/setLevel`. They have the headers of a
/// client's request, and the server's answers to them go to no client.
///
/// Nearly no request has such a message. So the client's headers are kept as they are, and those for the server are made
/// once there is one.
pub(crate) struct ControlSender(Box<ControlHead>);

/// What is known of the head of such a message.
struct ControlHead {
    state: Arc<RouteState>,
    server: ControlledServer,
    uri: Uri,
    /// Of the client's request.
    version: Version,
    headers: HeaderMap,
    /// The `Authorization` among them was for the proxy.
    proxy_auth: bool,
}

/// The endpoint of a route that gets the messages.
pub(crate) type ControlledServer = fn(&RouteState) -> Option<&Target>;

impl ControlSender {
    /// Whether such messages can occur. `is_seen`: operators see the calls of the request, and may cancel them.
    pub(crate) fn is_needed(policy: &Policy, is_seen: bool) -> bool {
        policy.has_timeout() || policy.log_level.is_some() || is_seen
    }

    /// Sends them to `uri` of `server`, with the headers of the client's request `parts`.
    pub(crate) fn new(
        state: &Arc<RouteState>,
        (server, uri): (ControlledServer, &Uri),
        parts: Parts,
        proxy_auth: bool,
    ) -> Self {
        let (state, uri) = (Arc::clone(state), uri.clone());
        let Parts { version, headers, .. } = parts;
        Self(Box::new(ControlHead { state, server, uri, version, headers, proxy_auth }))
    }

    /// Sends a message.
    pub(crate) fn send(&self, payload: &Payload) {
        let ControlHead { state, server, uri, version, headers, proxy_auth } = &*self.0;
        let Some(target) = server(state) else { return };
        let body = RequestBody::from(payload.to_bytes());
        let (address, head) = ((&target.host, uri.clone()), (*version, headers));
        let request = state.forwarder.own_request(address, head, body, *proxy_auth);
        let client = target.client.clone();
        // Detached: no client waits for the answer.
        tasks::spawn(async move {
            match client.send(request).await {
                Ok(response) => read_out(response.into_body()).await,
                Err(error) => tracing::warn!(
                    error = error_chain(&error),
                    "a message of the proxy could not be sent to the server"
                ),
            }
        });
    }
}

/// Reads an answer to no client, because a server may cancel a response that is not read.
async fn read_out(mut body: UpstreamBody) {
    let read = async { while let Some(Ok(_)) = poll_fn(|cx| body.poll_data(cx)).await {} };
    if timeout(PAUSE_MAX, read).await.is_err() {
        tracing::debug!("the response to a message of the proxy does not end");
    }
}
