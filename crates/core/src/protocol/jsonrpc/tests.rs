//! Tests of reading envelopes, mostly as one-line cases.

use super::*;

fn parse(text: &str) -> Message {
    Message::parse(Bytes::copy_from_slice(text.as_bytes()))
}

#[track_caller]
fn check(text: &str, kind: Kind, id: Option<&str>) {
    let message = parse(text);
    assert_eq!(message.kind(), kind, "{text}");
    assert_eq!(message.id().as_deref(), id.map(str::as_bytes), "{text}");
}

#[test]
fn the_members_of_the_envelope_tell_what_a_message_is() {
    check(r#"{"jsonrpc":"2.0","id":0,"method":"ping"}"#, Kind::Request, Some("0"));
    check(r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#, Kind::Notification, Some("null"));
    check(r#"{"method":"notifications\/progress"}"#, Kind::Notification, None);
    check(r#"{"id":1,"result":null}"#, Kind::Response, Some("1"));
    check(r#"{"jsonrpc":"2.0","result":{}}"#, Kind::Response, None);
    check(r#"{"id":9,"id":1,"result":{}}"#, Kind::Response, Some("1"));
    check(r#"{"id":1,"result":{"x":NaN}}"#, Kind::Response, Some("1"));
    check(r#"{"jsonrpc":"2.0","id":1}"#, Kind::Response, Some("1"));
    check(r#"{"jsonrpc":"2.0","id":1"#, Kind::Opaque, Some("1"));
    check(r#"{"jsonrpc":"2.0"}"#, Kind::Opaque, None);
    check(r#"[{"id":1,"result":{}}]"#, Kind::Batch, None);
    check(r#"{"method":"a"}{"id":1,"result":{}}"#, Kind::Opaque, None);
}

#[test]
fn what_is_printed_by_mistake_is_noise() {
    for text in [
        "Server listening on 3000",
        "[INFO] ready",
        "[Tool: x] Sending Progress: {",
        "{",
        "}",
        "[]",
        "[1,2]",
        "[[]]",
        "  status: 'initializing',",
        r#"{"level":30,"msg":"hi"}"#,
        r#"{"result":"fine"}"#,
        "{'method': 'x'}",
        "\u{1b}]9;4;1;10\u{7}",
    ] {
        check(text, Kind::Noise, None);
    }
}

#[test]
fn two_objects_on_a_line_are_seen_but_not_split() {
    let message = parse(r#"{"method":"a"}{"id":1,"result":{}}"#);
    let kinds: Vec<Kind> = message.elements().map(|element| element.kind()).collect();
    assert_eq!(kinds, [Kind::Notification, Kind::Response]);
}

/// Returns a large answer with its members in the order of `order`, in which `big` stands for `result`.
fn large(order: &str, result: &str) -> Message {
    parse(&order.replace("big", result))
}

#[test]
fn a_large_answer_is_known_by_its_ends() {
    let text =
        format!(r#"{{"content":[{{"type":"text","text":"{}"}}]}}"#, "lorem \\\" ".repeat(9000));
    for order in [
        r#"{"jsonrpc":"2.0","id":7,"result":big}"#,
        r#"{"result":big,"jsonrpc":"2.0","id":7}"#,
        r#" {"result":big,"id":7} "#,
        r#"{"id":9,"result":big,"id":7}"#,
    ] {
        let message = large(order, &text);
        assert_eq!(message.id().as_deref(), Some(&b"7"[..]), "{order}");
        assert_eq!(message.kind(), Kind::Response);
        assert_eq!(message.result().as_deref(), Some(text.as_bytes()), "{order}");
    }
}

#[test]
fn a_large_answer_is_known_by_the_id_outside_its_result() {
    let text = format!(r#"{{"id":3,"x":"{}"}}"#, "y".repeat(PEEK_MIN));
    for (order, id) in [
        (r#"{"jsonrpc":"2.0","id":7,"result":big}"#, "7"),
        (r#"{"id":7,"result":big,"id":8,"x":{}}"#, "8"),
        (r#"{"result":big,"id":"a","jsonrpc":"2.0"}"#, "\"a\""),
        (r#"{"id":7,"result":big,"\u0069d":8,"x":{}}"#, "8"),
    ] {
        assert_eq!(large(order, &text).id().as_deref(), Some(id.as_bytes()), "{order}");
    }
}

#[test]
fn a_passing_message_is_read_like_a_whole_one_wherever_it_is_cut() {
    for text in [
        r#"{"jsonrpc":"2.0","id":"a\"b","method":"notifications\/progress","params":{"id":2}}"#,
        r#"{"result":{"content":[{"text":"}\\\"]","id":5}],"method":"m"},"jsonrpc":"2.0","id":17}"#,
        r#"{"id" : 1 , "error":{"code":-1}}"#,
        r#" {"id":{},"result":["id",{"id":3}],"id" :"ü{" }"#,
        r#"{"jsonrpc":"2.0","method":"x"}"#,
        "[INFO] {",
    ] {
        let whole = parse(text);
        for cut in 0..=text.len() {
            let mut scan = Scan::default();
            scan.feed(&text.as_bytes()[..cut]);
            scan.feed(&text.as_bytes()[cut..]);
            assert_eq!(scan.kind(), whole.kind(), "{text} cut at {cut}");
            assert_eq!(scan.id(), whole.id_key(), "{text} cut at {cut}");
            let place = scan.id_place().map(|place| place.start as usize..place.end as usize);
            assert_eq!(place, whole.id_range(), "{text} cut at {cut}");
            assert_eq!(scan.method().as_deref(), whole.method().as_deref(), "{text} cut at {cut}");
        }
    }
}
