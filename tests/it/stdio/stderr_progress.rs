//! Text as progress, through the real process: bars and logs of real programs on standard error.

use serde_json::Value;

use crate::core::checker::Checker;
use crate::support::session::Session;
use crate::support::{example, until};

/// The most memory that Milepost may need, in KiB, whatever is written on standard error.
const MEMORY_KIB: u64 = 64 << 10;

/// Figure, total and words of a notification.
type Told = (f64, Option<f64>, String);

/// Makes the only call of a session. Returns the messages of its client and the answer, all of which conform to the
/// specification.
fn called(session: &mut Session, tool: &str) -> (Vec<Told>, Value) {
    let arguments = r#"{"component":"c"}"#;
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments},"_meta":{{"progressToken":"T"}}}}}}"#
    );
    let mut checker = Checker::default();
    checker.client_said(&call);
    session.tell(&call);
    let lines = session.lines_until(r#""id":1"#);
    lines.iter().for_each(|line| checker.client_told(line));
    let mut told: Vec<Value> =
        lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let answer = told.pop().unwrap();
    let of = |message: &Value| {
        let params = &message["params"];
        let words = params["message"].as_str().unwrap_or_default().to_owned();
        (params["progress"].as_f64().unwrap(), params["total"].as_f64(), words)
    };
    (told.iter().map(of).collect(), answer)
}

#[test]
fn a_real_build_is_followed_to_its_end() {
    crate::support::within_tries(|| {
        let builder = example("builder");
        let mut session = Session::wrap(&["--dialect", "defaults,stderr"], &[&builder]);
        let (told, answer) = called(&mut session, "build");
        assert_eq!(answer["result"]["isError"], false, "{answer}");
        let (first, last) = (told.first().unwrap(), told.last().unwrap());
        assert!(first.0 < 3.0 && last.0 >= 8.0, "{told:?}");
        assert!(
            told.iter().any(|(_, total, words)| *total == Some(12.0) && words.contains("step-3"))
        );
        assert_eq!(session.finish().1, Some(0));
    });
}

#[test]
fn a_bar_that_is_drawn_over_and_over_is_read_while_it_is_drawn() {
    crate::support::within_tries(|| {
        let builder = example("builder");
        let options = ["--dialect", "defaults,stderr"];
        let mut session = Session::wrap(&options, &[&builder, "--pace", "20ms"]);
        let (told, _) = called(&mut session, "train");
        assert!(told.len() > 5, "{told:?}");
        assert!(told.iter().all(|(_, total, _)| *total == Some(100.0)), "{told:?}");
        assert!(told.last().unwrap().0 > 50.0, "{told:?}");
        let (_, _, log) = session.finish();
        assert!(log.contains("100/100"), "what is heard stays on standard error: {log}");
    });
}

#[test]
fn percentages_of_a_json_log_never_fall_and_none_of_its_words_is_lost() {
    crate::support::within_tries(|| {
        let server = example("kuzumem");
        let timing = ["--first-after", "0", "--hold", "0", "--guard", "0", "--no-heartbeat"];
        let options = [&["--dialect", "defaults,stderr"], &timing[..]].concat();
        let mut session =
            Session::wrap(&options, &[&server, "--generation", "head", "--pace", "150ms"]);
        let (told, _) = called(&mut session, "memory-bank");
        let figures: Vec<f64> = told.iter().map(|(figure, ..)| figure.floor()).collect();
        let words: Vec<&str> = told.iter().map(|(.., words)| &**words).collect();
        // The last line comes together with the answer, and may be read after it.
        let all = [10.0, 20.0, 40.0, 40.0, 40.0, 70.0, 100.0, 100.0, 100.0];
        assert!(told.len() >= all.len() - 1, "{told:?}");
        assert_eq!(figures, all[..figures.len()]);
        assert_eq!(words[3..5], ["Checking repository...", "Creating repository..."]);
        assert_eq!(told[0].1, Some(100.0));
        assert_eq!(session.finish().1, Some(0));
    });
}

#[test]
fn two_calls_at_once_get_nothing_of_it_and_the_log_says_why() {
    let builder = example("builder");
    let options = ["--dialect", "defaults,stderr", "--no-heartbeat"];
    let mut session = Session::wrap(&options, &[&builder, "--pace", "10ms"]);
    session.call("1", Some("1"), "train", "{}");
    session.call("2", Some("2"), "train", r#"{"steps":150}"#);
    let first = session.lines_until(r#""id":1"#);
    assert_eq!(first.len(), 1, "{first:?}");
    let log = || session.stderr();
    until("its line is in the log", || log().contains("withheld=\"ambiguous"));
    session.lines_until(r#""id":2"#);
    assert_eq!(session.finish().1, Some(0));
}

#[test]
fn a_million_lines_cost_little_memory_and_none_of_the_answer() {
    let script = r#"read -r _
        yes "compiling 45/100: a-crate-with-a-name v1.2.3 (/a/path/that/is/long)" | head -n 1000000 >&2
        echo '{"jsonrpc":"2.0","id":1,"result":{"content":[]}}'
        cat >/dev/null"#;
    let mut session = Session::wrap(&["--dialect", "defaults,stderr"], &["sh", "-c", script]);
    let (told, answer) = called(&mut session, "build");
    assert!(answer["result"]["content"].is_array());
    assert!(told.iter().all(|(_, total, _)| *total == Some(100.0)), "{told:?}");
    assert!(session.peak_kib() < MEMORY_KIB, "{} KiB", session.peak_kib());
    assert_eq!(session.finish().1, Some(0));
}

#[test]
fn an_answer_does_not_wait_for_the_end_of_a_flood() {
    let script = r#"read -r _
        yes "still compiling" >&2 &
        sleep 0.3
        echo '{"jsonrpc":"2.0","id":1,"result":{"content":[]}}'
        cat >/dev/null
        kill $!"#;
    let mut session = Session::wrap(&["--dialect", "defaults,stderr"], &["sh", "-c", script]);
    let (_, answer) = called(&mut session, "build");
    assert!(answer["result"]["content"].is_array());
    session.hang_up();
    session.exit();
}
