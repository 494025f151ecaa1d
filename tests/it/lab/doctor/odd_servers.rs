//! Servers with one odd habit each: the report of `milepost doctor` on each of them, and its drafts for unknown
//! messages.
//!
//! A server is a few lines of shell that [`script`] puts between the same head and end. `$i` is the id of the request
//! as it came, `$t` the token (empty without one).

use std::path::Path;
use std::process::Stdio;
use std::{fs, thread};

use serde_json::Value;

use super::servers_without_example::{HANDSHAKE, shell};
use super::{WITHHELD, doctor, golden, seen};
use crate::support::milepost;

/// How a server reacts to the messages of a client.
struct OddServer {
    /// The report is the section `NAME` of `tests/data/doctor/odd.txt`.
    name: &'static str,
    /// Further options of `doctor`.
    options: &'static [&'static str],
    /// Cases of the shell that go before those of every server.
    cases: &'static str,
    /// The commands for the call, between its request and the answer, which every server gives.
    call: &'static str,
}

/// A server that does this during its call, and is like other servers otherwise.
const fn calls(name: &'static str, call: &'static str) -> OddServer {
    OddServer { name, options: &["--call", "t"], cases: "", call }
}

/// A server that does something of its own instead of what other servers do.
const fn acts(name: &'static str, cases: &'static str) -> OddServer {
    OddServer { name, options: &["--call", "t"], cases, call: ":" }
}

/// A server that no client can use.
const fn fails(name: &'static str, cases: &'static str) -> OddServer {
    OddServer { name, options: &["--timeout", "700ms"], cases, call: ":" }
}

/// The server as a program of the shell.
fn script(server: &OddServer) -> String {
    let OddServer { cases, call, .. } = server;
    format!(
        r#"say() {{ printf '%s\n' "$1"; }}
notify() {{ say "{{\"jsonrpc\":\"2.0\",\"method\":\"$1\",\"params\":{{$2}}}}"; }}
progress() {{ notify notifications/progress "\"progressToken\":$t,$1"; }}
text() {{ printf '{{"content":[{{"type":"text","text":"%s"}}]}}' "$1"; }}
answer() {{ say "{{\"jsonrpc\":\"2.0\",\"id\":$i,\"result\":$1}}"; }}
refuse() {{ say "{{\"jsonrpc\":\"2.0\",\"id\":$i,\"error\":{{\"code\":$1,\"message\":\"$2\"}}}}"; }}
ready() {{ answer '{{"protocolVersion":"2025-06-18","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"{name}"}}}}'; }}
while read -r line; do
i=${{line#*\"id\":}}; i=${{i%%[,\}}]*}}
case "$line" in *progressToken*) t=${{line#*\"progressToken\":}}; t=${{t%%[,\}}]*}};; *) t=;; esac
case "$line" in
{cases}
*'"initialize"'*) ready;;
*tools/list*) answer '{{"tools":[{{"name":"t"}}]}}';;
*tools/call*) {call}
sleep 0.3; answer "$(text done)";;
*'"id"'*) refuse -32601 "Method not found";;
esac; done
"#,
        name = server.name,
    )
}

