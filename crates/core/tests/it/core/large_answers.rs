//! Answers that are too large to be kept whole are repaired while they pass, however they are divided.

use std::time::Duration;

use milepost_core::progress::{Origin, Pacing, Policy, Repair, Repairs, Verdict};

use crate::core::rig::{Rig, assert_pieces_stand_together, bare};
use crate::support::messages::call;

/// Plays a request with id 1 and its answer, which arrives in a first piece of `head` bytes and further pieces of at
/// most `length` bytes. Returns what the client gets, and the verdict. `speaks`: the server uses a dialect with bare
/// results.
fn told(answer: &str, head: usize, length: usize, speaks: bool) -> (String, Option<Verdict>) {
    let mut rig = Rig::new(bare(Policy::default()));
    rig.client(call("1", "7").as_bytes());
    if speaks {
        rig.server(
            br#"{"jsonrpc":"2.0","method":"tools/progress","params":{"id":1,"content":[]}}"#,
        );
        rig.pass(Duration::from_secs(1));
        rig.told.clear();
    }
    let (head, rest) = answer.as_bytes().split_at(head.min(answer.len()));
    rig.begin(head);
    rest.chunks(length).for_each(|piece| rig.piece(piece));
    rig.over();
    assert_pieces_stand_together(&rig.told);
    assert_eq!(rig.filter.open_calls(), 0, "{answer}");
    let verdict = rig.verdicts.last().map(|(_, verdict)| *verdict);
    (String::from_utf8(rig.told_bytes()).unwrap(), verdict)
}

