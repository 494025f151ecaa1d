//! Shutdown: which requests may finish, which get an end, and which are cut.

use super::*;

/// How long streams have to end by themselves before they are cut.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Waits for calls for longer than any test: what ends sooner ends for another reason.
fn patient() -> Server {
    Server { drain: Duration::from_secs(600), ..server() }
}

#[tokio::test]
async fn idle_connections_are_closed_and_nothing_new_is_accepted() {
    let site = start(patient()).await;
    assert_eq!(status(site.admin, "GET /readyz").await, 200);
    let mut call = Talk::with(site.address).await;
    call.say("POST /a", "held").await;
    site.has_calls(1).await;
    let mut fresh = Talk::with(site.address).await;
    let mut idle = Talk::with(site.address).await;
    idle.say("POST /a", "0").await;
    idle.hear("done 0").await;
    site.stop().await;
    assert_eq!(idle.rest().await, (String::new(), true));
    assert_eq!(fresh.rest().await, (String::new(), true));
    assert!(TcpStream::connect(site.address).await.is_err());
    // The call is still waited for, and a second signal ends it at once.
    site.stop().await;
    assert_eq!(site.code().await, 1);
}

#[tokio::test]
async fn an_open_call_may_finish_and_probes_are_told_meanwhile() {
    let site = start(patient()).await;
    let mut call = Talk::with(site.address).await;
    call.say("POST /a", "held").await;
    site.has_calls(1).await;
    let mut listening = Talk::with(site.address).await;
    listening.say("GET /a", "").await;
    listening.hear(": hello").await;
    site.stop().await;
    site.tells("GET /readyz", 503).await;
    assert_eq!(status(site.admin, "GET /livez").await, 200);
    site.refuses().await;
    site.release();
    let (answer, closed) = call.rest().await;
    assert!(answer.contains("done held") && closed, "{answer}");
    // A stream without an open call is not waited for: it is ended as its protocol requires.
    let (answer, closed) = listening.rest().await;
    assert!(answer.contains("data: bye") && answer.ends_with("0\r\n\r\n") && closed, "{answer}");
    let admin = site.admin;
    assert_eq!(site.code().await, 0);
    assert!(TcpStream::connect(admin).await.is_err());
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_cut() {
    let drain = Duration::from_millis(200);
    let site = start(Server { drain, ..server() }).await;
    let mut call = Talk::with(site.address).await;
    call.say("POST /a", "held").await;
    site.has_calls(1).await;
    let mut listening = Talk::with(site.address).await;
    listening.say("GET /a", "").await;
    listening.hear(": hello").await;
    let begun = Instant::now();
    site.stop().await;
    let (answer, _) = listening.rest().await;
    assert!(answer.contains("data: bye"), "{answer}");
    let (answer, _) = call.rest().await;
    assert_eq!(answer, "");
    assert_eq!(site.code().await, 1);
    let took = begun.elapsed();
    assert!(took >= drain + LAST_WORDS, "{took:?}");
}

#[tokio::test]
async fn a_stream_that_does_not_end_is_cut() {
    let site = start(server()).await;
    let mut listening = Talk::with(site.address).await;
    listening.say("GET /a?stubborn", "").await;
    listening.hear(": hello").await;
    site.stop().await;
    let (answer, _) = listening.rest().await;
    assert!(!answer.contains("bye") && !answer.ends_with("0\r\n\r\n"), "{answer}");
    assert_eq!(site.code().await, 1);
}

#[tokio::test]
async fn half_a_request_is_nothing_to_wait_for() {
    let site = start(patient()).await;
    let mut half = Talk::with(site.address).await;
    half.0.write_all(b"POST /a HTTP/1.1\r\nhost: loc").await.unwrap();
    sleep(Duration::from_millis(100)).await;
    site.stop().await;
    assert_eq!(site.code().await, 0);
}

#[tokio::test]
async fn streams_of_http_2_are_ended_too() {
    let site = start(server()).await;
    let io = hyper_util::rt::TokioIo::new(TcpStream::connect(site.address).await.unwrap());
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    let connection = tokio::spawn(connection);
    let uri = format!("http://localhost:{}/a", site.address.port());
    let request = |method: &str, body: &'static str| {
        Request::builder().method(method).uri(&uri).body(Full::<Bytes>::from(body)).unwrap()
    };
    let stream = sender.send_request(request("GET", "")).await.unwrap();
    let call = tokio::spawn(sender.send_request(request("POST", "held")));
    site.has_calls(1).await;
    site.stop().await;
    site.refuses().await;
    site.release();
    let call = call.await.unwrap().unwrap().into_body().collect().await.unwrap().to_bytes();
    assert_eq!(call, "done held");
    let heard = stream.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(heard, ": hello\n\ndata: bye\n\n");
    assert_eq!(site.code().await, 0);
    let _ = timeout(STUCK, connection).await.unwrap();
}

