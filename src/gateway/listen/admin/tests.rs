//! Tests of access to the admin listener: which client may read and change which path.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use futures::FutureExt;
use http_body_util::Empty;

use super::*;
use crate::config::routes::Secret;
use crate::gateway::listen::Admitted;
use crate::gateway::listen::listener::ListenPhase::{Lingering, Serving};
use crate::transport::http::write_state::WriteState;

/// Counts the requests that were refused.
#[derive(Default)]
struct Counting {
    events: AtomicUsize,
}

impl Handler for Counting {
    type Body = AdminBody;

    fn handle(
        self: &Arc<Self>,
        _: Request<hyper::body::Incoming>,
        _: Admitted,
    ) -> impl Future<Output = AdminResponse> + Send + use<> {
        std::future::ready(Response::default())
    }

    async fn end_streams(&self) {}

    fn count_refusal(&self, _: Refusal) {
        self.events.fetch_add(1, Relaxed);
    }

    fn metrics(&self) -> Option<String> {
        Some("# EOF\n".to_owned())
    }
}

fn admin_api(bearer: Option<&str>) -> AdminApi<Counting> {
    let bearer = bearer.map(|text| Secret::new(text.to_owned()));
    let admin = Admin { listen: None, bearer, ..Admin::default() };
    let server = Server { allowed_hosts: vec!["ops.example".to_owned()], ..Server::default() };
    AdminApi::new(&server, &admin, None, Via::named(1), Arc::default())
}

/// Checks the status of a response. `head` is a method, a path and headers.
#[track_caller]
fn check(admin_api: &AdminApi<Counting>, here: &str, phase: ListenPhase, head: &str, status: u16) {
    assert_eq!(ask(admin_api, here, phase, head).status(), status, "{head}");
}

#[track_caller]
fn ask(
    admin_api: &AdminApi<Counting>,
    here: &str,
    phase: ListenPhase,
    head: &str,
) -> AdminResponse {
    let mut words = head.split(' ');
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    let mut request = Request::builder().method(method).uri(path);
    let mut has_host = false;
    for word in words {
        let (name, value) = word.split_once('=').unwrap();
        has_host |= name == "host";
        request = request.header(name, value.replace('_', " "));
    }
    if !has_host {
        request = request.header("host", "ops.example");
    }
    let local = here.parse().unwrap();
    let client = Peer {
        remote: local,
        local,
        secure: false,
        name: None,
        write_state: WriteState::default(),
        last_use: None,
    };
    let request = request.body(Empty::<Bytes>::new()).unwrap();
    admin_api.answer(client, phase, request).now_or_never().unwrap()
}

const HERE: &str = "127.0.0.1:7333";
const BEYOND: &str = "192.0.2.1:7333";

#[test]
fn probes_are_told_whether_it_lives_and_whether_clients_may_come() {
    let admin_api = admin_api(None);
    for phase in [Serving, Lingering] {
        check(&admin_api, HERE, phase, "GET /livez host=127.0.0.1:7333", 200);
        check(&admin_api, HERE, phase, "HEAD /livez host=localhost", 200);
        let status = if phase == Serving { 200 } else { 503 };
        check(&admin_api, HERE, phase, "GET /readyz host=localhost:7333", status);
        let status = if phase == Serving { 200 } else { 404 };
        check(&admin_api, HERE, phase, "GET /readyz?404", status);
        check(&admin_api, HERE, phase, "POST /livez", 405);
        check(&admin_api, HERE, phase, "DELETE /readyz", 405);
        check(&admin_api, HERE, phase, "GET /page.html", 404);
        check(&admin_api, HERE, phase, "GET /livez/", 404);
        check(&admin_api, HERE, phase, "GET /livez host=evil.example", 403);
        check(&admin_api, HERE, phase, "GET /livez host=localhost:7332", 200);
    }
}

#[test]
fn the_live_page_is_for_all_who_may_ask_as_it_holds_no_data() {
    for (bearer, here) in [(None, HERE), (None, BEYOND), (Some("s3cret"), BEYOND)] {
        let admin_api = admin_api(bearer);
        check(&admin_api, here, Serving, "GET /", 200);
        check(&admin_api, here, Lingering, "GET /?tool=build", 200);
        check(&admin_api, here, Serving, "HEAD /", 200);
        check(&admin_api, here, Serving, "POST /", 405);
        check(&admin_api, here, Serving, "GET //", 404);
        check(&admin_api, here, Serving, "GET / host=evil.example", 403);
        check(&admin_api, here, Serving, "GET / origin=http://evil.example", 403);
    }
}

#[test]
fn browsers_are_told_how_little_the_live_page_may_do() {
    for head in ["GET /", "HEAD /"] {
        let answer = ask(&admin_api(None), HERE, Serving, head);
        let header = |name: &str| answer.headers()[name].to_str().unwrap();
        let policy = header("content-security-policy");
        for rule in [
            "default-src 'none'",
            "connect-src 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        ] {
            assert!(policy.split("; ").any(|one| one == rule), "{rule}: {policy}");
        }
        assert_eq!(header("content-type"), "text/html; charset=utf-8");
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("referrer-policy"), "no-referrer");
        assert_eq!(header("cache-control"), "no-store");
    }
}

