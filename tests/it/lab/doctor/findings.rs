//! Each rule of `milepost doctor`: a conversation that breaks it, and one that does not.

use std::time::Duration;

use bytes::Bytes;
use milepost::lab::doctor::added::AddedProgress;
use milepost::lab::doctor::cure::{Behind, CureTerms, cure};
use milepost::lab::doctor::examine::{examine, examine_through};
use milepost::lab::doctor::findings::{Answer, Examined, Terms};
use milepost::lab::doctor::grade::{Grade, ShownReports};
use milepost::lab::doctor::rules::Rule;
use milepost::lab::doctor::traffic::{TrafficEntry, TrafficEvent, TrafficStream, TransportKind};
use milepost::protocol::jsonrpc::Message;
use serde_json::json;

use crate::support::messages::notification;

/// A conversation as lines: `TIME SIDE text`. The time is in milliseconds; the sides are `>` (we say),
/// `<` (standard output), `p` (the response to the POST of id 2), `g` (the GET stream), `n` (noise), `e`
/// (standard error), `o` (the response to id 2 ends). An event name may stand before the text in
/// brackets. `=` in place of a time: in the same read as before.
fn entries(lines: &str) -> Vec<TrafficEntry> {
    let (mut at, mut read) = (0, 0);
    let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let (time, rest) = line.split_once(' ').unwrap();
            let (side, text) = rest.split_once(' ').unwrap_or((rest, ""));
            if time != "=" {
                (at, read) = (time.parse().unwrap(), read + 1);
            }
            let named = text.strip_prefix('[').and_then(|text| text.split_once("] "));
            let (event, text) = match named {
                Some((name, text))
                    if side != ">" && !text.starts_with('[') && !name.contains('{') =>
                {
                    (Some(name.to_owned()), text)
                }
                _ => (None, text),
            };
            let message = || Message::parse(Bytes::copy_from_slice(text.as_bytes()));
            let heard = |stream| TrafficEvent::Received { stream, read, event, message: message() };
            let what = match side {
                ">" => TrafficEvent::Sent(message()),
                "<" => heard(TrafficStream::Shared),
                "p" => heard(TrafficStream::Post(Some(2))),
                "g" => heard(TrafficStream::Get),
                "n" => TrafficEvent::Noise(Bytes::copy_from_slice(text.as_bytes())),
                "e" => TrafficEvent::Stderr(text.to_owned()),
                "o" => TrafficEvent::Over(TrafficStream::Post(Some(2))),
                side => panic!("no side {side}"),
            };
            TrafficEntry { at: Duration::from_millis(at), what }
        })
        .collect()
}

const CALL: &str = r#"> {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":7001}}}"#;
const SECOND: &str = r#"> {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":"b"}}}"#;
const BARE_CALL: &str = r#"> {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t"}}"#;
const RESULT: &str = r#"< {"jsonrpc":"2.0","id":2,"result":{"content":[]}}"#;

fn progress(params: &str) -> String {
    format!("< {}", notification("notifications/progress", format!("{{{params}}}")))
}

fn terms(wire: TransportKind) -> Terms {
    Terms { wire, knows_arrays: false, silence_max: Duration::from_secs(11) }
}

fn seen(wire: TransportKind, lines: &[String]) -> Examined {
    examine(&entries(&lines.join("\n")), terms(wire))
}

#[track_caller]
fn check(lines: &[String], expected: &[(Rule, usize)]) -> Examined {
    check_on(TransportKind::Stdio, lines, expected)
}

#[track_caller]
fn check_on(wire: TransportKind, lines: &[String], expected: &[(Rule, usize)]) -> Examined {
    let examined = seen(wire, lines);
    let found: Vec<_> = examined.findings.iter().map(|f| (f.rule, f.count)).collect();
    assert_eq!(found, expected, "{:#?}", examined.findings);
    examined
}

/// A call, this, and its answer, each 100 ms after the other.
#[track_caller]
fn during(said: &[&str], expected: &[(Rule, usize)]) -> Examined {
    let mut lines = vec![format!("0 {CALL}")];
    lines.extend(said.iter().zip(1..).map(|(said, at)| format!("{} {said}", at * 100)));
    lines.push(format!("{} {RESULT}", (said.len() + 1) * 100));
    check(&lines, expected)
}