/// A site that lingers for longer than any test.
async fn lingering() -> Running {
    start(Server { linger: Duration::from_secs(600), ..patient() }).await
}

#[tokio::test]
async fn a_listener_that_lingers_is_not_ready_but_serves_everything() {
    let site = lingering().await;
    let mut call = Talk::with(site.address).await;
    call.say("POST /a", "held").await;
    site.has_calls(1).await;
    let mut listening = Talk::with(site.address).await;
    listening.say("GET /a", "").await;
    listening.hear(": hello").await;
    let mut idle = Talk::with(site.address).await;
    idle.say("POST /a", "0").await;
    idle.hear("done 0").await;
    site.stop().await;
    site.tells("GET /readyz", 503).await;
    assert_eq!(status(site.admin, "GET /readyz?404").await, 404);
    assert_eq!(status(site.admin, "GET /livez").await, 200);
    // The earlier connection and a new one are served, and their clients are asked to connect to another replica.
    idle.say("POST /a", "1").await;
    let heard = idle.rest().await.0;
    assert!(heard.contains("done 1") && heard.contains("\r\nconnection: close\r\n"), "{heard}");
    let mut late = Talk::with(site.address).await;
    late.say("POST /a", "2").await;
    assert!(late.rest().await.0.contains("done 2"));
    site.stop().await;
    site.refuses().await;
    site.release();
    assert!(call.rest().await.0.contains("done held"));
    let (answer, _) = listening.rest().await;
    assert!(answer.contains("data: bye"), "{answer}");
    assert_eq!(site.code().await, 0);
}

#[tokio::test]
async fn a_listener_lingers_for_as_long_as_it_is_told_to() {
    let linger = Duration::from_secs(2);
    let site = start(Server { linger, ..patient() }).await;
    let mut call = Talk::with(site.address).await;
    call.say("POST /a", "held").await;
    site.has_calls(1).await;
    let mut listening = Talk::with(site.address).await;
    listening.say("GET /a", "").await;
    listening.hear(": hello").await;
    let begun = Instant::now();
    site.stop().await;
    site.refuses().await;
    assert!(begun.elapsed() >= linger, "{:?}", begun.elapsed());
    site.release();
    assert!(call.rest().await.0.contains("done held"));
    assert!(listening.rest().await.0.contains("data: bye"));
    assert_eq!(site.code().await, 0);
}

/// A load balancer may have connected just before the listener closes; its requests on that connection are served.
#[tokio::test]
async fn whoever_has_connected_while_a_listener_lingered_is_served() {
    let site = lingering().await;
    let mut call = Talk::with(site.address).await;
    call.say("POST /a", "held").await;
    site.has_calls(1).await;
    let mut silent = Talk::with(site.address).await;
    site.stop().await;
    site.tells("GET /readyz", 503).await;
    let mut late = Talk::with(site.address).await;
    site.stop().await;
    site.refuses().await;
    late.say("POST /a", "1").await;
    let heard = late.rest().await.0;
    assert!(heard.contains("done 1") && heard.contains("\r\nconnection: close\r\n"), "{heard}");
    assert_eq!(silent.rest().await, (String::new(), true), "but nobody waits for long");
    site.release();
    assert!(call.rest().await.0.contains("done held"));
    assert_eq!(site.code().await, 0);
}

#[tokio::test]
async fn a_second_signal_skips_the_time_in_which_a_listener_lingers() {
    let site = lingering().await;
    let mut call = Talk::with(site.address).await;
    call.say("POST /a", "held").await;
    site.has_calls(1).await;
    site.stop().await;
    site.tells("GET /readyz", 503).await;
    assert!(TcpStream::connect(site.address).await.is_ok());
    site.stop().await;
    site.refuses().await;
    site.release();
    assert!(call.rest().await.0.contains("done held"));
    assert_eq!(site.code().await, 0);
}

#[tokio::test]
async fn the_third_signal_cuts_the_calls_of_a_listener_that_lingered() {
    let site = lingering().await;
    let mut call = Talk::with(site.address).await;
    call.say("POST /a", "held").await;
    site.has_calls(1).await;
    for _ in 0..3 {
        site.stop().await;
    }
    assert_eq!(call.rest().await.0, "");
    assert_eq!(site.code().await, 1);
}

#[tokio::test]
async fn a_person_who_interrupts_does_not_wait_for_load_balancers() {
    let site = lingering().await;
    site.signal(StopSignal::Interrupt).await;
    assert_eq!(site.code().await, 0);
}
