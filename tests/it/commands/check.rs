//! `milepost check` and `milepost schema`: what they report about a route file to people, editors and scripts.

use std::path::Path;

use boon::{Compiler, SchemaIndex, Schemas};
use milepost::config::routes::{Routes, import, schema};
use serde_json::Value;

use crate::commands::route_files::{environment, files, folder, parse, repository_file, shape};
use crate::support::milepost;
use crate::support::sections::{rewrite, section, sections};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Exit code, standard output, standard error.
fn run(args: &[&str]) -> (Option<i32>, String, String) {
    let output = milepost().args(args).env("TOKEN", "s3cret").env("KUZU_DB", "/k").output();
    let output = output.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn policies(routes: &Routes) -> Vec<String> {
    routes.iter().map(|route| shape(&routes.policy(route))).collect()
}

#[test]
fn what_is_printed_means_the_same() {
    for file in files("good") {
        let routes = parse(&file.text).unwrap();
        let printed = routes.print();
        let again = parse(&printed).unwrap_or_else(|error| panic!("{file}: {error}\n{printed}"));
        assert_eq!(again.print(), printed, "{file}");
        assert_eq!(policies(&again), policies(&routes), "{file}");
    }
}

#[test]
fn the_file_may_follow_config() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("other.toml");
    std::fs::write(&file, "[[route]]\npath = \"/a\"\nupstream.demo = true\n").unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(run(&["check", "--config", file]), run(&["check", file]));
    assert_eq!(run(&["check", "--config", file]).0, Some(0));
    let (code, _, said) = run(&["serve", "--config", "/nowhere/proxy.toml"]);
    assert!(code == Some(2) && said.contains("/nowhere/proxy.toml"), "{said}");
    let (code, _, said) = run(&["serve", file, "--config", file]);
    assert!(code == Some(2) && said.contains("cannot be used with"), "{said}");
}

#[test]
fn no_secret_is_printed() {
    let routes = parse(&section("tests/data/routes/good.txt", "http")).unwrap();
    let shown = format!("{}{}{routes:?}", routes.print(), routes.list());
    let key = std::fs::read_to_string(folder().join("key.pem")).unwrap();
    for secret in ["s3cret", "/var/kuzu", "literal", key.lines().nth(1).unwrap()] {
        assert!(!shown.contains(secret), "{secret}: {shown}");
    }
    for line in [
        "bearer = \"***\"",
        "upstream.url = \"https://example.com/mcp?key=${TOKEN}\"",
        "upstream.command = [\"server\", \"--db=${KUZU_DB}\"]",
        "upstream.env = { API_KEY = \"***\", DB = \"${KUZU_DB}\", PATH = \"/bin\" }",
        "set = { authorization = \"***\", x-cost = \"$${5}\" }",
        "upstream.lifecycle = { tools = \"tools/list?x=1\", initialize = \"/hello/${TOKEN}\", ",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
}

#[test]
fn a_file_is_checked_line_by_line() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("proxy.toml");
    let check = |text: &str, more: &[&str]| {
        std::fs::write(&place, text).unwrap();
        run(&[&["check", place.to_str().unwrap()], more].concat())
    };
    let text = r#"
        [[route]]
        path = "/a"
        upstream.command = ["node", "a.js", "--token", "${TOKEN}"]
        [[route]]
        path = "/script"
        upstream.command = ["sh", "-c", """
            echo "${TOKEN}"
            sleep 1"""]
        [[route]]
        path = "/longer"
        upstream.url = "https://example.com/mcp"
        opaque = true
        [[route]]
        path = "/demo"
        upstream.demo = true
    "#;
    let (code, out, error) = check(text, &[]);
    let expected = "/a       node a.js --token ${TOKEN}\n\
        /script  sh -c echo \"${TOKEN}\" sleep 1\n\
        /longer  https://example.com/mcp (piped)\n\
        /demo    the embedded legacy server\n";
    assert_eq!((code, &*out), (Some(0), expected), "{error}");
    let (code, out, _) = check(text, &["--print"]);
    assert_eq!((code, out), (Some(0), parse(text).unwrap().print()));
    let (code, out, error) = check("[sever]\n", &["--print"]);
    assert_eq!((code, &*out), (Some(2), ""));
    let line = "proxy.toml:1:2: sever: unknown key; did you mean `server`?\n    1 | [sever]\n      |  ^^^^^\n";
    assert!(error.ends_with(line), "{error}");
    let (code, out, error) = check("", &[]);
    assert_eq!((code, &*out), (Some(2), ""));
    assert!(error.contains("there is no route;"), "{error}");
    let (code, _, error) = run(&["serve", place.to_str().unwrap()]);
    assert!(code == Some(2) && error.contains("there is no route;"), "{error}");
    std::fs::remove_file(&place).unwrap();
    let (code, _, error) = run(&["check", place.to_str().unwrap()]);
    assert_eq!(code, Some(2));
    assert!(error.contains("there is no file") && error.contains("proxy.toml"), "{error}");
}

