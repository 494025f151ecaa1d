//! The live page in Chromium, while clients made with an SDK call tools of example servers.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use std::{env, fs};

use serde_json::{Value, json};

use crate::support::exchange::Exchange;
use crate::support::sdk::{Proxy, Upstream, collect, route, set_up, visit};
use crate::support::server::Server;
use crate::support::{home, milepost, wait};
use crate::{aside, for_each};

/// All scenes are over sooner; those that wait for something that never comes say so themselves.
const DEADLINE: Duration = Duration::from_secs(300);

/// Looks at the page of a proxy; `meanwhile` begins when the page is there.
#[track_caller]
fn look(scene: &str, proxy: &Proxy, options: &[&str], meanwhile: impl FnOnce() + Send) -> Value {
    set_up();
    let mut child = Command::new(home().join("tests/sdk/run"))
        .args(["browser", "look", scene, "--url", &format!("{}/", proxy.admin())])
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = collect(child.stderr.take().unwrap());
    let (tell, told) = mpsc::channel();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let reader = thread::spawn(move || {
        lines.map_while(Result::ok).for_each(|line| drop(tell.send(line)));
    });
    let mut last = String::new();
    let status = thread::scope(|scope| {
        let mut meanwhile = Some(meanwhile);
        let deadline = std::time::Instant::now() + DEADLINE;
        while let Ok(line) =
            told.recv_timeout(deadline.saturating_duration_since(std::time::Instant::now()))
        {
            match meanwhile.take_if(|_| line == "ready") {
                Some(work) => drop(scope.spawn(work)),
                None => last = line,
            }
        }
        wait(&mut child, Duration::from_secs(60))
    });
    let _ = reader.join();
    let seen: Value = serde_json::from_str(&last)
        .unwrap_or_else(|_| panic!("{scene}: {status:?}, nothing seen\n{last}\n{}", stderr()));
    assert_eq!(seen["failed"], Value::Null, "{scene}: {seen:#}\n{}", proxy.log());
    for what in ["complaints", "outside", "axe"] {
        assert_eq!(seen[what], json!([]), "{scene}: {what}");
    }
    seen
}

