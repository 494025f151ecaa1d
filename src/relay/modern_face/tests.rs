//! Tests of the modern face, message by message.

mod tasks;

use super::*;
use crate::progress::CallPolicy;

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"progressToken":9"#;
const STARTED: &str = r#"{"jsonrpc":"2.0","id":"milepost-initialize","result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true},"logging":{}},"serverInfo":{"name":"s","version":"1"}}}"#;

const SERVER: &str = r#""_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}"#;

pub(super) struct Face(ModernFace);

impl Face {
    fn fresh() -> Self {
        Self::with(CallPolicy::default())
    }

    fn with(call: CallPolicy) -> Self {
        let policy = Policy { modern: true, call, ..Policy::default() };
        Self(ModernFace::of(&Arc::new(policy)).unwrap())
    }

    /// Returns a face whose child has started. The first request was `discover`.
    pub(super) fn ready() -> Self {
        Self::fresh().begun()
    }

    fn begun(self) -> Self {
        let mut face = self;
        face.client(&request(1, "server/discover", ""));
        assert_eq!(face.sent().len(), 1);
        assert!(face.server(STARTED).is_none());
        assert_eq!(face.sent(), [r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#]);
        face
    }

    pub(super) fn client(&mut self, text: &str) -> bool {
        let sent = Message::parse(Bytes::copy_from_slice(text.as_bytes()));
        self.0.take(sent, &None, Instant::now())
    }

    /// Passes a message of the child. Returns what its client gets.
    pub(super) fn server(&mut self, text: &str) -> Option<String> {
        self.server_on(Origin::Shared, text)
    }

    /// Passes a message of the child on this stream. Returns what its client gets.
    fn server_on(&mut self, origin: Origin, text: &str) -> Option<String> {
        let message = Message::parse(Bytes::copy_from_slice(text.as_bytes()));
        match self.0.intercept(FromServer::Message(origin, message), Instant::now())? {
            FromServer::Message(_, message) => {
                Some(String::from_utf8_lossy(message.raw()).into_owned())
            }
            _ => None,
        }
    }

    /// Returns the messages that the child is sent.
    pub(super) fn sent(&mut self) -> Vec<String> {
        let sent = std::iter::from_fn(|| self.0.next_to_server());
        sent.map(|out| String::from_utf8_lossy(out.message.raw()).into_owned()).collect()
    }

    /// Returns the messages that clients get in the child's place.
    pub(super) fn own(&mut self) -> Vec<Value> {
        let own = std::iter::from_fn(|| self.0.next_own());
        let text = |own| match own {
            FromServer::Message(_, message) => serde_json::from_slice(message.raw()).unwrap(),
            _ => panic!("not a message"),
        };
        own.map(text).collect()
    }
}

pub(super) fn request(id: u64, method: &str, params: &str) -> String {
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
    let capabilities =
        json!({"tools": {"listChanged": true}, "resources": {"subscribe": true}, "logging": {}});
    assert_eq!(result["capabilities"], capabilities);
    assert_eq!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "s");
}

#[test]
fn a_client_that_begins_with_initialize_is_left_alone() {
    let mut face = Face::fresh();
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
    let expected =
        r#"{"jsonrpc":"2.0","id":2,"result":{"resultType":"complete",META,"content":[]}}"#;
    assert_eq!(told, Some(expected.replace("META", SERVER)));
    face.client(&request(2, "tools/call", r#""name":"work","#));
    let told = face.server(r#"{"jsonrpc":"2.0","id":2,"result":{"_meta":{"a":1},"content":[]}}"#);
    let expected =
        r#""_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"},"a":1}"#;
    assert!(told.unwrap().contains(expected));
    face.client(&request(3, "tools/list", ""));
    let told = face.server(r#"{"jsonrpc":"2.0","id":3,"result":{"tools":[]}}"#).unwrap();
    assert!(told.contains(r#""ttlMs":0,"cacheScope":"private","_meta""#), "{told}");
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
    assert_eq!(face.server(r#"{"jsonrpc":"2.0","id":"milepost-1","result":{}}"#), None);
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
    assert_eq!(result["inputRequests"]["ask-1"]["params"]["message"], "Sure?");
    let state = result["requestState"].as_str().unwrap();
    // A request with an unknown state, and one without an answer.
    let again = |id, more: &str| request(id, "tools/call", &format!(r#""name":"work",{more}"#));
    face.client(&again(3, r#""requestState":"other","inputResponses":{},"#));
    assert_eq!(face.own()[0]["error"]["code"], -32602);
    face.client(&again(4, &format!(r#""requestState":"{state}","#)));
    assert_eq!(face.own()[0]["result"]["resultType"], "input_required");
    let answered =
        format!(r#""requestState":"{state}","inputResponses":{{"ask-1":{{"action":"accept"}}}},"#);
    face.client(&again(5, &answered).replace(r#""progressToken":9"#, r#""progressToken":10"#));
    assert_eq!(face.sent(), [r#"{"jsonrpc":"2.0","id":"q","result":{"action":"accept"}}"#]);
    // The child continues with the first request, which is the one it knows.
    let told = face.server(r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":9,"progress":1}}"#);
    assert!(told.unwrap().contains(r#""progressToken":10"#));
    let told = face.server(r#"{"jsonrpc":"2.0","method":"notifications/tools/progress","params":{"requestId":2,"token":9,"progress":9}}"#);
    assert!(told.unwrap().contains(r#"{"requestId":5,"token":10,"progress":9}"#));
    let told = face.server(r#"{"jsonrpc":"2.0","id":2,"result":{"content":[]}}"#);
    assert!(told.unwrap().contains(r#""id":5"#));
    face.client(&again(6, &answered));
    assert_eq!(face.own()[0]["error"]["code"], -32602);
}

const ROOTS: &str = r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#;

#[test]
fn a_question_that_two_calls_could_ask_waits_until_one_can() {
    let mut face = Face::ready();
    face.own();
    let with_roots = META.replace(r#""elicitation":{}"#, r#""elicitation":{},"roots":{}"#);
    let call = |id, tool: &str| {
        let call = request(id, "tools/call", &format!(r#""name":"{tool}","#));
        call.replace(META, &with_roots)
    };
    face.client(&call(2, "a"));
    face.client(&call(3, "b"));
    face.sent();
    assert_eq!(face.server(ROOTS), None);
    assert!(face.sent().is_empty() && face.own().is_empty());
    assert!(face.server(r#"{"jsonrpc":"2.0","id":2,"result":{"content":[]}}"#).is_some());
    let asked = face.own();
    assert_eq!(
        (&asked[0]["id"], &asked[0]["result"]["resultType"]),
        (&json!(3), &json!("input_required"))
    );
    assert_eq!(face.server(r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#), None);
    assert_eq!(face.sent(), [r#"{"jsonrpc":"2.0","id":"p","result":{}}"#]);
}

#[test]
fn a_question_that_no_call_could_ask_gets_an_error_in_the_end() {
    let mut face = Face::ready();
    face.own();
    assert_eq!(face.server(ROOTS), None);
    let due = face.0.next_due().unwrap();
    face.0.act(due);
    assert!(face.sent()[0].contains(r#""id":"q","error""#) && face.own().is_empty());
}

#[test]
fn a_question_on_the_stream_of_a_call_is_that_calls() {
    let mut face = Face::ready();
    face.own();
    for (id, stream) in [(2, 70), (3, 71)] {
        face.client(&request(id, "tools/call", r#""name":"a","#));
        face.0.note_stream(&Key::Integer(i64::try_from(id).unwrap()), StreamId(stream));
    }
    face.sent();
    let question = r#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}"#;
    assert_eq!(face.server_on(Origin::Stream(StreamId(71)), question), None);
    assert_eq!(face.own()[0]["id"], 3);
}

#[test]
fn a_client_is_asked_only_what_it_has_declared() {
    let mut face = Face::ready();
    face.own();
    face.client(&request(2, "tools/call", r#""name":"a","#));
    face.sent();
    assert_eq!(face.server(ROOTS), None);
    assert!(face.sent()[0].contains("-32601") && face.own().is_empty());
}

#[test]
fn an_answer_that_comes_before_the_client_has_spoken_is_kept_for_its_next_request() {
    let mut face = Face::ready();
    face.own();
    face.client(&request(2, "tools/call", r#""name":"a","#));
    face.server(r#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}"#);
    let state = face.own()[0]["result"]["requestState"].as_str().unwrap().to_owned();
    face.sent();
    assert_eq!(face.server(r#"{"jsonrpc":"2.0","id":2,"result":{"content":[7]}}"#), None);
    let again = |name: &str| {
        let more = format!(
            r#""name":"{name}","requestState":"{state}","inputResponses":{{"ask-1":{{}}}},"#
        );
        request(3, "tools/call", &more)
    };
    face.client(&again("another"));
    assert!(face.own()[0]["error"]["message"].as_str().unwrap().contains("another method"));
    face.client(&again("a"));
    let own = face.own();
    assert_eq!((&own[0]["id"], &own[0]["result"]["content"]), (&json!(3), &json!([7])));
    assert!(face.sent().is_empty() && face.0.held() == 0);
}

#[test]
fn a_question_that_nobody_answers_cancels_its_call() {
    let mut face = Face::ready();
    face.own();
    face.client(&request(2, "tools/call", r#""name":"a","#));
    face.server(r#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}"#);
    face.sent();
    assert_eq!(face.0.held(), 1);
    let due = face.0.next_due().unwrap();
    face.0.act(due);
    let sent = face.sent();
    assert!(sent[0].contains(r#""id":"q","error""#) && sent[1].contains(r#""requestId":2"#));
    assert_eq!(face.0.held(), 0);
}

#[test]
fn an_error_that_needs_an_address_is_a_question() {
    let mut face = Face::ready();
    face.own();
    let url = META.replace(r#""elicitation":{}"#, r#""elicitation":{"url":{}}"#);
    let call = request(2, "tools/call", r#""name":"a","#).replace(META, &url);
    let error = r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32042,"message":"?","data":{"elicitations":[{"mode":"url","elicitationId":"e","url":"https://x/","message":"Sign in"}]}}}"#;
    face.client(&call);
    let told: Value = serde_json::from_str(&face.server(error).unwrap()).unwrap();
    let asked = json!({"method": "elicitation/create", "params": {"mode": "url", "url": "https://x/", "message": "Sign in"}});
    assert_eq!(told["result"]["inputRequests"], json!({"url-0": asked}));
    face.sent();
    // The next request is a new call.
    face.client(&request(
        3,
        "tools/call",
        r#""name":"a","inputResponses":{"url-0":{"action":"accept"}},"#,
    ));
    let sent: Value = serde_json::from_str(&face.sent()[0]).unwrap();
    assert_eq!(sent["params"], json!({"name": "a", "_meta": {"progressToken": 9}}));
}

#[test]
fn a_client_that_watches_a_resource_is_told_of_its_changes() {
    let mut face = Face::ready();
    face.own();
    face.client(&request(
        2,
        "subscriptions/listen",
        r#""notifications":{"resourceSubscriptions":["a:b"]},"#,
    ));
    let told = face.own();
    assert_eq!(told[0]["params"]["notifications"], json!({"resourceSubscriptions": ["a:b"]}));
    assert!(face.sent()[0].contains(r#""method":"resources/subscribe","params":{"uri":"a:b"}"#));
    let change = |uri: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{{"uri":"{uri}"}}}}"#
        )
    };
    assert_eq!(face.server(&change("a:b")), None);
    let told = face.own();
    assert_eq!(
        (&told[0]["params"]["uri"], &told[0]["params"]["_meta"][mcp::META_SUBSCRIPTION]),
        (&json!("a:b"), &json!(2))
    );
    assert_eq!(face.server(&change("a:c")), None);
    assert!(face.own().is_empty());
    face.client(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#);
    assert!(face.sent()[0].contains("resources/unsubscribe"));
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
    let mut face = Face::fresh();
    face.client(&request(1, "tools/list", ""));
    face.client(&request(2, "server/discover", ""));
    face.server(r#"{"jsonrpc":"2.0","id":"milepost-initialize","error":{"code":-32000,"message":"no licence"}}"#);
    let own = face.own();
    assert!(own.len() == 2 && own[0]["error"]["message"].as_str().unwrap().contains("no licence"));
    // The next request asks again.
    face.sent();
    face.client(&request(3, "tools/list", ""));
    assert!(face.own().is_empty() && face.sent()[0].contains(r#""method":"initialize""#));
}

#[test]
fn a_revision_that_nobody_knows_is_refused() {
    let mut face = Face::ready();
    face.own();
    face.client(&request(2, "tools/list", "").replace("2026-07-28", "2031-01-01"));
    let error = &face.own()[0]["error"];
    let data = json!({"supported": ["2026-07-28"], "requested": "2031-01-01"});
    assert_eq!((&error["code"], &error["data"]), (&json!(-32022), &data));
    assert!(face.sent().is_empty());
}