/// A file with this name and text in a folder of its own, and what `milepost check` says of it.
fn checked(name: &str, text: &str, options: &[&str]) -> (Option<i32>, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join(name);
    std::fs::write(&place, text).unwrap();
    let place = place.to_str().unwrap();
    let (code, out, error) = run(&[&["check", place], options].concat());
    let short = |text: String| text.replace(place, name);
    (code, short(out), short(error))
}

const TWO_ERRORS: &str = "\
[server]
listne = \"127.0.0.1:1\"
bearer = 12345678
[[route]]
path = \"/a\"
upstream.demo = true
\tmode = \"fulll\"
";

#[test]
fn every_error_is_shown_with_its_line_and_no_secret() {
    let (code, out, error) = checked("proxy.toml", TWO_ERRORS, &[]);
    let expected = "\
milepost: proxy.toml:2:1: server.listne: unknown key; did you mean `listen`?
    2 | listne = \"127.0.0.1:1\"
      | ^^^^^^
milepost: proxy.toml:3:10: server.bearer: a string such as \"${TOKEN}\" is expected
    3 | bearer = ***
      |          ^^^
milepost: proxy.toml:7:9: route.mode: \"fulll\" is not known; did you mean \"full\"?
    7 | \tmode = \"fulll\"
      | \t       ^^^^^^^
";
    assert_eq!((code, &*out, &*error), (Some(2), "", expected));
}

#[test]
fn errors_and_warnings_are_there_as_json() {
    let read = |text: &str| -> (Option<i32>, Value) {
        let (code, out, error) = checked("proxy.toml", text, &["--json"]);
        assert_eq!(error, "");
        (code, serde_json::from_str(&out).unwrap())
    };
    let (code, faults) = read(TWO_ERRORS);
    assert_eq!((code, faults.as_array().unwrap().len()), (Some(2), 3), "{faults:#}");
    let expected = serde_json::json!({
        "file": "proxy.toml", "line": 2, "column": 1, "key": "server.listne",
        "message": "unknown key; did you mean `listen`?", "severity": "error",
    });
    assert_eq!(faults[0], expected);
    let (code, faults) = read("");
    assert_eq!((code, &faults[0]["severity"]), (Some(2), &"error".into()), "{faults:#}");
    let (code, faults) = read("[[route]]\npath = \"/a\"\nupstream.demo = true\n");
    assert_eq!((code, faults), (Some(0), Value::Array(Vec::new())));
    let (code, out, _) = run(&["check", "/nowhere/proxy.toml", "--json"]);
    assert!(code == Some(2) && out.contains("there is no file /nowhere/proxy.toml"), "{out}");
}

#[test]
fn a_header_for_users_without_a_front_is_warned_of() {
    let text =
        "[server]\nprincipal = \"header:x-user\"\n[[route]]\npath = \"/a\"\nupstream.demo = true\n";
    let (code, _, error) = checked("proxy.toml", text, &[]);
    assert_eq!(code, Some(0));
    let expected = "milepost: warning: proxy.toml:2:13: server.principal: nobody is believed in this header; \
        the address of the front in `trusted_proxies` is expected, such as trusted_proxies = [\"10.0.0.7\"]";
    assert!(error.lines().any(|line| line == expected), "{error}");
}

/// Checks that a file is good and that `check` warns of exactly these places.
fn check_warnings(text: &str, expected: &[&str]) {
    let (code, _, error) = checked("proxy.toml", text, &[]);
    assert_eq!(code, Some(0), "{error}");
    let warnings: Vec<&str> = error.lines().filter(|line| line.starts_with("milepost: ")).collect();
    let expected: Vec<String> =
        expected.iter().map(|line| format!("milepost: warning: proxy.toml:{line}")).collect();
    assert_eq!(warnings, expected, "{text}");
}

