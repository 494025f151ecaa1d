//! Tasks of Milepost's own, and the answers of a last start, through `milepost wrap` and a real child.

use crate::support::milepost;
use crate::support::session::Session;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;

/// A server of 2024-11-05 with one tool, which reports once and takes a second.
const SERVER: &str = r#"
while read -r line; do
    case $line in
        *'"initialize"'*) echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2024-11-05","capabilities":{"tools":{}}}}' ;;
        *'"task"'*) echo '{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"what is a task?"}}' ;;
        *'"tools/call"'*)
            echo '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":1,"total":2}}'
            sleep 1
            echo '{"jsonrpc":"2.0","id":1,"result":{"content":[]}}' ;;
    esac
done
"#;

/// A server that starts when a file is there, and has a list of tools that it says changes of.
const SLOW: &str = r#"
while [ ! -e "$0" ]; do sleep 0.05; done
while read -r line; do
    case $line in
        *'"initialize"'*) echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}}}}' ;;
        *'"tools/list"'*) echo '{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"work"}]}}' ;;
        *'"tools/call"'*) echo '{"jsonrpc":"2.0","id":2,"result":{"content":[]}}' ;;
    esac
done
"#;

#[test]
fn a_client_runs_a_call_of_an_old_server_as_a_task() {
    crate::support::within_tries(|| {
        let options = ["--tasks", "--tasks-offer", "always"];
        let mut session = Session::wrap(&options, &["sh", "-c", SERVER]);
        session.tell(INITIALIZE);
        let agreed = session.line();
        assert!(
            agreed.contains("2025-11-25") && agreed.contains(r#""requests":{"tools""#),
            "{agreed}"
        );
        session.tell(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work","task":{"ttl":60000},"_meta":{"progressToken":"t"}}}"#);
        let made: serde_json::Value = serde_json::from_str(&session.line()).unwrap();
        let task = made["result"]["task"]["taskId"].as_str().unwrap().to_owned();
        assert_eq!(task.len(), "mp-".len() + 32, "{task}");
        session.tell(&format!(
            r#"{{"jsonrpc":"2.0","id":2,"method":"tasks/result","params":{{"taskId":"{task}"}}}}"#
        ));
        let progress = session.line();
        assert!(progress.contains(r#""progress":1"#) && progress.contains(&task), "{progress}");
        let answer = session.line();
        assert!(answer.contains(r#""id":2"#) && answer.contains(r#""content":[]"#), "{answer}");
        assert_eq!(session.finish().1, Some(0));
    });
}

#[test]
fn a_slow_server_is_answered_for_at_its_second_start() {
    let (state, around) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let starts = around.path().join("starts");
    let start = || {
        let mut command = milepost();
        command.args(["wrap", "--cached-start", "--state-dir"]).arg(state.path());
        command.args(["--", "sh", "-c", SLOW]).arg(&starts);
        Session::start_as_it_is(&mut command)
    };
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    std::fs::write(&starts, "").unwrap();
    let mut first = start();
    first.tell(INITIALIZE);
    let agreed: serde_json::Value = serde_json::from_str(&first.line()).unwrap();
    first.tell(list);
    let listed: serde_json::Value = serde_json::from_str(&first.line()).unwrap();
    // The file is written a moment later.
    crate::support::until("the answers are kept", || {
        let files = std::fs::read_dir(state.path().join("starts")).into_iter().flatten().flatten();
        files
            .filter_map(|file| std::fs::read_to_string(file.path()).ok())
            .any(|text| text.contains("work"))
    });
    assert_eq!(first.finish().1, Some(0));

    std::fs::remove_file(&starts).unwrap();
    let mut second = start();
    second.tell(INITIALIZE);
    let read = |text: String| serde_json::from_str::<serde_json::Value>(&text).unwrap();
    assert_eq!(read(second.line()), agreed);
    second.tell(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    second.tell(list);
    assert_eq!(read(second.line()), listed);
    second.tell(r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"work"}}"#);
    // All of these messages came before the server could start.
    std::fs::write(&starts, "").unwrap();
    assert_eq!(second.line().trim_end(), r#"{"jsonrpc":"2.0","id":2,"result":{"content":[]}}"#);
    assert_eq!(second.finish().1, Some(0));
}
