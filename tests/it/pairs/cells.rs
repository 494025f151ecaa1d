//! The rules for every pair.

use std::sync::OnceLock;

use serde_json::{Value, json};

use super::client::{Client, HOME};
use super::server::Heard;
use super::{Pair, Transport};
use crate::support::{runs, until};

/// A report as a legacy server makes it, with a figure in its text.
fn legacy(id: &Value, percent: u32, last: bool) -> Value {
    let text = json!({"message": "loading", "percentComplete": percent}).to_string();
    json!({"jsonrpc": "2.0", "method": "tools/progress", "params": {
        "id": id, "content": [{"type": "text", "text": text}], "isFinal": last}})
}

fn report(token: impl Into<Value>, progress: u32, total: &Value) -> Value {
    let token = token.into();
    json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {
        "progressToken": token, "progress": progress, "total": total, "message": null}})
}

/// Progress of a method of its own, of an invented token, that falls, with nulls: each becomes one
/// valid notification on the stream of its call, and nothing follows the result.
pub(crate) fn progress(mut pair: Pair) {
    let mut client = pair.client();
    let stream = client.call(7, "t");
    let call = pair.server.hear("tools/call");
    let reports = [
        legacy(call.id(), 10, false),
        report("invented", 20, &json!(100)),
        report(call.token().clone(), 15, &json!(100)),
        report(call.token().clone(), 30, &Value::Null),
        legacy(call.id(), 100, true),
    ];
    for report in reports {
        call.say(&report);
        client.hear_progress(stream, "t");
    }
    call.say(&call.result("done"));
    client.hear_result(stream, 7, "done");
    call.progress(200, 300);
    call.end();
    client.hears_nothing(&mut pair.server, 8);
}

/// A route's additions to requests reach the server, including a token of another type. Progress with that token, or
/// with its copy in the arguments, reaches the client with the client's own token.
pub(crate) fn asked(pair: Pair) {
    const KEYS: &str =
        "ask = { token_type = \"integer\", token_in_arguments = true, meta = { stream = true } }";
    const FLAGS: [&str; 5] = [
        "--ask-token-type",
        "integer",
        "--ask-token-in-arguments",
        "--ask-meta",
        r#"{"stream":true}"#,
    ];
    let mut pair = pair.set(KEYS, &FLAGS);
    let mut client = pair.client();
    let stream = client.call(7, "t");
    let call = pair.server.hear("tools/call");
    let params = &call.message()["params"];
    assert!(call.token().as_u64() > Some(0), "{params}");
    assert_eq!(params["_meta"]["stream"], true);
    let copy = &params["arguments"]["_meta"]["progressToken"];
    assert_eq!(copy.as_str(), Some(&*call.token().to_string()));
    for (token, figure) in [(call.token(), 1), (copy, 2)] {
        call.say(&report(token.clone(), figure, &json!(9)));
        client.hear_progress(stream, "t");
    }
    call.say(&call.result("done"));
    client.hear_result(stream, 7, "done");
    call.end();
    client.hears_nothing(&mut pair.server, 8);
}

/// A cancel reaches the server with the id that it knows; neither progress nor a late answer is shown.
pub(crate) fn cancel(mut pair: Pair) {
    let mut client = pair.client();
    let stream = client.call(7, "t");
    let call = pair.server.hear("tools/call");
    call.progress(1, 9);
    client.hear_progress(stream, "t");
    client.cancel(7);
    let cancel = pair.server.hear("notifications/cancelled");
    assert_eq!(&cancel.message()["params"]["requestId"], call.id());
    call.progress(2, 9);
    call.answer("late");
    if stream != HOME {
        client.hear_end(stream);
    }
    client.hears_nothing(&mut pair.server, 8);
}

/// Calls of one client and of another client with the same id and token: each client gets its own messages, on its own
/// stream, and a slow client does not delay others.
pub(crate) fn concurrent(mut pair: Pair) {
    let (mut one, mut other) = (pair.client(), pair.client());
    let slow = one.call(1, 1);
    let slow_call = pair.server.hear("tools/call");
    let quick = one.call(2, 2);
    let quick_call = pair.server.hear("tools/call");
    let theirs = other.call(1, 1);
    let their_call = pair.server.hear("tools/call");
    assert_eq!((slow_call.session, quick_call.session), (one.session, one.session));
    assert_eq!(their_call.session, other.session);
    for step in 1..=3 {
        for call in [&slow_call, &their_call, &quick_call] {
            call.progress(step, 9);
        }
        // Messages of two streams arrive in any order.
        let mut told = [one.hear(), one.hear()].map(|told| {
            let params = &told.json()["params"];
            assert_eq!(params["progress"], step, "{told:?}");
            (params["progressToken"].as_u64(), told.stream)
        });
        told.sort();
        assert_eq!(told, [(Some(1), slow), (Some(2), quick)]);
        assert_eq!(other.hear_progress(theirs, 1), f64::from(step));
    }
    quick_call.answer("quick");
    one.hear_result(quick, 2, "quick");
    their_call.answer("theirs");
    other.hear_result(theirs, 1, "theirs");
    one.hears_nothing(&mut pair.server, 3);
    other.hears_nothing(&mut pair.server, 2);
    slow_call.answer("slow");
    one.hear_result(slow, 1, "slow");
}