fn route_with(upstream: &str) -> String {
    format!("[[route]]\npath = \"/a\"\n{upstream}\n")
}

#[test]
fn oversights_are_warned_of() {
    let (check, route) = (check_warnings, route_with);
    let command = |command: &str| route(&format!("upstream.command = [\"{command}\"]"));
    check(&command("sh"), &[]);
    check(
        &command("no-such-program"),
        &[
            "3:21: route.upstream.command: this program is in no folder of PATH; install it, or give its full path",
        ],
    );
    check(
        &command("./no-such-program"),
        &["3:21: route.upstream.command: this program is not there, or may not be executed"],
    );
    check(
        &route("upstream.command = [\"x\"]\nupstream.env = { PATH = \"/nowhere\" }"),
        &[
            "3:21: route.upstream.command: this program is in no folder of PATH; install it, or give its full path",
        ],
    );
    let own = |name: &str| {
        format!(
            "3:16: route.upstream.url: this is the address of {name}, so Milepost would ask itself; the address of the server is expected"
        )
    };
    let url = |url: &str| route(&format!("upstream.url = \"{url}\""));
    check(&url("http://127.0.0.1:7332/mcp"), &[&own("[server]")]);
    check(&url("http://localhost:7332/mcp"), &[&own("[server]")]);
    check(&url("http://localhost:7331/mcp"), &[]);
    check(
        &format!(
            "{}[admin]\nlisten = \"127.0.0.1:7444\"\n",
            url("http://[::ffff:127.0.0.1]:7444/")
        ),
        &[&own("[admin]")],
    );
    let dialect = |pointer: &str, uses: &str| {
        let dialect =
            format!("[[dialect]]\nname = \"acme\"\nmethod = \"a/b\"\nprogress = \"{pointer}\"\n");
        route(&format!("upstream.demo = true\n{uses}")) + &dialect
    };
    let names = "tools.t.dialects = [\"acme\"]";
    check(&dialect("/params/pct", names), &[]);
    check(
        &dialect("/params/pct", ""),
        &[
            "6:8: dialect.name: no route uses the dialect \"acme\"; name it in `dialects` of a route or of [defaults], such as dialects = [\"defaults\", \"acme\"]",
        ],
    );
    check(
        &dialect("/pct", names),
        &[
            "8:12: dialect.progress: a notification has its values in `params`, where this pointer does not look; did you mean \"/params/pct\"?",
        ],
    );
    check(
        &dialect("/params/pct", names).replace("progress =", "request_id ="),
        &[
            "6:8: dialect.name: this dialect has neither `progress` nor `message`, so a client gets no value and no text from it; add a pointer, such as progress = \"/params/percent\"",
        ],
    );
}

#[test]
fn a_key_without_effect_is_accepted_and_warned_of_once() {
    let url = "upstream.url = \"http://127.0.0.1:7331/mcp\"";
    for engine in ["hyper", "milepost"] {
        let retired = format!("{url}\nupstream.engine = \"{engine}\"");
        let text = route_with(&retired) + &route_with(&retired).replace("/a", "/b");
        check_warnings(
            &text,
            &[
                "4:19: route.upstream.engine: `engine` has no effect any more, as Milepost's own code speaks HTTP/1.1 to every server; remove it from all routes",
            ],
        );
        assert!(!parse(&text).unwrap().print().contains("engine"));
        assert_eq!(parse(&text).unwrap().file_warnings().len(), 1);
    }
    assert!(parse(&route_with(&format!("{url}\nupstream.engine = \"nginx\""))).is_err());
    assert!(parse(&route_with("upstream.demo = true\nupstream.engine = \"hyper\"")).is_err());
}

