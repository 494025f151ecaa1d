//! Requests that are forwarded unchanged, and streams on which a client of an HTTP server listens.

use http::Method;
use http::Response;
use http::StatusCode;
use http::request::Parts;
use http::uri::PathAndQuery;
use url::Url;

use super::{Direct, held_stream, stream_body};
use crate::gateway::direct::event_stream::{EventStream, Silence};
use crate::gateway::refusals::{no_room, text, unreachable};
use crate::gateway::route_state::StreamPermit;
use crate::transport::http::body::Body;
use crate::transport::http::client::UpstreamBody;
use crate::transport::http::endpoints::PROTECTED_RESOURCE;
use crate::transport::http::forwarder::BodyOrigin;
use crate::transport::http::inflate::PlainBody;
use crate::transport::http::public_metadata::{read_document, with_public_resource};
use crate::transport::http::request_body::RequestBody;
use crate::transport::http::shutdown::PipedStream;
use crate::transport::http::write_state::WriteState;
use crate::transport::mcp_http::content::Content;
use crate::transport::mcp_http::header_names::SESSION_ID;
use crate::transport::mcp_http::request_head::RequestHead;
use crate::transport::mcp_http::response_body::{events_coding, take_events};
use crate::transport::mcp_http::target::Target;

impl Direct {
    /// Forwards a request, and returns the server's response while it arrives.
    pub(crate) async fn forward(
        &self,
        target: &Target,
        parts: Parts,
        body: RequestBody,
    ) -> Response<Body> {
        // A GET may be an endless stream, so the shutdown waits for POSTs only.
        let open = (parts.method == Method::POST).then(|| self.state.shared.calls.open());
        let ended =
            (parts.method == Method::DELETE).then(|| parts.headers.get(SESSION_ID).cloned());
        let request = self.state.forwarder.request(target.address(parts.uri.query()), parts, body);
        match target.client.send(request).await {
            Ok(response)
                // The shutdown waits only for counted calls, so it must end this uncounted stream itself.
                if open.is_none() && Content::of(response.headers()) == Content::Events =>
            {
                let (parts, body) = response.into_parts();
                let piped = PipedStream::new(body, &self.state.shared.shutdown);
                let body = Body::Stream(Box::new(piped));
                self.state.forwarder.response(parts, BodyOrigin::Server, body)
            }
            Ok(response) => {
                // The waits of the session's requests end only if the server has accepted the end of the session.
                if let Some(id) = ended.flatten().filter(|_| response.status().is_success()) {
                    self.sessions.end_waits(id.as_bytes());
                }
                self.state.forwarder.piped(response, open)
            }
            Err(error) => unreachable(&self.state, &error, None),
        }
    }

    pub(crate) async fn well_known(&self, parts: Parts, path: &str) -> Response<Body> {
        let (Some(target), Ok(path)) = (
            self.state.endpoint.as_ref().or(self.state.sse.as_ref()),
            PathAndQuery::try_from(path),
        ) else {
            return text(StatusCode::NOT_FOUND, "there is no such document");
        };
        let is_resource = path.path().contains(PROTECTED_RESOURCE) && parts.method == Method::GET;
        let address = (&target.host, target.at(path));
        let request = self.state.forwarder.request(address, parts, RequestBody::empty());
        let response = match target.client.send(request).await {
            Ok(response) => response,
            Err(error) => return unreachable(&self.state, &error, None),
        };
        match &self.state.route.public_url {
            Some(public) if is_resource && response.status() == StatusCode::OK => {
                self.public_document(response, public).await
            }
            _ => self.state.forwarder.piped(response, None),
        }
    }

    /// Returns the document about a protected resource with the public URL as the resource.
    async fn public_document(
        &self,
        response: Response<UpstreamBody>,
        public: &Url,
    ) -> Response<Body> {
        let (parts, body) = response.into_parts();
        let Some(document) = read_document(body).await else {
            let why = "the document of the server is too long, or does not arrive in time";
            return text(StatusCode::BAD_GATEWAY, why);
        };
        let document = with_public_resource(&document, public).unwrap_or(document);
        self.state.forwarder.response(parts, BodyOrigin::Milepost, Body::Whole(Some(document)))
    }

    pub(crate) async fn get(
        &self,
        target: &Target,
        parts: Parts,
        write_state: WriteState,
    ) -> Response<Body> {
        let request_head = RequestHead::of(self.state.caller(&parts), &parts);
        // Milepost may already hold the stream for this client.
        if let Some(held) = self.held_get(&request_head, &write_state).await {
            return held;
        }
        let (head, body, permit) = match self.open_events(target, parts).await {
            Ok(opened) => opened,
            Err(response) => {
                if let Some(id) = request_head.session_id()
                    && response.status() == StatusCode::NOT_FOUND
                {
                    self.sessions.forget_for(id, request_head.caller);
                }
                return *response;
            }
        };
        let listening = held_stream::listening(self, &request_head);
        let silence = Silence::of(&self.state.route);
        let mut stream = EventStream::new(listening, body, silence, write_state);
        stream.pacing.begin_listening();
        let body = stream_body::of_listener(stream, permit);
        self.state.forwarder.response(head, BodyOrigin::Milepost, body)
    }

    /// Asks the server for a stream of events with a GET; the error is the response for the client.
    pub(crate) async fn open_events(
        &self,
        target: &Target,
        parts: Parts,
    ) -> Result<(http::response::Parts, PlainBody, StreamPermit), Box<Response<Body>>> {
        let permit = self.state.permit(parts.extensions.get());
        let permit = permit.map_err(|none| Box::new(no_room(&self.state, &none, None)))?;
        let request = self.state.forwarder.request(
            target.address(parts.uri.query()),
            parts,
            RequestBody::empty(),
        );
        let response = match target.client.send(request).await {
            Ok(response) => response,
            Err(error) => return Err(Box::new(unreachable(&self.state, &error, None))),
        };
        let observes = self.state.policy.observes();
        let coding = events_coding(response.headers(), observes);
        let Some(coding) = coding.filter(|_| response.status().is_success()) else {
            return Err(Box::new(self.state.forwarder.piped(response, None)));
        };
        let (mut head, body) = response.into_parts();
        let body = take_events(&mut head, body, coding);
        if !observes {
            // Some clients accept a stream only with the status 200.
            head.status = StatusCode::OK;
        }
        Ok((head, body, permit))
    }
}