/// A request of the server and its answer pass each other, during a call and without one.
pub(crate) fn server_request(mut pair: Pair) {
    let mut client = pair.client();
    let stream = client.call(1, "t");
    let call = pair.server.hear("tools/call");
    call.say(&json!({"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage",
                     "params": {"messages": [], "maxTokens": 7}}));
    let told = client.hear();
    assert_eq!(told.stream, stream);
    answer(&mut client, &told.json(), "sampling/createMessage");
    let said = pair.server.hear_answer(1);
    assert_eq!((said.session, &said.message()["result"]["by"]), (client.session, &json!("c")));
    call.answer("done");
    client.hear_result(stream, 1, "done");
    pair.server
        .home(client.session)
        .say(&json!({"jsonrpc": "2.0", "id": 2, "method": "roots/list"}));
    let told = client.hear();
    assert_eq!(told.stream, HOME);
    answer(&mut client, &told.json(), "roots/list");
    assert_eq!(pair.server.hear_answer(2).message()["result"]["by"], "c");
}

fn answer(client: &mut Client, request: &Value, method: &str) {
    assert_eq!(request["method"], method);
    client.say(&json!({"jsonrpc": "2.0", "id": request["id"], "result": {"by": "c"}}));
}

/// A connection that is gone in the middle of a call is come back to, where the transport has that:
/// by the client of Streamable HTTP, and by Milepost before a server of it. Else the end of the
/// connection is the end of the session on both sides.
pub(crate) fn resume(mut pair: Pair) {
    let mut client = pair.client();
    let stream = client.call(7, "t");
    let call = pair.server.hear("tools/call");
    match (pair.client, pair.server.transport()) {
        (Transport::Http, to) => cut_and_back(&mut pair, &mut client, stream, &call, to),
        (_, Transport::Http) => polling(&mut pair, &mut client, stream, &call),
        (Transport::Stdio, _) => hung_up(&mut pair, &mut client, &call),
        (Transport::Sse, _) => left(&mut pair, &mut client),
    }
}

fn cut_and_back(pair: &mut Pair, client: &mut Client, stream: usize, call: &Heard, to: Transport) {
    // Event ids come from the server if it speaks the same transport.
    let (first, second) = (call.progress_message(1, 9), call.progress_message(2, 9));
    if to == Transport::Http {
        call.say_numbered("e-1", &first);
    } else {
        call.say(&first);
    }
    let told = client.hear();
    assert_eq!((told.stream, &told.json()["params"]["progress"]), (stream, &json!(1)));
    let event = told.event.unwrap();
    client.cut(stream);
    if to == Transport::Http {
        let back = client.resume("e-1");
        let resumed = pair.server.hear_resume("e-1");
        resumed.say_numbered("e-2", &second);
        client.hear_progress(back, "t");
        resumed.say_numbered("e-3", &call.result("done"));
        client.hear_result(back, 7, "done");
    } else {
        call.say(&second);
        let back = client.resume(&event);
        client.hear_progress(back, "t");
        call.answer("done");
        client.hear_result(back, 7, "done");
        client.hear_end(back);
    }
    client.hears_nothing(&mut pair.server, 8);
}

fn polling(pair: &mut Pair, client: &mut Client, stream: usize, call: &Heard) {
    call.say_numbered("e-1", &call.progress_message(1, 9));
    client.hear_progress(stream, "t");
    call.end();
    let resumed = pair.server.hear_resume("e-1");
    resumed.say_numbered("e-2", &call.progress_message(2, 9));
    client.hear_progress(stream, "t");
    resumed.say_numbered("e-3", &call.result("done"));
    client.hear_result(stream, 7, "done");
    client.hears_nothing(&mut pair.server, 8);
}