#[test]
fn a_route_that_several_replicas_cannot_serve_is_warned_of() {
    let (check, route) = (check_warnings, route_with);
    // The warning needs a file with other replicas: one machine behind a front is not a fleet.
    let linger = |upstream: &str| route(upstream) + "[server]\nlinger = \"10s\"\n";
    let lone = |place: &str| {
        format!(
            "{place}: with several replicas, as server.linger suggests, a session of this server is known to one replica only; add [fleet] to the file of each replica, or let the load balancer send each Mcp-Session-Id to the replica that gave it (docs/deploy.md)"
        )
    };
    let fleet =
        format!("[fleet]\nkey = [\"{}\"]\nadvertise = \"127.0.0.1:7334\"\n", "0".repeat(64));
    let child = "upstream.command = [\"sh\"]";
    check(&linger(child), &[&lone("3:20: route.upstream.command")]);
    let sse = "upstream.sse = \"http://127.0.0.1:7331/sse\"";
    check(&linger(sse), &[&lone("3:16: route.upstream.sse")]);
    check(&linger("upstream.url = \"http://127.0.0.1:7331/mcp\""), &[]);
    check(&(linger(child) + &fleet), &[]);
    check(&(route(child) + "[server]\ntrusted_proxies = [\"10.0.0.0/8\"]\n"), &[]);
}

#[test]
fn a_file_of_another_format_is_named_as_such() {
    let yaml = "# routes\nroute:\n  - path: /a\n";
    for (name, text, format) in [
        ("proxy.yaml", yaml, "YAML"),
        ("proxy.toml", yaml, "YAML"),
        ("proxy.toml", "---\nroute: []\n", "YAML"),
        ("proxy.json", "{\"mcpServers\":", "JSON"),
        ("proxy.toml", "{\"mcpServers\": {}}", "JSON"),
    ] {
        let (code, _, error) = checked(name, text, &[]);
        let expected = format!("{name}:1:1: this file is {format}, and a route file is TOML");
        assert!(code == Some(2) && error.contains(&expected), "{error}");
    }
    let (_, _, error) = checked("proxy.toml", "[[route\n", &[]);
    assert!(!error.contains("a route file is TOML"), "{error}");
}

#[test]
fn files_of_clients_become_routes() {
    const IMPORT: &str = "tests/data/routes/import.txt";
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for file in sections(IMPORT) {
        let Some(kind) = file.name.strip_suffix(".json") else { continue };
        let place = folder.path().join(&file.name);
        std::fs::write(&place, &file.text).unwrap();
        let told = match import(&place) {
            Ok(told) => {
                let names = told.lines().next().unwrap_or_default().split(' ').skip(1);
                let set = names.chain(["HOME"]).map(|name| (name, "value"));
                let read = Routes::parse(&place, &told, &set.collect());
                read.unwrap_or_else(|error| panic!("{error}\n{told}"));
                told
            }
            Err(error) => {
                error.to_string().replace(&format!("{}/", folder.path().display()), "") + "\n"
            }
        };
        let golden = format!("{kind}.toml");
        if told == section(IMPORT, &golden) {
            continue;
        }
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            rewrite(IMPORT, &golden, &told);
        }
        wrong.push(format!("{IMPORT}: {golden}\n{told}"));
    }
    assert!(wrong.is_empty(), "UPDATE_EXPECT=1 writes them anew\n{}", wrong.join("\n"));
}

#[test]
fn the_file_of_codex_becomes_routes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    let text = "model = \"x\"\n[mcp_servers.a]\ncommand = \"node\"\nargs = [\"a.js\"]\ntool_timeout_sec = 9\n\
                [mcp_servers.b]\nurl = \"https://b.example/mcp\"\nbearer_token_env_var = \"B_TOKEN\"\n";
    std::fs::write(&file, text).unwrap();
    let told = import(&file).unwrap();
    for line in [
        "upstream.command = [\"node\", \"a.js\"]",
        "# not taken over: tool_timeout_sec",
        "upstream.url = \"https://b.example/mcp\"",
        "headers.request.set = { Authorization = \"Bearer ${B_TOKEN}\" }",
    ] {
        assert!(told.contains(line), "{line}\n{told}");
    }
    std::fs::write(&file, "[mcp_servers\n").unwrap();
    assert!(import(&file).unwrap_err().to_string().contains("config.toml:1:"));
}

/// The schema, compiled by an independent library.
struct Validator(Schemas, SchemaIndex);

impl Validator {
    fn new() -> Self {
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        compiler.enable_format_assertions();
        compiler.add_resource("proxy.json", serde_json::from_str(schema()).unwrap()).unwrap();
        let index = compiler.compile("proxy.json", &mut schemas).unwrap();
        Self(schemas, index)
    }

    fn check(&self, text: &str) -> Result<(), String> {
        let value = serde_json::to_value(toml::from_str::<toml::Table>(text).unwrap()).unwrap();
        self.0.validate(&value, self.1).map_err(|error| format!("{error:#}"))
    }
}

