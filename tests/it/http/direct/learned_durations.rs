//! A duration that is learned from one call of a route holds for the next, whichever connection has it.

use crate::http::rig::{Answer, Rig, check, pass, secs, settle};
use crate::support::messages::*;

const S: &str = "Mcp-Session-Id: s";
const MODERN: &str = "MCP-Protocol-Version: 2026-07-28";

/// Whether a call is shown as half done after 5 s of about 10 s.
fn half(answer: &Answer) -> bool {
    let messages = answer.messages();
    let last = messages.last().map_or("", |last| last);
    last.contains(r#""progress":0.5,"total":1,"#) && last.contains("5s of about 10s")
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_session_and_those_without_one_learn_from_each_other() {
    let mut rig = Rig::new("estimate = true\nheartbeat.after = \"5s\"\nheartbeat.every = \"100s\"");
    rig.session("s", "2025-06-18").await;
    // Events within a session, and JSON without one.
    let answer = rig.post(&[S], call("1", "7"));
    let server = rig.asked().await;
    server.events(&[]);
    pass(secs(10)).await;
    server.say(result("1"));
    server.end();
    settle().await;
    assert!(answer.is_over() && !answer.text().contains("about"));
    let answer = rig.post(&["MCP-Protocol-Version: 2025-06-18"], call("2", "7"));
    let server = rig.asked().await;
    pass(secs(10)).await;
    server.json(&[], &result("2"));
    settle().await;
    assert!(answer.is_over() && !answer.text().contains("about"));
    // A stream whose call continues in the session, with messages on another stream, does not count as an answer.
    let left = rig.post(&[S], call("3", "3"));
    let server = rig.asked().await;
    server.events(&[]);
    pass(secs(1)).await;
    left.leave();
    settle().await;
    // The third answer is counted.
    let answer = rig.post(&[S], call("4", "7"));
    let server = rig.asked().await;
    server.events(&[]);
    pass(secs(6)).await;
    assert!(half(&answer), "{:?}", answer.messages());
    server.say(result("4"));
    server.end();
    settle().await;
    check([&answer]);
}

#[tokio::test(start_paused = true)]
async fn clients_that_share_a_child_learn_from_each_other() {
    let keys = "estimate = true\nheartbeat.after = \"5s\"\nheartbeat.every = \"100s\"";
    let (rig, mut servers) = Rig::of_lines(keys);
    let call = |id: u32| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t","_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}},"progressToken":{id}}}}}}}"#
        )
    };
    let repeated = ["Mcp-Method: tools/call", "Mcp-Name: t"];
    let post = |who: &str, id| rig.post(&[&[who, MODERN][..], &repeated].concat(), call(id));
    let mut answers = Vec::new();
    // The durations of another child are learned too.
    let callers = ["Authorization: a", "Authorization: a", "Authorization: b"];
    let mut running = Vec::new();
    for (number, who) in callers.into_iter().enumerate() {
        let answer = post(who, 1);
        settle().await;
        running.extend(servers.try_recv());
        let server = running.last_mut().unwrap();
        let line = server.line().await;
        let id = line.split("\"id\":").nth(1).unwrap().split(',').next().unwrap().to_owned();
        if number == 2 {
            pass(secs(6)).await;
            assert!(half(&answer), "{:?}", answer.messages());
        }
        pass(secs(10)).await;
        server.say(result(&id));
        settle().await;
        answers.push(answer);
    }
    check(&answers);
}
