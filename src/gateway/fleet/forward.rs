//! Passes a request on to the replica that has its session, without reading the request.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::header::RETRY_AFTER;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::passport::{ClientFacts, FORWARDED};
use super::peers::LEAVING;
use super::seal::Owner;
use super::{FleetMember, in_origin_form, now_ms};
use crate::gateway::refusals::text;
use crate::observe::error_chain::error_chain;
use crate::observe::metrics::FleetEvent;
use crate::transport::http::body::Body;
use crate::transport::http::client::{UpstreamBody, UpstreamError};
use crate::transport::http::connection_pool::FailedRequest;
use crate::transport::http::headers::next_hop_headers;
use crate::transport::http::in_flight::InFlightGuard;
use crate::transport::http::request_body::RequestBody;
use crate::transport::http::shutdown::PipedStream;
use crate::transport::mcp_http::content::Content;

impl FleetMember {
    /// Passes a request on to the replica `to`, and returns the response while it arrives.
    ///
    /// # Errors
    ///
    /// If that replica cannot be reached: the request itself, and whether the cause is on this machine.
    pub(super) async fn pass_on(
        self: &Arc<Self>,
        to: Owner,
        request: Request<Incoming>,
        client: &ClientFacts,
    ) -> Result<Response<Body>, Unreached> {
        // A GET may be an endless stream, so the shutdown waits only for other requests.
        let is_get = request.method() == Method::GET;
        let begun = Instant::now();
        let open = (!is_get).then(|| self.calls.open());
        let (mut parts, body) = request.into_parts();
        in_origin_form(&mut parts);
        parts.headers = next_hop_headers(parts.headers);
        let nonce = self.nonces.fetch_add(1, Ordering::Relaxed);
        let passport = self.office.sign(&parts, client, to.address, now_ms(), nonce);
        let Some(passport) = passport else {
            return Ok(text(StatusCode::INTERNAL_SERVER_ERROR, "no passport can be made"));
        };
        parts.headers.insert(FORWARDED, passport);
        let request = Request::from_parts(parts, RequestBody::unlimited(body));
        let sent = self.peers.pool(to.address).try_send(request).await;
        let failed = match sent {
            Ok(response) => {
                self.counts.count(FleetEvent::PassedOn);
                if !is_get {
                    tracing::info!(
                        owner = %to.address,
                        status = response.status().as_u16(),
                        took_ms = begun.elapsed().as_millis() as u64,
                        "passed on"
                    );
                }
                if response.headers().contains_key(LEAVING) {
                    self.peers.mark_leaving(to);
                }
                return Ok(self.piped(response, open.map_or(HopBody::Stream, HopBody::Call)));
            }
            Err(failed) => failed,
        };
        let FailedRequest { error, unsent } = failed;
        let unsent = unsent.and_then(|request| {
            let (mut parts, body) = request.into_parts();
            // The replica that serves the request instead must not see the header, which was signed for another
            // replica.
            parts.headers.remove(FORWARDED);
            Some(Box::new(Request::from_parts(parts, body.into_unread()?)))
        });
        let owner = to.address.to_string();
        if let Some(request) = unsent {
            tracing::warn!(owner, error = error_chain(&error), "a replica cannot be reached");
            let is_own_fault = error.is_local();
            if !is_own_fault {
                self.peers.mark_down(to.address);
            }
            return Err(Unreached { request, is_own_fault });
        }
        self.counts.count(FleetEvent::Failed);
        if let UpstreamError::RequestBody(unread) = &error {
            return Ok(text(unread.status(), &unread.to_string()));
        }
        tracing::warn!(
            owner,
            error = error_chain(&error),
            "a request that was passed on has failed"
        );
        let why = "the replica that has this session has ended in the middle of the request";
        Ok(text(StatusCode::BAD_GATEWAY, why))
    }

    /// Returns the owner's response, unchanged.
    fn piped(&self, response: Response<UpstreamBody>, pipe: HopBody) -> Response<Body> {
        let (mut parts, body) = response.into_parts();
        parts.headers = next_hop_headers(parts.headers);
        parts.headers.remove(LEAVING);
        let body = match pipe {
            HopBody::Stream if Content::of(&parts.headers) == Content::Events => {
                Body::Stream(Box::new(PipedStream::new(body, &self.shutdown)))
            }
            HopBody::Stream => Body::piped(None, body, None),
            HopBody::Call(open) => Body::piped(None, body, Some(open)),
        };
        Response::from_parts(parts, body)
    }
}

/// A request whose replica cannot be reached.
pub(super) struct Unreached {
    pub(super) request: Box<Request<Incoming>>,
    /// Whether the cause is on this machine, so that the other replica may still be running.
    pub(super) is_own_fault: bool,
}

/// Returns the response to a request that cannot be passed on now. It is not a 404, after which the client would
/// consider its session ended.
pub(super) fn unreachable_now() -> Response<Body> {
    let why = "this replica cannot reach the one that has this session; send the request again";
    let mut response = text(StatusCode::SERVICE_UNAVAILABLE, why);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// The kind of a response that is passed on.
enum HopBody {
    /// A stream on which the client may only be listening.
    Stream,
    /// A call; the shutdown waits for it.
    Call(InFlightGuard),
}