#[test]
fn the_schema_in_the_repository_is_printed() {
    let kept = std::fs::read_to_string(root().join("proxy.schema.json")).unwrap();
    let (code, out, _) = run(&["schema"]);
    assert_eq!((code, out == kept), (Some(0), true));
}

#[test]
fn the_schema_accepts_what_is_read_and_refuses_unknown_keys() {
    let validator = Validator::new();
    for file in files("good") {
        validator.check(&file.text).unwrap_or_else(|error| panic!("{file}: {error}"));
    }
    validator.check(&repository_file().1).unwrap();
    validator.check(&uncommented(&repository_file().1)).unwrap();
    let mut refused = 0;
    for file in files("bad") {
        let text = &file.text;
        let is_unknown = text.lines().next().unwrap().contains("unknown key");
        let is_read = toml::from_str::<toml::Table>(text).is_ok();
        assert!(!is_unknown || validator.check(text).is_err(), "{file}");
        refused += usize::from(is_read && validator.check(text).is_err());
    }
    assert!(refused > 30, "{refused}");
}

/// Returns the file of the repository with its examples in force: a line such as `# key = value` loses its `#`.
fn uncommented(text: &str) -> String {
    let is_example = |line: &str| {
        let key = line.split(" = ").next().unwrap_or_default();
        let is_key = line.contains(" = ")
            && key.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
        is_key || (line.starts_with('[') && line.ends_with(']'))
    };
    let strip = |line: &str| match line.strip_prefix("# ") {
        Some(example) if is_example(example) => format!("{example}\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(strip).collect()
}

#[test]
fn the_examples_of_the_repository_can_be_used() {
    let (path, text) = repository_file();
    let text = uncommented(&text);
    // The files that the example names are not in the repository.
    let text = text.replace("\"certs/", &format!("\"{}/", folder().display()));
    let routes = Routes::parse(&path, &text, &environment()).unwrap_or_else(|e| panic!("{e}"));
    assert!(routes.iter().count() > 2);
}

#[test]
fn what_the_readme_shows_is_true() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let text = read("README.md");
    let example = text.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    assert_eq!(parse(example).unwrap().iter().count(), 1);
    Validator::new().check(example).unwrap();
    let slip = "[[route]]\npath = \"/a\"\nupstream.comand = []\n";
    let error = parse(slip).unwrap_err().to_string();
    let (_, error) = error.split_once("proxy.toml:").unwrap();
    assert!(read("docs/route-file.md").contains(&format!("proxy.toml:{error}\n")), "{error}");
}

/// A block that begins with a table is a whole file; others are single keys, or other programs'.
#[test]
fn route_files_in_the_documents_can_be_used() {
    let validator = Validator::new();
    for page in ["deploy", "dialects", "route-file", "slow-calls"] {
        let text = std::fs::read_to_string(root().join(format!("docs/{page}.md"))).unwrap();
        let blocks = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
        let files: Vec<_> = blocks.filter(|block| block.trim_start().starts_with('[')).collect();
        assert!(!files.is_empty(), "{page}");
        for file in files {
            validator.check(file).unwrap_or_else(|error| panic!("{page}: {error}\n{file}"));
        }
    }
}

#[test]
fn the_repository_explains_every_key() {
    let (_, text) = repository_file();
    let schema: Value = serde_json::from_str(schema()).unwrap();
    let mut keys = Vec::new();
    collect_keys(&schema, &mut keys);
    assert!(keys.len() > 60, "{keys:?}");
    for key in keys {
        let forms = [format!("{key} ="), format!("{key}."), format!("[{key}]")];
        assert!(forms.iter().any(|form| text.contains(form)), "{key} is not in proxy.toml");
    }
}

fn collect_keys(schema: &Value, keys: &mut Vec<String>) {
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        // A key without effect is accepted, but is not suggested to authors of route files.
        let kept = properties.iter().filter(|(_, schema)| schema["deprecated"] != true);
        keys.extend(kept.map(|(key, _)| key.clone()));
    }
    match schema {
        Value::Object(members) => members.values().for_each(|value| collect_keys(value, keys)),
        Value::Array(items) => items.iter().for_each(|value| collect_keys(value, keys)),
        _ => {}
    }
}
