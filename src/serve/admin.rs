//! What operators and their probes ask: `/livez` and `/readyz`.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;

use super::guard::admit;
use super::handler::Client;
use crate::http::Refusal;
use crate::http::Via;
use crate::routes::Server;

/// Connections to the admin listener that may be open at once. It serves probes.
pub(super) const CONNECTIONS_MAX: usize = 64;

/// Bytes of a request's head.
pub(super) const HEAD_BYTES_MAX: usize = 16 << 10;

/// Answers one request. `ready` is whether clients may come.
pub(super) fn answer(
    server: &Server,
    via: &Via,
    client: Client,
    ready: bool,
    parts: &Parts,
) -> Response<Full<Bytes>> {
    let (status, text) = match course(server, via, client, ready, parts) {
        Ok(found) => found,
        Err(refusal) => return refusal.response(&parts.method),
    };
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn course(
    server: &Server,
    via: &Via,
    client: Client,
    ready: bool,
    parts: &Parts,
) -> Result<(StatusCode, &'static str), Refusal> {
    admit(server, via, client.local, parts)?;
    let found = match parts.uri.path() {
        "/livez" => (StatusCode::OK, "alive\n"),
        "/readyz" if ready => (StatusCode::OK, "ready\n"),
        "/readyz" => (StatusCode::SERVICE_UNAVAILABLE, "stopping\n"),
        _ => return Err(Refusal::NoPage),
    };
    match parts.method {
        Method::GET | Method::HEAD => Ok(found),
        _ => Err(Refusal::ReadOnly),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: &str, path: &str, host: &str, ready: bool, status: u16) {
        let request = http::Request::builder().method(method).uri(path).header("host", host);
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let here = "127.0.0.1:7333".parse().unwrap();
        let client = Client {
            remote: here,
            local: here,
            secure: false,
            outlet: crate::http::Outlet::default(),
        };
        let response = answer(&Server::default(), &Via::named(1), client, ready, &parts);
        assert_eq!(response.status(), status, "{method} {path}");
    }

    #[test]
    fn probes_are_told_whether_it_lives_and_whether_clients_may_come() {
        for ready in [true, false] {
            check("GET", "/livez", "127.0.0.1:7333", ready, 200);
            check("HEAD", "/livez", "localhost", ready, 200);
            check("GET", "/readyz", "localhost:7333", ready, if ready { 200 } else { 503 });
            check("POST", "/livez", "localhost", ready, 405);
            check("DELETE", "/readyz", "localhost", ready, 405);
            check("GET", "/", "localhost", ready, 404);
            check("GET", "/livez/", "localhost", ready, 404);
            check("POST", "/metrics", "localhost", ready, 404);
            check("GET", "/livez", "evil.example", ready, 403);
            check("GET", "/livez", "localhost:7332", ready, 403);
        }
    }
}
