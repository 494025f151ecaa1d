//! Servers that must be asked, for clients on stdio.

use super::rig::{Rig, initialize};
use crate::support::messages::{INITIALIZED, agreement_to, call, result};

const ASK: &str = r#"upstream.url = "http://up.example/base/mcp"
ask = { token_type = "string", log_level = "debug", capabilities = { x = {} } }"#;

#[tokio::test(start_paused = true)]
async fn the_server_is_asked_behind_what_the_client_says() {
    let mut rig = Rig::with(ASK);
    rig.say(initialize("2025-06-18")).await;
    let asked = rig.asked().await;
    let with = |text: &str| text.replace(r#""capabilities":{"#, r#""capabilities":{"x":{},"#);
    assert_eq!(asked.text(), with(&initialize("2025-06-18")));
    let answer = agreement_to("0", "2025-06-18");
    let logs = answer.replace(r#""capabilities":{}"#, r#""capabilities":{"logging":{}}"#);
    asked.json(&["Mcp-Session-Id: s"], &logs);
    assert_eq!(rig.line().await, logs);
    rig.say(INITIALIZED).await;
    let ready = rig.asked().await;
    assert_eq!(ready.text(), INITIALIZED);
    rig.not_asked().await;
    ready.accept();
    let mut level = rig.asked().await;
    if level.what().starts_with("GET") {
        level = rig.asked().await;
    }
    assert!(level.text().contains(r#""params":{"level":"debug"}"#), "{}", level.text());
    level.json(&[], r#"{"jsonrpc":"2.0","id":"milepost:logging/setLevel","result":{}}"#);
    rig.say(call("1", "5")).await;
    let mut asked = rig.asked().await;
    if asked.what().starts_with("GET") {
        asked = rig.asked().await;
    }
    assert_eq!(asked.text(), call("1", "5").replace(":5}", ":\"5\"}"));
    asked.events(&[]);
    let progress = |token: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1}}}}"#
        )
    };
    asked.say(progress("\"5\""));
    asked.say(result("1"));
    asked.end();
    assert_eq!(rig.told().await, [progress("5"), result("1")]);
}