fn hung_up(pair: &mut Pair, client: &mut Client, call: &Heard) {
    client.leave();
    // A request that was made is still answered.
    if pair.server.transport() == Transport::Stdio {
        pair.server.hear_end(client.session);
    }
    call.answer("done");
    client.hear_result(HOME, 7, "done");
    if pair.server.transport() == Transport::Stdio {
        pair.server.die();
    } else {
        pair.server.hear_end(client.session);
    }
    client.hear_end(HOME);
    let code = client.code();
    assert!(code.is_some(), "{code:?}");
}

fn left(pair: &mut Pair, client: &mut Client) {
    client.leave();
    pair.server.hear_end(client.session);
    if let Some(pid) = pair.server.pid(client.session) {
        until("the child is gone", || !runs(pid));
    }
    assert_eq!(client.status("POST", r#"{"jsonrpc":"2.0","method":"notifications/x"}"#).0, 404);
    pair.client().hears_nothing(&mut pair.server, 1);
}

/// A server that is gone in the middle of calls: one error for each of them at once, and then what
/// says that the session is over.
pub(crate) fn death(mut pair: Pair) {
    let mut client = pair.client();
    let streams = [client.call(1, 1), client.call(2, 2)];
    let calls = [pair.server.hear("tools/call"), pair.server.hear("tools/call")];
    for call in &calls {
        call.progress(1, 9);
    }
    let heard = [client.hear(), client.hear()];
    assert!(heard.iter().all(|told| told.json()["params"]["progress"] == 1), "{heard:?}");
    pair.server.die();
    let mut failed = [client.hear(), client.hear()].map(|told| {
        let error = told.json();
        assert!(error["error"]["code"].is_i64(), "{told:?}");
        assert_eq!(error["error"]["data"]["proxy"], "milepost", "{told:?}");
        (error["id"].as_u64(), told.stream)
    });
    failed.sort();
    assert_eq!(failed, [(Some(1), streams[0]), (Some(2), streams[1])]);
    let call = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {}});
    match (pair.client, pair.server.transport()) {
        (Transport::Stdio, Transport::Stdio) => {
            client.hear_end(HOME);
            assert_eq!(client.code(), Some(3), "the code of the server");
        }
        // The server may return; until then every call gets an error.
        (Transport::Stdio, _)
        | (Transport::Sse, Transport::Http)
        | (Transport::Http, Transport::Sse) => {
            let stream = client.say(&call);
            let told = client.hear();
            assert_eq!((&told.json()["id"], told.stream), (&json!(3), stream));
            assert!(told.json()["error"]["code"].is_i64(), "{told:?}");
        }
        (Transport::Http, Transport::Http) => {
            let (status, body) = client.status("POST", &call.to_string());
            assert_eq!(status, 502, "{body}");
        }
        (Transport::Http, _) => {
            for stream in [streams[0], streams[1], HOME] {
                client.hear_end(stream);
            }
            until("the session is gone", || client.status("POST", &call.to_string()).0 == 404);
        }
        (Transport::Sse, _) => {
            client.hear_end(HOME);
            until("the session is gone", || client.status("POST", &call.to_string()).0 == 404);
        }
    }
}

/// Text in which a piece that is lost, doubled or moved is noticed.
fn ten_megabytes() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| (0..).map(|number| format!("{number:08} ")).take((10 << 20) / 9).collect())
}

/// A result of 10 MB arrives unchanged, alone and while another call reports.
pub(crate) fn large(mut pair: Pair) {
    let mut client = pair.client();
    for others in [false, true] {
        let (id, other_id) = if others { (3, 4) } else { (1, 2) };
        let other = others.then(|| {
            let stream = client.call(other_id, "other");
            (stream, pair.server.hear("tools/call"))
        });
        if let Some((stream, call)) = &other {
            call.progress(1, 9);
            client.hear_progress(*stream, "other");
        }
        let stream = client.call(id, "large");
        let call = pair.server.hear("tools/call");
        call.progress(1, 9);
        client.hear_progress(stream, "large");
        let result = call.result(ten_megabytes()).to_string();
        call.say_text(&result);
        call.end();
        if let Some((_, call)) = &other {
            call.progress(2, 9);
        }
        let told = client.hear_on(stream);
        let large = if told.text().len() < 1 << 20 { client.hear_on(stream) } else { told };
        assert!(large.text() == result, "{} bytes", large.text().len());
        if let Some((stream, call)) = &other {
            call.answer("other");
            while let told = client.hear_on(*stream)
                && told.json()["id"] != other_id
            {
                assert_eq!(told.json()["params"]["progressToken"], "other", "{told:?}");
            }
        }
    }
    client.hears_nothing(&mut pair.server, 9);
}
