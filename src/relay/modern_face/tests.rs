//! The modern face, message by message.

use super::*;
use crate::progress::Origin;

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"progressToken":9"#;
const STARTED: &str = r#"{"jsonrpc":"2.0","id":"milepost-initialize","result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true},"logging":{}},"serverInfo":{"name":"s","version":"1"}}}"#;

struct Face(ModernFace);

impl Face {
    /// A face whose child has started; `discover` was its first request.
    fn ready() -> Self {
        let mut face = Self(ModernFace::new());
        face.client(&request(1, "server/discover", ""));
        assert_eq!(face.sent().len(), 1);
        assert!(face.server(STARTED).is_none());
        assert_eq!(face.sent(), [r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#]);
        face
    }

    fn client(&mut self, text: &str) -> bool {
        self.0.take(&Payload::own(Bytes::copy_from_slice(text.as_bytes())))
    }

    /// The child says this; what its client gets of it.
    fn server(&mut self, text: &str) -> Option<String> {
        let message = Message::parse(Bytes::copy_from_slice(text.as_bytes()));
        match self.0.intercept(FromServer::Message(Origin::Shared, message))? {
            FromServer::Message(_, message) => {
                Some(String::from_utf8_lossy(message.raw()).into_owned())
            }
            _ => None,
        }
    }

    /// What the child is sent.
    fn sent(&mut self) -> Vec<String> {
        let sent = std::iter::from_fn(|| self.0.next_to_server());
        sent.map(|payload| String::from_utf8_lossy(&payload.to_bytes()).into_owned()).collect()
    }

    /// What clients get in the child's place.
    fn own(&mut self) -> Vec<Value> {
        let own = std::iter::from_fn(|| self.0.next_own());
        own.map(|message| serde_json::from_slice(message.raw()).unwrap()).collect()
    }
}

fn request(id: u64, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}{META}}}}}}}"#)
}