#[test]
fn numbers_are_for_loopback_or_for_who_has_the_token() {
    let open = admin_api(None);
    check(&open, HERE, Serving, "GET /metrics", 200);
    check(&open, HERE, Serving, "HEAD /metrics", 200);
    check(&open, HERE, Serving, "POST /metrics", 405);
    check(&open, HERE, Serving, "GET /metrics host=evil.example", 403);
    check(&open, HERE, Serving, "GET /metrics origin=http://evil.example", 403);
    check(&open, BEYOND, Serving, "GET /livez", 200);
    check(&open, BEYOND, Serving, "GET /metrics", 403);
    check(&open, BEYOND, Serving, "GET /log-level", 403);
    let closed = admin_api(Some("s3cret"));
    for here in [HERE, BEYOND] {
        check(&closed, here, Serving, "GET /livez", 200);
        check(&closed, here, Serving, "GET /readyz", 200);
        check(&closed, here, Serving, "GET /metrics", 401);
        check(&closed, here, Serving, "GET /metrics authorization=Bearer_other", 401);
        check(&closed, here, Serving, "GET /metrics authorization=Bearer_s3cret", 200);
        check(&closed, here, Serving, "GET /log-level", 401);
    }
}

#[test]
fn calls_are_not_shown_to_pages_of_others_nor_where_nobody_looks_on() {
    let admin_api = admin_api(None);
    for path in ["/calls", "/calls/1", "/tap"] {
        check(&admin_api, HERE, Serving, &format!("GET {path} host=evil.example"), 403);
        check(&admin_api, HERE, Serving, &format!("GET {path} origin=http://evil.example"), 403);
        check(&admin_api, BEYOND, Serving, &format!("GET {path}"), 403);
        check(&admin_api, HERE, Serving, &format!("GET {path}"), 404);
    }
}

#[tokio::test]
async fn a_page_of_another_origin_changes_nothing() {
    let admin_api = admin_api(None);
    for method in ["PUT", "DELETE"] {
        let head = |headers: &str| format!("{method} /log-level {headers}");
        check(&admin_api, HERE, Serving, head("content-type=text/plain").as_str(), 403);
        check(&admin_api, HERE, Serving, &head("milepost-admin=1 origin=http://evil.example"), 403);
        // A page of another program on this machine may use routes, but must not change anything here.
        check(
            &admin_api,
            HERE,
            Serving,
            &head("milepost-admin=1 origin=http://localhost:3000"),
            403,
        );
        check(&admin_api, HERE, Serving, &head("milepost-admin=1 origin=null"), 403);
    }
    check(&admin_api, HERE, Serving, "POST /log-level milepost-admin=1", 405);
    check(&admin_api, HERE, Serving, "OPTIONS /log-level", 405);
    // These requests are allowed, but their body is empty.
    check(&admin_api, HERE, Serving, "PUT /log-level milepost-admin=1", 400);
    let own = "PUT /log-level host=localhost:7333 milepost-admin=1 origin=http://localhost:7333";
    check(&admin_api, HERE, Serving, own, 400);
}

#[test]
fn refused_requests_are_counted() {
    let admin_api = admin_api(None);
    check(&admin_api, HERE, Serving, "GET /livez", 200);
    check(&admin_api, HERE, Serving, "GET /metrics", 200);
    assert_eq!(admin_api.handler.events.load(Relaxed), 0);
    check(&admin_api, HERE, Serving, "GET /metrics origin=http://evil.example", 403);
    check(&admin_api, BEYOND, Serving, "GET /metrics", 403);
    check(&admin_api, HERE, Serving, "GET /nothing", 404);
    assert_eq!(admin_api.handler.events.load(Relaxed), 3);
}

#[test]
fn the_token_that_was_made_opens_what_passes_and_metrics_stay_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server { allowed_hosts: vec!["ops.example".to_owned()], ..Server::default() };
    let admin = Admin::default();
    let admin_api: AdminApi<Counting> =
        AdminApi::new(&server, &admin, Some(folder.path()), Via::named(1), Arc::default());
    let token = std::fs::read_to_string(AdminToken::place(folder.path())).unwrap();
    let token = token.trim();
    for here in [HERE, BEYOND] {
        for path in ["/calls", "/calls/1", "/tap"] {
            check(&admin_api, here, Serving, &format!("GET {path}"), 401);
            let with = format!("GET {path} authorization=Bearer_{token}");
            // This handler has no table of calls.
            check(&admin_api, here, Serving, &with, 404);
            let foreign = format!("{with} origin=http://evil.example");
            check(&admin_api, here, Serving, &foreign, 403);
        }
        check(&admin_api, here, Serving, "GET /log-level", 401);
        check(&admin_api, here, Serving, "GET /livez", 200);
        check(&admin_api, here, Serving, "GET /", 200);
    }
    check(&admin_api, HERE, Serving, "GET /metrics", 200);
    check(&admin_api, BEYOND, Serving, "GET /metrics", 403);
    let place =
        |here| ask(&admin_api, here, Serving, "GET /calls").headers().get(TOKEN_FILE).cloned();
    assert!(place(HERE).is_some() && place(BEYOND).is_none());
    let link = |listen: &str| admin_api.start_link(listen.parse().unwrap());
    let secret_link = |listen: &str| admin_api.secret_start_link(listen.parse().unwrap());
    assert_eq!(link(HERE), "http://127.0.0.1:7333/");
    assert_eq!(secret_link("0.0.0.0:1"), format!("http://127.0.0.1:1/#token={token}"));
    assert_eq!(link("[::]:1"), "http://[::1]:1/");
    let with_bearer = Admin { bearer: Some(Secret::new("s3cret".to_owned())), ..admin };
    admin_api.set_config(&server, &with_bearer);
    assert_eq!(secret_link(HERE), "http://127.0.0.1:7333/");
    check(&admin_api, HERE, Serving, &format!("GET /calls authorization=Bearer_{token}"), 401);
}
