//! Messages that Milepost itself sends to an HTTP server (cancellations, `logging/setLevel`). Each is a POST, as each
//! client request is.

use std::future::poll_fn;
use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, Uri, Version};
use tokio::time::timeout;

use crate::gateway::observers::Observers;
use crate::gateway::route_state::RouteState;
use crate::observe::error_chain::error_chain;
use crate::progress::{Payload, Policy};
use crate::transport::http::client::UpstreamBody;
use crate::transport::http::request_body::{PAUSE_MAX, RequestBody};
use crate::transport::mcp_http::target::Target;
use crate::transport::tasks;

/// Sends messages of Milepost itself to the server: cancellations, and `logging/setLevel`. They have the headers of a
/// client's request, and the server's answers to them go to no client.
///
/// Nearly no request has such a message. So the client's headers are kept as they are, and those for the server are made
/// once there is one.
pub(crate) struct ControlSender {
    head: Box<ControlHead>,
}

/// What the head of a message is made of.
struct ControlHead {
    state: Arc<RouteState>,
    server: ControlledServer,
    uri: Uri,
    /// The HTTP version of the client's request.
    version: Version,
    headers: HeaderMap,
}

/// Chooses the endpoint of a route that gets the messages.
pub(crate) type ControlledServer = fn(&RouteState) -> Option<&Target>;

impl ControlSender {
    /// Whether such messages can occur. `observers` show the calls of the request to operators, who may cancel them.
    pub(crate) fn is_needed(policy: &Policy, observers: Option<&Observers>) -> bool {
        policy.has_timeout()
            || policy.log_level.is_some()
            || observers.is_some_and(Observers::has_operators)
    }

    /// Returns a sender to `uri` of `server`, with the headers of the client's request `parts`.
    pub(crate) fn new(
        state: &Arc<RouteState>,
        (server, uri): (ControlledServer, &Uri),
        parts: Parts,
    ) -> Self {
        let (state, uri) = (Arc::clone(state), uri.clone());
        let Parts { version, headers, .. } = parts;
        Self { head: Box::new(ControlHead { state, server, uri, version, headers }) }
    }

    /// Sends a message to the server, in a task.
    pub(crate) fn send(&self, payload: &Payload) {
        let ControlHead { state, server, uri, version, headers } = &*self.head;
        let Some(target) = server(state) else { return };
        let body = RequestBody::from(payload.to_bytes());
        let (address, head) = ((&target.host, uri.clone()), (*version, headers));
        let request = state.forwarder.own_request(address, head, body);
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

/// Reads the answer to Milepost's own message to its end, because a server may cancel a response that is not read.
async fn read_out(mut body: UpstreamBody) {
    let read = async { while let Some(Ok(_)) = poll_fn(|cx| body.poll_data(cx)).await {} };
    if timeout(PAUSE_MAX, read).await.is_err() {
        tracing::debug!("the response to a message of the proxy does not end");
    }
}
