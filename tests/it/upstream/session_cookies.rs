//! The cookies that a server or its balancer sets in a session come back with each request of the session.

use super::rig::{Rig, initialize, modern};
use crate::http::rig::settle;
use crate::support::messages::{INITIALIZED, agreement_to, call, result};

const SET: &str = "Set-Cookie: AWSALB=a; Path=/; Max-Age=60";

#[tokio::test(start_paused = true)]
async fn cookies_of_a_session_come_back_with_each_of_its_requests() {
    let mut rig = Rig::new();
    rig.say(initialize("2025-06-18")).await;
    let begins = rig.asked().await;
    assert_eq!(begins.request.header("cookie"), None);
    let headers = [SET, "Set-Cookie: other=1; Path=/elsewhere", "Mcp-Session-Id: s"];
    begins.json(&headers, &agreement_to("0", "2025-06-18"));
    assert_eq!(rig.line().await, agreement_to("0", "2025-06-18"));
    rig.say(INITIALIZED).await;
    let ready = rig.asked().await;
    assert_eq!(ready.request.header("cookie"), Some("AWSALB=a"));
    ready.answer("202 Accepted", &["Set-Cookie: AWSALB=b; Path=/"], "");
    let get = rig.asked().await;
    assert_eq!((get.what(), get.request.header("cookie")), ("GET /base/mcp", Some("AWSALB=b")));
    get.answer("405 Method Not Allowed", &[], "");
    settle().await;
    rig.say(call("1", "1")).await;
    let post = rig.asked().await;
    assert_eq!(post.request.header("cookie"), Some("AWSALB=b"));
    // An error response removes the cookie.
    post.answer("500 Internal Server Error", &["Set-Cookie: AWSALB=; Path=/; Max-Age=0"], "");
    rig.line().await;
    rig.close().await;
    let delete = rig.asked().await;
    assert_eq!((delete.what(), delete.request.header("cookie")), ("DELETE /base/mcp", None));
}

#[tokio::test(start_paused = true)]
async fn cookies_of_http_sse_come_back_with_the_posts() {
    let mut rig = Rig::with("upstream.sse = \"http://up.example/base/sse\"");
    rig.say(initialize("2024-11-05")).await;
    let get = rig.asked().await;
    get.events(&[SET]);
    get.chunk("event: endpoint\ndata: /base/messages?id=a\n\n");
    assert_eq!(rig.asked().await.request.header("cookie"), Some("AWSALB=a"));
}

#[tokio::test(start_paused = true)]
async fn requests_without_a_session_have_no_cookies() {
    let mut rig = Rig::new();
    for id in ["1", "2"] {
        rig.say(modern(id, "tools/call", r#""name":"x","arguments":{}"#)).await;
        let asked = rig.asked().await;
        assert_eq!(asked.request.header("cookie"), None);
        asked.json(&[SET], &result(id));
        assert_eq!(rig.line().await, result(id));
    }
}
