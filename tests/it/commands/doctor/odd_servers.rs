//! Servers whose messages nobody knows: what `milepost doctor` drafts for them, and that the draft works.

use super::servers_without_example::{HANDSHAKE, shell};
use super::{WITHHELD, doctor, golden, seen};

/// A notification, as a line of the server's shell.
fn notify(method: &str, params: &str) -> String {
    let text = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#);
    // Variables of the shell stand in the text as $N.
    format!("say \"{}\"", text.replace('\\', r"\\").replace('"', r#"\""#))
}

/// A server whose only tool does this between call and answer, in 0.2 s for each of three rounds; `$n` is
/// the round, `$i` the id of the call.
fn server(work: &str) -> String {
    let call = format!(
        r#"*tools/call*) i=${{line#*\"id\":}}; i=${{i%%,*}}; for n in 3 6 9; do sleep 0.2; {work}; done; sleep 0.3
        say "{{\"jsonrpc\":\"2.0\",\"id\":$i,\"result\":{{\"content\":[]}}}}";;"#
    );
    shell(&[HANDSHAKE, &call].concat())
}

/// Compares the report on such a server with `tests/doctor/NAME.txt`.
fn odd(name: &str, work: &str) {
    let server = server(work);
    let args = ["--call", "t", "--revision", "2025-06-18", "--through", "--", "sh", "-c", &server];
    golden(name, || {
        seen(&args, &[(&server, "SERVER"), (&server.replace('\'', r"'\''"), "SERVER")])
    });
}

#[test]
fn nested_members() {
    let tick = r#"{"job":{"id":$i},"tick":{"at":$n,"end":9},"say":{"what":"field $n"}}"#;
    odd("odd-nested", &notify("farm/tick", tick));
}

#[test]
fn an_id_with_an_unusual_name() {
    let tick = r#"{"job":{"rpc":$i},"tick":{"at":$n,"end":9},"say":{"what":"field $n"}}"#;
    odd("odd-unusual-id", &notify("farm/tick", tick));
}

#[test]
fn json_in_strings() {
    let text =
        r#"{"content":[{"type":"text","text":"{\"pct\":$((n * 10)),\"words\":\"sorting $n\"}"}]}"#;
    odd("odd-json-in-string", &notify("acme/state", text));
}

#[test]
fn words_alone() {
    odd("odd-words", &notify("acme/hello", r#"{"text":"phase $n begins"}"#));
}

#[test]
fn figures_in_words_of_the_log() {
    let log = r#"{"level":"info","data":"sector $n :: 9 scanned"}"#;
    odd("odd-log-figures", &notify("notifications/message", log));
}

#[test]
fn figures_on_standard_error() {
    odd("odd-stderr-figures", "echo \"row $n (9 planned)\" >&2");
}

#[test]
fn words_on_standard_error() {
    odd("odd-stderr-words", "echo \"still here\" >&2");
}

#[test]
fn other_messages_beside_progress() {
    let both = [
        notify("notifications/progress", r#"{"progressToken":7001,"progress":$n,"total":9}"#),
        notify("acme/metrics", r#"{"current":$n,"total":90}"#),
    ];
    odd("odd-beside-progress", &both.join("; "));
}

#[test]
fn a_method_that_tells_nothing() {
    odd("odd-says-nothing", &notify("acme/progress", r#"{"blob":[]}"#));
}

#[test]
fn glued_progress_is_a_risk() {
    let call = r#"*tools/call*) sleep 0.3; printf '%s\n%s\n' '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7001,"progress":1}}' '{"jsonrpc":"2.0","id":2,"result":{"content":[]}}';;"#;
    let server = shell(&[HANDSHAKE, call].concat());
    let args = ["--call", "t", "--revision", "2025-06-18", "--through", "--", "sh", "-c", &server];
    golden("odd-glued", || {
        let report = String::from_utf8(doctor(&args).stdout).unwrap();
        assert!(report.contains(&format!("\n{WITHHELD}: 1\n")), "{report}");
        seen(&args, &[(&server, "SERVER"), (&server.replace('\'', r"'\''"), "SERVER")])
    });
}

#[test]
fn colours_are_there_where_they_are_asked_for() {
    let server = server(":");
    let report = |color: &str| {
        let args = ["--revision", "2025-06-18", "--color", color, "--", "sh", "-c", &server];
        String::from_utf8(doctor(&args).stdout).unwrap()
    };
    assert!(report("always").contains("\u{1b}["));
    assert!(!report("auto").contains('\u{1b}'));
}