#[test]
fn a_compliant_call_has_no_findings() {
    let examined = during(
        &[
            &progress(r#""progressToken":7001,"progress":0,"total":2"#),
            &progress(r#""progressToken":7001,"progress":0.5,"total":2,"message":"m""#),
            &progress(r#""progressToken":7001,"progress":2,"total":2"#),
            r#"< {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}"#,
        ],
        &[],
    );
    let call = &examined.calls[0];
    assert_eq!((call.usable, call.reports, call.answer), (3, 3, Answer::Result));
    assert_eq!(call.first_byte, Some(Duration::from_millis(100)));
    assert_eq!(call.silence, Duration::from_millis(200));
    assert_eq!(Grade::of(&examined), Grade::Fine);
}

#[test]
fn tokens() {
    let with = |token: &str| progress(&format!(r#""progressToken":{token},"progress":1"#));
    during(&[&with("2")], &[(Rule::TokenIsId, 1)]);
    during(&[&with(r#""2""#)], &[(Rule::TokenIsId, 1)]);
    during(&[&with(r#""7001""#)], &[(Rule::TokenSpelling, 1)]);
    during(&[&with(r#""made-up""#)], &[(Rule::TokenInvented, 1)]);
    during(&[&with("null")], &[(Rule::TokenMissing, 1)]);
    during(&[&progress(r#""progress_token":7001,"progress":1"#)], &[(Rule::TokenMissing, 1)]);
    let unasked = [format!("0 {BARE_CALL}"), format!("50 {}", with("2")), format!("100 {RESULT}")];
    check(&unasked, &[(Rule::Unasked, 1)]);
}

#[test]
fn each_call_has_its_own_figures() {
    let at = |token: &str, figure: u32| {
        progress(&format!(r#""progressToken":{token},"progress":{figure}"#))
    };
    let lines = [
        format!("0 {CALL}"),
        format!("0 {SECOND}"),
        format!("100 {}", at("7001", 5)),
        format!("200 {}", at("\"b\"", 1)),
        format!("300 {}", at("7001", 6)),
        format!("400 {}", at("\"b\"", 2)),
        format!("500 {RESULT}"),
        r#"600 < {"jsonrpc":"2.0","id":3,"result":{"content":[]}}"#.to_owned(),
    ];
    check(&lines, &[]);
}

#[test]
fn figures() {
    let with = |rest: &str| progress(&format!(r#""progressToken":7001{rest}"#));
    during(&[&with("")], &[(Rule::FigureMissing, 1)]);
    during(&[&with(r#","progress":null"#)], &[(Rule::FigureNull, 1)]);
    during(&[&with(r#","progress":"50%""#)], &[(Rule::FigureType, 1)]);
    let (one, two) = (with(r#","progress":1"#), with(r#","progress":2"#));
    during(&[&one, &one], &[(Rule::FigureRepeats, 1)]);
    during(&[&two, &one, &two], &[(Rule::FigureFalls, 1)]);
    during(&[&with(r#","progress":3,"total":2"#)], &[(Rule::AboveTotal, 1)]);
    during(&[&with(r#","progress":0,"total":0"#)], &[(Rule::AboveTotal, 1)]);
    during(&[&with(r#","progress":3,"total":null"#)], &[(Rule::Total, 1)]);
    during(&[&with(r#","progress":3,"message":null"#)], &[(Rule::Words, 1)]);
    during(&[&with(r#","progress":NaN"#)], &[(Rule::Envelope, 1)]);
}

#[test]
fn methods() {
    let own = |method: &str, params: &str| {
        format!(r#"< {{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#)
    };
    let found = during(&[&own("tools/progress", r#"{"id":2,"content":[]}"#)], &[(Rule::Method, 1)]);
    assert_eq!(found.findings[0].name.as_deref(), Some("tools-progress"));
    assert_eq!(found.calls[0].reports, 1);
    let found = during(&[&own("$/progress", r#"{"token":1,"value":{}}"#)], &[(Rule::Method, 1)]);
    assert_eq!(found.findings[0].name.as_deref(), Some("overheard"));
    let found = during(&[&own("codex/event", "{}")], &[(Rule::MethodOff, 1)]);
    let behind = Behind::Command(vec!["x".into()]);
    let wanted = cure(&found, &CureTerms::new(&behind));
    assert_eq!(wanted.flags.as_deref(), Some("milepost wrap --preset codex -- x"));
    // Beside progress, such messages are only messages.
    let told = progress(r#""progressToken":7001,"progress":1"#);
    during(&[&own("codex/event", "{}"), &told], &[]);
    let found = during(
        &[&own("notifications/tasks/completed", r#"{"taskId":"t","progress":1}"#)],
        &[(Rule::MethodOff, 1)],
    );
    let behind = Behind::Command(vec!["a b".into(), "${X}".into()]);
    let wanted = cure(&found, &CureTerms::new(&behind)).lines.unwrap();
    assert!(wanted.contains(r#"dialects = ["defaults", "tasks-progress"]"#), "{wanted}");
    assert!(wanted.contains(r#"upstream.command = ["a b", "$${X}"]"#), "{wanted}");
    // Not every unknown notification is progress.
    during(&[&own("acme/hello", r#"{"text":"hi"}"#)], &[(Rule::MethodOther, 1)]);
    during(&[&own("notifications/tools/list_changed", "{}")], &[]);
    let said = own("acme/state", r#"{"callId":2,"pct":40,"text":"m"}"#);
    let found = during(&[&said, &said], &[(Rule::MethodUnknown, 2)]);
    let wanted = cure(&found, &CureTerms::new(&behind)).lines.unwrap();
    let expected = r#"
[[dialect]]
name = "own"
method = "acme/state"
request_id = "/params/callId"
progress = "/params/pct"
message = "/params/text"
scale = "percent"
"#;
    assert!(wanted.ends_with(expected), "{wanted}");
}

#[test]
fn around_the_answer() {
    let progress = progress(r#""progressToken":7001,"progress":1"#);
    let lines =
        |gap: &str| [format!("0 {CALL}"), format!("100 {progress}"), format!("{gap} {RESULT}")];
    let glued = check(&lines("="), &[(Rule::Glued, 1)]);
    assert!(Grade::of(&glued) == Grade::Fine && glued.has_risk());
    check(&lines("115"), &[(Rule::Glued, 1)]);
    check(&lines("120"), &[]);
    let late = [format!("0 {CALL}"), format!("50 {RESULT}"), format!("60 {progress}")];
    check(&late, &[(Rule::AfterAnswer, 1)]);
    // On a stream of its own a response is read in order.
    let on_post = |line: &String| line.replace(" < ", " p ");
    let mut own: Vec<String> = lines("=").iter().map(on_post).collect();
    own.push("110 o".to_owned());
    check_on(TransportKind::Streamable, &own, &[]);
    check_on(TransportKind::Streamable, &own[..3], &[(Rule::StaysOpen, 1)]);
}

#[test]
fn answers() {
    let with = |answer: &str| [format!("0 {CALL}"), format!("50 < {answer}")];
    check(&with(r#"{"jsonrpc":"2.0","id":"2","result":{"content":[]}}"#), &[(Rule::AnswerId, 1)]);
    check(
        &with(r#"{"jsonrpc":"2.0","id":2,"result":{"status":"done"}}"#),
        &[(Rule::BareResult, 1)],
    );
    check(&with(r#"{"jsonrpc":"2.0","id":2,"error":{"error":"x"}}"#), &[(Rule::ErrorShape, 1)]);
    check(&with(r#"{"id":2,"result":{"content":[]}}"#), &[(Rule::Envelope, 1)]);
    check(
        &with(r#"{"jsonrpc":"2.0","id":"unknown","result":{}}"#),
        &[(Rule::NoAnswer, 1), (Rule::AnswerOrphan, 1)],
    );
    during(&[r#"< {"jsonrpc":"2.0","result":{}}"#], &[(Rule::AnswerNoId, 1)]);
    // The server could not read the id of the request.
    let error = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}"#;
    during(&[&format!("< {error}")], &[]);
    // No request was open, or the method is that of a notification.
    check(&[format!("5 < {error}")], &[(Rule::AnswersNotification, 1)]);
    let unknown = error.replace("-32700", "-32601");
    during(&[&format!("< {unknown}")], &[(Rule::AnswersNotification, 1)]);
    check(
        &with(r#"{"jsonrpc":"2.0","id":2,"method":null,"result":{"content":[]},"error":null}"#),
        &[(Rule::NullMembers, 1)],
    );
    let twice = [format!("0 {CALL}"), format!("50 {RESULT}"), format!("60 {RESULT}")];
    check(&twice, &[(Rule::AnswerSecond, 1)]);
    let array = [
        format!("0 {CALL}"),
        r#"50 < [{"jsonrpc":"2.0","id":2,"result":{"content":[]}}]"#.to_owned(),
    ];
    check(&array, &[(Rule::Array, 1)]);
    let knows = Terms { knows_arrays: true, ..terms(TransportKind::Stdio) };
    assert!(examine(&entries(&array.join("\n")), knows).findings.is_empty());
}

#[test]
fn streams_and_events() {
    let progress = progress(r#""progressToken":7001,"progress":1"#);
    let result = RESULT.replace("< ", "p ");
    let lines = [
        format!("0 {CALL}"),
        format!("50 {}", progress.replace("< ", "g ")),
        format!("100 {result}"),
        "110 o".to_owned(),
    ];
    check_on(TransportKind::Streamable, &lines, &[(Rule::OnGet, 1)]);
    let named = lines[1].replace("g ", "p [mcpNotification] ");
    let lines = [lines[0].clone(), named, lines[2].clone(), lines[3].clone()];
    let examined = check_on(TransportKind::Streamable, &lines, &[(Rule::EventName, 1)]);
    assert_eq!(examined.calls[0].usable, 0);
}

#[test]
fn noise_and_other_text() {
    check(&["5 n hello".to_owned()], &[(Rule::Noise, 1)]);
    during(&["e 45% done", "e nothing of interest"], &[(Rule::AsideProgress, 1)]);
    let text = during(&["e reading", "e -----"], &[(Rule::AsideText, 1)]);
    assert_eq!(Grade::of(&text), Grade::Fine);
    let log = r#"< {"jsonrpc":"2.0","method":"notifications/message","params":{"data":"x"}}"#;
    let found = during(&[log], &[(Rule::LogProgress, 1)]);
    assert_eq!(Grade::of(&found), Grade::Fine);
    let lines = cure(&found, &CureTerms::new(&Behind::Command(vec!["x".into()]))).lines.unwrap();
    assert!(lines.contains(r#"dialects = ["defaults", "log"]"#), "{lines}");
    // Here no call is open.
    check(&["5 e 45% done".to_owned()], &[]);
}

#[test]
fn text_that_plain_clients_cannot_read() {
    let report = |figure: u32, words: &str| {
        progress(&format!(r#""progressToken":7001,"progress":{figure},"message":"{words}""#))
    };
    for (line, rule) in [
        (report(1, r"page \ud83d"), Rule::Unicode),
        (report(1, "page").replacen('{', "\u{feff}{", 1), Rule::Unicode),
        (report(1, "page") + &report(2, "page")[2..], Rule::SplitLine),
        (report(1, "page") + " DEBUG", Rule::SplitLine),
    ] {
        let found = during(&[&line], &[(rule, 1)]);
        assert_eq!(found.calls[0].usable, 0, "{line}");
        // The same conversation behind Milepost.
        let after = during(&[&report(1, "page \u{fffd}")], &[]);
        assert_eq!(after.receives(&found.findings[0]), Some(true), "{line}");
    }
}

#[test]
fn events_that_are_no_messages() {
    let lines = [
        format!("0 {CALL}"),
        "50 n ping".to_owned(),
        format!("100 {}", RESULT.replace("< ", "p ")),
        "110 o".to_owned(),
    ];
    check_on(TransportKind::Streamable, &lines, &[(Rule::EventNoise, 1)]);
}

#[test]
fn a_text_on_standard_output_is_read_as_one_on_standard_error() {
    let bar = "n 10% of a\r40% of a\r90% of a";
    let found = during(&[bar], &[(Rule::Noise, 1), (Rule::StdoutProgress, 3)]);
    let wanted = cure(&found, &CureTerms::new(&Behind::Command(vec!["x".into()])));
    assert_eq!(wanted.flags.as_deref(), Some("milepost wrap --dialect defaults,stdout -- x"));
    during(&["n reading", "n writing"], &[(Rule::Noise, 2), (Rule::StdoutText, 2)]);
}

#[test]
fn counters_beside_words_with_a_total() {
    let with = |figure: u32| {
        progress(&format!(
            r#""progressToken":7001,"progress":{figure},"message":"Step {} of 4""#,
            figure + 1
        ))
    };
    let found = during(&[&with(0), &with(1), &with(2)], &[(Rule::BareCounter, 1)]);
    let behind = Behind::Command(vec!["x".into()]);
    let wanted = cure(&found, &CureTerms::new(&behind)).lines.unwrap();
    assert!(wanted.ends_with("\nvalue_from = \"words\"\n"), "{wanted}");
    let terms = CureTerms { server: Some("gradio"), ..CureTerms::new(&behind) };
    assert!(cure(&found, &terms).lines.unwrap().ends_with("\npreset = \"gradio\"\n"));
}

#[test]
fn members_that_no_list_knows_are_guessed() {
    let mix = |n: u32, words: &str| {
        let params = format!(r#"{{"how_far":0.{n},"txt":"{words}"}}"#);
        format!(r#"< {{"jsonrpc":"2.0","method":"acme/mix","params":{params}}}"#)
    };
    let said = [mix(2, "mixing"), mix(4, "pouring"), mix(6, "baking")];
    let said: Vec<&str> = said.iter().map(String::as_str).collect();
    let found = during(&said, &[(Rule::MethodOther, 3)]);
    assert_eq!(Grade::of(&found), Grade::ShowsLess);
    let shown = ShownReports::of(&found);
    assert_eq!((shown.shown, shown.sent), (0, 3));
    let wanted = cure(&found, &CureTerms::new(&Behind::Command(vec!["x".into()]))).lines.unwrap();
    assert!(wanted.contains("progress = \"/params/how_far\"  # a guess"), "{wanted}");
    assert!(wanted.contains("message = \"/params/txt\"  # a guess"), "{wanted}");
}

#[test]
fn members_that_the_dialect_of_a_known_method_does_not_read_are_drafted() {
    for (method, dialects) in [
        ("tools/progress", r#"["standard", "tool-notifications", "overheard", "own"]"#),
        ("notifications/tools/progress", r#"["standard", "tools-progress", "overheard", "own"]"#),
        ("notifications/tool_progress", r#"["defaults", "own"]"#),
    ] {
        let mix = |n: u32| {
            let params = format!(r#"{{"requestId":2,"how_far":0.{n},"txt":"phase {n}"}}"#);
            format!("< {}", notification(method, params))
        };
        let said = [mix(2), mix(4), mix(6)];
        let said: Vec<&str> = said.iter().map(String::as_str).collect();
        let found = during(&said, &[(Rule::MethodUnknown, 3)]);
        assert_eq!(Grade::of(&found), Grade::ShowsLess);
        let wanted = cure(&found, &CureTerms::new(&Behind::Command(vec!["x".into()]))).lines;
        let wanted = wanted.unwrap();
        assert!(wanted.contains(&format!("\ndialects = {dialects}\n")), "{wanted}");
        assert!(wanted.contains(&format!("method = \"{method}\"\n")), "{wanted}");
        assert!(wanted.contains("progress = \"/params/how_far\""), "{wanted}");
        // The dialect reads one of the messages: it is of use.
        let read = format!("< {}", notification(method, r#"{"requestId":2,"message":"mixing"}"#));
        let said = [&said[..], &[read.as_str()]].concat();
        during(&said, &[(Rule::Method, 4)]);
    }
}

#[test]
fn no_server_is_fine_whose_reports_are_not_shown() {
    let own = |method: &str, params: &str| format!("< {}", notification(method, params));
    let log = |params: &str| own("notifications/message", params);
    let mixed = |far: &str| own("acme/mix", &format!(r#"{{"how_far":{far}}}"#));
    let tools = own("tools/progress", r#"{"id":2,"content":[]}"#);
    let file = |number: u32| log(&format!(r#"{{"data":"Indexing file {number} of 7"}}"#));
    let bare = log(r#"{"level":"info","message":"Indexing file 3 of 7"}"#);
    let told = progress(r#""progressToken":7001,"progress":1,"total":2"#);
    let foreign = progress(r#""progressToken":"7001","progress":1,"total":2"#);
    let (less, fine, breaks) = (Grade::ShowsLess, Grade::Fine, Grade::MayBreak);
    for (said, grade, shown, sent) in [
        (vec![mixed("0.2"), mixed("0.4"), mixed("0.9")], less, 0, 3),
        (vec![mixed("0.9"), mixed("0.4"), mixed("0.2")], fine, 0, 0),
        (vec![tools.clone(), tools.clone()], less, 0, 2),
        (vec![tools.clone(), told.clone()], less, 1, 2),
        (vec![file(1), file(2), log(r#"{"data":"hello"}"#)], less, 0, 2),
        (vec![bare], less, 0, 1),
        (vec![log(r#"{"data":"hello"}"#)], fine, 0, 0),
        (vec!["e 45% done".to_owned()], less, 0, 1),
        (vec!["e reading".to_owned()], fine, 0, 0),
        (vec![told.clone(), file(1)], fine, 1, 1),
        (vec![foreign], breaks, 0, 1),
        (vec![told], fine, 1, 1),
        (vec![], fine, 0, 0),
    ] {
        let mut lines = vec![format!("0 {CALL}")];
        lines.extend(said.iter().zip(1..).map(|(said, at)| format!("{} {said}", at * 100)));
        lines.push(format!("{} {RESULT}", (said.len() + 1) * 100));
        let examined = seen(TransportKind::Stdio, &lines);
        let reports = ShownReports::of(&examined);
        let found = (Grade::of(&examined), reports.shown, reports.sent);
        assert_eq!(found, (grade, shown, sent), "{said:?}");
    }
}

#[test]
fn silence() {
    let answer = |at: u32| format!("{at} {RESULT}");
    check(&[format!("0 {CALL}"), answer(10_900)], &[]);
    check(&[format!("0 {CALL}"), answer(11_100)], &[(Rule::Silence, 1)]);
    // A call without a token gets no progress.
    check(&[format!("0 {BARE_CALL}"), answer(11_100)], &[]);
    let with = |at: u32| format!("{at} {}", progress(r#""progressToken":7001,"progress":1"#));
    check(&[format!("0 {CALL}"), with(2000), answer(12_900)], &[]);
    check(&[format!("0 {CALL}"), with(2000), answer(13_100)], &[(Rule::Silence, 1)]);
    check(
        &[format!("0 {CALL}"), "50 n x".to_owned()],
        &[(Rule::NoAnswer, 1), (Rule::Noise, 1), (Rule::StdoutText, 1)],
    );
    let late = [format!("0 {BARE_CALL}"), answer(12_000).replace("< ", "p "), "12000 o".to_owned()];
    check_on(TransportKind::Streamable, &late, &[(Rule::FirstByte, 1)]);
}

#[test]
fn every_rule_is_named_once_and_explained() {
    let mut names: Vec<&str> = Rule::ALL.iter().map(|rule| rule.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Rule::ALL.len());
    let documents = include_str!("../../../../docs/doctor.md");
    let mut sorted = Rule::ALL;
    sorted.sort();
    assert_eq!(sorted, Rule::ALL);
    for rule in Rule::ALL {
        assert!(
            documents.contains(&format!("| `{}` |", rule.name())),
            "{} is not explained",
            rule.name()
        );
    }
}

#[test]
fn what_the_proxy_adds_is_not_counted_as_words_of_the_server() {
    let with = |params: &str| progress(&format!(r#""progressToken":7001{params}"#));
    let lines = [
        format!("0 {CALL}"),
        format!("100 {}", with(r#","progress":1,"message":"theirs""#)),
        format!("200 {}", with(r#","progress":1.5,"message":"ours""#)),
        format!("300 {RESULT}"),
    ];
    let added = AddedProgress::default();
    added.insert(&json!({ "progressToken": 7001, "progress": 1.5, "message": "ours" }));
    let seen = examine_through(&entries(&lines.join("\n")), terms(TransportKind::Stdio), &added);
    let call = &seen.calls[0];
    assert_eq!((call.usable, call.reports, call.added), (1, 1, 1));
    assert_eq!(call.silence, Duration::from_millis(100));
}

#[test]
fn a_finding_is_cured_if_its_content_arrives() {
    let bare = |words: &str| progress(&format!(r#""progressToken":7001,"message":"{words}""#));
    let before = during(&[&bare("row 1 of 9"), &bare("row 2 of 9")], &[(Rule::FigureMissing, 2)]);
    let after = |words: &str| {
        let said = progress(&format!(r#""progressToken":7001,"progress":1,"message":"{words}""#));
        during(&[&said], &[])
    };
    let finding = &before.findings[0];
    assert_eq!(after("Row 7 of 9").receives(finding), Some(true));
    assert_eq!(after("still working").receives(finding), Some(false));
    assert_eq!(during(&[], &[]).receives(finding), Some(false));
    let glued = &check(
        &[format!("0 {CALL}"), format!("5 {}", bare("x")), format!("= {RESULT}")],
        &[(Rule::FigureMissing, 1), (Rule::Glued, 1)],
    );
    assert_eq!(after("x").receives(&glued.findings[1]), None);
}

#[test]
fn habits_of_many_notifications() {
    let of = |values: &[&str]| -> Vec<String> {
        let with = |value: &&str| progress(&format!(r#""progressToken":7001{value}"#));
        values.iter().map(with).collect()
    };
    let seen = |values: &[&str], rule: Rule| {
        let said = of(values);
        let said: Vec<&str> = said.iter().map(String::as_str).collect();
        during(&said, &[(rule, 1)])
    };
    let command = Behind::Command(vec!["x".into()]);
    let lines = |found: &Examined| cure(found, &CureTerms::new(&command)).lines.unwrap();
    let pieces = [
        r#","progress":1,"message":"All ""#,
        r#","progress":2,"message":"seems ""#,
        r#","progress":3,"message":"well.""#,
    ];
    assert!(lines(&seen(&pieces, Rule::Pieces)).contains("\nmessages = \"append\"\n"));
    let percents = [r#","progress":10"#, r#","progress":20"#, r#","progress":60"#];
    assert!(lines(&seen(&percents, Rule::NoTotal)).contains("\nscale = \"percent\"\n"));
    let parts = [r#","progress":0.1"#, r#","progress":0.2"#, r#","progress":0.4"#];
    assert!(lines(&seen(&parts, Rule::NoTotal)).contains("\nscale = \"unit\"\n"));
    let mut flood = vec![format!("0 {CALL}")];
    flood.extend((1..=60).map(|at| {
        format!("{} {}", at * 10, progress(&format!(r#""progressToken":7001,"progress":{at}"#)))
    }));
    flood.push(format!("900 {RESULT}"));
    assert!(lines(&check(&flood, &[(Rule::Flood, 1)])).contains("\ncoalesce = \"all\"\n"));
}

#[test]
fn progress_on_the_get_stream_asks_for_one_of_ours() {
    let on_get = progress(r#""progressToken":7001,"progress":1"#).replace("< ", "g ");
    let lines = [
        format!("0 {CALL}"),
        format!("50 {on_get}"),
        "90 p {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"content\":[]}}".to_owned(),
        "95 o".to_owned(),
    ];
    let found = check_on(TransportKind::Streamable, &lines, &[(Rule::OnGet, 1)]);
    let behind = Behind::Http("http://127.0.0.1:9/mcp".parse().unwrap(), false);
    let wanted = cure(&found, &CureTerms::new(&behind)).lines.unwrap();
    assert!(wanted.ends_with("\nown_get = true\n"), "{wanted}");
    // For a known server its preset is proposed.
    let wanted =
        cure(&found, &CureTerms { server: Some("scout 1.26.0"), ..CureTerms::new(&behind) });
    assert!(wanted.lines.unwrap().ends_with("\npreset = \"scout\"\n"));
    let wanted =
        cure(&found, &CureTerms { server: Some("mcp-devtools 1"), ..CureTerms::new(&behind) });
    assert!(wanted.lines.unwrap().ends_with("\nown_get = true\n"));
}
