//! The faults of other proxies, as far as no cell of the table is about them.

use Transport::{Http, Sse, Stdio};
use serde_json::json;

use super::client::HOME;
use super::{Pair, Transport};
use crate::support::{runs, until};

const ALL: [Transport; 3] = [Stdio, Http, Sse];

/// All the pairs.
fn pairs() -> impl Iterator<Item = Pair> {
    ALL.into_iter().flat_map(|client| ALL.map(|server| Pair::new(client, server)))
}

#[test]
fn what_is_said_rightly_passes_to_the_byte() {
    // 1 stays 1, 1.0 stays 1.0, and unknown members stay at their places.
    let asks = r#"{"jsonrpc":"2.0","id":7, "method":"tools/call","params":{"name":"w","arguments":{"n":1.0,"m":1e2,"z":null},"_meta":{"progressToken":"t","x/y":[1.0]}},"extra":{"b":1,"a":2}}"#;
    let reports = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t", "progress":1.0,"total":4,"unknown":{"z":1,"a":1.50}},"extra":[1e0]}"#;
    let answers = r#"{"id":7,"jsonrpc":"2.0","result":{"content":[],"n":1.0,"m":1,"unknown":{"z":null,"a":"\u0041"}},"extra":true}"#;
    for mut pair in pairs() {
        let mut client = pair.client();
        let stream = client.say_text(asks);
        let call = pair.server.hear("tools/call");
        assert_eq!(call.text, asks);
        call.say_text(reports);
        let told = client.hear();
        assert_eq!((told.stream, told.text()), (stream, reports));
        call.say_text(answers);
        call.end();
        let told = client.hear();
        assert_eq!((told.stream, told.text()), (stream, answers));
    }
}

#[test]
fn progress_of_one_client_is_not_broadcast() {
    for mut pair in pairs() {
        let (mut one, mut other) = (pair.client(), pair.client());
        let streams = [one.call(1, "t"), other.call(1, "t")];
        let calls = [pair.server.hear("tools/call"), pair.server.hear("tools/call")];
        let [call, theirs] = calls;
        // The order of the two calls is not defined.
        let (call, theirs) =
            if call.session == one.session { (call, theirs) } else { (theirs, call) };
        for step in 1..=3 {
            call.progress(step, 9);
            one.hear_progress(streams[0], "t");
        }
        pair.server.home(one.session).say(&call.progress_message(4, 9));
        one.hear_progress(streams[0], "t");
        other.hears_nothing(&mut pair.server, 2);
        theirs.answer("theirs");
        other.hear_result(streams[1], 1, "theirs");
    }
}

#[test]
fn progress_on_the_stream_of_another_call_goes_to_its_own() {
    for client in ALL {
        let mut pair = Pair::new(client, Http);
        let mut client = pair.client();
        let one = client.call(1, "one");
        let call = pair.server.hear("tools/call");
        let other = client.call(2, "other");
        let other_call = pair.server.hear("tools/call");
        for step in 1..=2 {
            call.say(&other_call.progress_message(step, 9));
            client.hear_progress(other, "other");
        }
        other_call.answer("other");
        client.hear_result(other, 2, "other");
        call.answer("one");
        client.hear_result(one, 1, "one");
    }
}

#[test]
fn progress_on_the_get_stream_goes_to_its_call() {
    for client in ALL {
        let mut pair = Pair::new(client, Http);
        let mut client = pair.client();
        let stream = client.call(1, "t");
        let call = pair.server.hear("tools/call");
        let home = pair.server.home(client.session);
        for step in 1..=3 {
            home.say(&call.progress_message(step, 9));
            client.hear_progress(stream, "t");
        }
        call.answer("done");
        client.hear_result(stream, 1, "done");
    }
}

#[test]
fn progress_that_is_written_together_with_its_result_comes_before_it() {
    const CALLS: u32 = 100;
    for server in ALL {
        let mut pair = Pair::new(Http, server);
        let mut client = pair.client();
        for id in 0..CALLS {
            let stream = client.call(id, id);
            let call = pair.server.hear("tools/call");
            call.say_at_once(&[call.progress_message(9, 9), call.result("done")]);
            call.end();
            assert_eq!(client.hear_progress(stream, id), 9.0);
            client.hear_result(stream, id, "done");
        }
    }
}

#[test]
fn a_session_is_begun_once_however_many_calls_it_has() {
    for mut pair in pairs() {
        let mut client = pair.client();
        for id in 1..=5 {
            client.hears_nothing(&mut pair.server, id);
        }
        assert_eq!(pair.server.sessions(), 1);
    }
}

#[test]
fn a_second_get_harms_nothing() {
    for server in ALL {
        let mut pair = Pair::new(Http, server);
        let mut client = pair.client();
        let stream = client.call(1, "t");
        let call = pair.server.hear("tools/call");
        let second = client.listen_again();
        call.progress(1, 9);
        client.hear_progress(stream, "t");
        client.cut(second);
        call.progress(2, 9);
        client.hear_progress(stream, "t");
        call.answer("done");
        client.hear_result(stream, 1, "done");
        client.hears_nothing(&mut pair.server, 2);
        assert_eq!(pair.server.sessions(), 1);
        assert!(pair.server.pid(0).is_none_or(runs));
    }
}

#[test]
fn a_client_that_vanishes_leaves_no_child() {
    for client in ALL {
        let keys = "upstream.idle_timeout = \"5s\"\nkeep_alive = \"100ms\"";
        let mut pair = Pair::with(client, Stdio, keys);
        let mut client = pair.client();
        client.call(1, "t");
        let call = pair.server.hear("tools/call");
        client.vanish();
        // Over HTTP a call continues after a disconnect, because its client may resume.
        call.answer("done");
        pair.server.hear_end(client.session);
        let pid = pair.server.pid(client.session).unwrap();
        if pair.client == Stdio {
            pair.server.die();
        }
        until("the child is gone", || !runs(pid));
    }
}

#[test]
fn a_cancel_that_names_no_request_harms_nobody() {
    for mut pair in pairs() {
        let mut client = pair.client();
        let stream = client.call(1, "t");
        let call = pair.server.hear("tools/call");
        client.cancel(99);
        call.progress(1, 9);
        client.hear_progress(stream, "t");
        call.answer("done");
        client.hear_result(stream, 1, "done");
    }
}

#[test]
fn a_server_may_answer_a_client_that_has_cancelled_and_asks_anew_with_the_same_token() {
    for mut pair in pairs() {
        let mut client = pair.client();
        client.call(1, "t");
        let first = pair.server.hear("tools/call");
        client.cancel(1);
        pair.server.hear("notifications/cancelled");
        let stream = client.call(2, "t");
        let second = pair.server.hear("tools/call");
        first.answer("late");
        second.progress(1, 9);
        client.hear_progress(stream, "t");
        client.say(&json!({"jsonrpc": "2.0", "method": "notifications/x"}));
        second.answer("done");
        client.hear_result(stream, 2, "done");
        assert!(stream == HOME || stream > 1);
    }
}
