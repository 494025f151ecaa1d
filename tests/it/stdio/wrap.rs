//! `milepost wrap` as a process: what it forwards, what it costs, and how it ends.

use std::fs;
use std::io::{BufRead, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::core::checker::Checker;
use crate::support::messages::call;
use crate::support::session::{Session, children_of, signal};
use crate::support::{MILEPOST, example, milepost, runs, until};

/// The memory that Milepost may need at most, in KiB: two lines of 4 MiB that are held whole in
/// each direction, the queues, and the program.
const MEMORY_KIB: u64 = 64 << 10;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#;

/// A folder, and a file in it.
fn file(content: impl AsRef<[u8]>) -> (TempDir, String) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, content).unwrap();
    (folder, path.to_str().unwrap().to_owned())
}

/// Starts a server that waits for a line and then writes a file, byte for byte.
fn reciter(options: &[&str], path: &str) -> Session {
    Session::wrap(options, &["sh", "-c", r#"read -r _; cat "$0"; cat >/dev/null"#, path])
}

fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

mod what_passes {
    use super::*;

    #[test]
    fn every_kind_of_token_comes_back_in_the_clients_own_text() {
        crate::support::within_tries(|| {
            const TOKENS: [&str; 7] = [
                "0",
                r#""""#,
                "-1",
                r#""0""#,
                r#""3f2b8e5c-9d0a-4c1e-8a7b-6f5e4d3c2b1a""#,
                "9007199254740993",
                "1180591620717411303424",
            ];
            let server = example("swissarmyhammer");
            let mut session =
                Session::wrap(&[], &[&server, "--generation", "s2", "--pace", "200ms"]);
            let mut checker = Checker::default();
            session.tell(INITIALIZE);
            checker.client_said(INITIALIZE);
            checker.client_told(&session.line());
            for (id, token) in TOKENS.iter().enumerate() {
                let call = format!(
                    r#"{{"jsonrpc":"2.0","id":{},"method":"tools/call","params":{{"_meta":{{"progressToken":{token}}},"name":"code_context"}}}}"#,
                    id + 1
                );
                checker.client_said(&call);
                session.tell(&call);
            }
            let mut told = vec![0; TOKENS.len()];
            let mut answers = 0;
            while answers < TOKENS.len() {
                let line = session.line();
                checker.client_told(&line);
                answers += usize::from(line.contains(r#""result""#));
                for (count, token) in told.iter_mut().zip(TOKENS) {
                    *count += usize::from(line.contains(&format!(r#""progressToken":{token},"#)));
                }
            }
            assert!(told.iter().all(|count| *count >= 3), "{told:?}");
            assert_eq!(session.finish().1, Some(0));
        });
    }

    #[test]
    fn what_the_client_says_reaches_the_server_byte_for_byte() {
        let said = concat!(
            "{ \"jsonrpc\" : \"2.0\" ,\t\"id\":1, \"method\":\"tools/call\", \"params\":{\"name\":\"a\\u00e9\",\"x\":1.50e+2}}\r\n",
            "{\"id\":1,\"id\":2,\"method\":\"ping\",\"jsonrpc\":\"2.0\"}\n",
            "[{\"jsonrpc\":\"2.0\",\"method\":\"a\"} , {\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"b\"}]\n",
            "not json at all\n",
            "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":77}}\n",
            "{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"result\":{ }}\n",
        );
        let (_folder, path) = file("");
        let mut session = Session::wrap(&[], &["sh", "-c", r#"cat >"$0""#, &path]);
        session.say(said);
        assert_eq!(session.finish().1, Some(0));
        assert_eq!(fs::read_to_string(path).unwrap(), said);
    }

    #[test]
    fn what_the_server_says_reaches_the_client_byte_for_byte() {
        let said = concat!(
            "{ \"id\" : 1 , \"jsonrpc\":\"2.0\",\"result\":{\"content\":[ ],\"x\":1.50e+2}}\r\n",
            "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"data\":\"a\\u00e9 \u{e9}\"}}\n",
            "\t{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"roots/list\"}  \n",
            "{\"jsonrpc\":\"2.0\",\"method\":\"something/else\",\"params\":NaN}\n",
            "{\"jsonrpc\":\"2.0\",\"method\":\"no/params\"}\n",
        );
        let (_folder, path) = file(said);
        let mut session = reciter(&[], &path);
        session.call("1", None, "a", "{}");
        let (heard, code, _) = session.finish();
        assert_eq!(code, Some(0));
        assert_eq!(heard, said);
    }

    #[test]
    fn an_error_without_an_id_is_told_to_the_operator_once_for_each_code() {
        let error = |code: i32, words: &str| {
            format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{{\"code\":{code},\"message\":\"{words}\"}}}}\n"
            )
        };
        let said = [
            error(-32601, "Method not found: notifications/initialized"),
            error(-32601, "Method not found: notifications/cancelled"),
            error(-32700, "Parse\\u001b[31m error"),
            r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#.to_owned() + "\n",
        ];
        let (_folder, path) = file(said.concat());
        let mut session = reciter(&[], &path);
        session.call("1", None, "a", "{}");
        let (heard, code, log) = session.finish();
        assert_eq!((heard.as_str(), code), (said[3].as_str(), Some(0)));
        let told: Vec<&str> =
            log.lines().filter(|line| line.contains("an error without an id")).collect();
        assert_eq!(told.len(), 2, "{log}");
        assert!(told[0].contains("WARN") && told[0].contains("notifications/initialized"), "{log}");
        assert!(told[1].contains("Parse error"), "{log}");
    }

    #[test]
    fn compliant_progress_passes_byte_for_byte() {
        let progress = "{ \"method\":\"notifications/progress\", \"jsonrpc\":\"2.0\",\"params\":{\"total\":3.0,\"progress\":1.00,\"progressToken\":\"t\",\"x\":[]}}\r\n";
        let (_folder, path) = file(progress);
        let mut session = reciter(&[], &path);
        session.call("1", Some(r#""t""#), "a", "{}");
        assert_eq!(session.line_bytes().unwrap(), progress.as_bytes());
    }

    #[test]
    fn an_answer_of_100_mb_passes_in_little_memory() {
        const BYTES: usize = 100 << 20;
        let script = format!(
            r#"read -r _
            printf '{{"jsonrpc":"2.0","id":1,"result":{{"content":[{{"type":"text","text":"'
            head -c {BYTES} /dev/zero | tr '\0' a
            printf '"}}]}}}}\n'
            cat"#
        );
        let mut session = Session::sh(&script);
        session.call("1", Some("1"), "a", "{}");
        let mut stdout = session.take_stdout();
        let mut line = Vec::with_capacity(BYTES + 1024);
        stdout.read_until(b'\n', &mut line).unwrap();
        let text = line.strip_prefix(
            br#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":""#,
        );
        let text = text.and_then(|text| text.strip_suffix(b"\"}]}}\n")).unwrap();
        assert!(text.len() == BYTES && text.iter().all(|byte| *byte == b'a'));
        let peak = session.peak_kib();
        assert!(peak < MEMORY_KIB, "{peak} KiB");
        // After it, all messages are handled as before.
        session.tell(r#"{"jsonrpc":"2.0","method":"after"}"#);
        line.clear();
        stdout.read_until(b'\n', &mut line).unwrap();
        assert_eq!(line, b"{\"jsonrpc\":\"2.0\",\"method\":\"after\"}\n");
    }

    #[test]
    fn a_request_of_100_mb_passes_in_little_memory() {
        const MEGABYTES: usize = 100;
        let mut session = Session::sh("wc -c >&2");
        let head = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","text":""#;
        session.say(head);
        for _ in 0..MEGABYTES {
            session.say(vec![b'a'; 1 << 20]);
        }
        session.say("\"}}\n");
        let peak = session.peak_kib();
        assert!(peak < MEMORY_KIB, "{peak} KiB");
        let (_, code, stderr) = session.finish();
        assert_eq!(code, Some(0));
        let bytes = (head.len() + (MEGABYTES << 20) + 4).to_string();
        assert!(stderr.lines().any(|line| line.trim() == bytes), "{stderr}");
    }

    #[test]
    fn text_that_is_no_message_goes_to_standard_error() {
        let noise = concat!(
            "Server listening\n",
            "[Tool: pagerank] Sending Progress: {\n",
            "  status: 'in_progress',\n",
            "  data: [Object]\n",
            "}\n",
            "[\n",
            "  1,\n",
            "  2\n",
            "]\n",
            "{\n",
            "  iteration: 3\n",
            "}\n",
            "\u{1b}]9;4;1;50\u{7}\n",
            "50%|#####     | 5/10\r100%|##########| 10/10\n",
            "{\"level\":\"info\",\"msg\":\"ready\"}\n",
            "3\n",
        );
        let notification = "{\"jsonrpc\":\"2.0\",\"method\":\"a\"}\n";
        let (_folder, path) = file(format!("{noise}{notification}"));
        let mut session = reciter(&[], &path);
        session.tell(INITIALIZE);
        assert_eq!(session.line_bytes().unwrap(), notification.as_bytes());
        let (heard, code, stderr) = session.finish();
        // The request was not answered, and the client is about to disconnect.
        assert_eq!(heard, "");
        assert_eq!(code, Some(0));
        // Log lines may stand between the lines, and only there.
        let is_log = |line: &&str| line.contains("  WARN ") || line.contains("  INFO ");
        let said = stderr.split_inclusive('\n').filter(|line| !is_log(line));
        assert_eq!(said.collect::<String>(), noise, "{stderr}");
    }

    /// A line that is read in two pieces counts as one line.
    #[test]
    fn our_log_lines_never_land_inside_a_line_of_standard_error() {
        let server = r#"
            long=$(head -c 9000 /dev/zero | tr '\0' x)
            n=0
            while read -r line; do
                n=$((n + 1))
                for i in 1 2 3 4 5 6 7 8 9 10; do echo "$long" >&2; done
                printf 'begun ' >&2
                echo '{"jsonrpc":"2.0","id":'$n',"result":{"content":[]}}'
                sleep 0.02
                echo "ended" >&2
            done
            printf 'no end' >&2
        "#;
        let mut session = Session::sh(server);
        for id in 1..=20 {
            session.tell(&call(id, ""));
            session.line();
        }
        let (_, _, stderr) = session.finish();
        let long = "x".repeat(9000);
        let (mut texts, mut calls) = (0, 0);
        for line in stderr.lines() {
            let is_log = line.starts_with("20") && line.contains("Z  ");
            calls += usize::from(is_log && line.contains(" call tool="));
            texts += usize::from(line == long || line == "begun ended");
            assert!(is_log || line == long || line == "begun ended" || line == "no end", "{line}");
        }
        assert_eq!((texts, calls), (220, 20));
    }

    #[test]
    fn a_byte_order_mark_is_taken_off() {
        let (_folder, path) = file("\u{feff}{\"jsonrpc\":\"2.0\",\"method\":\"a\"}\n");
        let mut session = reciter(&[], &path);
        session.tell(INITIALIZE);
        assert_eq!(session.line(), r#"{"jsonrpc":"2.0","method":"a"}"#);
    }

    #[test]
    fn standard_error_of_the_server_passes() {
        let (_, _, stderr) = Session::sh("printf 'no newline' >&2").finish();
        assert!(stderr.starts_with("no newline"), "{stderr}");
    }

    #[test]
    fn a_megabyte_of_random_bytes_does_no_harm() {
        let mut session = Session::sh("head -c 1000000 /dev/urandom; echo; exec cat");
        session.tell(r#"{"jsonrpc":"2.0","method":"still/there"}"#);
        let found = |line: &[u8]| line.windows(11).any(|window| window == b"still/there");
        while !found(&session.line_bytes().unwrap()) {}
        assert_eq!(session.finish().1, Some(0));
    }

    #[test]
    fn to_observe_is_to_change_nothing() {
        let said = concat!(
            "\u{feff}\r\n",
            "\n",
            "Server listening\n",
            "{\"jsonrpc\":\"2.0\",\"method\":\"tools/progress\",\"params\":{\"id\":1}}\n",
            "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":\"?\",\"progress\":null}}\n",
            "{\"jsonrpc\":\"2.0\",\"id\":\"1\",\"result\":{}}\n",
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n",
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n",
            "{\"jsonrpc\":\"2.0\",\"result\":{}}\n",
            "   \n",
            "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":1,\"progress\":9}}\n",
            "{\"jsonrpc\":",
        );
        let (_folder, path) = file(said);
        let mut session = reciter(&["--mode", "observe"], &path);
        session.call("1", Some("1"), "a", "{}");
        let (heard, code, stderr) = session.finish();
        assert_eq!(heard, said);
        assert_eq!(code, Some(0));
        assert!(!stderr.contains("Server listening"), "{stderr}");
    }

    #[test]
    fn to_observe_adds_nothing() {
        let server = example("silent");
        let options =
            ["--mode", "observe", "--heartbeat-after", "50ms", "--heartbeat-every", "50ms"];
        let mut session = Session::wrap(&options, &[&server]);
        session.call("1", Some("1"), "sleep", r#"{"seconds":0.3}"#);
        assert!(session.line().contains("slept"));
        assert_eq!(session.finish().1, Some(0));
    }
}

mod what_does_not_wait {
    use super::*;

    /// A flood of progress, then the answer; meanwhile the input goes to a file.
    const FLOOD: &str = r#"read -r _
        { seq -f '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":%.0f,"message":"a line of output, as long as most of them are"}}' 100000
          echo '{"jsonrpc":"2.0","id":1,"result":{"content":[]}}'; } &
        cat >"$0"
        wait"#;

    #[test]
    fn a_client_that_does_not_read_is_waited_for_in_little_memory() {
        let (_folder, path) = file("");
        let mut session = Session::wrap(&[], &["sh", "-c", FLOOD, &path]);
        let mut checker = Checker::default();
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{"progressToken":"t"}}}"#;
        checker.client_said(call);
        session.tell(call);
        // The client does not read, but it sends, and its messages arrive.
        let word = r#"{"jsonrpc":"2.0","method":"word"}"#;
        for count in 1..=50 {
            session.tell(word);
            until("the server hears", || {
                fs::read_to_string(&path).unwrap().lines().count() == count
            });
            thread::sleep(Duration::from_millis(10));
        }
        let mut told = 0;
        let answer = loop {
            let line = session.line();
            checker.client_told(&line);
            if line.contains(r#""id":1"#) {
                break line;
            }
            told += 1;
        };
        assert_eq!(answer, r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#);
        assert!(told > 0);
        let peak = session.peak_kib();
        assert!(peak < MEMORY_KIB, "{peak} KiB");
        assert_eq!(session.finish().1, Some(0));
    }

    #[test]
    fn a_server_that_does_not_read_is_heard() {
        let script = r#"while :; do echo '{"jsonrpc":"2.0","method":"tick"}'; sleep 0.01; done"#;
        let mut session = Session::sh(script);
        let mut stdin = session.take_stdin();
        let writer = thread::spawn(move || {
            let line = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{}\"}}\n", "a".repeat(1000));
            (0..1_000_000).find(|_| stdin.write_all(line.as_bytes()).is_err())
        });
        // More than the buffers hold, so that the writer would have to wait.
        for _ in 0..100 {
            assert_eq!(session.line(), r#"{"jsonrpc":"2.0","method":"tick"}"#);
        }
        assert!(!writer.is_finished());
        let peak = session.peak_kib();
        assert!(peak < MEMORY_KIB, "{peak} KiB");
        session.signal("TERM");
        assert_eq!(session.exit().code(), Some(143));
        assert!(writer.join().unwrap().is_some(), "the writer is told");
    }
}

mod how_it_ends {
    use super::*;

    #[test]
    fn the_exit_code_is_the_servers() {
        assert_eq!(Session::sh("exit 0").ended().1, Some(0));
        assert_eq!(Session::sh("exit 3").ended().1, Some(3));
        assert_eq!(Session::sh("kill -s KILL $$").ended().1, Some(137));
        assert_eq!(Session::sh("kill -s TERM $$").ended().1, Some(143));
    }

    #[test]
    fn what_the_server_says_last_is_heard() {
        let last = r#"{"jsonrpc":"2.0","method":"last"}"#;
        for script in [format!("echo '{last}'"), format!("printf %s '{last}'")] {
            let (heard, code, _) = Session::sh(&script).ended();
            assert_eq!((heard.trim_end(), code), (last, Some(0)));
        }
    }

    #[test]
    fn an_unknown_option_is_refused_with_the_right_one() {
        let output = milepost()
            .args(["wrap", "--hartbeat-after", "2s", "--", "cat"])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(output.stdout.is_empty());
        assert!(
            stderr.contains("--hartbeat-after") && stderr.contains("'--heartbeat-after'"),
            "{stderr}"
        );
    }

    #[test]
    fn a_value_that_makes_no_sense_is_refused() {
        for (option, value) in [
            ("--heartbeat-every", "0s"),
            ("--hold", "soon"),
            ("--mode", "ful"),
            ("--dialect", "kuzu"),
            ("--scale", "0"),
        ] {
            let mut command = milepost();
            command.args(["wrap", option, value, "--", "cat"]).stdin(Stdio::null());
            let output = command.output().unwrap();
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{option}");
            assert!(stderr.contains(option) && stderr.contains(value), "{stderr}");
        }
    }

    #[test]
    fn a_command_that_is_not_there_is_told_to_the_person_and_to_the_client() {
        let mut session = Session::wrap(&[], &["no-such-server-anywhere"]);
        session.tell(INITIALIZE);
        let answer = json(&session.line());
        assert_eq!(answer["id"], 0);
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("no-such-server-anywhere"), "{message}");
        let (_, code, stderr) = session.ended();
        assert_eq!(code, Some(127));
        assert!(stderr.contains("no-such-server-anywhere"), "{stderr}");
    }

    #[test]
    fn a_command_that_is_not_there_does_not_keep_a_silent_client() {
        let (_, code, _) = Session::wrap(&[], &["no-such-server-anywhere"]).finish();
        assert_eq!(code, Some(127));
    }

    #[test]
    fn every_open_call_of_a_killed_server_is_answered() {
        let server = example("silent");
        let mut session = Session::wrap(&["--no-heartbeat"], &[&server]);
        session.tell(INITIALIZE);
        session.line();
        for id in ["1", "\"b\"", "3"] {
            session.call(id, Some(id), "sleep", r#"{"seconds":600}"#);
        }
        session.call("4", None, "echo", r#"{"text":"ready"}"#);
        session.lines_until("ready");
        signal("KILL", session.server_pid());
        let mut ids = Vec::new();
        for _ in 0..3 {
            let answer = json(&session.line());
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(message.contains("SIGKILL"), "{message}");
            ids.push(answer["id"].to_string());
        }
        ids.sort();
        assert_eq!(ids, ["\"b\"", "1", "3"]);
        assert_eq!(session.ended().1, Some(137));
    }

    /// Heartbeats are not signs of life of a server that has ended: they do not delay the end.
    #[test]
    fn the_end_of_a_server_is_told_though_heartbeats_come_often_and_its_pipe_stays_open() {
        let options = ["--heartbeat-after", "100ms", "--heartbeat-every", "100ms"];
        let options = [&options[..], &["--heartbeat-max", "2m"]].concat();
        let mut session =
            Session::wrap(&options, &["sh", "-c", "sleep 600 & read -r _; read -r _; exit 3"]);
        session.call("1", Some("1"), "a", "{}");
        session.call("2", Some("2"), "a", "{}");
        let told = session.lines_until("the MCP server ended (exit code 3)");
        // In two minutes both calls together would have about 2400 heartbeats.
        assert!(told.len() < 1200, "{told:?}");
        let (rest, code, stderr) = session.ended();
        assert_eq!((rest.contains("exit code 3"), code), (true, Some(3)), "{stderr}");
    }

    /// A process that the server has left behind does not keep Milepost running, whatever it writes.
    #[test]
    fn the_end_of_a_server_is_told_though_others_go_on_writing_to_its_pipes() {
        let ticks = 6000;
        let script = format!(
            r#"(i=0; while [ $i -lt {ticks} ]; do i=$((i + 1)); sleep 0.02;
                echo '{{"jsonrpc":"2.0","method":"tick"}}'; echo tick >&2; done) &
            read -r _; exit 3"#
        );
        let mut session = Session::sh(&script);
        session.call("1", None, "a", "{}");
        let told = session.lines_until("the MCP server ended (exit code 3)");
        assert!(told.len() < ticks / 2, "{}", told.len());
        let (_, code, stderr) = session.ended();
        assert_eq!(code, Some(3), "{stderr}");
        assert!(stderr.matches("tick").count() < ticks / 2);
    }

    #[test]
    fn an_answer_is_delivered_after_the_client_has_hung_up() {
        let server = example("silent");
        let mut session = Session::wrap(&[], &[&server]);
        session.call("1", None, "sleep", r#"{"seconds":0.5}"#);
        let (heard, code, _) = session.finish();
        assert!(heard.contains("slept for 500ms"), "{heard}");
        assert_eq!(code, Some(0));
    }

    #[test]
    fn a_client_that_reads_no_more_ends_it() {
        let script = r#"while :; do echo '{"jsonrpc":"2.0","method":"tick"}'; sleep 0.01; done"#;
        let mut session = Session::sh(script);
        let server = session.server_pid();
        drop(session.take_stdout());
        // The server gets SIGPIPE or the end of its input, and then its grace time.
        assert!(wait_for(&mut session).is_some());
        assert!(!runs(server));
    }

    fn wait_for(session: &mut Session) -> Option<i32> {
        session.exit().code()
    }

    #[test]
    fn a_server_that_reads_nothing_does_not_outlive_its_client() {
        let mut session = Session::sh("trap '' PIPE; while :; do sleep 0.1; done");
        let server = session.server_pid();
        // More than a pipe holds.
        let line = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{}\"}}\n", "a".repeat(300_000));
        session.say(line);
        let (_, code, stderr) = session.finish();
        assert_eq!(code, Some(143), "{stderr}");
        assert!(!runs(server));
    }

    #[test]
    fn calls_of_a_server_that_closes_its_output_are_answered() {
        let mut session = Session::sh("read -r _; exec >&-; while :; do sleep 0.1; done");
        let server = session.server_pid();
        session.call("1", None, "a", "{}");
        let answer = json(&session.line());
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("closed its output"), "{message}");
        let (_, code, stderr) = session.finish();
        assert_eq!(code, Some(143), "{stderr}");
        assert!(!runs(server));
    }

    #[test]
    fn signals_reach_the_whole_group_and_nobody_survives() {
        for (name, number) in [("TERM", 15), ("INT", 2), ("HUP", 1)] {
            let (_folder, path) = file("");
            // A shell without job control lets its background processes ignore SIGINT.
            let script = r#"sleep 300 & echo $! >"$0"; setsid sleep 300 & echo $! >>"$0"
                exec 3>&1; (trap '' TERM INT HUP; exec sleep 300) & echo $! >>"$0"
                echo '{"jsonrpc":"2.0","method":"ready"}'; wait; wait"#;
            // In a background job the tests may have SIGINT ignored, and servers inherit that.
            let mut command = Command::new("env");
            command.args(["--default-signal=TERM,INT,HUP", MILEPOST, "wrap", "--state-dir", "off"]);
            let mut session = Session::start(command.args(["--", "sh", "-c", script, &path]));
            session.line();
            let pids = fs::read_to_string(&path).unwrap();
            let mut pids: Vec<u32> = pids.lines().map(|pid| pid.parse().unwrap()).collect();
            pids.push(session.server_pid());
            assert!(pids.len() == 4 && pids.iter().all(|pid| runs(*pid)), "{pids:?}");
            session.signal(name);
            let (_, code, stderr) = session.ended();
            assert_eq!(code, Some(128 + number), "{stderr}");
            let left: Vec<_> = pids.into_iter().filter(|pid| runs(*pid)).collect();
            assert!(left.is_empty(), "{name}: {left:?}");
        }
    }

    #[test]
    fn a_standard_error_that_nobody_reads_does_not_keep_it() {
        let mut command = milepost();
        command.args(["wrap", "--state-dir", "off", "--"]);
        command.args(["sh", "-c", "head -c 300000 /dev/zero | tr '\\0' a >&2"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let ended = || matches!(child.try_wait(), Ok(Some(_)));
        until("Milepost has ended", ended);
    }

    #[test]
    fn nobody_survives_a_milepost_that_is_killed() {
        let (_folder, path) = file("");
        // The server, a child, a daemon and the child of a daemon; all ignore the end of their input, two
        // ignore SIGTERM as well.
        let script = r#"echo $$ >>"$0"; sleep 300 & echo $! >>"$0"
            (setsid sh -c 'trap "" TERM; echo $$ >>"$0"; sleep 300 & echo $! >>"$0"; wait; wait' "$0" &)
            while [ $(wc -l <"$0") -lt 4 ]; do sleep 0.01; done
            echo '{"jsonrpc":"2.0","method":"ready"}'; wait"#;
        let mut session = Session::wrap(&[], &["sh", "-c", script, &path]);
        session.line();
        let pids = fs::read_to_string(&path).unwrap();
        let pids: Vec<u32> = pids.lines().map(|pid| pid.parse().unwrap()).collect();
        assert!(pids.len() == 4 && pids.iter().all(|pid| runs(*pid)), "{pids:?}");
        signal("KILL", session.pid());
        until("nobody is left", || !pids.iter().any(|pid| runs(*pid)));
    }

    #[test]
    fn a_server_ends_with_a_milepost_that_is_killed_also_without_the_watchdog() {
        let mut session = Session::sh(
            "exec 3>&1; echo '{\"jsonrpc\":\"2.0\",\"method\":\"ready\"}'; exec sleep 300",
        );
        session.line();
        let server = session.server_pid();
        let watchdog = children_of(session.pid()).into_iter().find(|pid| *pid != server).unwrap();
        signal("KILL", watchdog);
        signal("KILL", session.pid());
        until("the server has ended", || !runs(server));
    }

    #[test]
    fn a_server_that_handles_a_signal_ends_in_its_own_way() {
        let script = r#"trap 'echo "{\"jsonrpc\":\"2.0\",\"method\":\"bye\"}"; exit 7' TERM
            echo '{"jsonrpc":"2.0","method":"ready"}'; while :; do sleep 0.01; done"#;
        let mut session = Session::sh(script);
        session.line();
        session.signal("TERM");
        let (heard, code, _) = session.ended();
        assert_eq!(code, Some(7));
        assert_eq!(heard.trim_end(), r#"{"jsonrpc":"2.0","method":"bye"}"#);
    }

    #[test]
    fn a_server_that_ignores_the_end_of_input_and_sigterm_is_killed() {
        let script = r#"trap '' TERM; sleep 300 & echo '{"jsonrpc":"2.0","method":"ready"}'
            while :; do sleep 0.1; done"#;
        let mut session = Session::sh(script);
        session.line();
        let server = session.server_pid();
        session.hang_up();
        // A client ends Milepost this way if it waits less long than Milepost waits for the server.
        session.signal("TERM");
        let (_, code, stderr) = session.ended();
        assert_eq!(code, Some(137), "{stderr}");
        assert!(!runs(server));
    }
}

mod what_it_tells {
    use super::*;

    /// Makes calls with and without a token. Returns the log lines about them.
    fn account(options: &[&str]) -> String {
        let server = example("kuzumem");
        let options = [&["--heartbeat-after", "100ms"], options].concat();
        let mut session =
            Session::wrap(&options, &[&server, "--generation", "k1", "--pace", "60ms"]);
        session.tell(INITIALIZE);
        session.lines_until(r#""id":0"#);
        session.call("1", Some(r#""mine""#), "pagerank", "{}");
        session.lines_until(r#""id":1,"result""#);
        session.call("2", None, "init-memory-bank", "{}");
        session.lines_until(r#""id":2,"result""#);
        session.finish().2
    }

    #[test]
    fn each_call_has_one_line() {
        crate::support::within_tries(|| {
            let stderr = account(&[]);
            let calls: Vec<_> = stderr.lines().filter(|line| line.contains("tool=")).collect();
            assert_eq!(calls.len(), 2, "{stderr}");
            let [first, second] = [calls[0], calls[1]];
            for word in
                ["pagerank", "token=\"mine\" took=", " received=23 ", " sent=", " withheld=\""]
            {
                assert!(first.contains(word), "{word}: {first}");
            }
            // A count that is zero, and a token that the client did not send, are left out.
            assert!(second.contains(" call tool=\"init-memory-bank\" took="), "{second}");
            for word in ["none", "received=", " sent=", "withheld=", "heartbeats=", "=0"] {
                assert!(!second.contains(word), "{word}: {second}");
            }
        });
    }

    #[test]
    fn in_json_each_line_is_an_object() {
        let stderr = account(&["--log-format", "json"]);
        let (logs, noise): (Vec<_>, Vec<_>) =
            stderr.lines().partition(|line| line.starts_with('{'));
        assert!(
            noise.iter().all(|line| line.contains("Kuzu") || line.contains("READY")),
            "{noise:?}"
        );
        let logs: Vec<_> = logs.into_iter().map(json).collect();
        let calls: Vec<_> =
            logs.iter().map(|log| &log["fields"]).filter(|log| log["message"] == "call").collect();
        assert_eq!(calls.len(), 2, "{stderr}");
        let [first, second] = [calls[0], calls[1]];
        assert_eq!(
            (&first["tool"], &second["tool"]),
            (&"pagerank".into(), &"init-memory-bank".into())
        );
        assert_eq!((&first["token"], &second["token"]), (&"mine".into(), &Value::Null));
        assert_eq!((&first["received"], &second["received"]), (&23.into(), &Value::Null));
        assert!(first["took_ms"].as_u64().unwrap() >= 380, "{first}");
        assert!(first["repaired"].as_str().unwrap().contains("dialect"), "{first}");
    }

    #[test]
    fn standard_output_holds_nothing_of_ours() {
        let output = milepost()
            .args(["wrap", "--log-level", "trace", "--", "cat"])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.stdout.is_empty(), "{:?}", String::from_utf8_lossy(&output.stdout));
    }
}
