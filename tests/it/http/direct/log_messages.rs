//! Logs as progress over Streamable HTTP: those on the stream of a call are about it.

use crate::http::rig::{Rig, check, pass, secs, settle};
use crate::support::messages::*;

const S: &str = "Mcp-Session-Id: s";

fn log(data: &str) -> String {
    notification("notifications/message", format!(r#"{{"level":"info","data":{data}}}"#))
}

#[tokio::test(start_paused = true)]
async fn a_log_on_the_stream_of_a_call_is_progress_of_that_call_whatever_else_is_active() {
    let mut rig = Rig::new("dialects = [\"defaults\", \"log\"]\nheartbeat.enabled = false");
    rig.session("s", "2025-06-18").await;
    let first = rig.post(&[S], call("1", "7"));
    let one = rig.asked().await;
    let second = rig.post(&[S], call("2", "8"));
    let two = rig.asked().await;
    one.events(&[]);
    two.events(&[]);
    one.say(log("\"row 3 of 9\""));
    settle().await;
    pass(secs(1)).await;
    two.say(log(r#"{"msg":"shard 1","current":1,"total":4}"#));
    settle().await;
    pass(secs(1)).await;
    one.say(result("1"));
    two.say(result("2"));
    one.end();
    two.end();
    settle().await;
    let told = |token: &str, figure: &str, total: &str, words: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{figure},"total":{total},"message":"{words}"}}}}"#
        )
    };
    let row = told("7", "3", "9", "row 3 of 9");
    assert_eq!(first.messages(), [log("\"row 3 of 9\""), row, result("1")]);
    let shard = told("8", "1", "4", "shard 1");
    assert_eq!(
        second.messages(),
        [log(r#"{"msg":"shard 1","current":1,"total":4}"#), shard, result("2")]
    );
    check([&first, &second]);
}

#[tokio::test(start_paused = true)]
async fn a_log_on_the_get_stream_is_nobodys_progress() {
    let mut rig = Rig::new("dialects = [\"defaults\", \"log\"]\nheartbeat.enabled = false");
    rig.session("s", "2025-06-18").await;
    let listens = rig.get(&[S]);
    let listened = rig.asked().await;
    listened.events(&[]);
    let answer = rig.post(&[S], call("1", "7"));
    let server = rig.asked().await;
    server.events(&[]);
    settle().await;
    listened.say(log("\"row 3 of 9\""));
    settle().await;
    pass(secs(1)).await;
    server.say(result("1"));
    server.end();
    settle().await;
    assert_eq!(listens.messages(), [log("\"row 3 of 9\"")]);
    assert_eq!(answer.messages(), [result("1")]);
}