const SERVERS: &[OddServer] = &[
    // Messages that strict clients refuse.
    acts(
        "null-members",
        r#"*tools/call*) sleep 0.3
say "{\"jsonrpc\":\"2.0\",\"id\":$i,\"method\":null,\"params\":null,\"result\":$(text done),\"error\":null}";;"#,
    ),
    calls(
        "surrogates",
        r#"for n in 1 2 3; do sleep 0.2; progress "\"progress\":$n,\"total\":3,\"message\":\"page $n \\ud83d\""; done"#,
    ),
    calls(
        "latin1",
        r#"for n in 1 2 3; do sleep 0.2
printf '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%s,"message":"gr\374n %s"}}\n' "$t" "$n" "$n"; done"#,
    ),
    acts("byte-order-mark", r#"*'"initialize"'*) printf '\357\273\277'; ready;;"#),
    calls(
        "split-line",
        r#"for n in 1 3 5; do sleep 0.2
printf '%s%s\n\n' "$(progress "\"progress\":$n,\"message\":\"step $n\"")" "$(progress "\"progress\":$((n + 1)),\"message\":\"next step\"")"; done"#,
    ),
    calls(
        "text-behind",
        r#"for n in 1 2 3; do sleep 0.2; printf '%s DEBUG sent\n' "$(progress "\"progress\":$n,\"message\":\"step $n\"")"; done"#,
    ),
    acts(
        "answers-notification",
        r#"*notifications/initialized*)
say '{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"Method not found: notifications/initialized"}}';;"#,
    ),
    acts(
        "answer-in-array",
        r#"*tools/call*) sleep 0.3; say "[{\"jsonrpc\":\"2.0\",\"id\":$i,\"result\":$(text done)}]";;"#,
    ),
    // Values and words.
    calls(
        "totals",
        r#"for n in 1 2 3; do sleep 0.2; progress "\"progress\":$n,\"total\":$((n - 2)),\"message\":\"step $n\""; done"#,
    ),
    calls(
        "figures-in-strings",
        r#"for n in 20 50 90; do sleep 0.2; progress "\"progress\":\"$n%\""; done"#,
    ),
    calls(
        "bare-counters",
        r#"for n in 0 1 2 3; do sleep 0.2; progress "\"progress\":$n,\"message\":\"Step $((n + 1)) of 4\""; done"#,
    ),
    calls(
        "burst",
        r#"sleep 0.6; for n in 1 2 3 4 5 6; do progress "\"progress\":$n,\"total\":6,\"message\":\"line $n\""; done"#,
    ),
    calls(
        "words-then-value",
        r#"for n in 1 3 5; do sleep 0.4; progress "\"progress\":$n,\"total\":6,\"message\":\"step $n\""
progress "\"progress\":$((n + 1))"; done"#,
    ),
    // Methods of their own.
    calls(
        "stream-content",
        r#"for n in 1 2 3; do sleep 0.2
notify notifications/tool/streamContent "\"toolName\":\"t\",\"content\":[{\"type\":\"text\",\"text\":\"chapter $n\"}]"; done"#,
    ),
    calls(
        "codex",
        r#"event() { sleep 0.2; notify codex/event "\"_meta\":{\"requestId\":$i},\"id\":\"0\",\"msg\":{$1}"; }
event '"type":"task_started"'; event '"type":"agent_message","message":"reading the tests"'
event '"type":"exec_command_begin","command":["cargo","test"]'; event '"type":"token_count"'"#,
    ),
    calls(
        "language-server",
        r#"for n in 20 50 90; do sleep 0.2
notify '$/progress' "\"token\":\"op\",\"value\":{\"kind\":\"report\",\"message\":\"building\",\"percentage\":$n}"; done"#,
    ),
    calls(
        "names-of-its-own",
        r#"for n in 2 4 6 8; do sleep 0.2; notify acme/mix "\"how_far\":0.$n,\"txt\":\"$(printf 'mixing|pouring|baking|cooling' | cut -d'|' -f$((n / 2)))\""; done"#,
    ),
    calls(
        "known-method",
        r#"for n in 2 4 6 8; do sleep 0.2; notify tools/progress "\"requestId\":$i,\"how_far\":0.$n,\"txt\":\"$(printf 'mixing|pouring|baking|cooling' | cut -d'|' -f$((n / 2)))\""; done"#,
    ),
    calls(
        "nested",
        r#"for n in 3 6 9; do sleep 0.2
notify farm/tick "\"job\":{\"id\":$i},\"tick\":{\"at\":$n,\"end\":9},\"say\":{\"what\":\"field $n\"}"; done"#,
    ),
    calls(
        "unusual-id",
        r#"for n in 3 6 9; do sleep 0.2
notify farm/tick "\"job\":{\"rpc\":$i},\"tick\":{\"at\":$n,\"end\":9},\"say\":{\"what\":\"field $n\"}"; done"#,
    ),
    calls(
        "json-in-string",
        r#"for n in 30 60 90; do sleep 0.2
notify acme/state "\"content\":[{\"type\":\"text\",\"text\":\"{\\\"pct\\\":$n,\\\"words\\\":\\\"sorting $n\\\"}\"}]"; done"#,
    ),
    calls(
        "words",
        r#"for n in 3 6 9; do sleep 0.2; notify acme/hello "\"text\":\"phase $n begins\""; done"#,
    ),
    calls(
        "says-nothing",
        r#"for n in 3 6 9; do sleep 0.2; notify acme/progress '"blob":[]'; done"#,
    ),
    calls(
        "beside-progress",
        r#"for n in 3 6 9; do sleep 0.2; progress "\"progress\":$n,\"total\":9"
notify acme/metrics "\"current\":$n,\"total\":90"; done"#,
    ),
    calls(
        "log-figures",
        r#"for n in 3 6 9; do sleep 0.2
notify notifications/message "\"level\":\"info\",\"data\":\"sector $n :: 9 scanned\""; done"#,
    ),
    calls("stderr-figures", r#"for n in 3 6 9; do sleep 0.2; echo "row $n (9 planned)" >&2; done"#),
    calls("stderr-words", r#"for n in 3 6 9; do sleep 0.2; echo "still here" >&2; done"#),
    calls(
        "log-without-data",
        r#"for n in 1 2 3; do sleep 0.2; notify notifications/message "\"level\":\"info\",\"message\":\"file $n of 3\""; done"#,
    ),
    // Text beside the messages.
    calls(
        "bar-on-stderr",
        r#"for n in 10 40 70 100; do sleep 0.2; printf '\r%3d%%|####      | %d/100 [00:01<00:02]' $n $n >&2; done"#,
    ),
    calls(
        "bar-on-stdout",
        r#"for n in 10 40 70 100; do sleep 0.2; printf 'Downloading model: %d%%\n' $n; done"#,
    ),
    calls("text-on-stdout", r#"for n in a b c; do sleep 0.2; say "Loading shard $n"; done"#),
    // Tokens.
    acts(
        "text-tokens-only",
        r#"*tools/call*\"progressToken\":[0-9]*) refuse -32602 "progressToken: expected a string";;"#,
    ),
    OddServer {
        options: &["--call", "t", "--concurrent"],
        ..acts(
            "number-tokens-only",
            r#"*tools/call*\"progressToken\":\"*) refuse -32602 "progressToken: expected a number";;"#,
        )
    },
    acts(
        "no-meta",
        r#"*tools/call*_meta*) answer '{"content":[{"type":"text","text":"unexpected keyword argument _meta"}],"isError":true}';;"#,
    ),
    acts("ends-over-token", r#"*tools/call*progressToken*) echo "panic: token" >&2; exit 3;;"#),
    acts("refuses-always", r#"*tools/call*) refuse -32000 "no such file";;"#),
    // Around the answer.
    acts(
        "second-answer",
        r#"*tools/call*) sleep 0.3; answer "$(text done)"; sleep 1.2; answer "$(text 'done again')";;"#,
    ),
    acts(
        "late-reports",
        r#"*tools/call*) sleep 0.3; answer "$(text done)"; sleep 1.2; progress '"progress":1,"message":"cleaning up"';;"#,
    ),
    acts(
        "job",
        r#"*tools/call*) sleep 0.2; answer "$(text 'job render-1 has begun')"
t='"render-1"'; for n in 1 2 3; do sleep 0.4; progress "\"progress\":$n,\"total\":3"; done;;"#,
    ),
    OddServer {
        options: &["--call", "t", "--timeout", "1s"],
        ..acts("no-answer", "*tools/call*) :;;")
    },
    acts("ends-in-call", r#"*tools/call*) sleep 0.2; echo "out of memory" >&2; exit 9;;"#),
    // No client can use these.
    fails(
        "frames",
        r#"*) printf 'Content-Length: 40\r\n\r\n{"jsonrpc":"2.0","id":0,"result":null}';;"#,
    ),
    fails(
        "pretty-printed",
        r#"*'"initialize"'*) printf '{\n  "jsonrpc": "2.0",\n  "id": 0,\n  "result": {}\n}\n';;"#,
    ),
    fails("utf16", r#"*) printf '{\000"\000a\000"\000\n\000';;"#),
    fails("answers-nothing", "*) :;;"),
    fails("talks", r#"*) say "Listening on http://127.0.0.1:8000";;"#),
    fails("other-id", r#"*'"initialize"'*) i=null; refuse -32700 "Parse error";;"#),
    fails("waits-for-sign-in", r#"*) echo "open https://example.com/device to sign in" >&2;;"#),
    fails("ends-at-once", r#"*) echo "ModuleNotFoundError: No module named 'mcp'" >&2; exit 1;;"#),
];

/// Compares the report on a server with its section of `tests/data/doctor/odd.txt`.
fn check(server: &OddServer, folder: &Path) {
    let path = folder.join(server.name);
    fs::write(&path, script(server)).unwrap();
    let path = path.to_str().unwrap();
    let mut args = server.options.to_vec();
    args.extend(["--revision", "2025-06-18", "--through", "--", "sh", path]);
    golden(&format!("odd-{}", server.name), || seen(&args, &[(path, "SERVER")]));
}

/// Looks at every `of`th server from `first` on: several tests run at once, and the servers mostly wait.
fn check_part(first: usize, of: usize) {
    let folder = tempfile::tempdir().unwrap();
    thread::scope(|scope| {
        for server in SERVERS.iter().skip(first).step_by(of) {
            scope.spawn(|| check(server, folder.path()));
        }
    });
}

#[test]
fn odd_servers_1() {
    check_part(0, 3);
}

#[test]
fn odd_servers_2() {
    check_part(1, 3);
}

#[test]
fn odd_servers_3() {
    check_part(2, 3);
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
    let server = shell(HANDSHAKE);
    let report = |color: &str| {
        let args = ["--revision", "2025-06-18", "--color", color, "--", "sh", "-c", &server];
        String::from_utf8(doctor(&args).stdout).unwrap()
    };
    assert!(report("always").contains("\u{1b}["));
    assert!(!report("auto").contains('\u{1b}'));
}

/// Looks at a server that writes a line into the file `$CALLS` for each call. Returns standard error, the number of
/// calls in the report, and the number of lines.
fn counted(server: &OddServer, options: &[&str]) -> (String, u64, usize) {
    let folder = tempfile::tempdir().unwrap();
    let (program, calls) = (folder.path().join("server"), folder.path().join("calls"));
    fs::write(&program, script(server)).unwrap();
    let mut doctor = milepost();
    doctor.args(["doctor", "--call", "t", "--json", "--revision", "2025-06-18"]).args(options);
    doctor.args(["--", "sh"]).arg(&program).env("CALLS", &calls).stdin(Stdio::null());
    let output = doctor.output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let lines = fs::read_to_string(&calls).unwrap().lines().count();
    (String::from_utf8(output.stderr).unwrap(), report["callsMade"].as_u64().unwrap(), lines)
}

#[test]
fn the_calls_of_a_tool_are_announced_and_counted() {
    let silent = calls("silent-tool", r#"echo >> "$CALLS""#);
    let refuses =
        acts("refusing-tool", r#"*tools/call*) echo >> "$CALLS"; refuse -32000 "no such file";;"#);
    let cases: [(&OddServer, &[&str], &str, usize); 5] = [
        (&silent, &["--once"], "once", 1),
        (&silent, &[], "up to 3 times (with --once: 1)", 2),
        (&silent, &["--through"], "up to 4 times (with --once: 2)", 3),
        (&refuses, &["--through"], "up to 4 times (with --once: 2)", 4),
        (&silent, &["--once", "--concurrent", "--without-token"], "up to 3 times", 3),
    ];
    thread::scope(|scope| {
        for (server, options, times, made) in cases {
            scope.spawn(move || {
                let (errors, told, lines) = counted(server, options);
                let announced = format!("milepost: calls t {times}; each is a real call\n");
                assert_eq!((&*errors, told, lines), (&*announced, made as u64, made));
            });
        }
    });
}
