//! Drafts of dialects from messages.

use serde_json::json;

use super::*;

/// The table that is drafted from these parameters, without its head.
fn drafted(params: &[Value]) -> String {
    let text = |params: &Value| json!({ "method": "m", "params": params }).to_string();
    let samples: Vec<(Bytes, usize)> =
        params.iter().map(|params| (text(params).into(), 0)).collect();
    let call = ObservedCall { id: 2, token: Some(7001.into()), ..ObservedCall::default() };
    let table = Draft::new(&samples, &[call]).table("own", "m");
    let lines = table.lines().skip(3).map(|line| line.replace("/params", "")).collect::<Vec<_>>();
    lines.join(" ")
}

#[track_caller]
fn check(params: &[Value], expected: &str) {
    assert_eq!(drafted(params), expected);
}

#[test]
fn nested_members_and_json_in_strings_are_found() {
    let tick = |at: u32| json!({ "job": { "call": "2", "id": 2 }, "tick": { "at": at, "end": 9 }, "say": { "what": format!("field {at}") } });
    check(
        &[tick(1), tick(2), tick(5)],
        "request_id = \"/job/id\" progress = \"/tick/at\" total = \"/tick/end\" message = \"/say/what\"",
    );
    let inside = |pct: u32| {
        let text = json!({ "pct": pct, "words": "sorting", "token": "7001" }).to_string();
        json!({ "content": [{ "type": "text", "text": text }], "isFinal": pct == 90 })
    };
    check(
        &[inside(10), inside(40), inside(90)],
        "token = \"/content/0/text#/token\" progress = \"/content/0/text#/pct\" \
         message = \"/content/0/text#/words\" final = { pointer = \"/isFinal\", equals = true } \
         scale = \"percent\"",
    );
}

#[test]
fn an_id_under_an_unusual_name_is_found_by_its_value() {
    let one = |n: u32| json!({ "job": { "rpc": 2, "lane": "2a" }, "step": n, "steps": 2 });
    check(
        &[one(1), one(2)],
        "request_id = \"/job/rpc\"  # by its value: is this the id? progress = \"/step\" total = \"/steps\"",
    );
    // Two members have the value: none of them may be meant.
    let two = |n: u32| json!({ "rpc": 2, "lane": 2, "step": n });
    check(&[two(1), two(2)], "progress = \"/step\"");
    // Two calls with different ids suffice as proof.
    let sample = |rpc: &str, lane: u32, step: u32, call: usize| {
        let params = json!({ "rpc": rpc, "lane": lane, "words": format!("step {step}") });
        (json!({ "method": "m", "params": params }).to_string().into(), call)
    };
    let samples = [sample("2", 2, 1, 0), sample("2", 2, 2, 0), sample("3", 2, 1, 1)];
    let calls = [2, 3].map(|id| ObservedCall { id, ..ObservedCall::default() });
    let draft = Draft::new(&samples, &calls);
    assert!(draft.table("own", "m").contains("request_id = \"/params/rpc\"\n"));
    assert!(draft.is_progress());
}

#[test]
fn a_state_that_ends_is_the_last_message() {
    let state = |state: &str, done: f64| json!({ "jobId": "j-1", "state": state, "done": done });
    check(
        &[state("busy", 0.1), state("busy", 0.4), state("busy", 0.9), state("finished", 1.0)],
        "token = \"/jobId\" progress = \"/done\" message = \"/state\" \
         final = { pointer = \"/state\", equals = \"finished\" } scale = \"unit\"",
    );
}

#[test]
fn numbers_that_measure_no_work_are_left_out() {
    let one =
        |n: u32| json!({ "timestamp": 1_700_000_000 + n, "elapsed": n, "seq": n, "port": 80 });
    check(&[one(1), one(2), one(3)], "");
    // The id of the request is not a value.
    check(
        &[json!({ "id": 2, "note": "reading files" })],
        "request_id = \"/id\" message = \"/note\"",
    );
    check(&[json!({ "a": 1, "b": 40 })], "");
    // A percentage has no total beside it.
    check(&[json!({ "percent": 10, "total": 9 })], "progress = \"/percent\" scale = \"percent\"");
    check(&[json!({ "progress": "40%" })], "progress = \"/progress\"");
    check(&[json!({ "progress": "8,5%", "total": 9 })], "progress = \"/progress\"");
    check(
        &[json!({ "percent": "8 %" }), json!({ "percent": "45%" })],
        "progress = \"/percent\" scale = \"percent\"",
    );
}