#[track_caller]
fn check(answer: &str, wanted: &str, repairs: &[Repair]) {
    // The first piece must show that the text is a message, and the first member of its result.
    let seen = r#"{"jsonrpc":"2.0","#.len();
    let body = answer.find(r#""result":"#).or_else(|| answer.find(r#""error":"#)).unwrap();
    let shows = |from: usize| answer[from..].find([':', ',']).map_or(from, |at| from + at + 2);
    let head = shows(body + 11).max(seen);
    for (head, length) in
        [(head, 1), (head, 2), (head, 3), (head, 7), (head + 5, 64), (answer.len(), 1)]
    {
        let (told, verdict) = told(answer, head, length, true);
        assert_eq!(told, wanted, "head {head}, pieces of {length}");
        let repaired = Verdict::Repaired(repairs.iter().copied().collect::<Repairs>());
        let verdict_wanted = if repairs.is_empty() { Verdict::Forwarded } else { repaired };
        assert_eq!(verdict, Some(verdict_wanted), "{answer}");
    }
}

#[test]
fn ids_are_mended_first_or_last() {
    let result = r#""result":{"content":[{"type":"text","text":"a \"id\":9,}]"}],"id":3}"#;
    check(
        &format!(r#"{{"jsonrpc":"2.0","id" : "1" ,{result}}}"#),
        &format!(r#"{{"jsonrpc":"2.0","id" : 1 ,{result}}}"#),
        &[Repair::ResponseId],
    );
    for id in ["\"1\"", "\"\\u0031\""] {
        check(
            &format!(r#"{{"jsonrpc":"2.0",{result},"id": {id} }}"#),
            &format!(r#"{{"jsonrpc":"2.0",{result},"id": 1 }}"#),
            &[Repair::ResponseId],
        );
    }
    let exact = format!(r#"{{"jsonrpc":"2.0",{result},"id":1}}"#);
    check(&exact, &exact, &[]);
}

#[test]
fn null_members_are_left_out() {
    check(
        r#"{"jsonrpc":"2.0", "method":null ,"result":{"content":[],"error":null},"error" : null , "params":null,"id":1}"#,
        r#"{"jsonrpc":"2.0" ,"result":{"content":[],"error":null} ,"id":1}"#,
        &[Repair::ErrorShape],
    );
    check(
        r#"{"method":null, "error":null,"id":"1","jsonrpc":"2.0","result":{"content":[]},"params":null}"#,
        r#"{ "id":1,"jsonrpc":"2.0","result":{"content":[]}}"#,
        &[Repair::ResponseId, Repair::ErrorShape],
    );
    check(
        r#"{"jsonrpc":"2.0","result":null,"error":"no","id":1,"method":null}"#,
        r#"{"jsonrpc":"2.0","result":null,"error":{"code":-32603,"message":"no"},"id":1}"#,
        &[Repair::ErrorShape],
    );
    let near = r#"{"jsonrpc":"2.0","result":{"content":[]},"x":null,"errors":nul,"id":1}"#;
    check(near, near, &[]);
}

#[test]
fn the_version_that_is_missing_is_added() {
    let result = r#""result":{"content":[{"type":"text","text":"a \"jsonrpc\":1}"}]}"#;
    let right = r#""jsonrpc":"2.0""#;
    for wrong in [r#""1.0""#, "2.0", "null"] {
        check(
            &format!(r#"{{"id":1,"jsonrpc":{wrong},{result}}}"#),
            &format!(r#"{{"id":1,{right},{result}}}"#),
            &[Repair::Envelope],
        );
        check(
            &format!(r#"{{"id":1,{result}, "jsonrpc" : {wrong} }}"#),
            &format!(r#"{{"id":1,{result}, "jsonrpc" : "2.0" }}"#),
            &[Repair::Envelope],
        );
    }
    check(
        &format!(r#"{{"id":1,{result} }}"#),
        &format!(r#"{{"id":1,{result} ,{right}}}"#),
        &[Repair::Envelope],
    );
    check(
        &format!(r#"{{"id":1.0,{result}}}"#),
        &format!(r#"{{"id":1,{result},{right}}}"#),
        &[Repair::Envelope, Repair::ResponseId],
    );
}

#[test]
fn text_is_made_readable() {
    check(
        r#"{"jsonrpc":"2.0","result":{"content":["\ud83d\ude00 \ud83d \\ud83d \ude00\\"]},"id":"1"}"#,
        r#"{"jsonrpc":"2.0","result":{"content":["\ud83d\ude00 \ufffd \\ud83d \ufffd\\"]},"id":1}"#,
        &[Repair::ResponseId, Repair::Unicode],
    );
    check(
        r#"{"jsonrpc":"2.0","result":{"status":"\udc00 é"},"id":1}"#,
        r#"{"jsonrpc":"2.0","result":{"content":[{"type":"text","text":"{\"status\":\"\\ufffd é\"}"}],"isError":false},"id":1}"#,
        &[Repair::BareResult, Repair::Unicode],
    );
}

#[test]
fn control_characters_in_strings_become_escapes() {
    check(
        "{\"jsonrpc\":\"2.0\",\t\"id\":1,\"result\":{\"content\":\t[],\"a\":\"b\tc\u{1}\\\"\t\"}}",
        "{\"jsonrpc\":\"2.0\",\t\"id\":1,\"result\":{\"content\":\t[],\"a\":\"b\\tc\\u0001\\\"\\t\"}}",
        &[Repair::Unicode],
    );
}

#[test]
fn an_answer_that_lacks_only_the_end_of_its_line_is_no_broken_one() {
    let mut rig = Rig::new(bare(Policy::default()));
    rig.client(call("1", "7").as_bytes());
    let answer =
        r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"a b c"}]}}"#;
    let (head, rest) = answer.as_bytes().split_at(60);
    rig.begin(head);
    rest.chunks(4).for_each(|piece| rig.piece(piece));
    let now = rig.now();
    rig.filter.intake_mut().break_off_server(now, Origin::Shared, "the server has exited");
    rig.over();
    assert_eq!(String::from_utf8(rig.told_bytes()).unwrap().trim_end(), answer);
}

#[test]
fn bare_results_are_wrapped() {
    let tail = r#"}],"isError":false}"#;
    for (bare, text) in [
        (
            r#"{"status":"a \"b\" \\","n":[1,{"content":2}]}"#,
            r#"{\"status\":\"a \\\"b\\\" \\\\\",\"n\":[1,{\"content\":2}]}"#,
        ),
        (r#"["a",{"content":[]}]"#, r#"[\"a\",{\"content\":[]}]"#),
        (r#""a, b""#, r#"\"a, b\""#),
    ] {
        let wrapped = format!(r#"{{"content":[{{"type":"text","text":"{text}"{tail}"#);
        check(
            &format!(r#"{{"jsonrpc":"2.0","result":{bare},"id":1}}"#),
            &format!(r#"{{"jsonrpc":"2.0","result":{wrapped},"id":1}}"#),
            &[Repair::BareResult],
        );
        check(
            &format!(r#"{{"jsonrpc":"2.0","id":"1","result":{bare}}}"#),
            &format!(r#"{{"jsonrpc":"2.0","id":1,"result":{wrapped}}}"#),
            &[Repair::ResponseId, Repair::BareResult],
        );
    }
    let failed = r#"{"jsonrpc":"2.0","id":1,"result":{"of":1,"error":"no"}}"#;
    let wrapped = r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"{\"of\":1,\"error\":\"no\"}"}],"isError":true}}"#;
    check(failed, wrapped, &[Repair::BareResult]);
    // The result is a tool result, or the server does not use a dialect with bare results.
    let proper = r#"{"jsonrpc":"2.0","result":{"isError":false,"content":[]},"id":1}"#;
    assert_eq!(told(proper, 60, 1, true).0, proper);
    let plain = r#"{"jsonrpc":"2.0","result":{"status":"a"},"id":1}"#;
    assert_eq!(told(plain, 35, 1, false), (plain.to_owned(), Some(Verdict::Forwarded)));
}

#[test]
fn errors_get_a_code_and_a_message() {
    for (error, wanted) in [
        (r#""no \"1\"""#, r#"{"code":-32603,"message":"no \"1\""}"#),
        (r#"[1,2]"#, r#"{"code":-32603,"message":"the server gave no reason","data":[1,2]}"#),
        (
            r#"{"code":-1,"data":{"message":"a"}}"#,
            r#"{"code":-1,"data":{"message":"a"},"message":"the server gave no reason"}"#,
        ),
        (r#"{"message":"no","more":1}"#, r#"{"message":"no","more":1,"code":-32603}"#),
    ] {
        check(
            &format!(r#"{{"jsonrpc":"2.0","error":{error},"id":1}}"#),
            &format!(r#"{{"jsonrpc":"2.0","error":{wanted},"id":1}}"#),
            &[Repair::ErrorShape],
        );
    }
    let good = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no","data":[]}}"#;
    check(good, good, &[]);
}

/// An array with the answers to the calls 1 and 2, and with a message between them.
const ANSWERS: &str = concat!(
    r#"[{"jsonrpc":"2.0","id":2,"result":{"content":[]}},"#,
    r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"]"}},"#,
    r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}]"#
);

/// Opens two calls, and passes the first `bytes` bytes of [`ANSWERS`] in pieces of `length` bytes.
fn array_begins(length: usize, bytes: usize) -> Rig {
    let mut policy = Policy::default();
    policy.call.pacing = Pacing::IMMEDIATE;
    let mut rig = Rig::new(policy);
    rig.client(call("1", "7").as_bytes());
    rig.client(call("2", "8").as_bytes());
    let (head, rest) = ANSWERS.as_bytes()[..bytes].split_at(20);
    rig.begin(head);
    rest.chunks(length).for_each(|piece| rig.piece(piece));
    rig
}

#[test]
fn the_calls_that_an_array_answers_are_over() {
    for length in [1, 7, 64, ANSWERS.len()] {
        let mut rig = array_begins(length, ANSWERS.len());
        rig.over();
        assert_eq!(rig.told_bytes(), ANSWERS.as_bytes());
        assert_eq!(rig.filter.open_calls(), 0);
        rig.told.clear();
        rig.pass(Duration::from_secs(60));
        assert!(rig.told.is_empty(), "heartbeats of calls that are over: {:?}", rig.told);
    }
}

#[test]
fn the_calls_that_a_broken_array_answers_get_errors() {
    let mut rig = array_begins(16, ANSWERS.len() - 5);
    rig.gone();
    let told = String::from_utf8(rig.told_bytes()).unwrap();
    for id in [1, 2] {
        let error = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":"#);
        assert_eq!(told.matches(&error).count(), 1, "{told}");
    }
}

#[test]
fn a_large_answer_keeps_its_distance_from_the_progress_before_it() {
    let answer =
        format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"content":["{}"]}}}}"#, "x".repeat(200));
    for (head, length) in [(20, 50), (40, 7), (60, 200), (10, 1)] {
        for gap in [0, 1, 49] {
            let mut rig = Rig::new(Policy::default());
            rig.client(call("1", "7").as_bytes());
            rig.server(br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}"#);
            rig.pass(Duration::from_millis(150));
            assert_eq!(rig.told.len(), 1);
            rig.pass(Duration::from_millis(gap));
            let (first, rest) = answer.as_bytes().split_at(head);
            rig.begin(first);
            rest.chunks(length).for_each(|piece| rig.piece(piece));
            rig.over();
            assert_eq!(rig.told.len(), 1, "head {head}, {gap} ms");
            rig.pass(Duration::from_millis(49 - gap));
            assert_eq!(rig.told.len(), 1, "head {head}, {gap} ms");
            rig.pass(Duration::from_millis(1));
            assert!(rig.told.len() > 1, "head {head}, {gap} ms");
        }
    }
}