#[test]
fn discover_is_answered_from_the_childs_initialize() {
    let mut face = Face::ready();
    let own = face.own();
    assert_eq!(own.len(), 1);
    let result = &own[0]["result"];
    assert_eq!(result["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(result["resultType"], "complete");
    let capabilities = json!({"tools": {"listChanged": true}, "resources": {}, "logging": {}});
    assert_eq!(result["capabilities"], capabilities);
    assert_eq!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "s");
}

#[test]
fn a_client_that_begins_with_initialize_is_left_alone() {
    let mut face = Face(ModernFace::new());
    assert!(!face.client(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#));
    assert!(!face.client(&request(2, "tools/list", "")));
    let answer = r#"{"jsonrpc":"2.0","id":2,"result":{"tools":[]}}"#;
    assert_eq!(face.server(answer).as_deref(), Some(answer));
}

#[test]
fn members_of_the_new_revision_are_taken_out_and_put_in() {
    let mut face = Face::ready();
    face.own();
    face.client(&request(2, "tools/call", r#""name":"work","arguments":{"a":1},"#));
    let sent = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"work","arguments":{"a":1},"_meta":{"progressToken":9}}}"#;
    assert_eq!(face.sent(), [sent]);
    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":9,"progress":1}}"#;
    assert_eq!(face.server(progress).as_deref(), Some(progress));
    let told = face.server(r#"{"jsonrpc":"2.0","id":2,"result":{"content":[]}}"#);
    let expected = r#"{"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","content":[]}}"#;
    assert_eq!(told.as_deref(), Some(expected));
    face.client(&request(3, "tools/list", ""));
    let told = face.server(r#"{"jsonrpc":"2.0","id":3,"result":{"tools":[]}}"#).unwrap();
    assert!(told.contains(r#""ttlMs":0,"cacheScope":"private","tools":[]"#), "{told}");
    face.client(&request(4, "resources/read", r#""uri":"x:y","#));
    let told = face.server(r#"{"jsonrpc":"2.0","id":4,"error":{"code":-32002,"message":"none"}}"#);
    assert!(told.unwrap().contains(r#""code":-32602"#));
}

#[test]
fn removed_methods_and_given_up_requests() {
    let mut face = Face::ready();
    face.own();
    face.client(&request(2, "ping", ""));
    assert_eq!(face.own()[0]["error"]["code"], -32601);
    face.client(&request(3, "tools/call", r#""name":"work","#));
    face.sent();
    face.client(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}"#);
    assert!(face.sent()[0].contains(r#""requestId":3"#));
}

#[test]
fn logs_are_passed_to_requests_that_want_them() {
    let mut face = Face::ready();
    face.own();
    let log = |level: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"{level}","data":"x"}}}}"#
        )
    };
    face.client(&request(2, "tools/call", r#""name":"work","#));
    face.sent();
    assert_eq!(face.server(&log("error")), None);
    let level =
        META.replace(r#""_meta":{"#, r#""_meta":{"io.modelcontextprotocol/logLevel":"warning","#);
    face.client(&request(3, "tools/call", r#""name":"work","#).replace(META, &level));
    let sent = face.sent();
    assert!(sent[0].contains("logging/setLevel") && sent[0].contains("warning"), "{sent:?}");
    assert_eq!(face.server(r#"{"jsonrpc":"2.0","id":"milepost-level-3","result":{}}"#), None);
    assert_eq!(face.server(&log("info")), None);
    assert!(face.server(&log("error")).is_some());
}

#[test]
fn a_question_of_the_child_is_a_result_and_the_next_request_its_answer() {
    let mut face = Face::ready();
    face.own();
    let call = |id| request(id, "tools/call", r#""name":"work","#);
    face.client(&call(2));
    face.sent();
    let question =
        r#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"Sure?"}}"#;
    assert_eq!(face.server(question), None);
    let asked = face.own();
    let result = &asked[0]["result"];
    assert_eq!((&asked[0]["id"], &result["resultType"]), (&json!(2), &json!("input_required")));
    assert_eq!(result["inputRequests"]["server"]["params"]["message"], "Sure?");
    let state = result["requestState"].as_str().unwrap();
    // Another state, and no answer.
    let again = |id, more: &str| request(id, "tools/call", &format!(r#""name":"work",{more}"#));
    face.client(&again(3, r#""requestState":"other","inputResponses":{},"#));
    assert_eq!(face.own()[0]["error"]["code"], -32602);
    face.client(&again(4, &format!(r#""requestState":"{state}","#)));
    assert_eq!(face.own()[0]["result"]["resultType"], "input_required");
    let answered =
        format!(r#""requestState":"{state}","inputResponses":{{"server":{{"action":"accept"}}}},"#);
    face.client(&again(5, &answered).replace(r#""progressToken":9"#, r#""progressToken":10"#));
    assert_eq!(face.sent(), [r#"{"jsonrpc":"2.0","id":"q","result":{"action":"accept"}}"#]);
    // The child goes on with the request that it knows.
    let told = face.server(r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":9,"progress":1}}"#);
    assert!(told.unwrap().contains(r#""progressToken":10"#));
    let told = face.server(r#"{"jsonrpc":"2.0","id":2,"result":{"content":[]}}"#);
    assert!(told.unwrap().contains(r#""id":5"#));
    face.client(&again(6, &answered));
    assert_eq!(face.own()[0]["error"]["code"], -32602);
}

#[test]
fn a_question_that_two_calls_could_ask_gets_an_error() {
    let mut face = Face::ready();
    face.own();
    face.client(&request(2, "tools/call", r#""name":"a","#));
    face.client(&request(3, "tools/call", r#""name":"b","#));
    face.sent();
    assert_eq!(face.server(r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#), None);
    assert!(face.sent()[0].contains(r#""id":"q","error""#) && face.own().is_empty());
    assert_eq!(face.server(r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#), None);
    assert_eq!(face.sent(), [r#"{"jsonrpc":"2.0","id":"p","result":{}}"#]);
}

#[test]
fn a_client_that_listens_is_told_of_changes() {
    let mut face = Face::ready();
    face.own();
    face.client(&request(
        2,
        "subscriptions/listen",
        r#""notifications":{"toolsListChanged":true,"promptsListChanged":true},"#,
    ));
    let told = face.own();
    assert_eq!(told[0]["params"]["notifications"], json!({"toolsListChanged": true}));
    assert_eq!(told[0]["params"]["_meta"][mcp::META_SUBSCRIPTION], 2);
    let change = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    assert_eq!(face.server(change), None);
    assert_eq!(face.own()[0]["params"]["_meta"][mcp::META_SUBSCRIPTION], 2);
    face.client(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#);
    face.server(change);
    assert!(face.own().is_empty());
}

#[test]
fn a_child_that_refuses_to_begin_is_said_to_everybody() {
    let mut face = Face(ModernFace::new());
    face.client(&request(1, "tools/list", ""));
    face.client(&request(2, "server/discover", ""));
    face.server(r#"{"jsonrpc":"2.0","id":"milepost-initialize","error":{"code":-32000,"message":"no licence"}}"#);
    let own = face.own();
    assert!(own.len() == 2 && own[0]["error"]["message"].as_str().unwrap().contains("no licence"));
    face.client(&request(3, "tools/list", ""));
    assert_eq!(face.own().len(), 1);
}