/// Checks the table that is drafted from JSON objects on one line.
#[track_caller]
fn check_line(params: &str, expected: &str) {
    let values = serde_json::Deserializer::from_str(params).into_iter();
    let params: Vec<Value> = values.map(Result::unwrap).collect();
    assert_eq!(drafted(&params), expected, "{params:?}");
}

#[test]
fn a_number_that_rises_is_the_value_under_any_name() {
    let rising = |pointer: &str| format!("progress = \"{pointer}\"  # a guess: this number rises");
    let scaled =
        |pointer: &str, scale: &str| format!("{} scale = \"{scale}\"  # a guess", rising(pointer));
    let of = |pointer: &str, total: &str| {
        format!("{} total = \"{total}\"  # a guess: this number stays the same", rising(pointer))
    };
    for (params, expected) in [
        // From 0 to 1, to 100, towards a constant number, and a plain counter.
        (r#"{"how_far":0.2} {"how_far":0.4} {"how_far":0.8}"#, scaled("/how_far", "unit")),
        (r#"{"ratio":0.2} {"ratio":0.4} {"ratio":0.7}"#, scaled("/ratio", "unit")),
        (r#"{"how_far":5} {"how_far":47} {"how_far":100}"#, scaled("/how_far", "percent")),
        (r#"{"how_far":20} {"how_far":50} {"how_far":80}"#, scaled("/how_far", "percent")),
        (r#"{"how_far":"4"} {"how_far":"51"} {"how_far":"96"}"#, scaled("/how_far", "percent")),
        (
            r#"{"seen":3,"plan":40} {"seen":9,"plan":40} {"seen":21,"plan":40}"#,
            of("/seen", "/plan"),
        ),
        (r#"{"at":3,"limit":9} {"at":6,"limit":9} {"at":9,"limit":9}"#, of("/at", "/limit")),
        (r#"{"lines":10} {"lines":25} {"lines":77}"#, rising("/lines")),
        (r#"{"rows":10} {"rows":25} {"rows":250}"#, rising("/rows")),
        // Text with a number is a value too.
        (r#"{"far":"20%"} {"far":"45%"} {"far":"70%"}"#, rising("/far")),
        // Nested, in a list, and as JSON in a string.
        (
            r#"{"a":{"b":{"far":0.1}}} {"a":{"b":{"far":0.3}}} {"a":{"b":{"far":0.9}}}"#,
            scaled("/a/b/far", "unit"),
        ),
        (
            r#"{"a":[{"far":3}]} {"a":[{"far":30}]} {"a":[{"far":99}]}"#,
            scaled("/a/0/far", "percent"),
        ),
        (
            r#"{"s":"{\"far\":0.1}"} {"s":"{\"far\":0.3}"} {"s":"{\"far\":0.9}"}"#,
            scaled("/s#/far", "unit"),
        ),
        (r#"{"done/of":0.1} {"done/of":0.3} {"done/of":0.9}"#, scaled("/done~1of", "unit")),
        // The value may stay equal for a while, and the first and the last message may lack it.
        (r#"{"far":0.2} {"far":0.2} {"far":0.4} {"far":0.9}"#, scaled("/far", "unit")),
        (r#"{"hi":true} {"far":0.1} {"far":0.5} {"far":0.9} {"bye":true}"#, scaled("/far", "unit")),
        // Fractions of 1 are more informative than a counter, and a counter more than the number of the message.
        (r#"{"b":10,"far":0.1} {"b":25,"far":0.3} {"b":77,"far":0.9}"#, scaled("/far", "unit")),
        (r#"{"no":1,"lines":10} {"no":2,"lines":25} {"no":3,"lines":77}"#, rising("/lines")),
        (r#"{"no":1} {"no":2} {"no":3}"#, rising("/no")),
        // A number with a known name that stays constant is less informative than another number.
        (
            r#"{"step":7,"far":0.1} {"step":7,"far":0.3} {"step":7,"far":0.9}"#,
            scaled("/far", "unit"),
        ),
        // A number of bytes is large; a time beside a counter is not a total.
        (
            r#"{"got":90,"size":50000000} {"got":20000000,"size":50000000} {"got":50000000,"size":50000000}"#,
            format!("{} total = \"/size\"", rising("/got")),
        ),
        (
            r#"{"lines":10,"start":1764371000} {"lines":25,"start":1764371000} {"lines":77,"start":1764371000}"#,
            rising("/lines"),
        ),
    ] {
        check_line(params, &expected);
    }
}

#[test]
fn a_number_of_a_known_name_is_no_guess() {
    for (params, expected) in [
        (r#"{"pct":10} {"pct":40} {"pct":90}"#, r#"progress = "/pct" scale = "percent""#),
        (
            r#"{"done":1,"of":9} {"done":4,"of":9} {"done":9,"of":9}"#,
            r#"progress = "/done" total = "/of""#,
        ),
        (
            r#"{"fraction":0.1} {"fraction":0.4} {"fraction":0.9}"#,
            r#"progress = "/fraction" scale = "unit""#,
        ),
        // Only the total of this value is a guess.
        (
            r#"{"done":1,"cap":9} {"done":4,"cap":9} {"done":9,"cap":9}"#,
            r#"progress = "/done" total = "/cap"  # a guess: this number stays the same"#,
        ),
    ] {
        check_line(params, expected);
    }
}

#[test]
fn a_number_that_does_not_rise_or_measures_something_else_is_no_value() {
    for params in [
        r#"{"far":3} {"far":1} {"far":8}"#,
        r#"{"far":3} {"far":8}"#,
        r#"{"far":3} {"far":3} {"far":3} {"far":4}"#,
        r#"{"far":-3} {"far":1} {"far":8}"#,
        r#"{"far":3} {"far":4} {"far":null} {"far":false} {"far":9}"#,
        r#"{"elapsed_s":1.5} {"elapsed_s":2.5} {"elapsed_s":4.5}"#,
        r#"{"clock":1764371000} {"clock":1764371004} {"clock":1764371009}"#,
        r#"{"job_id":3} {"job_id":4} {"job_id":9}"#,
        r#"{"hash":"a1b2"} {"hash":"a1b3"} {"hash":"a1b4"}"#,
    ] {
        check_line(params, "");
    }
}

#[test]
fn text_that_changes_is_the_words_under_any_name() {
    let changing = |pointer: &str| format!("message = \"{pointer}\"  # a guess: this text changes");
    for (params, expected) in [
        (r#"{"txt":"mixing"} {"txt":"pouring"} {"txt":"baking"}"#, changing("/txt")),
        (
            r#"{"a":{"say":"mixing"}} {"a":{"say":"pouring"}} {"a":{"say":"baking"}}"#,
            changing("/a/say"),
        ),
        (r#"{"caption":"the oven is warm"} {"caption":"the oven is hot"}"#, changing("/caption")),
        (r#"{"caption":"the oven is warm"}"#, changing("/caption")),
        // Sentences are more likely for people than names.
        (
            r#"{"file":"a","say":"reads a"} {"file":"b","say":"reads b"} {"file":"c","say":"reads c"}"#,
            changing("/say"),
        ),
        // A known name is preferred, unless its text never changes.
        (
            r#"{"text":"mixing","txt":"a b"} {"text":"baking","txt":"c d"} {"text":"done","txt":"e f"}"#,
            "message = \"/text\"".to_owned(),
        ),
        (
            r#"{"status":"on","txt":"mixing"} {"status":"on","txt":"pouring"} {"status":"on","txt":"baking"}"#,
            changing("/txt"),
        ),
        (r#"{"status":"on"} {"status":"on"} {"status":"on"}"#, "message = \"/status\"".to_owned()),
        // These texts are neither for people nor do they change.
        (r#"{"kind":"begin"} {"kind":"report"} {"kind":"other"}"#, String::new()),
        (r#"{"txt":"mixing"} {"txt":"mixing"} {"txt":"mixing"}"#, String::new()),
        (r#"{"txt":"mixing"} {"txt":"baking"}"#, String::new()),
    ] {
        check_line(params, &expected);
    }
}

#[test]
fn a_number_rises_within_each_call_and_may_begin_again_in_the_next() {
    let sample = |far: f64, call: usize| -> (Bytes, usize) {
        (json!({ "method": "m", "params": { "far": far } }).to_string().into(), call)
    };
    let calls = [2, 3].map(|id| ObservedCall { id, ..ObservedCall::default() });
    let samples = [(0.1, 0), (0.5, 0), (0.9, 0), (0.1, 1), (0.5, 1)];
    let samples = samples.map(|(far, call)| sample(far, call));
    let draft = Draft::new(&samples, &calls);
    assert!(draft.table("own", "m").contains("progress = \"/params/far\"  # a guess"));
    // A number alone may be anything, under a method that does not name the call.
    assert!(draft.has_value() && !draft.is_progress());
}