fn operated(admin: &str, routes: &str) -> Proxy {
    Proxy::start(&format!("[admin]\nlisten = \"127.0.0.1:0\"\n{admin}\n{routes}"))
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

#[test]
fn a_call_is_seen_to_move_and_end_and_its_messages_are_read_by_keyboard() {
    aside(|| {
        let kuzumem = Server::start("kuzumem", &["--generation", "k5", "--pace", "400ms"]);
        let proxy = operated("", &route("/graph", "url", kuzumem.url(), ""));
        let url = proxy.url("/graph");
        let seen = look("watch", &proxy, &[], || {
            let report = visit("ts1", &["--call", "pagerank"], &["--url", &url], &[]);
            report.expect_rising();
            assert!(report.progress(0).len() >= 10, "{}", report.json);
        });
        assert!(seen["empty"].as_str().unwrap().contains(&url), "{seen:#}");
        assert_eq!(seen["line"], format!("claude mcp add --transport http graph {url}"));
        assert_eq!(seen["cursor"]["mcpServers"]["graph"]["url"], url);

        let open = texts(&seen["open"]);
        assert!(open.contains(&"pagerank") && open.contains(&"milepost-ts1 1"), "{open:?}");
        let figures = seen["figures"].as_array().unwrap().iter();
        let figures: Vec<u64> =
            figures.filter_map(|figure| figure["now"].as_str()?.parse().ok()).collect();
        assert!(figures.len() >= 2 && figures.is_sorted(), "{:#}", seen["figures"]);
        assert!(figures.first() < figures.last(), "{figures:?}");
        assert!(
            seen["figures"].to_string().contains("PageRank iteration"),
            "{:#}",
            seen["figures"]
        );

        assert_eq!((&seen["left"], &seen["followed"]), (&json!(0), &json!(true)), "{seen:#}");
        let past = texts(&seen["past"]);
        assert!(past.contains(&"pagerank") && past.contains(&"✓ result"), "{past:?}");
        assert!(!texts(&seen["chips"]).is_empty(), "{past:?}");
        assert!(texts(&seen["meanings"]).iter().all(|words| words.len() > 10), "{seen:#}");
        let said = seen["said"].as_str().unwrap();
        assert!(said.starts_with("pagerank ended after ") && said.ends_with(": result"), "{said}");
        let totals = texts(&seen["totals"]);
        assert_eq!((totals[0], totals[1], totals[3]), ("/graph", "0", "0"), "{totals:?}");
        let others = texts(&seen["others"]);
        assert!(others.contains(&"pagerank") && others.contains(&"initialize"), "{others:?}");

        assert_eq!(seen["inside"], true);
        expect_read(&seen);
        assert_eq!((&seen["closed"], &seen["back"]), (&json!(true), &json!("pagerank")));
        proxy.finish();
    });
}

/// What the page said of the messages of a call that was repaired.
#[track_caller]
fn expect_read(seen: &Value) {
    let messages = seen["messages"].as_array().unwrap();
    let kind = |message: &Value| message["kinds"][0].as_str().unwrap().to_owned();
    let of = |name: &str| {
        messages
            .iter()
            .find(|message| kind(message) == name)
            .unwrap_or_else(|| panic!("no {name}: {seen:#}"))
    };
    let request = of("request");
    assert!(request["sides"][0]["title"].as_str().unwrap().starts_with("The client sent"));
    assert!(request["sides"][0]["text"].as_str().unwrap().contains("\"name\": \"pagerank\""));
    let repaired = of("repaired");
    let [before, after] = &repaired["sides"].as_array().unwrap()[..] else {
        panic!("{repaired:#}")
    };
    assert_eq!(
        (&before["title"], &after["title"]),
        (&json!("The server sent"), &json!("The client received"))
    );
    for side in [before, after] {
        assert!(side["text"].as_str().unwrap().contains("\"method\": \""), "{repaired:#}");
        assert!(!side["marked"].as_array().unwrap().is_empty(), "{repaired:#}");
    }
    assert!(repaired["kinds"].as_array().unwrap().len() >= 2, "{repaired:#}");
    assert!(repaired["why"].as_str().unwrap().len() > 40, "{repaired:#}");
    let answer = of("answer");
    assert!(answer["sides"][0]["text"].as_str().unwrap().contains("\"result\": {"), "{answer:#}");
}

#[test]
fn names_that_are_markup_stay_text_and_calls_are_filtered() {
    const HOSTILE: &str = "<img src=x onerror=alert(1)>";
    aside(|| {
        let silent = Server::start("silent", &["--json"]);
        let proxy = operated("", &route("/silent", "url", silent.url(), ""));
        let address = proxy.url("");
        let address = address.trim_start_matches("http://");
        for tool in [HOSTILE, "</script><script>alert(2)</script>", "echo"] {
            let call = json!({
                "jsonrpc": "2.0", "id": 1, "method": "tools/call",
                "params": { "name": tool, "arguments": { "text": HOSTILE } },
            });
            let headers = [
                ("content-type", "application/json"),
                ("accept", "application/json, text/event-stream"),
                ("mcp-protocol-version", "2025-06-18"),
            ];
            let mut answer =
                Exchange::send(address, "POST", "/silent", &headers, &call.to_string());
            answer.status();
            answer.rest();
        }
        let seen = look("names", &proxy, &[], || ());
        let mut names = texts(&seen["names"]);
        names.sort_unstable();
        assert_eq!(names, ["</script><script>alert(2)</script>", HOSTILE, "echo"]);
        assert_eq!(seen["made"], 0, "{seen:#}");
        assert_eq!(texts(&seen["filtered"]), [HOSTILE]);
        assert!(seen["counted"].as_str().unwrap().contains("1 of 3"), "{seen:#}");
        assert_eq!(seen["unchanged"], json!([]), "{seen:#}");
        assert!(seen["none"].as_str().unwrap().contains("filters"), "{seen:#}");
        assert_eq!((&seen["blurred"], &seen["searches"]), (&json!(true), &json!("search")));
        assert_eq!(texts(&seen["searched"]), ["echo"]);
        for what in ["moved", "returned", "linked", "same", "opened", "followed", "closed"] {
            assert_eq!(seen[what], true, "{what}: {seen:#}");
        }
        assert!(seen["saved"].as_str().unwrap().starts_with("milepost-call-"), "{seen:#}");
        let transcript: Vec<&str> = seen["transcript"].as_str().unwrap().lines().collect();
        assert!(transcript[0].starts_with("# ") && transcript[0].contains(" at /silent for "));
        assert!(transcript.iter().any(|line| line.starts_with("> {")), "{transcript:#?}");
        assert!(transcript.iter().any(|line| line.starts_with("< {")), "{transcript:#?}");
        assert!(seen["count"].as_str().unwrap().starts_with("2 messages, "), "{seen:#}");
        assert!(seen["paused"].as_str().unwrap().starts_with("Paused at "), "{seen:#}");
        assert_eq!(seen["resumed"], "Live");
        proxy.finish();
    });
}

#[test]
fn a_lost_connection_is_told_and_made_again() {
    aside(|| {
        let silent = Server::start("silent", &[]);
        let proxy = operated("", &route("/silent", "url", silent.url(), ""));
        let seen = look("lost", &proxy, &[], || ());
        assert_eq!(seen["state"], "Not connected");
        let trouble = seen["trouble"].as_str().unwrap();
        for words in ["milepost: too many", "What you see is from ", "Trying "] {
            assert!(trouble.contains(words), "{trouble}");
        }
        assert!(seen["said"].as_str().unwrap().starts_with("Connection lost."), "{seen:#}");
        // What is known is shown for as long as nothing better is.
        assert_eq!(texts(&seen["stale"]), ["of_before"]);
        assert_eq!(seen["again"], "Live");
        proxy.finish();
    });
}

#[test]
fn messages_that_passed_are_folded_and_the_newest_is_in_sight() {
    aside(|| {
        let silent = Server::start("silent", &[]);
        let proxy = operated("", &route("/silent", "url", silent.url(), ""));
        let seen = look("messages", &proxy, &[], || ());
        assert!(texts(&seen["states"]).contains(&"Stopping, 1 call open"), "{seen:#}");
        let row = seen["row"].as_str().unwrap();
        assert!(row.contains("no figure") && row.contains("still indexing"), "{row}");
        assert_eq!(seen["count"], "60 kept of 67 messages, 1 changed, added or withheld");
        assert_eq!(seen["folds"], 59);
        assert!(texts(&seen["unfolded"]).contains(&"  \"number\": 59"), "{seen:#}");
        proxy.finish();
    });
}

#[test]
fn of_many_calls_the_failed_the_silent_and_the_longest_are_found_on_a_phone_too() {
    aside(|| {
        let silent = Server::start("silent", &[]);
        let proxy = operated("", &route("/silent", "url", silent.url(), ""));
        let seen = look("many", &proxy, &[], || ());
        assert_eq!(seen["chips"], json!(["failed 22", "silent 3"]), "{seen:#}");
        assert_eq!((&seen["folded"], &seen["more"]), (&json!([20, 200]), &json!("Show all 67")));
        let counts = ["unfolded", "silent", "failing", "all"].map(|what| &seen[what]);
        assert_eq!(
            counts,
            [[67, 200], [3, 0], [0, 22], [20, 200]].map(|count| json!(count)).each_ref()
        );
        assert_eq!((&seen["longest"], &seen["shortest"]), (&json!("tool-227"), &json!("tool-200")));
        assert!(seen["sort"].as_str().unwrap().starts_with("Took"), "{seen:#}");
        assert_eq!(seen["youngest"], "tool-066");
        assert!(seen["recent"].as_f64().unwrap() < 5000.0, "{seen:#}");
        assert_eq!(seen["routes"], json!([]), "no figure of the table of routes is cut");
        assert!(seen["header"]["title"].as_f64().unwrap() < 30.0, "{seen:#}");
        assert_eq!(seen["header"]["cut"], json!([]));
        proxy.finish();
    });
}

#[test]
fn a_token_is_asked_for_where_there_is_one() {
    aside(|| {
        let silent = Server::start("silent", &[]);
        let proxy =
            operated("bearer = \"s3cret-of-ops\"\n", &route("/silent", "url", silent.url(), ""));
        let seen = look("token", &proxy, &["--token", "s3cret-of-ops"], || ());
        assert!(seen["asked"].as_str().unwrap().contains("asks for a token"), "{seen:#}");
        assert_eq!((&seen["focus"], &seen["hidden"]), (&json!("token"), &json!(true)));
        assert_eq!(seen["refused"], 2, "{seen:#}");
        assert_eq!(seen["kept"], json!([1, 0, ""]), "{seen:#}");
        proxy.finish();
    });
}

#[test]
fn a_link_with_the_token_opens_the_page() {
    aside(|| {
        let silent = Server::start("silent", &[]);
        let proxy =
            operated("bearer = \"s3cret-of-ops\"\n", &route("/silent", "url", silent.url(), ""));
        let seen = look("link", &proxy, &["--token", "s3cret-of-ops"], || ());
        // In a tab that waits for the token, in a new one, and after a reload.
        assert_eq!(seen["states"], json!(["Live", "Live", "Live"]), "{seen:#}");
        assert_eq!(seen["addresses"], json!(["/", "/", "/"]), "{seen:#}");
        assert_eq!(seen["refused"], 1, "{seen:#}");
        proxy.finish();
    });
}

/// A picture for `docs/watching.md`, with `UPDATE_EXPECT`; it is different each time.
#[test]
fn the_picture_in_the_documentation() {
    let path = home().join("docs/live-page.png");
    if env::var_os("UPDATE_EXPECT").is_some() {
        aside(|| take_picture(path.to_str().unwrap()));
    }
    let picture = fs::read(path).unwrap();
    assert!(picture.starts_with(b"\x89PNG") && picture.len() < 200_000, "{}", picture.len());
}

fn take_picture(path: &str) {
    let servers = [
        ("/graph", Server::start("kuzumem", &["--generation", "k5", "--pace", "1800ms"])),
        ("/memory", Server::start("kuzumem", &["--generation", "k5", "--pace", "150ms"])),
        ("/agents", Server::start("plexus", &["--variant", "p0", "--pace", "150ms"])),
        ("/shell", Server::start("swissarmyhammer", &["--generation", "s2", "--pace", "100ms"])),
        ("/reports", Server::start("silent", &["--json", "--sessions"])),
    ];
    let steps = Upstream::start("ts1", &[]);
    let beats = "heartbeat = { after = \"2s\", every = \"2s\" }";
    let mut routes: Vec<_> =
        servers.iter().map(|(path, server)| route(path, "url", server.url(), beats)).collect();
    routes.push(route("/builds", "url", steps.url(), beats));
    let proxy = operated("", &routes.concat());
    let calls = [
        ("ts1", "/memory", "pagerank", ""),
        ("ts2", "/agents", "claudecode.chat", ""),
        ("py2", "/shell", "code_context", ""),
        ("ts1", "/memory", "no-such-tool", ""),
        ("ts2", "/reports", r#"sleep={"seconds":45}"#, ""),
        ("rmcp", "/graph", "pagerank", ""),
        ("py2", "/builds", r#"steps={"count":60,"ms":600,"total":60}"#, ""),
        ("ts1", "/reports", r#"sleep={"seconds":40}"#, "--no-progress"),
        ("ts2", "/builds", r#"steps={"count":400,"ms":90}"#, ""),
    ];
    look("picture", &proxy, &["--picture", path], || {
        for_each(calls, |(client, path, call, option)| {
            let options = ["--call", call, option];
            let options = if option.is_empty() { &options[..2] } else { &options };
            visit(client, options, &["--url", &proxy.url(path)], &[]);
        });
    });
    proxy.finish();
}

#[test]
fn the_page_of_a_recording_runs_its_own_script_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let (file, to) = (folder.path().join("a.transcript"), folder.path().join("a.html"));
    let script =
        "<script>document.title='broken'</script><img src=x onerror=document.title='broken'>";
    let call = format!(
        "> {{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{{\"name\":\"{script}\"}}}}\n"
    );
    fs::write(&file, call).unwrap();
    let exported = milepost().arg("export").arg(&file).arg("-o").arg(&to).status().unwrap();
    assert!(exported.success());
    let chromium = env::var("MILEPOST_CHROMIUM").unwrap_or_else(|_| "/usr/bin/chromium".to_owned());
    let shown = Command::new(chromium)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        .arg(format!("file://{}", to.display()))
        .output()
        .unwrap();
    let page = String::from_utf8(shown.stdout).unwrap();
    // The script shows the search, which needs it.
    assert!(page.contains("<div class=\"tools\">"), "{page}");
    assert!(page.contains("<title>a.transcript</title>") && !page.contains("<img"), "{page}");
}
