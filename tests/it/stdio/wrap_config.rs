//! `milepost wrap --config`: the command, the environment and the settings of a route.

use std::io::Write;
use std::process::Stdio;

use tempfile::TempDir;

/// The routes of these tests; their servers are shell scripts.
const ROUTES: &str = r##"
[defaults]
heartbeat = { enabled = false }
guard = "0"
hold = "0"
first_after = "0"

[[dialect]]
name = "acme"
method = "acme/status"
request_id = "/params/id"
progress = "/params/text#/pct"
scale = "percent"

[[route]]
path = "/env"
upstream.command = ["sh", "-c", 'echo "{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":\"$DB\"}"']
upstream.env = { DB = "at ${PLACE}" }

[[route]]
path = "/folder"
upstream.command = ["sh", "-c", 'echo "{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":\"$(pwd -P)\"}"']
upstream.cwd = "."

[[route]]
path = "/report"
upstream.command = ["sh", "-c", '''
    read -r _
    echo '{"jsonrpc":"2.0","method":"acme/status","params":{"id":1,"text":"{\"pct\":40}"}}'
    sleep 1
    echo '{"jsonrpc":"2.0","id":1,"result":{}}'
''']
dialects = ["defaults", "acme"]

[[route]]
path = "/misspelt"
upstream.command = ["sh", "-c", '''
    read -r _
    for pct in 40 50; do
    echo "{\"jsonrpc\":\"2.0\",\"method\":\"acme/misspelt\",\"params\":{\"id\":1,\"pct\":$pct}}"
    done
    echo '{"jsonrpc":"2.0","id":1,"result":{}}'
''']
dialects = ["defaults", "misspelt"]

[[dialect]]
name = "misspelt"
method = "acme/misspelt"
progress = "/params/pct"
message = "/params/wrods"

[[route]]
path = "/remote"
upstream.url = "http://127.0.0.1:1/mcp"
dialects = ["acme"]
"##;

const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":"p"}}}"#;
const PROGRESS: &str = r#""progressToken":"p","progress":40,"total":100"#;

/// Exit code, standard output and standard error of `milepost wrap --config FILE ARGS` for a client
/// that makes one call.
fn wrap(args: &[&str]) -> (Option<i32>, String, String) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("proxy.toml");
    std::fs::write(&file, ROUTES).unwrap();
    let mut proxy = crate::support::milepost()
        .args(["wrap", "--config"])
        .arg(&file)
        .args(match args.contains(&"--log-level") {
            true => &[][..],
            false => &["--log-level", "error"][..],
        })
        .args(args)
        .env("PLACE", "home")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Ignore the error: a proxy that refuses its arguments does not read its input.
    let _ = proxy.stdin.take().unwrap().write_all(format!("{CALL}\n").as_bytes());
    let output = proxy.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let place = format!("{}/", folder.path().display());
    (output.status.code(), text(output.stdout), text(output.stderr).replace(&place, ""))
}

#[test]
fn a_pointer_that_found_nothing_is_named_at_the_end() {
    let (_, _, error) = wrap(&["--route", "/misspelt", "--log-level", "warn"]);
    let lines: Vec<&str> =
        error.lines().filter(|line| line.contains("has found nothing")).collect();
    let [line] = lines[..] else { panic!("{error}") };
    for part in ["misspelt", "message", "/params/wrods", "messages=2"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    let (_, _, error) = wrap(&["--route", "/report", "--log-level", "warn"]);
    assert!(!error.contains("has found nothing"), "{error}");
}

#[test]
fn the_command_has_the_environment_of_its_route() {
    let (code, out, error) = wrap(&["--route", "/env"]);
    assert_eq!(code, Some(0), "{error}");
    assert!(out.starts_with(r#"{"jsonrpc":"2.0","method":"m","params":"at home"}"#), "{out}");
}

#[test]
fn the_command_runs_in_the_folder_of_its_route() {
    let (code, out, error) = wrap(&["--route", "/folder"]);
    assert_eq!(code, Some(0), "{error}");
    let prefix = out.split("\"params\":\"").nth(1).unwrap();
    let place = std::path::Path::new(prefix.split('"').next().unwrap());
    let temporary = std::fs::canonicalize(std::env::temp_dir()).unwrap();
    assert_eq!(place.parent(), Some(&*temporary), "{out}");
}

#[test]
fn a_dialect_of_the_file_is_understood() {
    let (code, out, error) = wrap(&["--route", "/report"]);
    assert_eq!(code, Some(0), "{error}");
    assert!(out.contains(PROGRESS) && !out.contains("acme"), "{out}");
}

#[test]
fn a_flag_can_name_a_dialect_of_the_file() {
    let (_, out, _) = wrap(&["--route", "/report", "--dialect", "standard"]);
    assert!(out.contains("acme/status") && !out.contains("progressToken"), "{out}");
    let (_, out, _) = wrap(&["--route", "/report", "--dialect", "lsp,acme"]);
    assert!(out.contains(PROGRESS), "{out}");
    let (code, _, error) = wrap(&["--route", "/report", "--dialect", "acne"]);
    let expected = "milepost: --dialect: \"acne\" is not known; did you mean \"acme\"?\n";
    assert_eq!((code, &*error), (Some(2), expected));
}

#[test]
fn a_route_may_lead_to_an_address() {
    let (code, out, _) = wrap(&["--route", "/remote"]);
    assert_eq!(code, Some(1));
    assert!(out.contains(r#""id":1,"error""#), "{out}");
    assert!(out.contains("cannot connect to 127.0.0.1:1"), "{out}");
    let line =
        r#"{"jsonrpc":"2.0","method":"acme/status","params":{"id":1,"text":"{\"pct\":40}"}}"#;
    let server = format!("read -r _; echo '{line}'; sleep 1");
    let (_, out, error) = wrap(&["--route", "/remote", "--", "sh", "-c", &server]);
    assert!(out.contains(PROGRESS), "{out}{error}");
}

#[test]
fn the_route_has_to_be_said_and_known() {
    let (code, _, error) = wrap(&[]);
    assert_eq!(code, Some(2));
    let expected = "it is not clear which route is meant; write for instance --route /env; the file has /env, /folder, /report, \
                    /misspelt, /remote\n";
    assert!(error.ends_with(expected), "{error}");
    let (code, _, error) = wrap(&["--route", "/reports"]);
    assert_eq!(code, Some(2));
    assert!(
        error.ends_with("there is no route \"/reports\"; did you mean \"/report\"?\n"),
        "{error}"
    );
}

/// The settings of a route are easily believed to be used because the file is named.
#[test]
fn a_command_of_its_own_is_told_that_no_route_is_used() {
    let own = ["--log-level", "warn", "--", "sh", "-c", "exit 0"];
    let (code, _, error) = wrap(&own);
    assert_eq!(code, Some(0), "{error}");
    let expected = "WARN proxy.toml: the settings of its routes are not used, only those for every route, because no \
                    route is named; write --route /env for one of /env, /folder, /report, /misspelt, /remote";
    assert!(error.contains(expected), "{error}");
    let (_, _, error) = wrap(&[&["--route", "/report"][..], &own[..]].concat());
    assert!(!error.contains("--route"), "{error}");
}
