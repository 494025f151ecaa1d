//! Answers that were stored in a temporary file, which cannot be read to its end.

use std::fs::{self, OpenOptions};

use http::Response;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tempfile::TempDir;
use tokio::time::timeout;

use super::http_client::{Client, rest, until};
use super::proxy::Start;
use super::*;
use crate::support::messages::initialize;

/// Answers each call with 32 MB, the call of `told` behind a progress notification, and the call of `small` with little.
const SERVER: &str = r#"
import json, sys
def say(message):
    print(json.dumps(message), flush=True)
for line in sys.stdin:
    said = json.loads(line)
    if "id" not in said:
        continue
    result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
    if said["method"] == "tools/call":
        name = said["params"]["name"]
        if name == "told":
            say({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": "t", "progress": 1}})
        result = {"content": [{"type": "text", "text": "x" * (32 if name == "small" else 32 << 20)}]}
    say({"jsonrpc": "2.0", "id": said["id"], "result": result})
"#;

/// The words of the error for the client.
const WHY: &str = "stored in a temporary file, which cannot be read";

struct Stage {
    folder: TempDir,
    proxy: Proxy,
}

impl Stage {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let command = serde_json::to_string(&["python3", "-c", SERVER]).unwrap();
        let variables = [("TMPDIR", folder.path().display().to_string())];
        let start = Start { variables: &variables, ..Start::default() };
        let keys =
            "upstream.max_spill = 100_000_000\nheartbeat.enabled = false\nupgrade_after = \"60s\"";
        let proxy = Proxy::with(&start, &format!("upstream.command = {command}\n{keys}"));
        Self { folder, proxy }
    }

    /// Cuts the only stored answer to nothing, as a file system that has failed.
    fn cut(&self) {
        let folder = self.folder.path().display().to_string();
        let mut cut = 0;
        for entry in fs::read_dir(format!("/proc/{}/fd", self.proxy.id())).unwrap() {
            let path = entry.unwrap().path();
            let target = fs::read_link(&path).unwrap_or_default().display().to_string();
            if target.starts_with(&folder) && target.ends_with("(deleted)") {
                OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
                cut += 1;
            }
        }
        assert_eq!(cut, 1, "no stored answer");
    }

    async fn client(&self, http2: bool) -> (Client, String) {
        let address = self.proxy.address();
        let mut client = Client::plain(address, http2).await;
        let begun = client.send("POST", address, &[], initialize("2025-06-18")).await;
        let id = begun.headers()["mcp-session-id"].to_str().unwrap().to_owned();
        rest(begun).await;
        (client, id)
    }
}

fn tool(name: &str, id: u32) -> String {
    call(id.to_string(), "\"t\"").replace("work", name)
}

/// Reads up to the end of a body. Returns the text, and whether the body is complete.
async fn heard(response: &mut Response<Incoming>) -> (String, bool) {
    let (mut heard, mut is_whole) = (Vec::new(), true);
    while let Some(frame) = timeout(STUCK, response.body_mut().frame()).await.unwrap() {
        match frame {
            Ok(frame) => heard.extend_from_slice(&frame.into_data().unwrap()),
            Err(_) => is_whole = false,
        }
        if !is_whole {
            break;
        }
    }
    (String::from_utf8(heard).unwrap(), is_whole)
}

/// The half is an event that no client reads, and the error follows.
#[track_caller]
fn check_events(text: &str, id: u32) {
    let (half, rest) = text.split_once("\n\n").unwrap();
    assert!(half.ends_with("xxx\nevent: broken-off"), "{}", &half[half.len() - 60..]);
    let error = json(rest.split_once("\n\n").unwrap().0);
    assert_eq!(error["id"], id);
    assert!(error["error"]["message"].as_str().unwrap().contains(WHY), "{error}");
}

#[tokio::test]
async fn a_stored_answer_that_cannot_be_read_breaks_the_response_off() {
    for http2 in [false, true] {
        let stage = Stage::new();
        let (mut client, session) = stage.client(http2).await;
        let headers = [("mcp-session-id", &*session)];
        let address = stage.proxy.address();
        let mut answer = client.send("POST", address, &headers, tool("large", 1)).await;
        assert_eq!(answer.headers()["content-type"], "application/json");
        until(&mut answer, "xxx").await;
        stage.cut();
        let (text, is_whole) = heard(&mut answer).await;
        assert!(text.len() < 32 << 20);
        assert!(!is_whole, "the client takes {} bytes for the answer", text.len());
        let line = stage.proxy.logged(&["WARN", "cannot be read back"]);
        assert!(line.contains("route=\"/a\"") && line.contains("folder="), "{line}");
        let (mut client, session) = stage.client(http2).await;
        let headers = [("mcp-session-id", &*session)];
        let small = client.send("POST", address, &headers, tool("small", 2)).await;
        assert_eq!(json(&rest(small).await)["id"], 2);
    }
}

#[tokio::test]
async fn an_event_that_cannot_be_read_is_no_message_and_its_error_follows() {
    for http2 in [false, true] {
        let stage = Stage::new();
        let (mut client, session) = stage.client(http2).await;
        let headers = [("mcp-session-id", &*session)];
        let address = stage.proxy.address();
        let mut answer = client.send("POST", address, &headers, tool("told", 7)).await;
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        until(&mut answer, "xxx").await;
        stage.cut();
        let (text, is_whole) = heard(&mut answer).await;
        assert!(is_whole, "the client is told all there is to tell");
        check_events(&text, 7);
    }
}

#[tokio::test]
async fn a_stream_of_http_sse_goes_on_behind_an_answer_that_cannot_be_read() {
    let stage = Stage::new();
    let address = stage.proxy.address();
    let mut client = Client::plain(address, false).await;
    let events = [("accept", "text/event-stream")];
    let mut stream = client.send_to("/a/sse", "GET", address, &events, String::new()).await;
    let endpoint = until(&mut stream, "\n\n").await;
    let endpoint = endpoint.split_once("data: ").unwrap().1.trim_end().to_owned();
    let tell = async |body: String| {
        let mut client = Client::plain(address, false).await;
        let told = client.send_to(&endpoint, "POST", address, &[], body).await;
        assert_eq!(told.status(), 202);
    };
    tell(initialize("2024-11-05")).await;
    until(&mut stream, "serverInfo").await;
    tell(tool("large", 1)).await;
    until(&mut stream, "xxx").await;
    stage.cut();
    let text = until(&mut stream, WHY).await;
    check_events(&text, 1);
    tell(tool("small", 2)).await;
    assert!(until(&mut stream, "\"id\": 2").await.contains("xxx"));
}
